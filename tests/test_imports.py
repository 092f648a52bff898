"""Imports: what a command does not use is not imported. Names of modules are compared, not times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock

EXAMPLES = Path(__file__).parent.parent / "examples"
# What no command of a small job needs, whatever its data.
NEVER = {
    *("numba", "torch", "jax", "pandas", "scipy", "huggingface_hub", "awkward", "http.client", "urllib.request"),
    *("asyncio", "multiprocessing.pool", "numpy.random", "pyarrow.dataset", "pyarrow.csv", "penstock.loader.load"),
    *("penstock.prepare.engines.local", "penstock.prepare.tokenizers.gigatoken", "penstock.prepare.sources.hub"),
    *("penstock.shards.foreign.megatron", "penstock.show.bench", "penstock.show.report", "rich.markdown"),
}
ARROW, TEXTS = {"pyarrow", "penstock.prepare.sources"}, {"pyarrow.json", "penstock.prepare.tokenizers"}
SAMPLES = """
import numpy as np

def samples(path):
    for line in path.read_text().split():
        yield {"x": np.full(4, float(line), "f4"), "game": path.stem}
"""


@cache
def modules_after(
    *arguments: str, code: str = "from penstock.cli import main; assert not main(sys.argv[2:])"
) -> frozenset[str]:
    """Names of all modules that a fresh process has imported in the end."""
    script = f"import sys; {code}; open(sys.argv[1], 'w').write(' '.join(sys.modules))"
    with tempfile.NamedTemporaryFile("r") as told:
        subprocess.run([sys.executable, "-c", script, told.name, *arguments], capture_output=True, check=True)
        return frozenset(told.read().split())


def rooms(modules: frozenset[str]) -> set[str]:
    """Rooms of passes of which more was imported than the kind, which says whether a job needs them."""
    passes = [name.split(".")[3:] for name in modules if name.startswith("penstock.prepare.passes.")]
    return {name[0] for name in passes if len(name) > 1 and name[1] != "kind"}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small jobs: events.yaml, samples.yaml and texts.yaml; what they make is in events/, samples/ and texts/."""
    folder = tmp_path_factory.mktemp("jobs")
    rows = pa.table({"key": [f"k{n % 7}" for n in range(100)], "value": [float(n) for n in range(100)]})
    pq.write_table(rows, folder / "rows.parquet")
    (folder / "making.py").write_text(SAMPLES)
    (folder / "a.game").write_text("1 2 3")
    (folder / "documents.jsonl").write_text("".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(20)))
    tokenize = {"tokenizer": str(EXAMPLES / "text" / "tokenizer"), "add_eos": False, "engine": "hf"}
    _write(folder, "events", input="rows.parquet", stages=[{"group": {"by": "key", "order": "value"}}])
    _write(
        folder,
        "samples",
        input={"files": "*.game", "function": "making:samples"},
        stages=[{"split": {"by": "game", "test": 0.5}}],
    )
    _write(folder, "texts", input="documents.jsonl", stages=["clean", "dedup", {"tokenize": tokenize}, {"pack": 8}])
    return folder


def _write(folder: Path, name: str, **job: object) -> None:
    (folder / f"{name}.yaml").write_text(json.dumps({**job, "output": name, "memory": "4GB"}))


def test_help_imports_neither_arrow_nor_the_job():
    heavy = {"pyarrow", "numpy", "pydantic", "yaml", "xxhash", "email", "multiprocessing", "penstock.prepare"}
    assert not (heavy | NEVER) - {"rich.markdown"} & modules_after("--help")


@pytest.mark.parametrize("module", ["penstock", "penstock.prepare.job"])
def test_a_package_imports_nothing(module):
    assert not {"pyarrow", "numpy", "pydantic", "yaml", "rich", "typer"} & modules_after(code=f"import {module}")


def test_a_config_imports_no_pass_and_no_engine():
    seen = modules_after(code="import penstock.prepare.job.config")
    unused = {"rich", "typer", "penstock.prepare.passes", "penstock.prepare.engines", "penstock.prepare.survey"}
    assert not (unused | NEVER | {"pyarrow.parquet", "multiprocessing"}) & seen


@pytest.mark.parametrize(
    ("name", "used"),
    [("events", {"exchange"}), ("samples", {"arrays"}), ("texts", {"match", "text"})],
)
def test_a_job_imports_the_passes_and_sources_that_it_has(jobs, name, used):
    seen = modules_after("plan", str(jobs / f"{name}.yaml"))
    assert rooms(seen) - {"folds"} == used
    assert not (NEVER if name != "samples" else NEVER - {"penstock.prepare.engines.local"}) & seen
    assert not (TEXTS if name != "texts" else {"pyarrow.parquet"}) & seen
    assert (
        not {"penstock.prepare.sources.parquet", "penstock.prepare.sources.jsonl"}
        & seen
        - {
            "events": {"penstock.prepare.sources.parquet"},
            "samples": set(),
            "texts": {"penstock.prepare.sources.jsonl"},
        }[name]
    )


@pytest.mark.parametrize("name", ["events", "texts"])
def test_a_small_job_runs_inside_the_driver_and_imports_no_engine_of_workers(jobs, name):
    shutil.rmtree(jobs / name, ignore_errors=True)
    assert not NEVER & modules_after("run", str(jobs / f"{name}.yaml"))
    assert (jobs / name / "manifest.json").exists()


def test_a_finished_dataset_is_looked_at_without_arrow_and_the_loader(jobs):
    penstock.run(str(jobs / "events.yaml"), progress=False)
    output = str(jobs / "events")
    for command in ("inspect", "verify", "report"):
        seen = modules_after(command, output)
        assert not (ARROW | NEVER) - {"penstock.show.report"} & seen, command


def test_doctor_imports_no_pass_and_no_engine():
    assert not (NEVER | {"penstock.prepare.passes", "penstock.prepare.engines"}) & modules_after("doctor")
