"""Names of splits: which words may be one."""

from penstock.base.errors import ConfigError

TRAIN = "train"
_TAKEN = (TRAIN, "by", "by_time", "seed", "artifacts", "rejected")


def refuse_name(name: str) -> None:
    """Raise ConfigError for a name that is taken, or that cannot be the name of a folder."""
    if name in _TAKEN:
        means = "all other rows" if name == TRAIN else "something else"
        raise ConfigError(f"{name!r} cannot be a split's name: the word stands for {means}")
    if not name.isidentifier():
        raise ConfigError(
            f"{name!r} cannot be a split's name", next_step="use letters, digits and _, such as val or test_2024"
        )
