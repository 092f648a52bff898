"""What every text baseline is given, and what it says at the end: options -> a line of JSON, also in its output folder.

Time counts from the start of the process, imports included; CPU seconds are those of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path

REPORT = "report.json"


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="a folder of Parquet files with a column text")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json and its config")
    parser.add_argument("--output", type=Path, required=True, help="a folder to make, caches included")
    return parser


def report(output: Path, documents: int, tokens: int) -> None:
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    wall = time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    said = {"wall_seconds": round(wall, 2), "cpu_seconds": round(cpu, 2), "documents": documents, "tokens": tokens}
    (output / REPORT).write_text(json.dumps(said))
    print(json.dumps(said), flush=True)
