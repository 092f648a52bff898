"""The README's first steps, word for word: in a clean environment as a script and in a real Jupyter kernel."""

import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import nbclient
import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(section: str) -> list[tuple[str, str]]:
    """(language, code) of each block of a section."""
    return FENCED.findall(README.partition(f"\n## {section}\n")[2].partition("\n## ")[0])


INSTALL = dict(blocks("Install"))["bash"]
STEPS = dict(blocks("First steps"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Environment variables of a new environment with nothing but what the README installs from a checkout."""
    folder = tmp_path_factory.mktemp("clean")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, checkout)
    shutil.copytree(CHECKOUT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    venv.create(folder / "environment", with_pip=True)
    path = f"{folder / 'environment' / 'bin'}:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    shell(INSTALL, checkout, environment)
    return environment


def shell(commands: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_script_prepares_and_feeds_a_loop(clean, tmp_path):
    (tmp_path / "first.py").write_text(STEPS["python"])
    printed = shell("python first.py", tmp_path, clean)
    assert "set aside 137 by filter" in printed
    assert "float11" not in printed


@pytest.fixture
def kernel(clean, tmp_path, monkeypatch):
    """Name of a Jupyter kernel that runs in the clean environment."""
    shell("pip install --quiet ipykernel", tmp_path, clean)
    folder = tmp_path / "jupyter" / "kernels" / "clean"
    folder.mkdir(parents=True)
    python = shutil.which("python", path=clean["PATH"])
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "clean", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return folder.name


def test_a_notebook_does_the_same(kernel, clean, tmp_path):
    """The same records. The identity of the function differs: a notebook compiles each statement by itself."""
    cells = STEPS["python"].split("\n\n\n")
    assert len(cells) > 2
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name=kernel, resources=where).execute()
    printed = "".join(each.get("text", "") for cell in notebook["cells"] for each in cell["outputs"])
    assert "<Manifest:" in printed
    script = tmp_path / "script"
    script.mkdir()
    (script / "first.py").write_text(STEPS["python"])
    shell("python first.py", script, clean)
    written = [sorted((folder / "purchases").glob("*/*.safetensors")) for folder in (tmp_path, script)]
    assert [path.name for path in written[0]] == [path.name for path in written[1]] != []
    assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]


def test_the_commands_work_on_files_of_your_own(clean, tmp_path):
    (tmp_path / "my-data").mkdir()
    days = pa.array([19_700 + number % 40 for number in range(5_000)], pa.int32()).cast(pa.date32())
    readings = {"station": [f"s{number % 97}" for number in range(5_000)], "day": days, "rain": [0.5] * 5_000}
    pq.write_table(pa.table(readings), tmp_path / "my-data" / "rain.parquet")
    shell(STEPS["bash"], tmp_path, clean)
    assert (tmp_path / "prepared" / "manifest.json").exists()
    assert list(tmp_path.glob("*.html"))
