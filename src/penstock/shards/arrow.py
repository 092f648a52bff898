"""Arrow: imports pyarrow on first use. Reading a dataset as numpy does not need it."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # asked for by whoever looks through all modules
        raise AttributeError(name)
    import pyarrow

    if name == "compute":
        import pyarrow.compute
    globals()[name] = getattr(pyarrow, name)  # from now on it is found without this function
    return globals()[name]
