"""How often do tasks ask the file system for what earlier passes left? Each costs a round trip on a shared folder.

    git archive OLDER src | tar -x -C /scratch/before
    python benchmarks/between_passes.py --folder /scratch/between --before /scratch/before/src

Runs small jobs with many tasks under strace, and counts the system calls on files in `.penstock/`, and the bytes that
they read, by kind of file.
With `--before`, the tree in that folder does the same jobs, by turns. CPU is that of other runs, without strace.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from make_events import make_events, make_recipe
from watch import machine, timed

CALLS = "openat,read,pread64,readv,preadv,lseek,fstat,newfstatat,statx,mmap"
_RETURNED = re.compile(r"= (\d+)$")
_OPENS, _READS = {"openat"}, {"read", "pread64", "readv", "preadv"}
_PENSTOCK = re.compile(r"/\.penstock/(spill|keys|near|parts|placing)/[^\">]*?(\.\w+)?[\">]")


def words(count: int, seed: int) -> pa.Table:
    """Documents, one in ten of them a copy of another with a few words changed."""
    import random

    draw = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(5000)]
    texts: list[str] = []
    for number in range(count):
        if number % 10 == 9:
            old = texts[draw.randrange(len(texts))].split()
            old[draw.randrange(len(old))] = "changed"
            texts.append(" ".join(old))
        else:
            texts.append(" ".join(draw.choices(vocabulary, k=60)))
    return pa.table({"text": texts})


def jobs(folder: Path, given: argparse.Namespace) -> dict[str, dict[str, object]]:
    events, text = folder / "events", folder / "text"
    make_events(make_recipe(given.events, files=given.slices, row_group=1_000_000), events)
    if not text.exists():
        text.mkdir()
        for number in range(given.slices):
            pq.write_table(words(given.documents // given.slices, number), text / f"{number:05d}.parquet")
    text_size = max(path.stat().st_size for path in text.glob("*.parquet"))
    group = {"by": "src_addr", "order": "event_time"}
    common = {"memory": "1GB", "workers": 2}
    return {
        "group": {
            "input": f"{events}/*.parquet", "stages": [{"group": group}],
            "slice_size": str(max(path.stat().st_size for path in events.glob("*.parquet"))), **common,
        },
        "dedup": {
            "input": f"{text}/*.parquet", "stages": ["dedup"], "slice_size": str(text_size), **common,
        },
        "near_dedup": {
            "input": f"{text}/*.parquet", "stages": ["near_dedup"], "slice_size": str(text_size), **common,
        },
    }  # fmt: skip


def command(job: dict[str, object], output: Path) -> list[str]:
    path = output.with_suffix(".json")
    path.write_text(json.dumps({**job, "output": str(output)}))
    shutil.rmtree(output, ignore_errors=True)
    return [sys.executable, "-m", "penstock", "run", str(path), "--json"]


def counted(job: dict[str, object], output: Path, source: str) -> Counter[tuple[str, str]]:
    log = output.with_suffix(".strace")
    tracing = ["strace", "-ff", "-y", "-qq", "-s", "1", "-e", f"trace={CALLS}", "-o", str(log)]
    done = subprocess.run(
        [*tracing, *command(job, output)], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    found: Counter[tuple[str, str]] = Counter()
    for process in log.parent.glob(f"{log.name}.*"):
        with process.open(errors="replace") as lines:
            for line in lines:
                file, call = _PENSTOCK.search(line), line.partition("(")[0]
                if file and "O_CREAT" not in line:
                    kind = "opens" if call in _OPENS else "reads" if call in _READS else "others"
                    found[file[1] + (file[2] or ""), kind] += 1
                    if kind == "reads" and (returned := _RETURNED.search(line.rstrip())):
                        found[file[1] + (file[2] or ""), "bytes"] += int(returned[1])
        process.unlink()
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--folder", type=Path, required=True)
    asked.add_argument("--before", help="folder `src` of another tree, to compare with")
    asked.add_argument("--slices", type=int, default=50)
    asked.add_argument("--events", type=int, default=2_000_000)
    asked.add_argument("--documents", type=int, default=50_000)
    asked.add_argument("--only", nargs="*")
    asked.add_argument("--pairs", type=int, default=3)
    given = asked.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    trees = {"before": given.before} if given.before else {}
    trees["now"] = str(Path(__file__).parent.parent / "src")
    print(machine())
    for name, job in jobs(given.folder, given).items():
        if given.only and name not in given.only:
            continue
        calls = {tree: counted(job, given.folder / "out", source) for tree, source in trees.items()}
        plan = json.loads((given.folder / "out/.penstock/run.json").read_text())
        passes = ", ".join(f"{each['kind']} {each['tasks']}" for each in plan.get("passes", []) if "tasks" in each)
        print(f"\n{name}: {passes}\n\n| files | calls | {' | '.join(trees)} |\n|---|---|{'---|' * len(trees)}")
        for key in sorted({key for each in calls.values() for key in each}):
            print(f"| {key[0]} | {key[1]} | {' | '.join(f'{each[key]:,}' for each in calls.values())} |")
        for kind in ("opens", "reads", "bytes", "others"):
            sums = (sum(count for (_, of), count in each.items() if of == kind) for each in calls.values())
            print(f"| all | {kind} | {' | '.join(f'{count:,}' for count in sums)} |")
        cpu: dict[str, list[float]] = {tree: [] for tree in trees}
        for _ in range(given.pairs):
            for tree, source in trees.items():
                run = command(job, given.folder / "out")
                cpu[tree].append(timed(run, {"PYTHONPATH": source}).cpu_seconds)
        for tree, seconds in cpu.items():
            print(f"CPU s, {tree}: least {min(seconds):.2f}, median {statistics.median(seconds):.2f}")
    shutil.rmtree(given.folder / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
