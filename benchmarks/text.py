"""What do packed rows of text cost, against the older system's way, datasets' map and datatrove? `make bench-text`.

    python -m benchmarks.text --folder build/bench-text --peers-python .venv-peers-text/bin/python
    python -m benchmarks.text --folder build/bench-text --only large keys
    python -m benchmarks.text --folder build/bench-text --distinct 10GB

Real documents and a real tokenizer (corpus.py, which makes what is missing). `small` is 62 MB from Parquet to packed
rows: ours against each baseline, with the tokens of the older system's way compared; `peers` the same with 620 MB, some
half an hour; `large` is those 620 MB in little memory: with exact dedup against read + tokenize + write, and jsonl.zst
against Parquet; `keys` is dedup alone, of short documents; `remembered` is 5% new data against the index that the first
run left. `--distinct` is only this: so much distinct text in the same memory. Every command is measured whole:
interpreter, imports, fsync. Ratios are of one run; figures go to results.json, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import penstock
from benchmarks.baselines.text_measured import REPORT
from benchmarks.baselines.text_seed import LENGTH, MIN_TOKENS
from benchmarks.corpus import KEYS, MADE, make_corpus, make_distinct, tokenizer
from benchmarks.figures import Figures, call, median
from benchmarks.watch import Cost, settle, timed, watch
from penstock.base.sizes import parse_size

Stages = list[Any]
PEERS = {
    "older system's way": ("text_seed", 25),
    "datasets' map, 2 processes": ("text_hf_map", 10),
    "datatrove, 2 tasks": ("text_datatrove", 10),
}
PATTERNS = {"parquet": "parquet/*.parquet", "jsonl": "jsonl/*.jsonl.zst"}
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1", "LOGURU_LEVEL": "WARNING"}
ROWS_AT_ONCE = 1000
MUCH = "4GB"  # about what the others take


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, given.folder.absolute()
        make_corpus(self.folder)
        self.tokenizer = tokenizer(self.folder, given.tokenizer)
        self.work = self.folder / "work"
        self.work.mkdir(exist_ok=True)
        self.figures = Figures(memory=given.memory, tokenizer=given.tokenizer)

    # Questions.

    def small(self) -> None:
        self._against_peers("xs", "XS, 62 MB: from documents to packed rows")

    def peers(self) -> None:
        self._against_peers("l", "L, 620 MB: from documents to packed rows")

    def _against_peers(self, corpus: str, title: str) -> None:
        """Ours does all steps; only the older system's way does as many. Each may use as much memory as it likes."""
        costs, reports, same = {}, {}, None
        for name, (module, _) in PEERS.items():
            output = self.work / "out-baseline"
            costs[name], reports[name] = self._baseline(module, corpus, output)
            if module == "text_seed":
                asked = [self.given.peers_python, "-m", f"benchmarks.baselines.{module}", "--digest", str(output)]
                same = json.loads(call(*asked))
            shutil.rmtree(output)
        costs["penstock"] = self._penstock(corpus, self._whole(), "much", memory=MUCH)
        ours = digest(self.work / f"prepared-{corpus}-much")
        self._show_costs(title, corpus, costs)
        self.figures.kept[f"tokens of {corpus}"] = {"penstock": ours, "older system's way": same, "reports": reports}
        for name, (_, aim) in PEERS.items():
            times = costs[name].wall_seconds / costs["penstock"].wall_seconds
            self.figures.say(f"{corpus}: times faster than {name}", times, aim)
        self.figures.say(f"{corpus}: tokens identical to the older system's way", float(ours == same), 1)

    def large(self) -> None:
        costs = {
            "read + tokenize + write": self._penstock("l", [self._tokenize()], "alone"),
            "with dedup, packed": self._penstock("l", self._whole()),
            "the same from jsonl.zst": self._penstock("l", self._whole(), "jsonl", kind="jsonl"),
        }
        self._show_costs("L, 600 MB", "l", costs)
        alone, whole, jsonl = costs.values()
        part = alone.wall_seconds / whole.wall_seconds
        self.figures.say("l: speed with dedup, of read + tokenize + write", part, 0.8)
        # What dedup leaves out is not tokenized: this is as if it were.
        self.figures.say("l: the same, counting only what is tokenized", part * self._distinct_share(), None)
        self.figures.say(
            "l: wall of jsonl.zst, of Parquet", jsonl.wall_seconds / whole.wall_seconds, 1.2, at_least=False
        )
        self._say_memory("l", max(each.peak_bytes for each in costs.values()))

    def keys(self) -> None:
        """Short documents, which are all distinct: the rows are read and written, too."""
        costs = {
            "read + write": self._penstock("keys", [], "alone"),
            "read + dedup + write": self._penstock("keys", [{"dedup": {"column": "text"}}]),
        }
        self._show_costs(f"{KEYS / 1e6:.0f}M keys", None, costs)
        alone, whole = costs.values()
        self.figures.say("keys: million a second, the whole command", KEYS / whole.wall_seconds / 1e6, None)
        more = max(whole.wall_seconds - alone.wall_seconds, 1e-3)
        self.figures.say("keys: million a second that dedup takes longer", KEYS / more / 1e6, 2)
        self._say_memory("keys", whole.peak_bytes)

    def remembered(self) -> None:
        """The index is as the first run left it, every time."""
        index, kept = self.work / "seen", self.work / "seen-kept"
        stages = self._whole(remember=str(index))
        for each in (index, kept):
            shutil.rmtree(each, ignore_errors=True)
        made, command = self._job("l", stages, "first")
        costs = {"first run, L": self._alone(command, made)}
        index.rename(kept)
        made, command = self._job("new", stages, "again")
        tries = []
        for _ in range(self.given.repeat):
            shutil.rmtree(index, ignore_errors=True)
            shutil.copytree(kept, index)
            tries.append(self._alone(command, made))
        costs["then 5% new data"] = median(tries)
        self._show_costs("Against a remembered index", None, costs)
        first, again = costs.values()
        self.figures.say(
            "remembered: wall of 5% new data, of the first run", again.wall_seconds / first.wall_seconds, 0.1, False
        )

    def distinct(self) -> None:
        """Much more text, all of it distinct, in the same memory."""
        made = make_distinct(self.folder, self.given.distinct)
        output, command = self._job(made.name, self._whole())
        try:
            cost = self._watched(command, output)
        finally:
            shutil.rmtree(output, ignore_errors=True)
        self._show_costs(made.name, made.name, {"with dedup, packed": cost})
        self._say_memory(made.name, cost.peak_bytes)

    # Jobs.

    def _tokenize(self) -> Any:
        return {"tokenize": {"tokenizer": str(self.tokenizer / "tokenizer.json"), "column": "text", "add_eos": True}}

    def _whole(self, **dedup: str) -> Stages:
        """What text_seed.py does."""
        return [
            {"clean": {"column": "text"}},
            {"dedup": {"column": "text", **dedup}},
            self._tokenize(),
            {"filter": f"length(tokens) >= {MIN_TOKENS}"},
            {"pack": {"length": LENGTH, "method": "wrapped"}},
        ]

    # How each is run.

    def _penstock(
        self, name: str, stages: Stages, variant: str = "", kind: str = "parquet", memory: str | None = None
    ) -> Cost:
        """`penstock run`. The output of the last time stays."""
        made, command = self._job(name, stages, variant, kind, memory)
        return self._measure(command, made, self.given.repeat)

    def _job(
        self, name: str, stages: Stages, variant: str = "", kind: str = "parquet", memory: str | None = None
    ) -> tuple[Path, list[str]]:
        """Its output and its command."""
        title = f"{name}-{variant}" if variant else name
        made, job = self.work / f"prepared-{title}", self.work / f"{title}.yaml"
        source = {"path": str(self.folder / name / PATTERNS[kind]), "text_column": "text"}
        settings = {"input": [source], "output": str(made), "memory": memory or self.given.memory, "stages": stages}
        job.write_text(json.dumps(settings, indent=1))  # which is YAML, too
        return made, [sys.executable, "-m", "penstock", "run", str(job), "--workers", self.given.workers]

    def _baseline(self, module: str, corpus: str, output: Path) -> tuple[Cost, Any]:
        """What it costs, and what it says that it did. Its memory is looked at in the small corpus alone: it takes
        minutes, and to be looked at makes it slower."""
        command = [self.given.peers_python, "-m", f"benchmarks.baselines.{module}"]
        command += ["--input", str(self.folder / corpus / "parquet"), "--tokenizer", str(self.tokenizer)]
        command += ["--output", str(output)]
        cost = self._measure(command, output, repeat=1) if corpus == "xs" else self._alone(command, output)
        return cost, json.loads((output / REPORT).read_text())

    def _measure(self, command: list[str], output: Path, repeat: int) -> Cost:
        """The run of median wall, and the memory of one more: to look at it stops a large process for some 50 ms."""
        timed = median([self._alone(command, output) for _ in range(repeat)])
        return replace(timed, peak_bytes=self._watched(command, output).peak_bytes)

    def _alone(self, command: list[str], output: Path) -> Cost:
        self._clear(command, output)
        return timed(command, QUIET)

    def _watched(self, command: list[str], output: Path) -> Cost:
        self._clear(command, output)
        return watch(command, QUIET)

    def _clear(self, command: list[str], output: Path) -> None:
        shutil.rmtree(output, ignore_errors=True)
        print("...", " ".join(command[2:4]), output.name, file=sys.stderr)
        settle()

    def _facts(self, name: str) -> dict[str, int]:
        facts: dict[str, int] = json.loads((self.folder / name / MADE).read_text())
        return facts

    def _distinct_share(self) -> float:
        facts = self._facts("l")
        return facts["original_bytes"] / facts["text_bytes"]

    # How each is told.

    def _say_memory(self, name: str, peak_bytes: int) -> None:
        allowed = parse_size(self.given.memory) / 1e6
        self.figures.say(f"{name}: peak MB, of memory: {self.given.memory}", peak_bytes / 1e6, allowed, at_least=False)

    def _show_costs(self, title: str, name: str | None, costs: dict[str, Cost]) -> None:
        megabytes = self._facts(name)["text_bytes"] / 1e6 if name else 0
        speeds = {each: f"{megabytes / cost.wall_seconds:.1f}" for each, cost in costs.items() if megabytes}
        self.figures.show_costs(title, costs, "MB/s of text", speeds)

    def close(self) -> None:
        name = "results-distinct.json" if self.given.distinct else "results.json"
        self.figures.close(f"memory: {self.given.memory}", self.given.json or self.folder / name)


def digest(prepared: Path) -> dict[str, Any]:
    """The same as text_seed.py --digest says of its own rows."""
    rows = penstock.open(prepared)
    hashed, tokens = xxhash.xxh3_128(), 0
    for first in range(0, len(rows), ROWS_AT_ONCE):
        column = rows[first : first + ROWS_AT_ONCE]["tokens"]
        flat = np.ascontiguousarray(column.combine_chunks().flatten(), "<i4")
        hashed.update(flat)
        tokens += len(flat)
    return {"digest": hashed.hexdigest(), "tokens": tokens, "rows": len(rows)}


QUESTIONS = ("small", "peers", "large", "keys", "remembered")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    options.add_argument("--distinct", type=parse_size, help="only this: so many bytes, such as 10GB, within --memory")
    options.add_argument("--tokenizer", default="qwen2_5")
    options.add_argument("--memory", default="500MB", help="for penstock")
    options.add_argument("--workers", default="auto", help="for penstock run")
    options.add_argument("--repeat", type=int, default=3, help="of penstock; the median is shown")
    options.add_argument("--peers-python", default=sys.executable, help="where text-requirements.txt is installed")
    options.add_argument("--json", type=Path, help="default: results.json or results-distinct.json in the folder")
    given = options.parse_args()
    bench = Bench(given)
    for question in ("distinct",) if given.distinct else given.only:
        getattr(bench, question)()
    bench.close()


if __name__ == "__main__":
    main()
