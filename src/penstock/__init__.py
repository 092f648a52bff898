"""penstock: prepare datasets larger than memory inside a memory budget, and feed accelerators from them.

The public door. Nothing heavy is imported until it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.loader.load import load as load
    from penstock.loader.tokens.decode import decode as decode
    from penstock.prepare.entry import plan as plan
    from penstock.prepare.entry import run as run
    from penstock.prepare.job.config import Config as Config
    from penstock.prepare.stages.stage import stage as stage
    from penstock.shards.dataset import open_dataset as open
    from penstock.shards.verify import verify as verify

__version__ = "0.1.0"
__all__ = ["Config", "decode", "load", "open", "plan", "run", "stage", "verify"]

_DOOR = {
    "Config": ("penstock.prepare.job.config", "Config"),
    "decode": ("penstock.loader.tokens.decode", "decode"),
    "load": ("penstock.loader.load", "load"),
    "open": ("penstock.shards.dataset", "open_dataset"),
    "plan": ("penstock.prepare.entry", "plan"),
    "run": ("penstock.prepare.entry", "run"),
    "stage": ("penstock.prepare.stages.stage", "stage"),
    "verify": ("penstock.shards.verify", "verify"),
}


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"penstock has no {name!r}; it has {', '.join(__all__)}")
    import importlib

    module, attribute = _DOOR[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
