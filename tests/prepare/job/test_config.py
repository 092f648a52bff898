"""Config: a job file as a value; every mistake in it is told with its path and its line."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config, load_config
from penstock.prepare.job.engine_config import RayOptions
from penstock.prepare.job.source_config import SourceConfig

MINIMAL = {"input": "data/*.parquet", "output": "out"}


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_what_a_job_does_not_say_has_a_default():
    config = Config(MINIMAL, folder="/jobs")
    assert config == Config(
        input=(SourceConfig(path=("data/*.parquet",)),),
        output="out",
        stages=(),
        format="safetensors",
        on_bad_input="fail",
        slice_size="64MB",
        memory="80%",
        workers="auto",
        engine="local",
        task_timeout=600,
        stall_notice=60,
        folder="/jobs",
    )
    source = config.input[0]
    assert (source.format, source.types, source.delimiter, source.may_hold_newlines) == ("auto", {}, None, False)
    assert source.null_values == ("", "NA", "N/A", "NULL", "null")
    assert (config.slice_bytes, config.output_path) == (64_000_000, "/jobs/out")


@pytest.mark.parametrize(
    "written",
    ["a.csv", ["a.csv"], {"path": "a.csv"}, [{"path": "a.csv"}], [{"path": ["a.csv"]}], Path("a.csv"), [Path("a.csv")]],
)
def test_one_source_may_be_written_in_many_ways(written):
    assert Config({**MINIMAL, "input": written}).input == (SourceConfig(path=("a.csv",)),)


@pytest.mark.parametrize("written", ["ray", {"ray": None}, {"ray": {}}])
def test_an_engine_without_options_may_be_written_in_many_ways(written):
    engine = Config({**MINIMAL, "engine": written}).engine
    assert (engine.name, engine.options) == ("ray", RayOptions())


def test_an_engine_with_options_is_written_as_it_was_read():
    config = Config({**MINIMAL, "engine": {"ray": {"address": "auto"}}})
    assert config.engine.options == RayOptions(address="auto")
    assert "engine:\n  ray: {address: auto}" in config.to_yaml()
    assert Config(config.to_dict()) == config


def test_an_engine_decides_nothing_that_is_semantic():
    local, ray = Config(MINIMAL), Config({**MINIMAL, "engine": "ray"})
    assert local.semantic(()) == ray.semantic(())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"engine": "rya"}, "engine: 'rya' is not one of local, ray. Did you mean 'ray'?"),
        (
            {"engine": {"local": {}, "ray": {}}},
            "engine: expected one of local, ray, or a mapping of one to its options",
        ),
        ({"engine": {"ray": {"adress": "auto"}}}, "engine.ray.adress: unknown key. Keys: address."),
        ({"engine": {"ray": {"address": 1}}}, "engine: ray.address: expected a string, got 1"),
        ({"engine": "ray", "workers": 0}, "workers: 0 does the tasks inside the driver, and engine: ray elsewhere"),
        ({"engine": "ray", "strategy": "sequential"}, "strategy: sequential does the tasks inside the driver"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config({**MINIMAL, **keys})


def test_paths_of_python_are_paths(tmp_path):
    config = Config({"input": [tmp_path / "a.csv"], "output": tmp_path / "out"})
    assert (config.input[0].path, config.output) == ((str(tmp_path / "a.csv"),), str(tmp_path / "out"))


def test_a_table_in_memory_is_to_be_written_to_a_file():
    with pytest.raises(ConfigError, match=r"this is a pyarrow\.Table: write it to a Parquet file"):
        Config({"input": pa.table({"a": [1]}), "output": "out"})


def test_a_stage_without_options_may_be_its_name_alone(tmp_path, monkeypatch):
    (tmp_path / "own_stage_module.py").write_text("def same(batch): return batch\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = Config({**MINIMAL, "stages": ["own_stage_module:same", {"filter": "a > 1"}]})
    assert config.stage_names == ("own_stage_module:same", "filter")
    sys.modules.pop("own_stage_module")


def test_numbers_may_stand_for_sizes_and_workers():
    config = Config({**MINIMAL, "memory": 2_000_000_000, "slice_size": 1000, "workers": "3"})
    assert (config.memory, config.slice_bytes, config.workers) == ("2000000000", 1000, 3)


def test_a_config_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config(MINIMAL).output = "elsewhere"


def test_what_decides_output_bytes_is_told_apart_from_what_does_not():
    one = Config({**MINIMAL, "stages": [{"filter": "a > 1"}]})
    other = Config(
        {
            "input": "elsewhere/*.parquet",
            "output": "there",
            "stages": [{"filter": {"where": ["a > 1"], "keep": False}}],
            "memory": "1GB",
            "workers": 0,
            "task_timeout": 5,
            "slice_size": "64000000",
        }
    )
    assert one.semantic(one.build_stages()) == other.semantic(other.build_stages())
    for change in ({"format": "npy"}, {"on_bad_input": "set_aside"}, {"slice_size": "63MB"}, {"stages": []}):
        changed = Config({**MINIMAL, "stages": [{"filter": "a > 1"}], **change})
        assert changed.semantic(changed.build_stages()) != one.semantic(one.build_stages())


MISTAKES = [
    ("input: a.csv\n", None, "output: this key is required"),
    ("output: out\n", None, "input: this key is required"),
    ("input: a.csv\noutput: out\nmemroy: 5GB\n", 3, "memroy: unknown key. Keys: input, output"),
    ("input: a.csv\noutput: out\nmemroy: 5GB\n", 3, "Did you mean 'memory'?"),
    ("input: a.csv\noutput: out\nfolder: /x\n", 3, "folder: unknown key"),
    ("input: a.csv\noutput: out\nmemory: lots\n", 3, "memory: 'lots' is not a size: write 16GB (10^9)"),
    ("input: a.csv\noutput: out\nmemory: 101%\n", 3, "memory: '101%' is more than 100%"),
    ("input: a.csv\noutput: out\nslice_size: 5%\n", 3, "slice_size: '5%': a percentage is not allowed here"),
    ("input: a.csv\noutput: out\nslice_size: 0\n", 3, "slice_size: '0' is not a size: it must be more than zero"),
    ("input: a.csv\noutput: out\nworkers: many\n", 3, "workers: 'many' is not `auto`, 0"),
    ("input: a.csv\noutput: out\nworkers: -1\n", 3, "workers: -1 is not `auto`, 0"),
    ("input: a.csv\noutput: out\nworkers: true\n", 3, "workers: True is not `auto`, 0"),
    (
        "input: a.csv\noutput: out\nformat: zip\n",
        3,
        "format: 'zip' is not one of safetensors, npy, arrays, arrayrecord.",
    ),
    ("input: a.csv\noutput: out\ntask_timeout: 0\n", 3, "task_timeout: expected a value greater than 0, got 0"),
    ("input: a.csv\noutput: 5\n", 2, "output: expected a string, got 5"),
    ("input: []\noutput: out\n", 1, "input: "),
    ("input: {path: []}\noutput: out\n", 1, "input[0]: none of path, files, items, npz: give one of path"),
    (
        "input:\n  path: a.csv\n  npz: b.npz\noutput: out\n",
        1,
        "input[0]: path and npz: give one of path (rows that penstock reads), files (raw files for `function`), "
        "items (values for `function`) and npz",
    ),
    ("input:\n- a.csv\n- files: '*.txt'\noutput: out\n", 3, "input[1]: files: needs `function: module:name`"),
    ("input: {npz: a.npz, function: 'os:listdir'}\noutput: out\n", 1, "npz: holds samples already, and takes no"),
    ("input: {files: a, function: listdir}\noutput: out\n", 1, "function: 'listdir' is not module:name"),
    ("input: {path: a.csv, schema: {x: int8}}\noutput: out\n", 1, "describe what a `function` yields, but there is"),
    ("input: {path: a.csv, missing: {x: 1}}\noutput: out\n", 1, "describe what a `function` yields, but there is"),
    ("input: {path: a.csv, function_memory: 1GB}\noutput: out\n", 1, "describe what a `function` yields, but"),
    (
        "input:\n  files: a\n  function: os:listdir\n  function_memory: lots\noutput: out\n",
        4,
        "input[0].function_memory: 'lots' is not a size",
    ),
    (
        "input:\n  files: a\n  function: os:listdir\n  function_memory: 10%\noutput: out\n",
        4,
        "input[0].function_memory: '10%': a percentage is not allowed here",
    ),
    (
        "input:\n  files: a\n  function: os:listdir\n  floats: float8\noutput: out\n",
        4,
        "input[0].floats: 'float8' is not one of float16, float32, float64. Did you mean 'float",
    ),
    (
        "input:\n  path: a.csv\n  function: os:listdir\n  batch_rows: 0\noutput: out\n",
        4,
        "input[0].batch_rows: expected a value greater than 0, got 0",
    ),
    (
        "input:\n  files: a\n  samples: {x: int8}\noutput: out\n",
        3,
        "input[0].samples: unknown key. Keys: path, files, items, npz, format",
    ),
    (
        "output: out\ninput:\n  files: a\n  function: os:listdri\n",
        4,
        "input[0].function: module 'os' has no 'listdri'. Did you mean 'listdir'?",
    ),
    (
        "output: out\ninput:\n- a.csv\n- files: a\n  function: nowhere_at_all:f\n",
        5,
        "input[1].function: there is no module 'nowhere_at_all'",
    ),
    ("output: out\ninput:\n  files: a\n  function: os:name\n", 4, "input[0].function: os:name is not a function"),
    ("input: a.csv\noutput: out\nbatch_size: 0\n", 3, "batch_size: expected a value greater than 0, got 0"),
    (
        "input: a.csv\noutput: out\nmerge_strategy: fast\n",
        3,
        "merge_strategy: 'fast' is not one of sequential, accumulative.",
    ),
    ("input: 5\noutput: out\n", 1, "input: expected a list, got 5"),
    ("input:\n  path: a.csv\n  fromat: csv\noutput: out\n", 3, "input[0].fromat: unknown key"),
    ("input:\n  path: a.csv\n  format: xls\noutput: out\n", 3, "input[0].format: 'xls' is not one of auto, parquet"),
    ("input:\n- a.csv\n- path: b.csv\n  typs: {}\noutput: out\n", 4, "input[1].typs: unknown key"),
    ("input:\n- a.csv\n- path: b.csv\n  types: {a: int}\noutput: out\n", 4, "input[1].types: a: 'int' is not a type"),
    ("input: {path: a.csv, types: {a: list<foo>}}\noutput: out\n", 1, "a: 'list<foo>' is not a type such as int64"),
    ("input: {path: a.csv, types: {a: foo<int64>}}\noutput: out\n", 1, "a: 'foo<int64>' is not a type such as"),
    ("input: {path: a.csv, types: {a: cpu_count}}\noutput: out\n", 1, "a: 'cpu_count' is not a type such as"),
    ("input: {path: a.csv, types: {a: timestamp}}\noutput: out\n", 1, "a: 'timestamp' is not a type such as"),
    ("input: {path: a.csv, types: {a: 'int64[us]'}}\noutput: out\n", 1, "a: 'int64[us]' is not a type such as"),
    ("input: {path: a.csv, delimiter: ab}\noutput: out\n", 1, "input[0].delimiter: 'ab' cannot separate values"),
    ("input: {path: a.csv, delimiter: é}\noutput: out\n", 1, "input[0].delimiter: 'é' cannot separate values"),
    ("input: a.csv\noutput: out\nstages: filter\n", 3, "stages: is a list"),
    ("input: a.csv\noutput: out\nstages:\n- filter: a > 1\n- 5\n", 5, "stages[1]: one stage with its options"),
    ("input: a.csv\noutput: out\nstages:\n- {filter: a > 1, select: a}\n", 4, "stages[0]: one stage with its options"),
    (
        "input: a.csv\noutput: out\nstages:\n- fliter: a > 1\n",
        4,
        "stages[0].fliter: unknown stage 'fliter'. Stages: bins, cast, clean, dedup, filter",
    ),
    ("input: a.csv\noutput: out\nstages:\n- fliter: a > 1\n", 4, "Did you mean 'filter'?"),
    (
        "input: a.csv\noutput: out\nstages:\n- select: a\n- filter: {were: a > 1}\n",
        5,
        "stages[1].filter: unknown option 'were'",
    ),
    ("input: a.csv\noutput: out\nstages:\n- filter: a >\n", 4, "stages[0].filter: cannot read the condition 'a >'"),
    ("input: a.csv\noutput: out\nstages:\n- filter: {where: a > 1, keep: 7}\n", 4, "stages[0].filter: keep: "),
    ("input: a.csv\noutput: out\nstages:\n- nowhere_at_all:f\n", 4, "stages[0].nowhere_at_all:f: there is no module"),
    ("input: a.csv\noutput: out\nstages:\n- math:sinn\n", 4, "stages[0].math:sinn: module 'math' has no 'sinn'."),
    (
        "input: a.csv\noutput: out\nstages:\n- math:pi\n",
        4,
        "stages[0].math:pi: math:pi is neither a function nor a Stage",
    ),
    ("input: a.csv\noutput: out\noutput: there\n", 3, "output: written twice"),
    ("input: a.csv\noutput: out\nstages:\n- split: {test: 0.1, test: 0.2}\n", 4, "stages[0].split.test: written twice"),
    ("input: a.csv\noutput: [out\n", 3, "not YAML: "),
    ("input: a.csv\n\toutput: out\n", 2, "not YAML: "),
    ("? [a, b]\n: 1\n", 1, "not YAML: "),
    ("input: !!python/object:os.system x\n", 1, "not YAML: "),
    ("- input\n", None, "a job is a mapping with `input:`"),
    ("", None, "a job is a mapping with `input:`"),
]


@pytest.mark.parametrize(("text", "line", "message"), MISTAKES, ids=[message for _, _, message in MISTAKES])
def test_a_mistake_is_told_with_its_path_and_its_line(tmp_path, text, line, message):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in caught.value.what
    assert caught.value.where == (f"{path}, line {line}" if line else str(path))


def test_a_mistake_in_a_job_from_python_has_its_path():
    with pytest.raises(ConfigError) as caught:
        Config({**MINIMAL, "stages": [{"select": ["a"]}, {"filter": {"were": "a > 1"}}]})
    assert caught.value.what.startswith("stages[1].filter: unknown option 'were'")
    assert caught.value.where is None


def test_a_job_file_that_is_not_there_says_how_to_begin(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the job file") as caught:
        load_config(tmp_path / "job.yaml")
    assert "penstock init" in caught.value.next_step
    (tmp_path / "job.yaml").write_bytes(b"input: \xff\n")
    with pytest.raises(ConfigError, match="cannot read the job file"):
        load_config(tmp_path / "job.yaml")


def test_overrides_replace_what_the_file_says(tmp_path):
    path = write(tmp_path, "input: a.csv\noutput: out\nmemory: 1GB\n")
    config = load_config(path, {"memory": "2GB", "workers": 0})
    assert (config.memory, config.workers, config.output_path) == ("2GB", 0, str(tmp_path / "out"))


def test_paths_and_modules_of_a_job_are_looked_for_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_job.py").write_text("def same(batch): return batch\n")
    path = write(tmp_path, "input: a.csv\noutput: ../out\nstages: ['beside_the_job:same']\n")
    config = load_config(path)
    assert config.output_path == str(tmp_path.parent / "out")
    assert config.folder == str(tmp_path)
    sys.modules.pop("beside_the_job")


def test_a_module_that_breaks_at_its_import_is_told_with_its_own_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "breaks_at_import.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, "input: a.csv\noutput: out\nstages: ['breaks_at_import:f']\n"))
    assert "stages[0].breaks_at_import:f: importing breaks_at_import raised ZeroDivisionError" in caught.value.what
    assert "breaks_at_import.py, line 2" in caught.value.where


# Samples of a function.

SAMPLES = {"files": "games/*", "function": "os:listdir"}


def test_what_a_source_of_samples_does_not_say_has_a_default():
    config = Config({"input": SAMPLES, "output": "out"}, folder="/jobs")
    (source,) = config.input
    assert (source.files, source.path, source.npz) == (("games/*",), (), ())
    assert (source.floats, source.batch_rows, source.samples, source.missing) == (None, 1024, None, {})
    assert (source.function_memory, source.trust_pickle, source.kind) == (None, False, "function")
    assert (config.format, config.merge_strategy, config.batch_size) == ("arrays", "sequential", 500)
    assert (config.intermediate_dir, config.batches_path) == (None, "")


@pytest.mark.parametrize(
    ("source", "format"),
    [
        (SAMPLES, "arrays"),
        ([SAMPLES], "arrays"),
        ({"path": "a.csv", "function": "os:listdir"}, "arrays"),
        ({"npz": "a.npz"}, "arrays"),
        ("a.csv", "safetensors"),
        ({"path": "a.npz", "format": "csv"}, "safetensors"),
    ],
)
def test_samples_become_arrays_unless_another_format_is_said(source, format):
    assert Config({"input": source, "output": "out"}).format == format
    assert Config({"input": source, "output": "out", "format": "npy"}).format == "npy"


def test_files_and_batch_files_may_be_one_or_many():
    for key, more in (("files", {"function": "os:listdir"}), ("npz", {})):
        for written in ("a", ["a"], Path("a"), [Path("a")]):
            (source,) = Config({"input": {key: written, **more}, "output": "out"}).input
            assert getattr(source, key) == source.patterns == ("a",)


def test_a_declared_schema_is_kept_as_it_was_written():
    schema = {"features": "float32[893]", "labels": {"move": "int16"}}
    (source,) = Config({"input": {**SAMPLES, "schema": schema, "missing": {"labels_move": -1}}, "output": "out"}).input
    assert (source.samples, source.missing) == (schema, {"labels_move": -1})
    dumped = source.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert Config({"input": dumped, "output": "out"}).input == (source,)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("schema:\n    a: int8\n    b: flaot32[893]", 6, "schema.b: 'flaot32[893]' is not a shape of a number such as"),
        ("schema:\n    labels:\n      move: 5", 6, "schema.labels.move: 5 is not a type such as int16"),
        ("schema: {}", 4, "schema: a schema has no columns"),
        ("schema: {a_b: int8, a: {b: int8}}", 4, "schema: keys 'a_b' and 'a.b' both become column 'a_b'"),
        ("schema: {x: int8}\n  missing: {y: 0}", 5, "missing: there is no column 'y'. Columns: x"),
        ("schema: {x: int8}\n  missing: {x: 300}", 5, "missing.x: int 300 does not fit: int8 is declared"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_with_its_line(tmp_path, text, line, message):
    path = write(tmp_path, f"input:\n  files: a\n  function: os:listdir\n  {text}\noutput: out\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.what.startswith(f"input[0].{message}")
    assert caught.value.where == f"{path}, line {line}"


def test_numbers_may_stand_for_the_memory_of_a_function():
    (source,) = Config({"input": {**SAMPLES, "function_memory": 5000}, "output": "out"}).input
    assert source.function_memory == "5000"


def test_how_samples_are_made_decides_bytes_and_what_they_may_use_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "two_functions.py").write_text("def one(path): ...\ndef other(path): ...\n")

    def semantic(**changes):
        source = {"files": "*", "function": "two_functions:one", **changes}
        return Config({"input": source, "output": "out"}, folder=str(tmp_path)).semantic(())

    assert semantic(function_memory="1GB", files="elsewhere/*") == semantic()
    for change in (
        {"function": "two_functions:other"},
        {"schema": {"x": "int8"}},
        {"floats": "float64"},
        {"missing": {"x": 1}},
        {"batch_rows": 7},
    ):
        assert semantic(**change) != semantic()
    sys.modules.pop("two_functions")


def test_what_samples_need_is_not_in_the_fingerprint_of_other_jobs():
    config = Config(MINIMAL)
    assert config.semantic(())["input"] == [
        {"format": "auto", "types": {}, "delimiter": None, "null_values": ["", "NA", "N/A", "NULL", "null"]}
        | {"newlines_in_values": False}
    ]
    assert "batch_size" not in config.semantic(())


def test_a_function_may_lie_beside_the_job_or_be_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_samples.py").write_text("def samples(path): yield {}\n")
    installed = tmp_path / "installed"
    (installed / "a_package_of_samples").mkdir(parents=True)
    (installed / "a_package_of_samples/__init__.py").touch()
    (installed / "a_package_of_samples/features.py").write_text("def samples(path): yield {}\n")
    monkeypatch.syspath_prepend(installed)
    text = "input: {{files: '*', function: '{}:samples'}}\noutput: out\n"
    for module in ("beside_samples", "a_package_of_samples.features"):
        config = load_config(write(tmp_path, text.format(module)))
        assert config.input[0].function == f"{module}:samples"
        assert module in config.semantic(())["input"][0]["code"]
    for module in ("beside_samples", "a_package_of_samples.features", "a_package_of_samples"):
        sys.modules.pop(module)


def test_a_function_that_was_edited_is_another_job(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = write(tmp_path, "input: {files: '*', function: 'edited_samples:samples'}\noutput: out\n")
    found = []
    for body in ("yield {'a': 1}", "yield {'a': 22}"):
        (tmp_path / "edited_samples.py").write_text(f"def samples(path): {body}\n")
        found.append(load_config(path).semantic(()))
    assert found[0] != found[1]
    sys.modules.pop("edited_samples")


def test_a_function_s_package_may_have_an_extension_in_c(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    package, extension = tmp_path / "with_extension", Path(xxhash._xxhash.__file__)  # any real one will do
    package.mkdir()
    shutil.copy(extension, package)
    (package / "__init__.py").write_text("from with_extension import _xxhash\ndef samples(path): yield {}\n")
    path = write(tmp_path, "input: {files: '*', function: 'with_extension:samples'}\noutput: out\n")
    before = load_config(path).semantic(())
    with open(package / extension.name, "ab") as file:
        file.write(b"another build")
    assert load_config(path).semantic(()) != before
    for module in ("with_extension", "with_extension._xxhash"):
        sys.modules.pop(module)


def test_a_range_is_not_a_number_of_minutes(tmp_path):
    text = "input: a.csv\noutput: out\nstages:\n- normalize: {columns: [x], skip: [10:20, 7, '1:2', 0:5]}\n"
    config = load_config(write(tmp_path, text))
    assert config.stages[0]["normalize"]["skip"] == ["10:20", 7, "1:2", "0:5"]


def test_other_numbers_of_a_job_are_what_yaml_says_they_are(tmp_path):
    text = "input: a.csv\noutput: out\nworkers: 0x2\ntask_timeout: 1_000\nstall_notice: 2.5\nslice_size: 1000\n"
    config = load_config(write(tmp_path, text))
    assert (config.workers, config.task_timeout, config.stall_notice, config.slice_bytes) == (2, 1000, 2.5, 1000)


@pytest.mark.parametrize("key", ["task_timeout", "stall_notice"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e300, "10s", True, None, [5]])
def test_seconds_are_a_number_that_a_clock_can_wait_for(key, value, tmp_path):
    with pytest.raises(ConfigError, match=f"^{key}: "):
        Config({"input": "a.csv", "output": "out", key: value}, folder=str(tmp_path))


def test_a_job_file_that_nests_too_deep_is_named(tmp_path):
    (tmp_path / "job.yaml").write_text(f"input: x\noutput: y\nstages: {'[' * 5000}{']' * 5000}\n")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_config(tmp_path / "job.yaml")


def test_an_unquoted_condition_that_breaks_yaml_is_told_to_be_quoted(tmp_path):
    for text in ("[a] > 1", "{x} == 1", "'a' == b"):
        with pytest.raises(ConfigError, match="not YAML") as caught:
            load_config(write(tmp_path, f"input: a.csv\noutput: out\nstages:\n- filter: {text}\n"))
        assert "put quotes around the condition" in str(caught.value.next_step)


def test_a_memory_of_a_few_bytes_is_taken_for_a_missing_unit():
    for memory in (500, "500"):
        with pytest.raises(ConfigError, match=r"memory: 500 bytes are too few for any job. Did you mean 500MB\?"):
            Config({**MINIMAL, "memory": memory})


def test_a_function_may_stand_where_its_name_may():
    def games(_path):
        yield {}

    carried = Config({"input": {"files": "a", "function": games}, "output": "out"})
    assert re.fullmatch(r"games@[0-9a-f]{12}", str(carried.input[0].function))
    named = Config({**MINIMAL, "stages": [textwrap.dedent, {"filter": [textwrap.indent, "x > 0"]}]})
    assert named.stages == ({"textwrap:dedent": None}, {"filter": ["textwrap:indent", "x > 0"]})


def test_a_url_as_output_is_told_as_one_to_write_to():
    with pytest.raises(ConfigError, match="output: 's3://bucket/x' is a URL") as caught:
        Config({**MINIMAL, "output": "s3://bucket/x"})
    assert "upload" in str(caught.value.next_step)
