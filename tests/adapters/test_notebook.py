"""A notebook, in a real Jupyter kernel: progress is shown, objects are tables, the driver's lines are not errors."""

import json

import nbclient
import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_CELL = """
import os, numpy as np
seed, driver = 3, os.getpid()
def world(item):
    return np.random.default_rng([seed, item]).normal(0, 1, 4)
def simulate(item):
    assert os.getpid() != driver
    return {"x": world(item)}
made = lambda: penstock.run({"input": {"items": range(20), "function": simulate}, "output": "worlds", "workers": 1,
                             "stages": [lambda batch: batch]}, progress=False).job
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Outputs of each cell, by its number."""
    folder = tmp_path_factory.mktemp("notebook")
    pq.write_table(pa.table({"<b>x": [1, 2, 3]}), folder / "in.parquet")
    job = {"input": str(folder / "in.parquet"), "output": str(folder / "out")}
    code = [
        f"import penstock; job = {json.dumps(job)}",
        "penstock.plan(job)",
        "manifest = penstock.run(job)",
        "manifest",
    ]
    code += ["_ = penstock.run(job, redo=True, progress=False)", "penstock.open(job['output'])"]
    code += [_CELL, "made()", _CELL, "made(), len(penstock.open('worlds')[:])"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in code])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell["outputs"] for cell in notebook["cells"]]


def test_a_run_shows_its_progress_in_lines_of_which_the_last_changes_in_place(cells):
    *lines, last = cells[2]
    assert {shown["name"] for shown in lines} == {"stdout"}
    text = "".join(shown["text"] for shown in lines)
    assert text.splitlines()[0] == "penstock: planning: listing the input, measuring its first rows"
    assert "1 task to do, 3 rows in all" in text
    assert "\x1b[1A" not in text  # a notebook does not move a cursor: frames of a screen would pile up
    assert last["output_type"] == "display_data"
    assert "3 of 3 rows read, 100% of all work" in last["data"]["text/plain"]


def test_a_run_shows_nothing_where_that_is_asked_for(cells):
    assert cells[4] == []


@pytest.mark.parametrize(("cell", "name"), [(1, "Plan"), (3, "Manifest"), (5, "Dataset")])
def test_an_object_is_a_table_in_which_names_are_no_markup(cells, cell, name):
    html = cells[cell][0]["data"]["text/html"]
    assert f"<caption>{name}</caption>" in html
    assert "<b>" not in html


def test_a_function_of_a_cell_is_given_to_a_job_and_is_the_same_when_the_cell_is_run_again(cells):
    (first,), (again,) = cells[7], cells[9]
    name = json.loads(first["data"]["text/plain"].replace("'", '"'))
    assert again["data"]["text/plain"] == f"({name!r}, 20)"
