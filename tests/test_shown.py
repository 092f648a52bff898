"""Objects of the Python interface say what they are, in a line and in a notebook; names cannot be markup."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import InputError
from penstock.show.failure import message

NASTY = "<script><b>\x1b[31m'\"&"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    pq.write_table(pa.table({NASTY: [1, 2, 3, 4]}), folder / "in.parquet")
    job = {"input": str(folder / "in.parquet"), "output": str(folder / "out"), "workers": 0}
    return {**job, "stages": [{"filter": f"`{NASTY}` < 4"}]}


@pytest.fixture(scope="module")
def shown(job):
    plan = penstock.plan(job)
    manifest = penstock.run(plan)
    with penstock.load(job["output"], batch_size=2, workers=0) as loader:
        yield {"Plan": plan, "Manifest": manifest, "Dataset": penstock.open(job["output"]), "Loader": loader}


@pytest.mark.parametrize("name", ["Plan", "Manifest", "Dataset", "Loader"])
def test_an_object_says_what_it_is_in_one_line(shown, name):
    assert type(shown[name]) is getattr(penstock, name)
    line = repr(shown[name])
    assert line.startswith(f"<{name}: ")
    assert len(line) < 600
    assert line.isprintable()


@pytest.mark.parametrize("name", ["Plan", "Manifest", "Dataset", "Loader"])
def test_a_notebook_shows_a_table_in_which_nothing_is_markup_that_came_from_data(shown, name):
    html = shown[name]._repr_html_()
    assert html.startswith(f"<table><caption>{name}</caption><tr><th>")
    assert "<b>" not in html
    assert "<script" not in html.lower()
    assert "\x1b" not in html


def test_a_manifest_says_which_steps_set_rows_aside(shown):
    assert "set aside 1 by filter" in repr(shown["Manifest"])


def test_a_column_that_looks_like_markup_is_shown_as_text(shown):
    assert r"<script><b>\x1b[31m" in repr(shown["Manifest"])
    assert "&lt;script&gt;&lt;b&gt;" in shown["Manifest"]._repr_html_()


def test_errors_can_be_caught_by_name(tmp_path):
    with pytest.raises(penstock.OutputError) as caught:
        penstock.open(tmp_path)
    assert isinstance(caught.value, penstock.PenstockError)
    with pytest.raises(penstock.ConfigError):
        penstock.plan({"input": "x.parquet", "output": "y", "stagess": []})


@pytest.mark.usefixtures("shown")
def test_what_the_commands_do_can_be_called(job, tmp_path):
    assert len(penstock.inspect(job["output"], records=2)["records"]) == 2
    exported = penstock.export(job["output"], "hdf5", tmp_path / "x.h5")
    assert exported.rows == {"train": 3}
    with pytest.raises(penstock.ConfigError, match="Did you mean 'hdf5'"):
        penstock.export(job["output"], "hdf")


def test_an_error_has_the_name_by_which_it_can_be_caught():
    class Misspelt(InputError):
        pass

    error = Misspelt("there is no column 'amnt'")
    assert error.as_dict()["error"] == "InputError"
    assert next(message(error, debug=False)).plain.startswith("InputError: ")


def test_an_output_that_is_a_file_is_told_so(job, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(penstock.FileError, match="a file has that name") as caught:
        penstock.run({**job, "output": str(tmp_path / "taken")})
    assert caught.value.where == str(tmp_path / "taken")


def test_a_dataset_of_text_alone_says_how_it_becomes_batches(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "in.parquet")
    penstock.run({"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0})
    with pytest.raises(penstock.ConfigError, match="nothing but text to load: text") as caught:
        penstock.load(tmp_path / "out", batch_size=1)
    assert "tokenize" in caught.value.next_step


def test_a_missing_file_need_not_be_deleted_first(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in.parquet")
    penstock.run({"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0})
    next((tmp_path / "out" / "train").iterdir()).unlink()
    (problem,) = penstock.verify(tmp_path / "out").problems
    assert problem.next_step.startswith("run the job again")


def test_only_the_columns_that_are_asked_for_are_read_in_the_order_asked(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    pq.write_table(table, tmp_path / "in.parquet")
    job = {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "format": "npy", "workers": 0}
    penstock.run(job)
    (damaged,) = (tmp_path / "out" / "train").glob("*.b.bytes.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")  # nobody may look at it
    some = penstock.open(tmp_path / "out", columns=["c", "a"])
    assert some[1] == {"c": 1.5, "a": 2}
    assert some[:].column_names == ["c", "a"]
    with pytest.raises(penstock.IntegrityError):
        penstock.open(tmp_path / "out", columns=["b"])[:]
    assert penstock.open(tmp_path / "out", columns="a")[:].to_pydict() == {"a": [1, 2]}
    with pytest.raises(penstock.ConfigError, match=r"there is no column 'bb'\. Did you mean 'b'"):
        penstock.open(tmp_path / "out", columns=["bb"])
