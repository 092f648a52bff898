"""The user's own code of the golden jobs."""

import numpy as np
import pyarrow.compute as pc


def samples(path):
    for number, line in enumerate(path.read_text().splitlines()):
        first, second = map(int, line.split())
        yield {"features": np.arange(4, dtype="f4") * first + number, "labels": {"next": second}, "game": path.stem}


def of_rows(batch):
    for row in batch.to_pylist():
        yield {"time": row["time"], "size": len(row["key"])}


def doubled(batch):
    return batch.set_column(1, "time", pc.multiply(batch.column("time"), 2))
