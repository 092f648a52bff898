"""The README's section on Python, run as it stands there, in a folder with data."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

README = Path(__file__).parents[1] / "README.md"
SECTION = README.read_text().partition("\n## From Python\n")[2].partition("\n## ")[0]
SCRIPT, MODULE = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


def test_the_section_on_python_does_what_it_says(tmp_path):
    (tmp_path / "data").mkdir()
    table = pa.table({"rtt": [1.5, -1.0, 2.5, 3.5], "size": [2, 4, 5, 6]})
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(f"{SCRIPT}\nprint(repr(manifest))\nprint(penstock.open('prepared')[:]['size'])")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    plan, manifest, *sizes = done.stdout.splitlines()
    assert plan.startswith("<Plan: output ")
    assert "set aside 1 by filter, 1 by mine:Even" in manifest
    assert [line.strip(" ,") for line in sizes if line.strip(" ,").isdigit()] == ["2", "6"]
    assert (tmp_path / "prepared.h5").exists()
