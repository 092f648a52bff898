"""Promise 3, second half: changed inputs, options, code or format are noticed and redone or refused, never mixed.

What comes before the change, and what shows how it should end, runs inside this process, which is quicker.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import penstock
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE
from penstock.base.fingerprint import fingerprint
from tests.promises import workshop
from tests.promises.killing import Die

WORKERS = 2 if workshop.THOROUGH else 0  # what has changed is for the driver to notice


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return workshop.write_job(tmp_path / "job.yaml", workshop.make_input(tmp_path / "data"), workers=WORKERS)


def _fresh(job: Path, name: str) -> dict[str, str]:
    """What the job as it now stands writes into an untouched output."""
    text = yaml.safe_load(job.read_text())
    other = workshop.write_job(job.parent / name / "job.yaml", text["input"], **text)
    for module in job.parent.glob("*.py"):
        (other.parent / module.name).write_bytes(module.read_bytes())
    penstock.run(other)
    return workshop.bytes_of(other.parent / "out")


def _edit(job: Path, **keys: object) -> None:
    job.write_text(yaml.safe_dump({**yaml.safe_load(job.read_text()), **keys}))


def _stop_midway(job: Path) -> int:
    """Kill the run once some tasks are in the ledger; the answer is how many."""
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workshop.wait_for(lambda: workshop.ledger_rows(job.parent / "out") >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (job.parent / "out" / "manifest.json").unlink(missing_ok=True)
    return workshop.ledger_rows(job.parent / "out")


def test_running_a_finished_job_again_does_nothing(job):
    penstock.run(job)
    before = {path: path.stat().st_mtime_ns for path in (job.parent / "out").rglob("*") if path.is_file()}
    workshop.run_well(job)
    after = {path: path.stat().st_mtime_ns for path in (job.parent / "out").rglob("*") if path.is_file()}
    before.pop(job.parent / "out" / ".penstock" / "lock")
    after.pop(job.parent / "out" / ".penstock" / "lock")
    assert before == after


def test_settings_that_change_no_byte_change_nothing(job):
    penstock.run(job)
    _edit(job, workers=1, memory="500MB", task_timeout=99)
    workshop.run_well(job)


def test_a_finished_output_is_not_replaced_by_another_job_unless_told_to(job):
    penstock.run(job)
    before = workshop.bytes_of(job.parent / "out")
    _edit(job, stages=[{"filter": "rtt > 2"}])
    refused = workshop.run(job)
    assert refused.returncode == 5
    error = json.loads(refused.stdout)
    assert "stages" in error["what"]
    assert "--redo" in error["next_step"]
    assert workshop.bytes_of(job.parent / "out") == before
    workshop.run_well(job, "--redo")
    assert workshop.bytes_of(job.parent / "out") == _fresh(job, "fresh")


@pytest.mark.thorough
def test_a_changed_option_in_an_unfinished_output_is_told_and_redone(job):
    _stop_midway(job)
    _edit(job, stages=[{"filter": "rtt > 2"}, *workshop.STAGES[1:]])
    done = workshop.run(job)
    assert done.returncode == 0, done.stderr
    assert "rtt > 1" in done.stderr
    assert "rtt > 2" in done.stderr
    assert workshop.bytes_of(job.parent / "out") == _fresh(job, "fresh")


def test_a_changed_input_file_is_noticed(job):
    penstock.run(job)
    pq.write_table(workshop.make_rows(6000, 99), job.parent / "data" / "part-2.parquet", row_group_size=1500)
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "part-2.parquet: changed" in json.loads(refused.stdout)["what"]


def test_only_tasks_of_a_changed_file_are_redone_in_an_unfinished_output(job):
    penstock.run(job)
    (job.parent / "out" / "manifest.json").unlink()
    table = pq.read_table(job.parent / "data" / "part-3.parquet")
    rows = table.to_pylist()
    rows[-1]["size"] = 77
    pq.write_table(
        type(table).from_pylist(rows, schema=table.schema), job.parent / "data" / "part-3.parquet", row_group_size=1500
    )
    answer = workshop.run_well(job)
    assert 0 < answer["run"]["tasks_done"] < answer["run"]["tasks_done"] + answer["run"]["tasks_kept"]
    assert workshop.bytes_of(job.parent / "out") == _fresh(job, "fresh")


def test_a_new_file_is_noticed(job):
    penstock.run(job)
    pq.write_table(workshop.make_rows(100, 5), job.parent / "data" / "part-9.parquet")
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "part-9.parquet: new" in json.loads(refused.stdout)["what"]


def test_changed_user_code_is_noticed(job):
    code = job.parent / "mine.py"
    code.write_text(
        "import pyarrow.compute as pc\ndef big(batch):\n    return pc.fill_null(pc.greater(batch['size'], 9), False)\n"
    )
    _edit(job, stages=[{"filter": "mine:big"}])
    penstock.run(job)
    code.write_text(code.read_text().replace("9", "99"))
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "mine:big" in json.loads(refused.stdout)["what"]
    workshop.run_well(job, "--redo")
    assert workshop.bytes_of(job.parent / "out") == _fresh(job, "fresh")


def test_another_format_version_is_refused_and_can_be_redone(job):
    penstock.run(job)
    path = job.parent / "out" / "manifest.json"
    before = workshop.bytes_of(job.parent / "out")
    body = {**json.loads(path.read_text()), "format_version": 999, "job": "0"}
    body.pop("digest")
    path.write_text(json.dumps({**body, "digest": fingerprint(body)}, indent=1, ensure_ascii=False) + "\n")
    remembered = job.parent / "out" / ".penstock" / "job.json"
    remembered.write_text(json.dumps({**json.loads(remembered.read_text()), "format_version": 999, "job": "0"}))
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "999" in json.loads(refused.stdout)["what"]
    workshop.run_well(job, "--redo")
    assert workshop.bytes_of(job.parent / "out") == before


def test_a_file_that_is_replaced_while_the_job_runs_is_never_mixed_in(job):
    code = "import os, pathlib, pyarrow.parquet as pq\nHERE = pathlib.Path(__file__).parent\n"
    code += "def meddle(batch):\n    if (HERE / 'out' / '.penstock' / 'job.json').exists():\n"
    code += "        table = pq.read_table(HERE / 'data' / 'part-0.parquet')\n"
    code += "        beside = HERE / f'beside-{os.getpid()}'\n"  # two workers meddle at once
    code += "        pq.write_table(table.slice(1), beside, row_group_size=1500)\n"
    code += "        os.replace(beside, HERE / 'data' / 'part-0.parquet')\n"
    code += "    return batch\n"
    (job.parent / "mine.py").write_text(code)
    _edit(job, stages=["mine:meddle"], workers=2)
    done = workshop.run(job)
    assert done.returncode == 4
    assert "part-0.parquet" in json.loads(done.stdout)["where"]
    assert not (job.parent / "out" / "manifest.json").exists()


def test_the_order_of_selected_columns_is_part_of_the_job(job):
    _edit(job, stages=[{"select": ["src", "rtt"]}])
    penstock.run(job)
    _edit(job, stages=[{"select": ["rtt", "src"]}])
    assert workshop.run(job).returncode == 5


@pytest.mark.thorough
def test_a_redo_that_was_killed_goes_on_from_there(job, tmp_path):
    penstock.run(job)
    before = workshop.bytes_of(job.parent / "out")
    token = tmp_path / "token"
    token.touch()
    crash = {CRASH_VARIABLE: f"run.before_manifest:{token}"}
    assert workshop.run(job, "--redo", environment=crash).returncode == CRASH_EXIT_CODE
    answer = workshop.run_well(job, "--redo")
    assert answer["run"]["tasks_done"] == 0
    assert workshop.bytes_of(job.parent / "out") == before
    assert workshop.run_well(job, "--redo")["run"]["tasks_done"] > 0  # a finished redo is over


@pytest.mark.parametrize("name", ["notes.txt", "backup.arrayrecord"])
def test_a_persons_file_in_the_output_is_left_alone(job, name):
    """Also one of a kind that penstock writes, beside a dataset that is of another kind."""
    penstock.run(job)
    (job.parent / "out" / name).write_text("mine")
    penstock.run(job, redo=True)
    assert (job.parent / "out" / name).read_text() == "mine"
    _edit(job, stages=[{"filter": "rtt > 2"}])  # another job, without the splits of the first
    penstock.run(job, redo=True)
    assert (job.parent / "out" / name).read_text() == "mine"


def test_a_lost_shard_is_made_again(job):
    penstock.run(job)
    before = workshop.bytes_of(job.parent / "out")
    next((job.parent / "out" / "train").iterdir()).unlink()
    answer = workshop.run_well(job)
    assert answer["run"]["tasks_done"] == 1
    assert workshop.bytes_of(job.parent / "out") == before


def test_a_folder_with_other_peoples_files_is_not_written_to(job):
    (job.parent / "out").mkdir()
    (job.parent / "out" / "thesis.txt").write_text("years of work")
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "thesis.txt" in json.loads(refused.stdout)["what"]
    assert workshop.names_in(job.parent / "out") == {"thesis.txt"}


# Of a job with an exchange: what was spilled for another order, key or input must never reach a bucket.

GROUPED = {"by": "src", "order": "time", "max_record": "4kB"}


@pytest.fixture
def events(tmp_path: Path) -> Path:
    data = workshop.make_event_input(tmp_path / "data", files=2, rows=1500)
    return workshop.write_events_job(tmp_path / "job.yaml", data, workers=WORKERS)


@pytest.fixture
def stopped(events: Path, die: Die) -> Path:
    """Its run died when spills were written and buckets were done, before the manifest."""
    die(events, "run.before_clean_up")
    assert list((events.parent / "out" / ".penstock" / "spill").iterdir())
    return events


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"order": ["time", "rtt"]}, "order"),
        ({"max_record": "2kB"}, "max_record"),
        ({"by": "dst"}, "by"),
        ({"null_keys": "group"}, "null_keys"),
    ],
)
def test_a_changed_option_of_group_in_an_unfinished_output_is_told_and_redone(stopped, option, told):
    _edit(stopped, stages=[workshop.EVENT_STAGES[0], {"group": {**GROUPED, **option}}, workshop.EVENT_STAGES[2]])
    done = workshop.run(stopped)
    assert done.returncode == 0, done.stderr
    assert told in done.stderr
    assert workshop.bytes_of(stopped.parent / "out") == _fresh(stopped, "fresh")


def test_a_changed_input_file_between_a_killed_exchange_and_its_resume_is_noticed(stopped, tmp_path):
    pq.write_table(workshop.make_events(1500, 99), tmp_path / "data" / "part-1.parquet", row_group_size=800)
    done = workshop.run(stopped)
    assert done.returncode == 0, done.stderr
    assert "part-1.parquet: changed" in done.stderr
    answer = json.loads(done.stdout)["run"]
    assert answer["tasks_kept"] < answer["tasks_done"]
    assert workshop.bytes_of(stopped.parent / "out") == _fresh(stopped, "fresh")


@pytest.mark.thorough
def test_another_format_of_the_same_events_is_written_anew(stopped):
    _edit(stopped, format="arrayrecord")
    penstock.run(stopped)
    assert workshop.bytes_of(stopped.parent / "out") == _fresh(stopped, "fresh")


@pytest.mark.thorough
def test_settings_that_change_no_byte_of_an_exchange_keep_what_is_done(stopped):
    _edit(stopped, workers=1, memory="2GB", strategy="streaming")
    answer = workshop.run_well(stopped)["run"]
    assert answer["tasks_done"] == 0
    assert answer["tasks_kept"] > 10


COUNTING = """
import pyarrow.compute as pc

def counted(batch):
    return batch.append_column("events", pc.list_value_length(batch["rtt"]))
"""

BEHIND_GROUP: dict[str, dict[str, object]] = {
    "another share": {"stages": [*workshop.EVENT_STAGES[:2], {"split": {"by": "key", "test": 0.4}}]},
    "another column": {"stages": [*workshop.EVENT_STAGES[:2], "counting:counted", *workshop.EVENT_STAGES[2:]]},
    "another format": {"format": "arrayrecord"},
}


@pytest.mark.parametrize("name", BEHIND_GROUP)
def test_a_change_behind_group_keeps_what_was_scattered(stopped, tmp_path, name):
    scattered = list((stopped.parent / "out" / ".penstock" / "tasks").glob("0-scatter-*.json"))
    (tmp_path / "counting.py").write_text(COUNTING)
    _edit(stopped, **BEHIND_GROUP[name])
    penstock.run(stopped)
    run = json.loads((stopped.parent / "out" / ".penstock" / "run.json").read_text())
    assert run["tasks_kept"] == len(scattered) > 1
    assert workshop.bytes_of(stopped.parent / "out") == _fresh(stopped, "fresh")


@pytest.mark.thorough
def test_a_lost_shard_of_a_finished_exchange_is_made_again(events):
    """Its spills are gone, so they are written again; the other buckets are kept."""
    penstock.run(events)
    before = workshop.bytes_of(events.parent / "out")
    next((events.parent / "out" / "train").iterdir()).unlink()
    answer = workshop.run_well(events)["run"]
    assert answer["tasks_kept"] > 5
    assert workshop.bytes_of(events.parent / "out") == before


@pytest.mark.thorough
def test_a_finished_exchange_is_not_replaced_by_one_with_another_key(events):
    penstock.run(events)
    _edit(events, stages=[workshop.EVENT_STAGES[0], {"group": {**GROUPED, "by": "dst"}}, workshop.EVENT_STAGES[2]])
    refused = workshop.run(events)
    assert refused.returncode == 5
    assert "by" in json.loads(refused.stdout)["what"]


@pytest.mark.parametrize("stages", [[], [{"group": {"by": "key"}}], [{"dedup": {"column": "name"}}]], ids=str)
def test_after_a_bad_row_set_aside_continues_and_fail_does_not_trust_what_it_left(tmp_path, stages):
    (tmp_path / "data").mkdir()
    for number in range(9):
        rows = [json.dumps({"key": number % 4, "name": f"{number}-{row}" * 20}) for row in range(50)]
        rows += ["no record"] * (number == 6)
        (tmp_path / "data" / f"{number}.jsonl").write_text("\n".join(rows) + "\n")
    keys = {"stages": stages, "slice_size": "1kB", "workers": 0}
    job = workshop.write_job(tmp_path / "job.yaml", str(tmp_path / "data"), **keys)
    with pytest.raises(penstock.InputError, match="not a valid record"):
        penstock.run(job)
    finished = workshop.ledger_rows(tmp_path / "out")
    assert finished >= 5
    _edit(job, on_bad_input="set_aside")
    assert workshop.run_well(job)["run"]["tasks_kept"] == finished
    assert workshop.bytes_of(tmp_path / "out") == _fresh(job, "fresh")
    (tmp_path / "out" / "manifest.json").unlink()
    _edit(job, on_bad_input="fail")
    with pytest.raises(penstock.InputError, match="not a valid record"):
        penstock.run(job)
