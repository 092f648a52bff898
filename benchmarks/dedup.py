"""What does it cost to remove near-duplicates, and which are found? `make bench-dedup`.

    python -m benchmarks.dedup --folder build/bench-dedup --peers-python .venv-peers-text/bin/python
    python -m benchmarks.dedup --folder build/bench-dedup --only quality releases
    python -m benchmarks.dedup --folder build/bench-dedup --only scale --large
    python -m benchmarks.dedup --folder build/bench-dedup --only million

`signatures` and `commands` take the 61 MB of real documents of corpus.py: signatures alone, then whole commands from
documents to those that stay. `quality` plants copies whose exact similarity is known (near/planted.py) and checks every
removal by brute force. `releases` takes the handbooks of two releases of Debian. `scale` is generated text of 0.1 and
1 GB, with `--large` also 10 GB, and `million` is a million documents that differ in a number, each within --memory.
Every command is measured whole: interpreter, imports, fsync. Ratios are of one run; figures go to results.json, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.corpus import MADE, make_corpus
from benchmarks.figures import Figures, call, show
from benchmarks.near.curve import Series, write_csv, write_picture
from benchmarks.near.generated import make_alike, make_scale
from benchmarks.near.judged import Judged, Known, bins, judge, removals_of, wrong_removals
from benchmarks.near.planted import Planted, make_planted, read_planted
from benchmarks.near.releases import make_releases
from benchmarks.near.runs import BANDS, DATATROVE, PEERS, PENSTOCK, ROWS, THRESHOLD, Runs
from benchmarks.watch import Cost
from penstock.base.sizes import parse_size

MUCH = "4GB"  # as much as the others take
LEAST = 0.5  # threshold of the run that shows which pairs are candidates
MILLION = 1_000_000
PICTURE = Path("docs/pictures/near-duplicates-measured.svg")
OURS, THEIRS = "#1565c0", "#e65100"


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, given.folder.absolute()
        self.real = self.folder.parent / "bench-text"
        make_corpus(self.real)
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        self.runs = Runs(self.folder / "work", given.peers_python, given.workers, given.repeat)
        self.figures = Figures(memory=given.memory)

    # Questions.

    def signatures(self) -> None:
        """One thread each, texts in memory."""
        xs = str(self.real / "xs" / "parquet")
        found = {PENSTOCK: json.loads(call(sys.executable, "-m", "benchmarks.near.signing", "--input", xs))}
        for tool in ("rensa", "datasketch"):
            script = [self.given.peers_python, "-m", "benchmarks.baselines.near_signatures"]
            found[tool] = json.loads(call(*script, "--tool", tool, "--input", xs))
        rows = [
            [name, *(f"{each['bytes'] / 1e6 / each[of]:.1f}" for of in ("whole", "alone"))]
            for name, each in found.items()
        ]
        heads = ["120 values per document", "MB/s per core, from text", "MB/s per core, from shingles"]
        show("XS, 61 MB: signatures alone, 5 words per shingle", heads, rows)
        self.figures.kept["signatures"] = found
        for name in ("rensa", "datasketch"):
            times = found[name]["whole"] / found[PENSTOCK]["whole"]
            self.figures.say(f"signatures from text: times faster than {name}, per core", times, None)

    def commands(self) -> None:
        xs, whole = self.real / "xs", self.real / "l"
        costs = {PENSTOCK: self.runs.penstock([xs], "xs", MUCH)}
        costs |= {name: self.runs.peer(xs, name) for name in PEERS}
        self._show_costs(
            "XS, 61 MB: from documents to those that stay", {name: ([xs], cost) for name, cost in costs.items()}
        )
        large = self.runs.penstock([whole], "l", self.given.memory)
        self._show_costs(f"L, 618 MB, memory: {self.given.memory}", {PENSTOCK: ([whole], large)})
        for name, cost in costs.items():
            if name != PENSTOCK:
                times = cost.cpu_seconds / costs[PENSTOCK].cpu_seconds
                self.figures.say(f"xs: times less CPU than {name}", times, 20 if name == DATATROVE else None)
        times = _speed([whole], large) / _speed([xs], costs[DATATROVE])
        self.figures.say("l: MB/s per core, times those of datatrove with xs", times, 20)

    def quality(self) -> None:
        folder = make_planted(self.folder / "planted", self.real / "l" / "parquet")
        known, planted = Known(folder), read_planted(folder)
        self.runs.penstock_once([folder], "planted", MUCH)
        self.runs.penstock_once([folder], "candidates", MUCH, threshold=LEAST)
        kept = {PENSTOCK: self.runs.penstock_kept("planted", known)}
        kept |= {name: self.runs.peer_kept(folder, name) for name in PEERS}
        judged = {name: judge(known, planted, those, THRESHOLD) for name, those in kept.items()}
        wrong = wrong_removals(known, removals_of(self.runs.work / "planted", known), THRESHOLD)
        print(*(f"wrong: {each}" for each in wrong[:10]), sep="\n")
        self._show_judged(judged)
        self.figures.say("quality: recall of planted pairs of 0.8 and more", judged[PENSTOCK].recall, 0.98)
        self.figures.say("quality: precision", judged[PENSTOCK].precision, 1)
        self.figures.say("quality: removals that their survivor does not justify", len(wrong), 0, at_least=False)
        self._show_detection(planted, kept, self.runs.penstock_kept("candidates", known))

    def releases(self) -> None:
        folders = make_releases(self.folder / "releases")
        cost = self.runs.penstock(folders, "releases", self.given.memory)
        sources = self.runs.report("releases")["sources"]
        rows = []
        for folder, each in zip(folders, sources, strict=True):
            share = each["removed"] / max(1, each["documents"])
            size = f"{_facts(folder)['text_bytes'] / 1e6:.0f}"
            rows.append([folder.name, size, f"{each['documents']:,}", f"{each['removed']:,}", f"{share:.1%}"])
        show("Handbooks of two releases of Debian", ["source", "MB", "documents", "removed", "share"], rows)
        self._show_costs("All of them", {"releases": (folders, cost)})
        self._say_memory("releases", cost)

    def scale(self) -> None:
        found = {}
        for size in [100_000_000, 1_000_000_000] + [10_000_000_000] * self.given.large:
            folder = make_scale(self.folder / f"scale-{size / 1e9:g}GB", size, self.real / "xs" / "parquet")
            found[folder.name] = [folder], self.runs.penstock_once([folder], folder.name, self.given.memory)
            self._show_removed(folder.name)
            self.runs.drop(folder.name)
        self._show_costs("Generated text, a tenth of the documents near-copies", found)
        each = [cost.cpu_seconds / _facts(folder)["documents"] for (folder,), cost in found.values()]
        self.figures.say("scale: CPU per document, largest to 0.1 GB", each[-1] / each[0], 1.2, at_least=False)
        self._say_memory("scale", max((cost for _, cost in found.values()), key=lambda cost: cost.peak_bytes))

    def million(self) -> None:
        folder = make_alike(self.folder / f"alike-{MILLION}", MILLION)
        cost = self.runs.penstock_once([folder], folder.name, self.given.memory)
        self._show_costs("A million documents that differ in one number", {folder.name: ([folder], cost)})
        self._show_removed(folder.name)
        self._say_memory("million", cost)

    # How each is told.

    def _show_costs(self, title: str, found: dict[str, tuple[list[Path], Cost]]) -> None:
        self.figures.kept[title] = {name: asdict(cost) for name, (_, cost) in found.items()}
        heads = ["run", "wall s", "CPU s", "peak tree MB", "MB/s of text per core", "CPU us per document"]
        rows = []
        for name, (folders, cost) in found.items():
            documents = sum(_facts(folder)["documents"] for folder in folders)
            per_document = f"{cost.cpu_seconds / documents * 1e6:,.0f}"
            rows.append([*cost.row(name).strip("| ").split(" | "), f"{_speed(folders, cost):.2f}", per_document])
        show(title, heads, rows)

    def _show_removed(self, name: str) -> None:
        report = self.runs.report(name)
        self.figures.kept[f"report of {name}"] = report
        numbers = ("documents", "removed", "candidates", "similar", "not_compared")
        print(f"\n{name}:", ", ".join(f"{report[each]:,} {each.replace('_', ' ')}" for each in numbers))

    def _show_judged(self, judged: dict[str, Judged]) -> None:
        heads = ["13,200 documents, planted pairs", "removed", "recall", "precision", "similar pairs that both stayed"]
        rows = [
            [name, f"{each.removed:,}", f"{each.recall:.4f}", f"{each.precision:.4f}", f"{each.overlooked:,}"]
            for name, each in judged.items()
        ]
        show("Quality, by exact similarities of 0.8 and more", heads, rows)
        self.figures.kept["quality"] = {name: asdict(each) for name, each in judged.items()}

    def _show_detection(self, planted: list[Planted], kept: dict[str, set[str]], candidates: set[str]) -> None:
        """Candidates are what the bands find; above the threshold they are removed."""
        heads = [
            "similarity",
            "pairs",
            "theory, 20 x 6",
            f"penstock, threshold {LEAST}",
            f"penstock, threshold {THRESHOLD}",
        ]
        heads += [name.split(", 2 ")[0].removesuffix(", all in memory") for name in PEERS]
        those, rows = bins(planted), []
        for each in those:
            shares = [
                each.expected(BANDS, ROWS),
                each.detected(candidates),
                *(each.detected(some) for some in kept.values()),
            ]
            rows.append([each.similarity, len(each.pairs), *shares])
        written = [[f"{row[0]:.3f}", str(row[1]), *(f"{share:.3f}" for share in row[2:])] for row in rows]
        show("Share of planted pairs that were found, by similarity", heads, written)
        write_csv(self.folder / "detection.csv", heads, rows)
        ours = [(each.similarity, each.detected(candidates)) for each in those]
        theirs = [(each.similarity, each.detected(kept[DATATROVE])) for each in those]
        series = [Series("penstock", OURS, BANDS, ROWS, ours), Series("datatrove", THEIRS, 14, 8, theirs)]
        write_picture(self.given.picture, series, THRESHOLD)
        self.figures.kept["detection"] = {"heads": heads, "rows": rows}

    def _say_memory(self, name: str, cost: Cost) -> None:
        allowed = parse_size(self.given.memory) / 1e6
        title = f"{name}: peak MB, of memory: {self.given.memory}"
        self.figures.say(title, cost.peak_bytes / 1e6, allowed, at_least=False)

    def close(self) -> None:
        self.figures.close(f"memory: {self.given.memory}", self.given.json or self.folder / "results.json")


def _facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / MADE).read_text())
    return facts


def _speed(folders: list[Path], cost: Cost) -> float:
    """Megabytes of text per CPU second."""
    return sum(_facts(folder)["text_bytes"] for folder in folders) / 1e6 / cost.cpu_seconds


QUESTIONS = ("signatures", "commands", "quality", "releases", "scale", "million")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="corpus.py's is beside it, in bench-text")
    options.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    options.add_argument("--large", action="store_true", help="10 GB, too, in scale")
    options.add_argument("--million", dest="only", action="store_const", const=["million"], help="only a million alike")
    options.add_argument("--memory", default="1GB", help="for penstock")
    options.add_argument("--workers", default="auto", help="for penstock run")
    options.add_argument("--repeat", type=int, default=3, help="of penstock; the median is shown")
    options.add_argument("--peers-python", default=sys.executable, help="where text-requirements.txt is installed")
    options.add_argument("--picture", type=Path, default=PICTURE)
    options.add_argument("--json", type=Path, help="default: results.json in the folder")
    given = options.parse_args()
    bench = Bench(given)
    for question in given.only:
        getattr(bench, question)()
    bench.close()


if __name__ == "__main__":
    main()
