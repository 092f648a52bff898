"""Prices: Modal's prices in US dollars -> the cost of a container. docs/how-to/modal.md names the source.

Check them for every release: nothing tells us when they change.
"""

from dataclasses import dataclass

AS_OF = "July 2026"
CORE_SECOND = 0.0000131  # one physical core, which is two virtual ones
GIB_SECOND = 0.00000222
DISK_PER_MEMORY = 20  # disk beyond what every container has is charged as a twentieth of it in memory
GIB = 1 << 30


@dataclass(frozen=True)
class Cost:
    """Dollars of a container that runs for some seconds. Requests are charged whether they are used or not."""

    cores: int
    memory_bytes: int
    disk_bytes: int = 0

    def dollars(self, seconds: float) -> float:
        memory = max(self.memory_bytes, self.disk_bytes / DISK_PER_MEMORY) / GIB
        return seconds * (self.cores * CORE_SECOND + memory * GIB_SECOND)
