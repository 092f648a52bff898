"""The public door: small, lazy, and only what it says."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
import subprocess
import sys
from typing import get_args

import pytest

import penstock


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sorted(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_penstock_imports_nothing_heavy():
    heavy = {"pyarrow", "numpy", "pydantic", "rich", "typer", "yaml", "xxhash", "grain", "torch", "jax"}
    assert not heavy & _modules_after("import penstock")


def test_the_shards_half_needs_no_arrow_pydantic_or_yaml():
    """It is what the loader stands on, where only numpy and xxhash are installed."""
    seen = _modules_after("import penstock.shards.dataset, penstock.shards.verify")
    assert not {"pyarrow", "pydantic", "yaml", "rich", "typer"} & seen


def test_the_door_fits_on_a_line():
    names = [name for name in penstock.__all__ if name[0].islower()]
    verbs = [
        "block_mask",
        "decode",
        "export",
        "inspect",
        "load",
        "merge",
        "open",
        "plan",
        "report",
        "run",
        "stage",
        "verify",
    ]
    assert names == sorted([*verbs, "events"])
    assert all(callable(getattr(penstock, name)) for name in {*penstock.__all__} - {"Event", "events"})


def test_every_event_is_documented_by_help():
    described = pydoc.render_doc(penstock.events, renderer=pydoc.plaintext)
    for event in get_args(penstock.Event):
        [name] = get_args(event.__annotations__["event"])
        assert f"| {name} | {event.__name__} |" in described
        assert event.__doc__ in described


def _public_functions():
    """(name, function) of every public function, and of every public method that penstock itself defines."""
    for name in penstock.__all__:
        found = getattr(penstock, name)
        if inspect.isroutine(found):
            yield name, found
        if not inspect.isclass(found):
            continue
        for method, _ in inspect.getmembers(found, lambda each: inspect.isroutine(each)):
            function = inspect.unwrap(getattr(found, method))
            if not method.startswith("_") and str(getattr(function, "__module__", "")).startswith("penstock."):
                yield f"{name}.{method}", function


FUNCTIONS = dict(_public_functions())


def _parameters(function):
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.name not in ("self", "cls")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_of_the_door_is_typed_and_explained(name):
    function = FUNCTIONS[name]
    words = inspect.getdoc(function) or ""
    assert words, f"{name} has no docstring"
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    for each in _parameters(function):
        assert each.annotation is not inspect.Parameter.empty, f"{name}: {each.name} has no type"
        assert each.kind is not inspect.Parameter.VAR_POSITIONAL, f"{name}: *{each.name} hides what it takes"
        assert re.search(rf"^ +{each.name}: [A-Z\"]", words, re.MULTILINE), f"{name}: {each.name} is not explained"


CLASSES = [name for name in penstock.__all__ if dataclasses.is_dataclass(getattr(penstock, name))]


@pytest.mark.parametrize("name", [*CLASSES, "Dataset"])
def test_every_attribute_of_a_public_object_is_described_by_help(name):
    kind = getattr(penstock, name)
    fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else DATASET
    assert [each for each in fields if not re.search(rf"^ +{each}: [A-Z\"]", inspect.getdoc(kind), re.MULTILINE)] == []


DATASET = ["split", "schema", "counts", "manifest"]


@pytest.mark.parametrize("words", ["len(dataset)", "dataset[i]", "dataset[a:b]", "for record in dataset"])
def test_help_shows_how_records_are_read(words):
    assert words in inspect.getdoc(penstock.Dataset)


@pytest.mark.parametrize("name", ["export", "inspect", "load", "merge", "open", "run", "decode"])
def test_every_default_of_a_function_is_said_in_its_docstring(name):
    words = inspect.getdoc(FUNCTIONS[name])
    for each in _parameters(FUNCTIONS[name]):
        if each.default is not inspect.Parameter.empty:
            text = re.search(rf"^ +{each.name}: (.*?)(?=^ {{4}}\w|\Z|^\w)", words, re.MULTILINE | re.DOTALL)
            assert "Default: " in text.group(1), f"{name}: {each.name}"


SCRIPT = """
import penstock

def plus_one(batch: dict[str, "penstock.loader.batches.Array"]) -> dict[str, "penstock.loader.batches.Array"]:
    return batch

manifest: penstock.Manifest = penstock.run({"input": "a.csv", "output": "out"}, progress=False)
records: int = manifest.records("train")
loader: penstock.Loader = penstock.load("out", batch_size=8, length=16, fill="packed", fields={"at": "time"})
with loader.map(plus_one, processes=2, timeout=1.5) as mapped:
    for batch in mapped.to_torch("cuda", ahead=3, int64=("targets",)):
        reveal_type(mapped.state())
    mapped.to_jax(ahead=1)
    mapped.to_maxtext().get_state()
first: dict[str, object] = penstock.open("out", "train", columns=["a"])[0]
exported = penstock.export("out", to="hf", overwrite=True)
reveal_type(exported.files)
config: penstock.Config = penstock.plan("job.yaml").config
"""
WRONG = {
    'penstock.load("out", batch_size="8")': "arg-type",
    'penstock.load("out", batch_size=8, fill="paked")': "arg-type",
    'penstock.load("out", batch_size=8).to_torch(devise="cuda")': "call-arg",
    'penstock.load("out", batch_size=8).to_jax(ahead="2")': "arg-type",
    'penstock.export("out", to="hff")': "arg-type",
    'penstock.open("out", 3)': "arg-type",
}


@pytest.mark.proof
def test_mypy_knows_the_door_and_refuses_wrong_calls(tmp_path):
    lines = ["import penstock", *WRONG]
    (tmp_path / "right.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    told = subprocess.run(
        [*command, "right.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, env=_as_installed(tmp_path)
    ).stdout
    own = [line for line in told.splitlines() if line.startswith(("right.py", "wrong.py"))]
    notes = [line for line in own if ": note: Revealed" in line]
    errors = [line for line in own if ": error: " in line]
    assert [line.partition("type is ")[2] for line in notes] == ['"dict[str, Any]"', '"int"'], own
    assert len(errors) == len(WRONG), own
    for number, (call, code) in enumerate(WRONG.items(), 2):
        assert any(line.startswith(f"wrong.py:{number}:") and line.endswith(f"[{code}]") for line in errors), call


def _as_installed(folder):
    """An environment in which mypy finds penstock as it would a library: its own findings are not the user's."""
    import os
    from pathlib import Path

    (folder / "site").mkdir()
    (folder / "site" / "penstock").symlink_to(Path(penstock.__file__).parent)
    return {**os.environ, "MYPYPATH": str(folder / "site")}
