"""Features: one file of a game of Nudge -> one training sample a position.

Nudge is played by two on five by five cells. Whose turn it is puts a stone on an empty cell (`c3`), nudges one of
their own to an empty neighbour (`c3 n`), or passes (`-`). Four in a row or column win. A file has one move a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SIZE, LONGEST = 5, 24
PLACE, NUDGE, PASS = range(3)
DIRECTIONS = {"n": (-1, 0), "e": (0, 1), "s": (1, 0), "w": (0, -1)}

Board = npt.NDArray[np.int8]  # 1 for a stone of the first player, -1 of the second, 0 for an empty cell
Move = tuple[int, int, int]  # action, cell and direction; -1 where the action has none


def samples(path: Path) -> Iterator[dict[str, Any]]:
    """What penstock calls: yield a dict a sample. An exception sets the whole file aside, by name."""
    board, player = np.zeros((SIZE, SIZE), np.int8), 1
    for ply, line in enumerate(path.read_text().splitlines()):
        action, cell, direction = move = read_move(line)
        allowed = allowed_by_rules(board * player, action, cell)
        for head, chosen in zip(("action", "cell", "direction"), move, strict=True):
            if chosen >= 0 and not allowed[head][chosen]:
                raise ValueError(f"move {ply + 1}, {line!r}: the rules do not allow this {head}")
        yield {
            "features": features_of(board * player, ply),
            "labels": {"action": action, "cell": cell, "direction": direction},
            "masks": allowed,
            "game_id": path.stem,
        }
        play(board, player, move)
        player = -player


def features_of(own: Board, ply: int) -> npt.NDArray[np.float32]:
    """60 numbers, seen by whose turn it is: 50 flags of cells, then ten of other scales."""
    mine, theirs = own == 1, own == -1
    rows, columns = np.nonzero(mine)
    others = [
        ply,
        LONGEST - ply,
        mine.sum(),
        theirs.sum(),
        (own == 0).sum(),
        longest_line(mine),
        longest_line(theirs),
        mine.sum(axis=0).max() - theirs.sum(axis=0).max(),
        rows.mean() if len(rows) else SIZE / 2,
        columns.mean() if len(columns) else SIZE / 2,
    ]
    return np.concatenate([mine.ravel(), theirs.ravel(), others]).astype(np.float32)


def allowed_by_rules(own: Board, action: int, cell: int) -> dict[str, npt.NDArray[np.int8]]:
    """A mask a head, 1 for what may be chosen: any action, then a cell for it, then a direction for that."""
    can_move = np.array([neighbours(own, at) for at in range(SIZE * SIZE)])
    cells = {PLACE: own.ravel() == 0, NUDGE: can_move.any(axis=1), PASS: np.zeros(SIZE * SIZE, bool)}
    directions = can_move[cell] if action == NUDGE else np.zeros(len(DIRECTIONS), bool)
    actions = [cells[PLACE].any(), cells[NUDGE].any(), True]
    return {
        "action": np.array(actions, np.int8),
        "cell": cells[action].astype(np.int8),
        "direction": directions.astype(np.int8),
    }


def neighbours(own: Board, cell: int) -> list[bool]:
    """Into which directions the stone on this cell can go: none, if it is not one's own."""
    row, column = divmod(cell, SIZE)
    ends = [(row + down, column + right) for down, right in DIRECTIONS.values()]
    is_empty = [0 <= r < SIZE and 0 <= c < SIZE and own[r, c] == 0 for r, c in ends]
    return [bool(own[row, column] == 1 and empty) for empty in is_empty]


def longest_line(stones: npt.NDArray[np.bool_]) -> int:
    lines = [*stones, *stones.T]
    return max(len(run) for line in lines for run in "".join(".x"[stone] for stone in line.astype(int)).split("."))


def play(board: Board, player: int, move: Move) -> None:
    action, cell, direction = move
    row, column = divmod(cell, SIZE)
    if action == NUDGE:
        board[row, column] = 0
        down, right = list(DIRECTIONS.values())[direction]
        row, column = row + down, column + right
    if action != PASS:
        board[row, column] = player


def read_move(line: str) -> Move:
    if line == "-":
        return PASS, -1, -1
    name, _, direction = line.partition(" ")
    cell = (int(name[1]) - 1) * SIZE + "abcde".index(name[0])
    return (NUDGE, cell, list(DIRECTIONS).index(direction)) if direction else (PLACE, cell, -1)


def write_move(move: Move) -> str:
    action, cell, direction = move
    name = f"{'abcde'[cell % SIZE]}{cell // SIZE + 1}"
    return {PASS: "-", PLACE: name, NUDGE: f"{name} {list(DIRECTIONS)[direction]}"}[action]
