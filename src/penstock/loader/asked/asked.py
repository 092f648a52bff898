"""Asked: open datasets and the options of load(), from which a kind of data is chosen and made. Used by kinds/."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.loader.asked.opening import Opened
from penstock.loader.tables import Shard
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class Asked:
    opened: tuple[Opened, ...]
    options: Mapping[str, Any]  # of load(), by name
    budget: Budget
    larger_than_memory: bool

    @property
    def is_old(self) -> bool:
        """Whether the datasets are .arrayrecord files, which have no columns."""
        return self.opened[0].old is not None

    @property
    def schema(self) -> Schema:
        return self.opened[0].schema

    @property
    def where(self) -> str:
        return self.opened[0].path

    @property
    def shards(self) -> Sequence[Sequence[Shard]]:
        """Shards of each dataset."""
        return [each.shards for each in self.opened]

    def refuse_unused(self, loaded: str, unused: Mapping[str, str]) -> None:
        """Refuse options, by name and with their subject, that were given and mean nothing for this kind of data."""
        for name, about in unused.items():
            if (given := self.options[name]) is not None and (name, given) != ("mix_by", "examples"):
                raise ConfigError(
                    f"{name}={given!r} is about {about}, and this dataset is loaded as {loaded}",
                    where=self.where,
                    next_step=f"leave {name}= out",
                )
