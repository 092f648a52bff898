"""Make games: a count of samples -> raw game files of 547 positions, 8 bytes each, the same bytes for the same count.

    python -m benchmarks.make_games --samples 547_000 --output /scratch/games-547000

game_samples.py turns a position into a sample of 3.8 KB, so 5.47M samples need 44 MB of raw files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.game_samples import POSITION

POSITIONS = 547  # of a game


def make_games(samples: int, folder: Path) -> str:
    """The pattern of the files; they are made unless `_made` says that they are there."""
    done, pattern = folder / "_made", f"{folder}/*.game"
    if done.exists() and done.read_text() == str(samples):
        return pattern
    folder.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    for old in folder.glob("*.game"):
        old.unlink()
    for number, first in enumerate(range(0, samples, POSITIONS)):
        make_game(number, min(POSITIONS, samples - first)).tofile(folder / f"game-{number:06d}.game")
    done.write_text(str(samples))
    return pattern


def make_game(number: int, positions: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    game = np.empty(positions, POSITION)
    game["seed"] = rng.integers(0, 2**32, positions, dtype=np.uint32)
    game["ply"] = np.arange(positions)
    game["units"] = rng.integers(1, 200, positions)
    return game


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, required=True)
    options.add_argument("--output", type=Path, required=True)
    given = options.parse_args()
    print(make_games(given.samples, given.output))


if __name__ == "__main__":
    main()
