"""Do the ArrayRecord files of an events run hold exactly the events of the input, grouped by key and ordered by time?

    python benchmarks/check_event_records.py --input 'data/*.parquet' --output out

A plain pyarrow sort of everything in memory is the judge: for the smaller sizes only. Exit 1 and the difference if not.
"""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python.array_record_module import ArrayRecordReader

sys.path.insert(0, str(Path(__file__).parent / "baselines"))
from events_record import MAX_RECORD_BYTES, MEASUREMENT, decode_record, source_id

# Ties in time have no order of their own: compare them by what else they hold.
WHOLE_ORDER = [(name, "ascending") for name in ("src_addr", "event_time", "dst_addr", "rtt")]


def read_records(path: Path) -> Iterator[bytes]:
    reader = ArrayRecordReader(str(path))
    if not reader.ok():
        raise SystemExit(f"{path} is damaged")
    for number in range(reader.num_records()):
        yield reader.read(number, number + 1)[0]


def faults_of_record(encoded: bytes) -> tuple[pa.Table, list[str]]:
    facts, rows = decode_record(encoded)
    times = rows["event_time"].cast(pa.int64()).to_numpy()
    addresses = rows["src_addr"].unique().to_pylist()
    claims = {
        "one key": len(addresses) == 1,
        "schema": rows.schema == MEASUREMENT,
        "src_id": facts["src_id"] == source_id(addresses[0]),
        "n_measurements": facts["n_measurements"] == rows.num_rows,
        "order of time": bool((np.diff(times) >= 0).all()),
        "first_timestamp": facts["first_timestamp"] == rows["event_time"][0].as_py(),
        "last_timestamp": facts["last_timestamp"] == rows["event_time"][-1].as_py(),
        "time_span_seconds": abs(facts["time_span_seconds"] - (times[-1] - times[0]) / 1e6) < 1e-6,
        "size": len(encoded) <= MAX_RECORD_BYTES + 4096,
    }
    return rows, [f"{addresses[0]}: {name}" for name, holds in claims.items() if not holds]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", required=True)
    options.add_argument("--output", required=True, help="the folder with train.arrayrecord and test.arrayrecord")
    given = options.parse_args()
    faults: list[str] = []
    tables: list[pa.Table] = []
    keys: dict[str, set[str]] = {}
    for split in ("train", "test"):
        keys[split] = set()
        for encoded in read_records(Path(given.output) / f"{split}.arrayrecord"):
            rows, found = faults_of_record(encoded)
            tables.append(rows)
            faults += found
            keys[split].add(rows["src_addr"][0].as_py())
    if both := keys["train"] & keys["test"]:
        faults.append(f"{len(both)} keys are in train and in test")
    held = pa.concat_tables(tables).combine_chunks().sort_by(WHOLE_ORDER)
    files = [pq.read_table(path, columns=MEASUREMENT.names) for path in sorted(glob.glob(given.input))]
    expected = pa.concat_tables(files).combine_chunks().sort_by(WHOLE_ORDER)
    if not held.equals(expected):
        faults.append(f"{held.num_rows:,} events held, {expected.num_rows:,} in the input, and they are not the same")
    counts = ", ".join(f"{len(found):,} {split} keys" for split, found in keys.items())
    print(f"{len(tables):,} records, {held.num_rows:,} events, {counts}; {len(faults)} faults")
    print("\n".join(faults[:20]), end="\n" if faults else "")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
