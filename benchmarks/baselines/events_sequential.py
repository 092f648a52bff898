"""The older system's sequential way: list the keys, then one DuckDB query a key, ordered by time, into ArrayRecord.

    python benchmarks/baselines/events_sequential.py --input 'data/*.parquet' --output out

One process, the queries over the Parquet files themselves. The first 90% of the keys in order of text are train.
`--rows python` (Python dicts) stands for the described system; `--rows arrow` keeps the answers in Arrow.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
from array_record.python.array_record_module import ArrayRecordWriter
from events_record import MEASUREMENT, WRITER_OPTIONS, records_of_batch, records_of_dicts

TRAIN_SHARE = 0.9
ONE_KEY = f"SELECT {', '.join(MEASUREMENT.names)} FROM events WHERE src_addr = ? ORDER BY event_time"


def records_of_key(connection: duckdb.DuckDBPyConnection, key: str, rows: str) -> Iterator[bytes]:
    if rows == "arrow":
        table = connection.sql(ONE_KEY, params=[key]).to_arrow_table().cast(MEASUREMENT)
        return records_of_batch(table.combine_chunks().to_batches()[0])
    answer = connection.execute(ONE_KEY, [key]).fetchall()
    return records_of_dicts([dict(zip(MEASUREMENT.names, row, strict=True)) for row in answer])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", required=True)
    options.add_argument("--output", required=True)
    options.add_argument("--rows", choices=["python", "arrow"], default="python")
    given = options.parse_args()
    started = time.perf_counter()
    output = Path(given.output)
    output.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    pattern = given.input.replace("'", "''")
    connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{pattern}')")
    listing = connection.execute("SELECT DISTINCT src_addr FROM events ORDER BY src_addr").fetchall()
    keys = [key for (key,) in listing]
    train_count = int(len(keys) * TRAIN_SHARE)
    written = 0
    for name, share in (("train", keys[:train_count]), ("test", keys[train_count:])):
        writer = ArrayRecordWriter(str(output / f"{name}.arrayrecord"), WRITER_OPTIONS)
        for key in share:
            for record in records_of_key(connection, key, given.rows):
                writer.write(record)
                written += 1
        writer.close()
    print(f"{len(keys):,} keys, {written:,} records, {time.perf_counter() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
