"""A plan that does not fit is refused with a number that works, and with nothing that would not."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    rows = 300_000
    times = pa.array(range(rows), pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(
        pa.table(
            {"user": [row * 7 % 3001 for row in range(rows)], "at": times, "value": [row / 7 for row in range(rows)]}
        ),
        folder / "events.parquet",
        row_group_size=50_000,
    )
    return {"input": str(folder / "events.parquet"), "output": str(folder / "out"), "workers": 1}


GROUPED = [{"group": {"by": "user", "order": "at"}}, {"split": {"by": "key", "test": 0.1}}]


@pytest.mark.parametrize("stages", [GROUPED, [{"normalize": ["value"]}]])
def test_the_memory_that_a_refusal_names_is_enough(events, stages):
    with pytest.raises(penstock.PlanError) as caught:
        penstock.plan({**events, "stages": stages, "memory": "70MB"})
    named = re.search(r"memory: (\d+MB)", caught.value.next_step).group(1)
    assert penstock.plan({**events, "stages": stages, "memory": named})


def test_a_strategy_is_offered_only_if_it_fits(events):
    with pytest.raises(penstock.PlanError) as caught:
        penstock.plan({**events, "stages": GROUPED, "memory": "70MB"})
    assert "sequential" not in caught.value.next_step


@pytest.mark.parametrize("place", ["taken", "taken/inside"])
def test_a_plan_notices_that_the_output_is_a_file(events, tmp_path, place):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(penstock.FileError, match="a file"):
        penstock.plan({**events, "output": str(tmp_path / place)})
