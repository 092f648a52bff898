"""What the promise tests of arrays share: games that tell a function how to behave, jobs over them, what was written.

A game is a file of JSON: how many samples it has, and what goes wrong at which of them.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from penstock.shards.origins import ORIGIN

FUNCTION = '''
import ctypes, json, os, signal, sys, time
from pathlib import Path

import numpy as np

KEPT = []
RUNNING = Path(__file__).parent / "out" / ".penstock" / "job.json"  # there as soon as a run has been planned


def samples(path):
    """What the file says: `count` samples of a seed, and before number `at` something else: `do`. `later`: not yet
    when penstock only tries the function."""
    game = json.loads(path.read_text())
    rng = np.random.default_rng(game["seed"])
    again = one_sample(rng, game)
    for number in range(game["count"] + 1):
        if number == game.get("at") and (RUNNING.exists() or not game.get("later")):
            yield from globals()[game["do"]](game, one_sample(np.random.default_rng(1), game))
        if number == game.get("then_at"):
            raise ValueError("no such move")
        if number == game["count"]:
            return
        fresh = one_sample(rng, game)
        if RUNNING.exists():
            time.sleep(game.get("slow", 0))
        if game.get("reuse"):  # the same dicts and arrays for every sample
            again["features"][:] = fresh["features"]
            again["masks"]["action"][:] = fresh["masks"]["action"]
            again["labels"].update(fresh["labels"])
            fresh = again
        yield fresh
        if game.get("reuse"):
            again["features"][:] = -1e9
            again["masks"]["action"][:] = 99
            again["labels"]["action"] = -999


def nothing(path):
    return None


def one(path):
    return next(samples(path))


def listed(path):
    return list(samples(path))


def stops(path):
    raise StopIteration("not a generator")


def one_sample(rng, game):
    width = game.get("width", 50)
    return {
        "features": rng.normal(5, 3, width).astype(np.float32),
        "labels": {"action": int(rng.integers(-1, 4)), "target": np.int16(rng.integers(0, 3))},
        "masks": {"action": rng.integers(0, 2, 4).astype(np.int8), "target": np.zeros(3, np.int8)},
        "game_id": f"game {game['seed'] % 7}",
    }


def raises(game, sample):
    raise ValueError(game.get("message", "no such move"))
    yield


def raises_by_name(game, sample):
    raise {"StopIteration": StopIteration, "SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt,
           "GeneratorExit": GeneratorExit, "MemoryError": MemoryError}[game["name"]]("so it goes")
    yield


def raises_unprintable(game, sample):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no words for it")

    raise Odd
    yield


def recurses(game, sample):
    yield from recurses(game, sample)


def exits(game, sample):
    os._exit(3)
    yield


def kills_itself(game, sample):
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def hangs(game, sample):
    time.sleep(600)
    yield


def waits(game, sample):
    """As long as somebody wants, and says where it does."""
    beside = Path(__file__).parent
    if (beside / "wait").exists():
        (beside / "here.part").write_text(str(os.getpid()))
        os.replace(beside / "here.part", beside / "here")
        time.sleep(600)
    yield from ()


def grabs(game, sample):
    """Memory that is touched, a little at a time: one call of C would be over before anybody could look."""
    held = []
    for _ in range(game["megabytes"]):
        held.append(np.ones(1 << 20, "u1"))
        time.sleep(0.001)
    time.sleep(game.get("seconds", 0.3))
    yield from ()


def grabs_in_c(game, sample):
    """C code that holds the interpreter's lock: no thread of the worker can tell how much it holds."""
    sys.setswitchinterval(60)
    held = b"x" * (game["megabytes"] << 20)
    ctypes.PyDLL(None).usleep(2_000_000)
    del held
    yield from ()


def leaks(game, sample):
    KEPT.append(np.ones(game["megabytes"] << 20, "u1"))
    time.sleep(game.get("seconds", 0.0))
    yield from ()


def prints(game, sample):
    print("a word of the function's own")
    sys.stdout.flush()
    os.write(1, b"and one more\\n")
    yield from ()


def yields_none(game, sample):
    yield None


def is_ragged(game, sample):
    yield {**sample, "features": sample["features"][:-1]}


def has_another_key(game, sample):
    yield {**sample, "score": 1}


def lacks_a_key(game, sample):
    del sample["labels"]["target"]
    yield sample


def does_not_fit(game, sample):
    sample["labels"]["target"] = 70000
    yield sample


def is_raw(game, sample):
    """Bits that arithmetic would change."""
    sample["features"] = np.array(game["bits"], "u4").view("f4")
    sample["labels"]["action"] = -1
    sample["masks"]["action"] = np.zeros(4, np.int8)
    yield sample
'''

SPLIT: dict[str, Any] = {"split": {"by": "game_id", "val": 0.2, "test": 0.2}}
NORMALIZE: dict[str, Any] = {"normalize": {"columns": ["features"], "skip": ["0:3"]}}


def write_games(folder: Path, *games: dict[str, Any]) -> Path:
    """`0.game`, `1.game`, ... with what is not said filled in: 30 samples of the game's own seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, game in enumerate(games):
        (folder / f"{number}.game").write_text(json.dumps({"seed": number, "count": 30, **game}))
    return folder


def many_games(folder: Path, games: int = 6, count: int = 150) -> Path:
    """Enough for the columns to cross blocks of 64 KiB, at places that are no file's end."""
    return write_games(folder, *({"count": count + 17 * number} for number in range(games)))


def write_job(path: Path, games: Path, source: dict[str, Any] | None = None, **keys: Any) -> Path:
    """A job over games, the function beside it; two or three games a task."""
    job = {
        "input": {"files": f"{games}/*", "function": "games:samples", **(source or {})},
        "output": "out",
        "stages": [SPLIT, NORMALIZE],
        "slice_size": "70",
        "memory": "1GB",
        "workers": 0,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "games.py").write_text(FUNCTION)
    path.write_text(yaml.safe_dump({**job, **keys}))
    return path


def samples_of(game: dict[str, Any]) -> list[dict[str, Any]]:
    """What the function yields for a game, called without penstock."""
    module: dict[str, Any] = {"__file__": __file__}
    exec(FUNCTION, module)
    rng = np.random.default_rng(game["seed"])
    module["one_sample"](rng, game)  # the one that is used again and again, drawn whether or not it is
    return [module["one_sample"](rng, game) for _ in range(game["count"])]


def arrays_of(output: Path) -> dict[str, str]:
    """The arrays of the samples alone, by name and bytes; what else there is tells the job and its files."""
    names = sorted(each.name for each in output.iterdir() if each.suffix in (".npy", ".npz"))
    return {name: (output / name).read_bytes().hex() for name in names if not name.startswith(ORIGIN)}


def texts_of(output: Path, name: str, split: str) -> list[str]:
    """A column of text, read with numpy alone."""
    ends = np.load(output / f"{name}_{split}.offsets.npy")
    data = np.load(output / f"{name}_{split}.bytes.npy").tobytes()
    return [data[start:stop].decode() for start, stop in itertools.pairwise(ends)]


def steps_of(output: Path) -> dict[str, dict[str, Any]]:
    """The account by step; each must balance."""
    account = json.loads((output / "manifest.json").read_text())["account"]
    for step in account:
        assert step["taken"] == step["given"] + sum(step["set_aside"].values()), step
    return {step["step"]: step for step in account}


def rejected_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((output / "rejected").glob("*.jsonl")) for line in path.open()]


def records_of(output: Path) -> int:
    """Samples in the arrays themselves."""
    return sum(len(np.load(path, mmap_mode="r")) for path in output.glob("X_*.npy"))
