"""Manifest: what a finished dataset holds. Written last, read first; its presence means "done".

It depends on input and config alone: no times, paths, versions or worker counts (those are in run.json), so two
machines that prepare the same job have equal manifests, and the xxh3 of the file is the dataset's name.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.shown import Shown
from penstock.base.stores.store import STATE, Store
from penstock.shards.columns import FileFacts, damaged_file
from penstock.shards.schema import FeatureNames, Field, Schema

MANIFEST = "manifest.json"
FORMAT_VERSION = 2


@dataclass(frozen=True)
class ShardFacts:
    """One shard: its name without suffix, its records, its files."""

    name: str
    records: int
    files: tuple[FileFacts, ...]


@dataclass(frozen=True)
class Step:
    """One line of the account: `taken` = `given` + everything set aside, in `unit`."""

    step: str
    unit: str
    taken: int
    given: int
    set_aside: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)  # what became of the given, where it is something else

    @property
    def passed_on(self) -> int:
        """Units that the next step takes."""
        return sum(self.made.values()) if self.made else self.given

    @property
    def balances(self) -> bool:
        return self.taken == self.given + sum(self.set_aside.values())


@dataclass(frozen=True, repr=False)
class Manifest(Shown):
    """A finished dataset: its splits, columns and files, where every row went, and what it was made from.

    `penstock.run` returns it; `penstock.open(path).manifest` reads it.

    Attributes:
        config: The job as it was done, with every default that decides bytes.
        input: What was read: the sources, and the fingerprint of every file.
        schema: The columns in order, each with `name` and `type`.
        splits: The shards of each split, each with `name`, `records` and `files`.
        account: The steps of the job, each with `step`, `unit`, `taken`, `given` and `set_aside`, which has the number
            of rows by reason. In every step, taken = given + set aside.
        artifacts: Files with what was measured or learned, such as means or a tokenizer. A file has `file`, `bytes` and
            `digest`.
        rejected: Files with the rows that were set aside.
        job: Fingerprint of the job, its input and its code: what the dataset was made from.
        tokens: The account in tokens, if documents were tokenized.
        feature_names: Names of the places in an array, by column, if the input has them.
    """

    config: dict[str, Any]
    input: dict[str, Any]
    schema: Schema
    splits: dict[str, tuple[ShardFacts, ...]]
    account: tuple[Step, ...]
    artifacts: tuple[FileFacts, ...]
    rejected: tuple[FileFacts, ...]
    job: str
    tokens: tuple[Step, ...] = ()
    feature_names: FeatureNames = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        aside = [f"{sum(step.set_aside.values()):,} by {step.step}" for step in self.account if step.set_aside]
        return {
            "records": ", ".join(f"{self.records(split):,} in {split}" for split in self.splits),
            "columns": ", ".join(field.name for field in self.schema),
            "set aside": ", ".join(aside) or "none",
            "made from": self.job,
        }

    def records(self, split: str) -> int:
        """Number of records.

        Args:
            split: Name of a split, such as "train".
        """
        return sum(shard.records for shard in self.splits[split])

    @property
    def kept(self) -> tuple[str, ...]:
        """Columns that the `pack` stage kept beside the tokens, each with one value per token."""
        stages: list[dict[str, Any]] = self.config.get("stages") or [{}]
        return tuple(stages[-1].get("pack", {}).get("keep", ()))

    @property
    def is_one_stream(self) -> bool:
        """Whether its rows were cut from one stream, so that a document goes on in the next row."""
        stages: list[dict[str, Any]] = self.config.get("stages") or [{}]
        return bool(stages[-1].get("pack", {}).get("method") == "wrapped")

    @property
    def files(self) -> list[FileFacts]:
        """Every file of the dataset except the manifest itself."""
        shards = [file for shards in self.splits.values() for shard in shards for file in shard.files]
        return [*shards, *self.artifacts, *self.rejected]


def encode_manifest(manifest: Manifest) -> bytes:
    body = {"format": "penstock", "format_version": FORMAT_VERSION, **asdict(manifest)}
    for name in ("tokens", "feature_names"):
        if not body[name]:
            del body[name]
    return json.dumps({**body, "digest": fingerprint(body)}, indent=1, ensure_ascii=False).encode() + b"\n"


def decode_manifest(data: bytes, where: str) -> Manifest:
    try:
        body = json.loads(data)
        version, written = body["format_version"], body.pop("digest")
        intact = fingerprint(body) == written
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(f"cannot be read ({error})", where) from error
    if not intact:
        raise _damaged(f"(format version {version}) is not what was written: its digest does not fit its text", where)
    if version != FORMAT_VERSION:
        raise OutputError(
            f"this dataset has format version {version}, this penstock reads version {FORMAT_VERSION}",
            where=where,
            next_step="prepare it again with `penstock run --redo`, or install the penstock that wrote it",
        )
    try:
        manifest = _from_body(body)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(f"lacks or misspells {error}", where) from error
    if encode_manifest(manifest) != data:
        raise _damaged("is not what was written: the same facts in another spelling", where)
    return manifest


def _damaged(reason: str, where: str) -> IntegrityError:
    return IntegrityError(
        f"{MANIFEST} {reason}",
        where=f"{where} (one block, the whole file)",
        next_step="delete it and run the job again: finished tasks are kept and a new manifest is written",
    )


def _from_body(body: dict[str, Any]) -> Manifest:
    return Manifest(
        config=body["config"],
        input=body["input"],
        schema=tuple(Field(**each) for each in body["schema"]),
        splits={split: tuple(map(shard_from_dict, shards)) for split, shards in body["splits"].items()},
        account=tuple(Step(**each) for each in body["account"]),
        artifacts=tuple(FileFacts(**each) for each in body["artifacts"]),
        rejected=tuple(FileFacts(**each) for each in body["rejected"]),
        job=body["job"],
        tokens=tuple(Step(**each) for each in body.get("tokens", ())),
        feature_names=body.get("feature_names", {}),
    )


def shard_from_dict(shard: dict[str, Any]) -> ShardFacts:
    return ShardFacts(shard["name"], shard["records"], tuple(FileFacts(**each) for each in shard["files"]))


def write_manifest(store: Store, manifest: Manifest) -> None:
    store.commit_bytes(MANIFEST, encode_manifest(manifest))


def read_manifest(store: Store) -> Manifest:
    if not store.exists(MANIFEST):
        unfinished = store.exists(STATE)
        raise OutputError(
            "this dataset is not finished: it has no manifest.json" if unfinished else "there is no dataset here",
            where=store.root,
            next_step="run its job again: it resumes where it stopped"
            if unfinished
            else "give the folder that `penstock run` wrote (its `output:`)",
        )
    return decode_manifest(store.read(MANIFEST), store.where(MANIFEST))


def dataset_id(store: Store) -> str:
    return digest(store.read(MANIFEST))


def read_artifact(store: Store, manifest: Manifest, name: str) -> bytes | None:
    """None where the job left no such file."""
    found = [file for file in manifest.artifacts if file.file == name]
    if not found:
        return None
    data = store.read(name) if store.exists(name) else b""
    if digest(data) != found[0].digest:
        raise damaged_file(name, "is not the file that was written")
    return data


def stage_artifacts(store: Store, manifest: Manifest, stage: str) -> dict[str, Any]:
    """Artifacts of all stages of a name, by column. If two are about one column, the later one counts."""
    named, found = re.compile(rf"artifacts/{re.escape(stage)}(-\d+)?\.json"), dict[str, Any]()
    for file in manifest.artifacts:
        if named.fullmatch(file.file):
            found |= json.loads(read_artifact(store, manifest, file.file) or b"{}")
    return found
