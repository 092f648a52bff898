"""Preprocessing: a config with the `preprocessing:` block of array-batch scripts -> a job file. Called by config.py.

The block says how samples are batched and merged. What is to be read, and by which function, it leaves to its
program's own code; here `input:` and `output:` stand beside it.
"""

from collections.abc import Mapping
from typing import Any

from penstock.base import machine
from penstock.base.errors import ConfigError
from penstock.prepare.job.job_file import Translated, left_alone, refuse_unknown
from penstock.prepare.job.job_text import job_text

BLOCK = "preprocessing"
_KEYS = (
    "num_workers",
    "parallel",
    "verbose",
    "batch_size",
    "use_float32",
    "monitor_memory",
    "intermediate_dir",
    "merge_strategy",
)


def translate(written: Mapping[str, Any], job_keys: tuple[str, ...]) -> Translated:
    block = _checked(written[BLOCK])
    notes = left_alone((key for key in written if key not in job_keys and key != BLOCK), job_keys)
    job = {key: value for key, value in written.items() if key in job_keys}
    _refuse_without_paths(job, written, block)
    job |= {
        key: block[key] for key in ("batch_size", "intermediate_dir", "merge_strategy") if block.get(key) is not None
    }
    if block.get("parallel", True) is False:
        job.setdefault("strategy", "sequential")
    elif "num_workers" in block:
        job.setdefault("workers", block["num_workers"] if block["num_workers"] is not None else _workers())
    job["input"] = _with_floats(job["input"], "float32" if block.get("use_float32", True) else "float64")
    if block.get("monitor_memory") is False:
        notes.append("monitor_memory: false: memory is watched always, it is what `memory:` promises")
    if "verbose" in block:
        notes.append("verbose: what happens is in .penstock/events.jsonl, and on the screen as it happens")
    return Translated(job, tuple(notes))


def _refuse_without_paths(job: Mapping[str, Any], written: Mapping[str, Any], block: Mapping[str, Any]) -> None:
    """Refuse a config without paths. The error has the lines to add, with paths and shares from its `data:`."""
    absent = [key for key in ("input", "output") if key not in job]
    if not absent:
        return
    data = written.get("data")
    data = data if isinstance(data, dict) else {}
    shares = {split: data.get(f"{split}_ratio") for split in ("val", "test")}
    lines: dict[str, Any] = {}
    if "input" in absent:
        lines["input"] = {"files": data.get("data_root", "games"), "function": "features:samples"}
    if "output" in absent:
        lines["output"] = data.get("processed_dir", "data/processed")
    if "stages" not in job and all(shares.values()):
        lines["stages"] = [{"split": {"by": "game_id", **shares}}]
    raise ConfigError(
        f"{BLOCK}: only says how samples are stored: "
        f"{' and '.join(f'`{key}:`' for key in absent)} {'is' if len(absent) == 1 else 'are'} missing",
        next_step=f"add these lines to the file; paths are relative to it:\n{job_text(lines).rstrip()}"
        + (_other_input(block) if "input" in absent else ""),
    )


def _other_input(block: Mapping[str, Any]) -> str:
    batches = {"npz": f"{block.get('intermediate_dir') or 'data/intermediate'}/batch_*.npz", "trust_pickle": True}
    return (
        "\nfeatures:samples is your own function. For batch files that are there already, the input is\n"
        f"{job_text({'input': batches}).rstrip()}"
    )


def _checked(block: Any) -> dict[str, Any]:
    if not isinstance(block, dict):
        raise ConfigError(f"{BLOCK}: expected keys such as batch_size, got {block!r}")
    for key, value in block.items():
        refuse_unknown([key], _KEYS, f"{BLOCK}.")
        if key in ("parallel", "verbose", "use_float32", "monitor_memory") and not isinstance(value, bool):
            raise ConfigError(f"{BLOCK}.{key}: {value!r} is neither true nor false")
    return block


def _workers() -> int:
    """Number of workers as in those scripts: all cores minus two, at least one."""
    return max(1, machine.cpu_count().amount - 2)


def _with_floats(sources: Any, floats: str) -> Any:
    """Sources with the type of floats, for a function whose samples are not declared."""
    if isinstance(sources, list):
        return [_with_floats(each, floats) for each in sources]
    if isinstance(sources, dict) and sources.get("function"):
        return {"floats": floats, **sources}
    return sources
