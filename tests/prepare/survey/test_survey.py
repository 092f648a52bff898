"""The survey: which files are the input, and what is refused before a row is used."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError, PlanError
from tests.promises import workshop


def _plan(tmp_path, data, **keys):
    return penstock.plan(workshop.write_job(tmp_path / "job.yaml", data, **{"stages": [], "workers": 0, **keys}))


def test_a_pattern_that_matches_nothing_is_told_with_where_it_looked(tmp_path):
    with pytest.raises(InputError, match="no file matches") as caught:
        _plan(tmp_path, tmp_path / "*.parquet")
    assert str(tmp_path) in (caught.value.where or "")


def test_a_file_that_is_named_twice_is_refused(tmp_path):
    data = workshop.make_input(tmp_path / "data" / "sub", files=1)
    for twice in (
        [f"{tmp_path}/data/**/*.parquet", f"{data}/*.parquet"],
        [{"path": str(tmp_path / "data")}, str(data)],
    ):
        with pytest.raises(InputError, match=r"twice|same name"):
            _plan(tmp_path, data, input=twice)


def test_files_of_two_formats_in_one_source_are_refused(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    (data / "rows.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="different formats: csv, parquet"):
        _plan(tmp_path, data)


def test_a_column_that_no_file_has_is_told_by_the_stage_that_names_it(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"stages\[0\].select: there is no column 'c'. Columns: a, b"):
        _plan(tmp_path, tmp_path / "rows.csv", stages=[{"select": ["c"]}])


def test_what_is_measured_before_the_split_would_leak_and_is_refused(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    with pytest.raises(ConfigError, match="before split"):
        _plan(tmp_path, data, stages=[{"normalize": ["rtt"]}, {"split": {"test": 0.1}}])
    with pytest.raises(ConfigError, match="a job has one split"):
        _plan(tmp_path, data, stages=[{"split": {"test": 0.1}}, {"split": {"val": 0.1}}])


@pytest.mark.proof
def test_a_column_that_declares_itself_without_nulls_is_like_any_other(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}, schema=schema), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [5, None], "b": [3, 4]}), tmp_path / "2.parquet")
    job = workshop.write_job(tmp_path / "job.yaml", f"{tmp_path}/*.parquet", stages=[{"select": ["a"]}])
    penstock.run(job)
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1, 2, 5, None]


@pytest.mark.proof
def test_several_sources_keep_their_order_and_may_differ_in_format(tmp_path):
    (tmp_path / "rows.csv").write_text("a\n7\n8\n")
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64())}), tmp_path / "rows.parquet")
    job = workshop.write_job(tmp_path / "job.yaml", "", input=["rows.parquet", "rows.csv"], stages=[], slice_size="1MB")
    penstock.run(job)
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1, 2, 7, 8]


def test_a_split_by_a_column_that_is_dropped_later_is_refused_by_name(tmp_path):
    (tmp_path / "rows.csv").write_text("a,game\n1,x\n")
    stages = [{"split": {"by": "game", "test": 0.1}}, {"select": ["a"]}]
    with pytest.raises(ConfigError, match="split by: game: a later stage drops that column") as caught:
        _plan(tmp_path, tmp_path / "rows.csv", stages=stages, format="arrays")
    assert "keep game" in (caught.value.next_step or "")


def test_two_columns_whose_files_would_be_one_are_refused_in_whichever_split(tmp_path):
    (tmp_path / "same.csv").write_text("features,strategic_features\n1,2\n")
    with pytest.raises(ConfigError, match=r"two columns would both be X_train\.npy"):
        _plan(tmp_path, tmp_path / "same.csv", format="arrays")
    (tmp_path / "across.csv").write_text("a,a_val\n1,2\n")
    _plan(tmp_path, tmp_path / "across.csv", format="arrays")  # a_train.npy and a_val_train.npy
    splits = [{"split": {"val": 0.1, "val_val": 0.1}}]
    with pytest.raises(ConfigError, match=r"two columns would both be a_val_val\.npy"):
        _plan(tmp_path, tmp_path / "across.csv", stages=splits, format="arrays")


def test_more_files_than_the_driver_can_hold_are_refused_with_their_number(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(1000):
        (tmp_path / "data" / f"{number}.txt").write_text("a document")
    with pytest.raises(PlanError, match=r"the input has 1,000 files, and the driver needs .* per file") as caught:
        _plan(tmp_path, tmp_path / "data", memory="20MB")
    assert (caught.value.next_step or "").startswith("memory: ")


def test_later_files_are_not_asked_for_types_and_are_still_refused_where_they_are_unlike(tmp_path):
    (tmp_path / "data").mkdir()
    for number, line in enumerate(['{"a": 1}', '{"a": 2}', "no object"]):
        (tmp_path / "data" / f"{number}.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match="no line of it is a JSON object") as caught:
        _plan(tmp_path, tmp_path / "data")
    assert "2.jsonl" in (caught.value.where or "")
    (tmp_path / "data" / "2.jsonl").write_text('{"a": 3}\n')
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=[], workers=0)
    penstock.run(job)
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1, 2, 3]


def test_a_later_file_may_begin_with_a_line_that_nests_too_deep(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.jsonl").write_text('{"a": 1}\n')
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    (tmp_path / "data" / "1.jsonl").write_text(deep + '{"a": 2}\n')
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=[], workers=0, on_bad_input="set_aside")
    penstock.run(job)
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize("types", [{}, {"b": "string"}])
def test_columns_come_from_the_first_file_that_has_lines(tmp_path, types):
    (tmp_path / "data").mkdir()
    for number, lines in enumerate(["", '{"a": 1, "b": 5}\n', "", '{"a": 2, "b": 6}\n']):
        (tmp_path / "data" / f"{number}.jsonl").write_text(lines)
    source = {"path": str(tmp_path / "data"), "types": types}
    penstock.run({"input": source, "output": str(tmp_path / "out"), "stages": [], "workers": 0})
    found = penstock.open(tmp_path / "out")[:]
    assert found["a"].to_pylist() == [1, 2]
    assert found["b"].to_pylist() == (["5", "6"] if types else [5, 6])


def test_an_empty_file_with_declared_types_gives_a_dataset_of_these_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    source = {"path": str(tmp_path / "a.jsonl"), "types": {"b": "string"}}
    penstock.run({"input": source, "output": str(tmp_path / "out"), "stages": [], "workers": 0})
    assert [field.name for field in penstock.open(tmp_path / "out").schema] == ["b"]


def orders(tmp_path):
    rows = [{"customer": n, "price": n / 2, "device": {"os": "linux"}} for n in range(20)]
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "orders"


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"customre": "int32"}, r"input\[0\].types: none of the first rows has a field 'customre'. Did you mean 'cus"),
        ({"device.os": "string"}, r"input\[0\].types: 'device.os' is a field of the column 'device'"),
    ],
)
@pytest.mark.parametrize("on_bad_input", ["fail", "set_aside"])
def test_a_misspelled_name_in_types_of_jsonl_is_refused(tmp_path, types, message, on_bad_input):
    source = {"path": str(orders(tmp_path)), "types": types}
    job = {"input": source, "output": str(tmp_path / "out"), "workers": 0, "on_bad_input": on_bad_input}
    with pytest.raises(InputError, match=message):
        penstock.run({**job, "stages": [{"select": ["price"]}]})


@pytest.mark.proof
def test_a_declared_column_that_only_later_rows_have_is_read_and_said(tmp_path):
    folder = orders(tmp_path)
    (folder / "b.jsonl").write_text('{"customer": 1, "voucher": 7}\n')
    source = {"path": str(folder), "types": {"voucher": "int32"}}
    stages = [{"select": ["customer", "voucher"]}]
    job = workshop.write_job(tmp_path / "job.yaml", folder, input=source, stages=stages, workers=0)
    words = "voucher: declared in `types:`, and in none of the first rows"
    assert f"not seen  {words}" in workshop.on_screen(job, "plan").stdout
    ran = workshop.on_screen(job, "run", "--json")
    assert f"not seen: {words}" in ran.stderr
    assert json.loads(ran.stdout)["not_seen"] == ["voucher"]
    assert penstock.open(tmp_path / "out")[:].to_pylist()[-1]["voucher"] == 7


def test_a_misspelled_name_in_types_of_csv_is_a_mistake_of_the_job_whatever_happens_to_bad_files(tmp_path):
    for number in range(3):
        (tmp_path / f"part{number}.csv").write_text("customer,price\n1,2\n")
    job = {"output": str(tmp_path / "out"), "workers": 0, "on_bad_input": "set_aside"}
    with pytest.raises(InputError, match=r"input\[0\].types names a column 'customre' .* Did you mean 'customer'"):
        penstock.run({**job, "input": {"path": str(tmp_path / "*.csv"), "types": {"customre": "int32"}}})
    (tmp_path / "part1.csv").write_text("other\n1\n")
    penstock.run({**job, "input": {"path": str(tmp_path / "*.csv"), "types": {"customer": "int32"}}})
    assert len(penstock.open(tmp_path / "out")) == 2


@pytest.mark.parametrize(("option", "value"), [("types", {"a": "string"}), ("delimiter", ";")])
def test_an_option_that_has_no_say_in_the_files_is_refused(tmp_path, option, value):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    job = {"input": {"path": str(tmp_path / "a.parquet"), option: value}, "output": str(tmp_path / "out")}
    with pytest.raises(ConfigError, match=rf"input\[0\]\.{option}: .* these files are parquet"):
        penstock.plan(job)
    (tmp_path / "b.csv").write_text("a\n1\n")
    job["input"] = [
        job["input"]["path"],
        {"path": str(tmp_path / "b.csv"), option: {"a": "int64"} if option == "types" else value},
    ]
    penstock.plan(job)
