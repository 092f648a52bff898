"""Play: a seed a game -> the files in `in/`, the same bytes every time: `python play.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from features import LONGEST, NUDGE, PASS, PLACE, SIZE, Move, allowed_by_rules, longest_line, play, write_move

GAMES = 12


def play_game(seed: int) -> list[Move]:
    """Moves at random, mostly new stones, until somebody has four in a line or the game is long enough."""
    rng = np.random.default_rng(seed)
    board, player, moves = np.zeros((SIZE, SIZE), np.int8), 1, []
    while len(moves) < LONGEST and longest_line(board == -player) < 4:
        moves.append(choose(board * player, rng))
        play(board, player, moves[-1])
        player = -player
    return moves


def choose(own: np.ndarray, rng: np.random.Generator) -> Move:
    action = int(rng.choice([PLACE, NUDGE, PASS], p=[0.7, 0.25, 0.05]))
    allowed = allowed_by_rules(own, action, 0)
    if action == PASS or not allowed["action"][action]:
        return PASS, -1, -1
    cell = int(rng.choice(np.flatnonzero(allowed["cell"])))
    if action == PLACE:
        return PLACE, cell, -1
    return NUDGE, cell, int(rng.choice(np.flatnonzero(allowed_by_rules(own, NUDGE, cell)["direction"])))


if __name__ == "__main__":
    for number in range(1, GAMES + 1):
        text = "".join(f"{write_move(move)}\n" for move in play_game(number))
        (Path(__file__).parent / "in" / f"nudge-{number:02d}.game").write_text(text)
