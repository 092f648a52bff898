"""Leases: which member of a run does a task. A claim is a file that only one member can create. Its holder touches it
again and again. If it does not, the claim expires, and another member creates the next generation.

Ages are measured with the clock of the storage: clocks of machines may differ by hours. A claim that was taken over too
early costs time, never bytes: two attempts of a task write the same.
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
_CLOCK_SECONDS = 1.0  # between two looks at the storage's clock; ours counts the time since


@dataclass
class Leases:
    """The claims of one member. They expire after `seconds` without a sign of life."""

    store: SharedStore
    seconds: float
    _held: dict[str, int] = field(default_factory=dict)  # generation by name
    _lost: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clock: tuple[float, float] = (0.0, -1e9)  # the storage's time, and ours at the same moment

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
        """Try to claim; returns whether this member holds it now. `latest` is the generation that has expired."""
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
        """Whether its holder has not touched the claim for the time that is written in it."""
        path = self._path(name, generation)
        try:
            with open(path, "rb") as file:  # without opening, a network file system may answer from its cache
                facts, touched = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:  # given back
            return False
        seconds = self.seconds
        with suppress(ValueError, TypeError, KeyError):  # its holder died before it wrote them
            seconds = float(json.loads(facts)["seconds"])
        return self.now() - touched > seconds

    def are_held(self) -> bool:
        """Whether any holder of a claim, of this member or another, shows life."""
        return any(not self.is_expired(name, generation) for name, generation in self.latest().items())

    def now(self) -> float:
        """The storage's time, read from a file that is touched there."""
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

    def clock_ahead(self) -> float:
        """Seconds that this machine's clock is ahead of the storage's."""
        return time.time() - self.now()

    def renew(self) -> None:
        """Touch all claims. Those that another member has taken over, or that are gone, are lost."""
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
        """Remove a claim whose task is done. The ledger keeps others from doing it again."""
        with self._lock:
            generation = self._held.pop(name, 0)
        for each in range(generation, 0, -1):
            with suppress(OSError):  # the run is over
                os.unlink(self._path(name, each))

    def give_back(self) -> None:
        """Let others take all claims of this member at once. The files stay, with the time 0, so that no generation is
        used twice."""
        with self._lock:
            held, self._held = self._held, {}
        for name, generation in held.items():
            with suppress(OSError):  # the run is over
                os.utime(self._path(name, generation), (0, 0))


class Renewing:
    """`with Renewing(leases):` a thread touches the claims three times before they would expire."""

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
