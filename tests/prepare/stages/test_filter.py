"""Filter: each condition means what it says for every type, and a value that cannot be meant is refused."""

from __future__ import annotations

import sys
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.base.errors import ConfigError, TaskError
from penstock.prepare.entry import plan
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.stage import require_columns
from tests.prepare.stages.rows import checked_stage, make_rows

NAN = float("nan")
INTS = pa.array([1, 2, None, -3], pa.int8())
FLOATS = pa.array([0.1, NAN, None, 2], pa.float32())
DOUBLES = pa.array([0.1, 0.1 + 0.2, None])
ZEROS = pa.array([0.0, -0.0, NAN], pa.float32())
LARGE = pa.array([2**53, 2**53 + 1, 2**63 - 1])
NOONS = pa.array([12 * 3600 * 10**6, 13 * 3600 * 10**6, None], pa.time64("us"))
TENTHS = pa.array(np.array([0.1, 0.2], "f2"))
HALVES = pa.array(np.array([0.5, 1], "f2"))
WORDS = pa.array(["a", "b", None, ""])
KINDS = WORDS.dictionary_encode()
TIMES = pa.array([datetime(2020, 1, 1), None, datetime(2021, 1, 1)], pa.timestamp("us"))
ZONED = TIMES.cast(pa.timestamp("s", "UTC"))
DAYS = pa.array([date(2020, 1, 1), None, date(2021, 1, 1)])
PRICES = pa.array([Decimal("0.50"), None, Decimal("1.25")], pa.decimal128(5, 2))
FLAGS = pa.array([True, False, None])
BYTES = pa.array([b"a", b"b"])


@pytest.mark.parametrize(
    ("condition", "column", "kept"),
    [
        ("x == 2", INTS, [1]),
        ("x != 2", INTS, [0, 3]),
        ("x < 1", INTS, [3]),
        ("x <= 1", INTS, [0, 3]),
        ("x > 1", INTS, [1]),
        ("x >= 1", INTS, [0, 1]),
        ("x > 1.0", INTS, [1]),
        ("x in [1, 2, 5]", INTS, [0, 1]),
        ("x not in [1]", INTS, [1, 3]),
        ("x in []", INTS, []),
        ("x not in []", INTS, [0, 1, 3]),
        ("x is null", INTS, [2]),
        ("x is not null", INTS, [0, 1, 3]),
        ("x > 1e-3", FLOATS, [0, 3]),
        ("x > 1E+0", FLOATS, [3]),
        ("x < 3", FLOATS, [0, 3]),
        ("x != 2", FLOATS, [0, 1]),
        ("x == 2", FLOATS, [3]),
        ("x == .nan", FLOATS, []),
        ("x < .inf", FLOATS, [0, 3]),
        ("x in [2.0]", FLOATS, [3]),
        ("x not in [2]", FLOATS, [0, 1]),
        ("x is not null", FLOATS, [0, 1, 3]),
        ("x > 0.1", FLOATS, [3]),  # compared with the float32 next to 0.1, which row 0 holds
        ("x >= 0.1", FLOATS, [0, 3]),
        ("x == 0.1", FLOATS, [0]),
        ("x != 0.1", FLOATS, [1, 3]),
        ("x < 0.1", FLOATS, []),
        ("x in [0.1]", FLOATS, [0]),
        ("x not in [0.1]", FLOATS, [1, 3]),
        ("x == 0.1", TENTHS, [0]),
        ("x > 0.1", TENTHS, [1]),
        ("x == 0.1", DOUBLES, [0]),
        ("x in [0.1, 0.3]", DOUBLES, [0]),  # 0.1 + 0.2 is not 0.3
        ("x == 0", ZEROS, [0, 1]),
        ("x in [0]", ZEROS, [0, 1]),
        ("x not in [0]", ZEROS, [2]),
        ("x in [-0.0]", ZEROS, [0, 1]),
        ("x in [false, true]", FLAGS, [0, 1]),
        ("x in [.nan]", ZEROS, []),
        ("x not in [.nan]", ZEROS, [0, 1, 2]),
        ("x <= .inf", ZEROS, [0, 1]),
        ("x == 9007199254740993", LARGE, [1]),
        ("x == 9007199254740993.0", LARGE, [1]),
        ("x > 9007199254740992.0", LARGE, [1, 2]),
        ("x == 9.223372036854775807e18", LARGE, [2]),
        ("x == 18446744073709551615", pa.array([2**64 - 1, 2**63], pa.uint64()), [0]),
        ("x >= 9223372036854775808", pa.array([2**64 - 1, 2**63, 1], pa.uint64()), [0, 1]),
        ("x == 0.1234567890123456789", pa.array([Decimal("0.1234567890123456789")], pa.decimal128(38, 19)), [0]),
        ("x > 12:30:00", NOONS, [1]),
        ("x == 12:00:00", NOONS, [0]),
        ("x == 12:00:00", NOONS.cast(pa.time32("s")), [0]),
        ("x == 007", pa.array(["007", "7"]), [0]),
        ("x > 1000000000", pa.array([10**9, 10**9 + 1], pa.timestamp("s")), [1]),
        ("x > 0.5", HALVES, [1]),
        ("x in [0.5]", HALVES, [0]),
        ("x == a", WORDS, [0]),
        ("x != a", WORDS, [1, 3]),
        ("x > a", WORDS, [1]),
        ("x == ''", WORDS, [3]),
        ("x in [a, '']", WORDS, [0, 3]),
        ("x not in [a]", WORDS, [1, 3]),
        ("x == a", KINDS, [0]),
        ("x >= b", KINDS, [1]),
        ("x in [a, b]", KINDS, [0, 1]),
        ("x not in [a, b]", KINDS, [3]),
        ("x is null", KINDS, [2]),
        ("x > 2020-06-01", TIMES, [2]),
        ("x == 2020-01-01", TIMES, [0]),
        ("x <= 2020-01-01 00:00:00", TIMES, [0]),
        ("x < 2020-01-01 00:00:00.000001", TIMES, [0]),
        ("x in [2020-01-01, 2021-01-01 00:00:00]", TIMES, [0, 2]),
        ("x > 2020-12-31T23:59:59Z", ZONED, [2]),
        ("x >= 2021-01-01T02:00:00+02:00", ZONED, [2]),
        ("x > 2020-06-01", ZONED, [2]),
        ("x == 2020-01-01", DAYS, [0]),
        ("x > 2020-01-01", DAYS, [2]),
        ("x >= 0.5", PRICES, [0, 2]),
        ("x == 1.25", PRICES, [2]),
        ("x in [0.5]", PRICES, [0]),
        ("x == true", FLAGS, [0]),
        ("x != true", FLAGS, [1]),
        ("x in [false]", FLAGS, [1]),
        ("x == a", BYTES, [0]),
        ("  x>1  ", INTS, [1]),
        ("x not   in [1]", INTS, [1, 3]),
        ("`x` > 1", INTS, [1]),
    ],
)
def test_a_condition_keeps_these_rows(condition, column, kept):
    rows = make_rows({"x": column})
    answer = checked_stage("filter", condition, rows)(rows)
    assert answer.ordinals.tolist() == kept
    assert str(answer.batch.column("x")) == str(column.take(pa.array(kept, pa.int64())))
    dropped = sum(aside.count for aside in answer.set_aside)
    assert dropped == len(column) - len(kept)
    assert {aside.reason for aside in answer.set_aside} <= {condition.strip()}


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("x > 0.5", INTS),
        ("x > 1000", INTS),
        ("x == '1'", INTS),
        ("x == true", INTS),
        ("x > -1", pa.array([1], pa.uint64())),
        ("x > .inf", INTS),
        ("x == a", FLOATS),
        ("x == 5", WORDS),
        ("x == no", WORDS),
        ("x in [1]", KINDS),
        ("x == 2020-01-01", WORDS),
        ("x == 1", FLAGS),
        ("x > 2020-01-01 12:00:00", DAYS),
        ("x > 2020-01-01 00:00:00.5", ZONED),
        ("x > a", TIMES),
        ("x > 0.125", PRICES),
        ("x > 1.5", pa.array([1], pa.duration("s"))),
        ("x == [1]", INTS),
        ("x == 1", pa.array([[1]])),
        ("x > 2.5", LARGE),
        ("x > 9007199254740992.5", LARGE),
        ("x < 18446744073709551616", pa.array([1], pa.uint64())),
        ("x <= 1e39", FLOATS),  # infinite in float32
        ("x >= 1e-50", FLOATS),  # 0 in float32
        ("x < 70000", HALVES),
        ("x < 1e400", DOUBLES),
        ("x == 0x10", FLAGS),
        ("x == 010", INTS),  # eight, or ten?
        ("x > 1:30", INTS),
        ("x > 12:30", DAYS),
        ("x > 2020-01-01 00:00:00Z", TIMES),  # a zone, and the column has none
        ("x > 2020-01-01 00:00:00.123456789", TIMES.cast(pa.timestamp("ns"))),
        ("x == 1.0", TIMES),
        ("x > 12.5", NOONS),
        ("x > 2020-01-01", NOONS),
        ("x > 3000-01-01", TIMES.cast(pa.timestamp("ns"))),
    ],
)
def test_a_value_that_does_not_fit_the_column_is_refused_and_named(condition, column):
    rows = make_rows({"x": column})
    with pytest.raises(ConfigError) as caught:
        checked_stage("filter", condition, rows)
    assert repr(condition) in caught.value.what
    assert str(column.type) in caught.value.what


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("x", "cannot read the condition 'x'"),
        ("x = 1", "cannot read the condition"),
        ("x >", "cannot read the condition"),
        ("> 5", "cannot read the condition"),
        ("bin [1]", "cannot read the condition"),
        ("x == [1", "cannot read the value '[1'"),
        ("x == null", "write `is null`"),
        ("x in [1, null]", "write `is null`"),
        ("x is 5", "`is` is used with null"),
        ("x in 5", "`in` needs a list"),
        ({"where": "x > 1", "kep": True}, "unknown option 'kep'. Options: where, keep. Did you mean 'keep'?"),
        ({"keep": True}, "option 'where' is required"),
        (5, "where: expected a list, got 5"),
        ("no_such_module:mask", "there is no module 'no_such_module'"),
        ("math:sinn", "module 'math' has no 'sinn'. Did you mean 'sin'?"),
    ],
)
def test_what_is_not_a_condition_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("filter", written)
    assert message in caught.value.what


@pytest.mark.parametrize(
    "written",
    [
        "x != bob and i > 3",
        "x == bob or x == al",
        "x == bob AND i > 3",
        "x == 'bob' and i > 3",
        "x == bob && i > 3",
        "x == bob||i > 3",
        "x in [a, b] and i > 3",
        "x in [a or b]",
        "x is null and i > 3",
        "x == bob, i > 3",
        "0 < x < 5",
        "x == it's and it's",
    ],
)
def test_several_conditions_in_one_are_refused_and_text_that_looks_so_is_quoted(written):
    with pytest.raises(ConfigError, match="is read as one condition") as caught:
        build_stage("filter", written)
    assert "filter: [s != bob, i > 3]" in str(caught.value.next_step)


def test_quoted_text_may_look_like_several_conditions():
    rows = make_rows({"x": ["bob and i > 3", "bob"]})
    assert checked_stage("filter", "x == 'bob and i > 3'", rows)(rows).ordinals.tolist() == [0]
    assert checked_stage("filter", "x in ['bob and i > 3', al]", rows)(rows).ordinals.tolist() == [0]


@pytest.mark.parametrize(
    "value",
    ["a #1", "a: b", "- a", "&x a", "*x", "!tag a", "! a", "--- a", "{a: b}", "~", "| a", "=", "%a", "2020-13-45", "?"],
)
def test_a_value_that_yaml_would_read_as_another_is_refused_unless_it_is_quoted(value):
    with pytest.raises(ConfigError) as caught:
        build_stage("filter", f"x == {value}")
    assert f"x == '{value}'" in str(caught.value.next_step)
    rows = make_rows({"x": [value, "a"]})
    assert checked_stage("filter", f"x == '{value}'", rows)(rows).ordinals.tolist() == [0]


@pytest.mark.parametrize("value", ["no", "Yes", "on", "5", "1_000", "1.5", "2020-01-01", "true"])
def test_what_is_no_text_beside_a_column_of_text_is_told_to_be_quoted(value):
    with pytest.raises(ConfigError) as caught:
        checked_stage("filter", f"x == {value}", make_rows({"x": WORDS}))
    assert f"x == '{value}'" in str(caught.value.next_step)
    with pytest.raises(ConfigError) as caught:
        checked_stage("filter", f"x in [{value}]", make_rows({"x": KINDS}))
    assert "x in ['a', 'b']" in str(caught.value.next_step)


@pytest.mark.parametrize(
    "value", ["0o17", "a b", "a-b", "it's", "a#1", "http://a.b/c", "O'Brien & Co", "a>b", "candor"]
)
def test_text_that_means_nothing_else_stands_without_quotes(value):
    rows = make_rows({"x": [value, "z"]})
    assert checked_stage("filter", f"x ==  {value} ", rows)(rows).ordinals.tolist() == [0]


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"there is no column 'y'. Columns: x."):
        checked_stage("filter", "y > 1", make_rows({"x": INTS}))


@pytest.mark.parametrize("columns", [["text"], ["tokens"]])
def test_a_column_that_text_column_left_out_is_told_how_to_be_kept(columns):
    with pytest.raises(ConfigError) as caught:
        require_columns(pa.schema([(name, pa.string()) for name in columns]), ["source_id"])
    assert "select: {text: its_name, source_id: source_id}" in str(caught.value.next_step)


def test_a_day_beside_bytes_is_refused_in_words_that_a_person_wrote():
    with pytest.raises(ConfigError) as caught:
        checked_stage("filter", "x > 2024-06-01", make_rows({"x": WORDS.cast(pa.binary())}))
    assert "column 'x' is binary, and 2024-06-01 is not (text is needed)" in caught.value.what


def test_another_columns_name_is_refused_unless_it_is_quoted():
    rows = make_rows({"x": WORDS, "a": WORDS})
    with pytest.raises(ConfigError, match="'a' is a column, but a condition compares a column with a value") as caught:
        checked_stage("filter", "x == a", rows)
    assert "x == 'a'" in str(caught.value.next_step)
    assert checked_stage("filter", "x == 'a'", rows)(rows).ordinals.tolist() == [0]


def test_a_job_is_another_one_where_numbers_with_a_point_came_to_mean_other_rows():
    assert build_stage("filter", "x > 5").describe() == {"where": ("x > 5",), "keep": False}
    assert build_stage("filter", "x > 0.1").describe()["compares"] == "in the column's type"


@pytest.mark.parametrize(
    ("condition", "column", "is_another"),
    [
        ("x == 16777217", pa.array([2.0**24], pa.float32()), True),
        ("x in [1, 16777217]", pa.array([2.0**24], pa.float32()), True),
        ("x > 2049", pa.array(np.array([0.5], "f2")), True),
        ("x in [0]", ZEROS, True),
        ("x > 12:30:00", NOONS, True),
        ("x == 16777217", pa.array([2.0**24]), False),
        ("x == 16777217", pa.array([1]), False),
        ("x > 2048", pa.array(np.array([0.5], "f2")), False),
        ("x > 0", ZEROS, False),
        ("x in [0]", pa.array([1]), False),
        ("x is null", ZEROS, False),
        ("x == 007", pa.array(["007"]), False),
        ("length(x) > 2049", pa.array([[0.5]], pa.list_(pa.float32())), False),
    ],
)
def test_a_job_is_another_one_where_its_column_gives_a_value_another_meaning(tmp_path, condition, column, is_another):
    pq.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    job = {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "stages": [{"filter": condition}]}
    (stage,) = plan(job | {"workers": 0}).survey.stages
    assert ("compares" in stage.describe()) == is_another


def test_a_name_with_spaces_and_signs_goes_between_backquotes():
    rows = make_rows({"round trip (ms) > 5?": [1, 9]})
    stage = checked_stage("filter", "`round trip (ms) > 5?` >= 9", rows)
    assert stage(rows).ordinals.tolist() == [1]
    assert stage.needs(frozenset()) == frozenset({"round trip (ms) > 5?"})


def test_conditions_are_counted_one_after_the_other_and_kept_when_asked():
    rows = make_rows({"x": pa.array([1, 2, 3, None]), "t": pa.array([0, 1, 2, 3], pa.timestamp("ns"))}, "a.parquet")
    answer = checked_stage("filter", {"where": ["x > 1", "x < 3"], "keep": True}, rows)(rows)
    assert answer.ordinals.tolist() == [1]
    assert [(aside.reason, aside.count) for aside in answer.set_aside] == [("x > 1", 2), ("x < 3", 1)]
    assert answer.set_aside[0].kept[1] == {
        "source": 0,
        "file": "a.parquet",
        "position": 3,
        "reason": "x > 1",
        "row": {"x": None, "t": "1970-01-01T00:00:00.000000003"},
    }
    quiet = checked_stage("filter", ["x > 1", "x < 3"], rows)(rows)
    assert [(aside.count, aside.kept) for aside in quiet.set_aside] == [(2, ()), (1, ())]


def test_splits_go_with_their_rows():
    rows = make_rows({"x": range(100)})
    rows = build_stage("split", {"test": 0.5})(rows)
    kept = build_stage("filter", "x > 49")(rows)
    assert kept.splits.tolist() == rows.splits[50:].tolist()


@pytest.fixture
def masks(tmp_path, monkeypatch):
    (tmp_path / "own_masks.py").write_text(
        "import numpy as np\n"
        "def odd(batch): return np.asarray(batch['x']) % 2 == 1\n"
        "def plain(batch): return [True] * batch.num_rows\n"
        "def short(batch): return np.ones(1, bool)\n"
        "def numbers(batch): return np.arange(batch.num_rows)\n"
        "def raises(batch):\n    return np.add(1, 'x')\n"
        "def calls_others(batch):\n    import fractions\n    return fractions.Fraction('x')\n"
    )
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "own_needy.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("own_masks", "own_broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("masks")
def test_a_function_of_ones_own_gives_the_mask():
    rows = make_rows({"x": range(5)})
    answer = checked_stage("filter", ["own_masks:odd", "x > 1"], rows)(rows)
    assert answer.ordinals.tolist() == [3]
    assert [(aside.reason, aside.count) for aside in answer.set_aside] == [("own_masks:odd", 3), ("x > 1", 1)]
    assert checked_stage("filter", "own_masks:plain", rows)(rows) is rows


@pytest.mark.usefixtures("masks")
def test_a_function_may_look_at_any_column_and_its_code_is_part_of_the_job():
    stage = build_stage("filter", ["own_masks:odd", "x > 1"])
    assert stage.needs(frozenset({"y"})) is None
    assert stage.code() == ("own_masks:odd",)


@pytest.mark.usefixtures("masks")
def test_a_function_is_not_asked_about_no_rows():
    rows = make_rows({"x": pa.array([], pa.int64())})
    assert len(build_stage("filter", "own_masks:plain")(rows)) == 0


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize("name", ["short", "numbers", "raises"])
def test_a_function_that_gives_no_mask_is_named(name):
    with pytest.raises(TaskError) as caught:
        build_stage("filter", f"own_masks:{name}")(make_rows({"x": range(5)}))
    assert f"own_masks:{name}" in caught.value.what


@pytest.mark.usefixtures("masks")
def test_an_error_of_ones_own_function_is_told_with_ones_own_line():
    with pytest.raises(TaskError, match="own_masks:calls_others raised ValueError: Invalid literal") as caught:
        build_stage("filter", "own_masks:calls_others")(make_rows({"x": range(5)}))
    assert "own_masks.py, line 10, in calls_others: return fractions.Fraction('x')" in caught.value.where


@pytest.mark.usefixtures("masks")
def test_a_module_that_cannot_be_imported_is_told_with_its_line():
    with pytest.raises(ConfigError) as caught:
        build_stage("filter", "own_broken:mask")
    assert "importing own_broken raised RuntimeError: not today" in caught.value.what
    assert "own_broken.py, line 1" in caught.value.where


@pytest.mark.usefixtures("masks")
def test_a_library_that_ones_own_module_lacks_is_told_apart_from_the_module():
    with pytest.raises(ConfigError, match="no module 'no_such_library', which own_needy imports") as caught:
        build_stage("filter", "own_needy:mask")
    assert caught.value.next_step == "install the package that has it"


@pytest.mark.parametrize(
    "where", ["characters(`the text`) == 3", "bytes( `the text` ) in [4]", "length(`the text`) > 1"]
)
def test_a_name_with_spaces_can_be_measured(where):
    values = [[1, 2]] if where.startswith("length") else ["äbc"]
    rows = make_rows({"the text": [*values, values[0][:1]]})
    assert len(checked_stage("filter", where, rows)(rows)) == 1


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin")])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_days_may_stand_between_quotes(kind, quote):
    days = pa.array([19_000, 20_000], pa.date32())
    rows = make_rows({"at": days.cast(pa.timestamp("us")).cast(kind) if pa.types.is_timestamp(kind) else days})
    assert checked_stage("filter", f"at >= {quote}2024-06-01{quote}", rows)(rows).ordinals.tolist() == [1]
    assert checked_stage("filter", f"at in [{quote}2022-01-08{quote}]", rows)(rows).ordinals.tolist() == [0]


@pytest.mark.parametrize("value", ["soon", "2024-13-01", "1"])
def test_quoted_text_that_is_no_day_is_refused(value):
    rows = make_rows({"at": pa.array([1], pa.timestamp("us"))})
    with pytest.raises(ConfigError, match="is timestamp"):
        checked_stage("filter", f"at >= '{value}'", rows)
