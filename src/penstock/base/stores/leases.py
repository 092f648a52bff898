"""Leases: which member of a run does a task. A claim is a file that only one can create; its holder touches it, and
one that was not touched for its time may be taken over under the next generation.

Ages are measured with the clock of the storage: machines may disagree by hours. A wrong lease costs work that is done
twice, never bytes: two attempts of a task write the same.
"""

import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.base.faults import crash_point
from penstock.base.files import doing
from penstock.base.stores.shared import LEASES, SharedStore

_CLOCK = ".clock"
_CLOCK_SECONDS = 1.0  # for which the storage's clock is told from ours


@dataclass
class Leases:
    """The claims of one member. `seconds`: how long a claim of its lasts without a sign of life."""

    store: SharedStore
    seconds: float
    _held: dict[str, int] = field(default_factory=dict)  # generation by name
    _lost: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clock: tuple[float, float] = (0.0, -1e9)  # the storage's, and ours then

    @property
    def _folder(self) -> str:
        return os.path.join(self.store.run_path, LEASES)

    def _path(self, name: str, generation: int) -> str:
        return os.path.join(self._folder, f"{name}.{generation}")

    def latest(self) -> dict[str, int]:
        """The latest generation of every claim."""
        found: dict[str, int] = {}
        with doing("list", self._folder, "list"):
            names = os.listdir(self._folder)
        for each in names:
            name, _, generation = each.rpartition(".")
            if generation.isdecimal():
                found[name] = max(int(generation), found.get(name, 0))
        return found

    def claim(self, name: str, latest: int = 0) -> bool:
        """Whether this member holds it now. `latest` is the generation that has expired."""
        path = self._path(name, latest + 1)
        with doing("claim", path, "open"):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                return False
        try:
            os.write(descriptor, json.dumps({"member": self.store.member, "seconds": self.seconds}).encode())
        finally:
            os.close(descriptor)
        with self._lock:
            self._held[name] = latest + 1
            self._lost.discard(name)
        crash_point("lease.after_claim")
        return True

    def is_expired(self, name: str, generation: int) -> bool:
        """Whether its holder has shown no life for the time that the claim itself names."""
        path = self._path(name, generation)
        try:
            with open(path, "rb") as file:  # opened, or a network file system would answer from its memory
                facts, touched = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:  # given back
            return False
        seconds = self.seconds
        with suppress(ValueError, TypeError, KeyError):  # its holder died before it had written that
            seconds = float(json.loads(facts)["seconds"])
        return self.now() - touched > seconds

    def are_held(self) -> bool:
        """Whether any holder of a claim, of this member or another, shows life."""
        return any(not self.is_expired(name, generation) for name, generation in self.latest().items())

    def now(self) -> float:
        """The storage's time: that of a file which is touched there."""
        storage, ours = self._clock
        if time.monotonic() - ours > _CLOCK_SECONDS:
            path = os.path.join(self._folder, f"{self.store.member}{_CLOCK}")
            with doing("touch", path, "write"):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    os.utime(descriptor)
                    storage, ours = os.fstat(descriptor).st_mtime, time.monotonic()
                finally:
                    os.close(descriptor)
            self._clock = storage, ours
        return storage + time.monotonic() - ours

    def renew(self) -> None:
        """Show life. Claims that another has taken over, or that are gone, are lost."""
        with self._lock:
            held = dict(self._held)
        for name, generation in held.items():
            try:
                is_ours = not os.path.exists(self._path(name, generation + 1))
                if is_ours:
                    os.utime(self._path(name, generation))
            except OSError:
                is_ours = False
            if not is_ours:
                with self._lock:
                    if self._held.get(name) == generation:
                        del self._held[name]
                        self._lost.add(name)

    def take_lost(self) -> set[str]:
        """Names of the claims that were lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, set()
        return lost

    def settle(self, name: str) -> None:
        """Forget a claim whose work is done: the ledger says so, to whoever might claim it again."""
        with self._lock:
            generation = self._held.pop(name, 0)
        for each in range(generation, 0, -1):
            with suppress(OSError):  # the run is over
                os.unlink(self._path(name, each))

    def give_back(self) -> None:
        """Let others have, at once, what this member holds. The claims stay, as old as can be: a generation is never
        given twice."""
        with self._lock:
            held, self._held = self._held, {}
        for name, generation in held.items():
            with suppress(OSError):  # the run is over
                os.utime(self._path(name, generation), (0, 0))


class Renewing:
    """`with Renewing(leases):` a thread shows life three times in the time of a claim."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._leases.give_back()

    def _renew(self) -> None:
        while not self._over.wait(self._leases.seconds / 3):
            self._leases.renew()
