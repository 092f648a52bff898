"""penstock: prepare datasets larger than memory inside a memory budget, and feed accelerators from them.

The public door: jobs (`plan`, `run`, `merge`), datasets (`open`, `verify`, `inspect`, `report`, `export`), batches
(`load`, `decode`, `block_mask`), samples and stages of your own (`Batch`, `stage`, `Stage`, `Rows`), what these return
(`Manifest`, `Stats`, ...), what a run tells an observer (`Event`, `events`), and the errors that they raise. Nothing
heavy is imported until it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.base import events as events
    from penstock.base.errors import ConfigError as ConfigError
    from penstock.base.errors import FileError as FileError
    from penstock.base.errors import InputError as InputError
    from penstock.base.errors import IntegrityError as IntegrityError
    from penstock.base.errors import Interrupted as Interrupted
    from penstock.base.errors import OutputError as OutputError
    from penstock.base.errors import PenstockError as PenstockError
    from penstock.base.errors import PlanError as PlanError
    from penstock.base.errors import TaskError as TaskError
    from penstock.base.events import Event as Event
    from penstock.loader.consumers.block_mask import block_mask as block_mask
    from penstock.loader.feeding.stats import Stats as Stats
    from penstock.loader.load import load as load
    from penstock.loader.loader import Loader as Loader
    from penstock.loader.tokens.decode import decode as decode
    from penstock.loader.tokens.vocabulary import Vocabulary as Vocabulary
    from penstock.prepare.entry import plan as plan
    from penstock.prepare.job.config import Config as Config
    from penstock.prepare.plan.plan import Plan as Plan
    from penstock.prepare.rows.rows import Rows as Rows
    from penstock.prepare.samples.batch import Batch as Batch
    from penstock.prepare.stages.stage import Stage as Stage
    from penstock.prepare.stages.stage import stage as stage
    from penstock.shards.dataset import Dataset as Dataset
    from penstock.shards.dataset import open_dataset
    from penstock.shards.foreign.export import Exported as Exported
    from penstock.shards.foreign.exporting import export as export
    from penstock.shards.manifest import Manifest as Manifest
    from penstock.shards.verify import Verification as Verification
    from penstock.shards.verify import verify as verify
    from penstock.show.contents.inspect import inspect_facts
    from penstock.show.report.writing import report as report
    from penstock.show.running.watched import merge as merge
    from penstock.show.running.watched import run as run

    # Under another name, an import alone is not exported.
    inspect, open = inspect_facts, open_dataset

__version__ = "0.2.0"
_DOOR = {
    "Batch": ("penstock.prepare.samples.batch", "Batch"),
    "Config": ("penstock.prepare.job.config", "Config"),
    "ConfigError": ("penstock.base.errors", "ConfigError"),
    "Dataset": ("penstock.shards.dataset", "Dataset"),
    "Event": ("penstock.base.events", "Event"),
    "Exported": ("penstock.shards.foreign.export", "Exported"),
    "FileError": ("penstock.base.errors", "FileError"),
    "InputError": ("penstock.base.errors", "InputError"),
    "IntegrityError": ("penstock.base.errors", "IntegrityError"),
    "Interrupted": ("penstock.base.errors", "Interrupted"),
    "Loader": ("penstock.loader.loader", "Loader"),
    "Manifest": ("penstock.shards.manifest", "Manifest"),
    "OutputError": ("penstock.base.errors", "OutputError"),
    "PenstockError": ("penstock.base.errors", "PenstockError"),
    "Plan": ("penstock.prepare.plan.plan", "Plan"),
    "PlanError": ("penstock.base.errors", "PlanError"),
    "Rows": ("penstock.prepare.rows.rows", "Rows"),
    "Stage": ("penstock.prepare.stages.stage", "Stage"),
    "Stats": ("penstock.loader.feeding.stats", "Stats"),
    "TaskError": ("penstock.base.errors", "TaskError"),
    "Verification": ("penstock.shards.verify", "Verification"),
    "Vocabulary": ("penstock.loader.tokens.vocabulary", "Vocabulary"),
    "block_mask": ("penstock.loader.consumers.block_mask", "block_mask"),
    "decode": ("penstock.loader.tokens.decode", "decode"),
    "events": ("penstock.base.events", ""),  # the module
    "export": ("penstock.shards.foreign.exporting", "export"),
    "inspect": ("penstock.show.contents.inspect", "inspect_facts"),
    "load": ("penstock.loader.load", "load"),
    "merge": ("penstock.show.running.watched", "merge"),
    "open": ("penstock.shards.dataset", "open_dataset"),
    "plan": ("penstock.prepare.entry", "plan"),
    "report": ("penstock.show.report.writing", "report"),
    "run": ("penstock.show.running.watched", "run"),
    "stage": ("penstock.prepare.stages.stage", "stage"),
    "verify": ("penstock.shards.verify", "verify"),
}
__all__ = [*_DOOR]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"penstock has no {name!r}; it has {', '.join(__all__)}")
    import importlib

    from penstock.base.processes.imports import uncollected

    module, attribute = _DOOR[name]
    with uncollected():
        found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
