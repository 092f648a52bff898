"""Facts: a finished dataset -> everything that its report shows, as one JSON document. Next: sections.py."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import yaml

from penstock.base.errors import OutputError
from penstock.base.sizes import counted
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.shards.dataset import is_bare, older_files
from penstock.shards.manifest import Manifest, read_manifest
from penstock.show.contents.dataset_facts import dataset_facts
from penstock.show.contents.unfinished import unfinished_facts
from penstock.show.report.gathering.distributions import distributions
from penstock.show.report.gathering.history import history
from penstock.show.report.gathering.rejected import rejected_examples

Facts = dict[str, Any]


def open_finished(path: str | os.PathLike[str]) -> tuple[Store, Manifest]:
    """The dataset, whose manifest tells how it was made. An unfinished one is refused."""
    place = os.fspath(path)
    if is_bare(place) or older_files(place):
        raise OutputError(
            "these are .arrayrecord files without a manifest: it is unknown how they were made",
            where=place,
            next_step=f"penstock inspect {place}",
        )
    store = open_store(place)
    _refuse_unfinished(store)
    return store, read_manifest(store)


def report_facts(store: Store, manifest: Manifest) -> Facts:
    """Facts of the dataset, of the run that made it, and of its records."""
    facts = dataset_facts(store, manifest)
    return {
        **{name: facts[name] for name in ("dataset", "output", "format", "input", "splits", "bytes", "schema")},
        **{name: facts[name] for name in ("account", "tokens", "groups", "batches")},
        "job": manifest.job,
        "run": history(store),
        "distributions": distributions(store, manifest),
        "rejected": rejected_examples(store, manifest),
        "configuration": _configuration(manifest),
        "files": [asdict(file) for file in manifest.files],
    }


def _refuse_unfinished(store: Store) -> None:
    unfinished = unfinished_facts(store)
    if unfinished is None:
        return
    done = f"{unfinished['tasks_done']:,}"
    tasks = f"{done} of {counted(unfinished['tasks'], 'task')}" if unfinished["tasks"] else f"{done} tasks"
    raise OutputError(
        f"this dataset is not finished: {tasks} are done, and a report needs all",
        where=store.root,
        next_step="run its job again, it resumes where it stopped; then make the report",
    )


def _configuration(manifest: Manifest) -> str:
    """The job as YAML: all that decides a byte, defaults included."""
    return str(yaml.safe_dump(manifest.config, sort_keys=False, allow_unicode=True, width=100))
