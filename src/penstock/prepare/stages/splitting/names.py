"""Names of splits: which words may be one."""

from penstock.base.errors import ConfigError

TRAIN = "train"
_TAKEN = (TRAIN, "by", "by_time", "seed", "artifacts", "rejected")


def refuse_name(name: str) -> None:
    """Raise ConfigError for a name that is taken, or that cannot be the name of a folder."""
    if not name.isidentifier() or name in _TAKEN:
        raise ConfigError(f"{name!r} cannot be a split's name; {TRAIN!r} is reserved for all other rows")
