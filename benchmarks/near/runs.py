"""Runs: corpora and settings -> what it costs to remove near-duplicates, by penstock and by its peers."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.baselines.near_kept import KEPT
from benchmarks.near.judged import Known, kept_by_baseline, removals_of
from benchmarks.watch import Cost, settle, timed, watch

THRESHOLD, BANDS, ROWS = 0.8, 20, 6
PENSTOCK = "penstock"
DATATROVE = "datatrove, 14 x 8 (its defaults), 2 tasks"
PEERS = {
    DATATROVE: ("near_datatrove", []),
    "datatrove, 20 x 6, 2 tasks": ("near_datatrove", ["--bands", str(BANDS), "--rows", str(ROWS)]),
    "rensa, 20 x 6, all in memory": ("near_rensa", []),
    "text-dedup, 20 x 6, 2 processes, all in memory": ("near_text_dedup", []),
}
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1", "LOGURU_LEVEL": "WARNING"}


@dataclass(frozen=True)
class Runs:
    """Outputs lie in `work`, each until the next run of the same name."""

    work: Path
    peers_python: str
    workers: str
    repeat: int

    def penstock(self, folders: list[Path], name: str, memory: str, threshold: float = THRESHOLD) -> Cost:
        """The run of median wall, and the memory of one more."""
        return self._measured(self._job(folders, name, memory, threshold), self.work / name, self.repeat)

    def penstock_once(self, folders: list[Path], name: str, memory: str, threshold: float = THRESHOLD) -> Cost:
        """One run, which is looked at while it is timed."""
        return self._measured(self._job(folders, name, memory, threshold), self.work / name, 0)

    def peer(self, folder: Path, name: str) -> Cost:
        """One run, and the memory of one more."""
        return self._measured(self._asked(folder, name), self._peer_output, 1)

    def peer_kept(self, folder: Path, name: str) -> set[str]:
        """Ids of the documents that it keeps."""
        self._clear(self._peer_output, name)
        timed(self._asked(folder, name), QUIET)
        return kept_by_baseline(self._peer_output / KEPT)

    def penstock_kept(self, name: str, known: Known) -> set[str]:
        """The same, of the last run of that name."""
        return known.texts.keys() - removals_of(self.work / name, known).keys()

    def report(self, name: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.work / name / "artifacts" / "near_duplicates.json").read_text())
        return report

    def drop(self, name: str) -> None:
        shutil.rmtree(self.work / name, ignore_errors=True)

    @property
    def _peer_output(self) -> Path:
        return self.work / "out-peer"

    def _job(self, folders: list[Path], name: str, memory: str, threshold: float) -> list[str]:
        job = self.work / f"{name}.yaml"
        sources = [{"path": str(folder / "parquet" / "*.parquet"), "text_column": "text"} for folder in folders]
        stages = [{"near_dedup": {"threshold": threshold, "bands": BANDS, "rows": ROWS}}]
        settings = {"input": sources, "output": str(self.work / name), "memory": memory, "stages": stages}
        job.write_text(json.dumps(settings, indent=1))  # which is YAML, too
        return [sys.executable, "-m", "penstock", "run", str(job), "--workers", self.workers]

    def _asked(self, folder: Path, name: str) -> list[str]:
        module, options = PEERS[name]
        command = [self.peers_python, "-m", f"benchmarks.baselines.{module}", "--input", str(folder / "parquet")]
        return [*command, "--output", str(self._peer_output), *options]

    def _measured(self, command: list[str], output: Path, repeat: int) -> Cost:
        tries = []
        for _ in range(repeat):
            self._clear(output, command[2])
            tries.append(timed(command, QUIET))
        self._clear(output, command[2])
        watched = watch(command, QUIET)
        tries.sort(key=lambda each: each.wall_seconds)
        cost = replace(tries[len(tries) // 2], peak_bytes=watched.peak_bytes) if tries else watched
        print(cost.row(command[2]), file=sys.stderr)
        return cost

    def _clear(self, output: Path, words: str) -> None:
        shutil.rmtree(output, ignore_errors=True)
        print("...", words, output.name, file=sys.stderr)
        settle()
