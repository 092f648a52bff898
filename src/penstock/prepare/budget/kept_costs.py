"""Kept costs: the measured costs of a job's tasks, kept with its output for the next run of the same job.

They are used again only after a run that ended by itself and tried no task twice: a run that was killed may have been
killed for memory. Nothing here decides a byte.
"""

import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base import machine
from penstock.base.fingerprint import digest
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.prepare.budget.costs import Growth, Measured, Measurement

COSTS = f"{STATE}/costs.json"


def encode_costs(measured: Measured) -> bytes:
    facts = asdict(replace(measured, remembered=False))
    return json.dumps({**facts, "digest": _digest(facts)}, indent=1).encode() + b"\n"


def decode_costs(data: bytes) -> Measured | None:
    """None if the file is damaged, of another version, or says that its costs are not to be trusted."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        known = json.loads(data)
        if known.pop("digest") != _digest(known):
            return None
        growth = known["growth"] and Growth(**{**known["growth"], "exponents": tuple(known["growth"]["exponents"])})
        costs = {word: Measurement(**cost) for word, cost in known["costs"].items()}
        return Measured(**{**known, "costs": costs, "growth": growth, "remembered": True})
    return None


def _digest(facts: dict[str, Any]) -> str:
    return digest(json.dumps(facts, sort_keys=True).encode())


def recall_costs(output: str, name: str) -> Measured | None:
    """The costs in this output, if it is they that have this name."""
    store = open_store(output)
    measured = decode_costs(store.read(COSTS)) if store.exists(COSTS) else None
    return measured if measured and measured.name == name else None


def here() -> list[Any]:
    """What costs depend on beside the job: this machine since it was started, and versions."""
    versions = [sys.modules["penstock"].__version__, np.__version__, pa.__version__]
    return [machine.describe(), machine.processor(), machine.boot_id(), versions]


@dataclass
class KeptCosts:
    """The costs of a plan, while it is run."""

    store: Store
    measured: Measured
    is_right: bool = True  # no task was tried again

    def begin(self) -> None:
        """New costs are kept at once, and remembered ones taken away: a run that is killed does not give them back."""
        if self.measured.remembered:
            self._forget()
        elif self.measured.name:
            self._keep()

    def doubt(self) -> None:
        """A task is tried again: it took more than was measured, or nobody knows what it took."""
        if self.is_right and self.measured.name:
            self._forget()
        self.is_right = False

    def end(self) -> None:
        if self.is_right and self.measured.remembered:
            self._keep()

    def _keep(self) -> None:
        self.store.commit_bytes(COSTS, encode_costs(self.measured))

    def _forget(self) -> None:
        self.store.commit_bytes(COSTS, b"{}\n")
