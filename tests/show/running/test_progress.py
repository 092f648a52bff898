"""Progress on a terminal and in a log, drawn from literal events."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from penstock.show.console import make_console
from penstock.show.running.progress import Display
from penstock.show.running.screen import Screen
from tests.show.running.saying import PASSES, START, begun, fed, over, sample, task, worker

LEFT = ("error", "what", "where", "next_step")
STALL = {
    "event": "stall",
    "time": 170.0,
    "task": "0-map-00003",
    "slice": "slice 3: part-3.parquet [0:4]",
    "seconds": 60.2,
    "rows": 1234,
    "stack": """\
Thread 0x1 (most recent call first):
  File "/x/penstock/base/processes/child.py", line 112 in _die_with_the_parent

Thread 0x3 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 629 in wait
  File "/x/penstock/base/memory.py", line 129 in watch

Current thread 0x2 (most recent call first):
  File "/home/ann/mine.py", line 7 in wait_for_server
  File "/x/penstock/base/user_code.py", line 151 in call_user
  File "/x/penstock/prepare/passes/folds/chain.py", line 122 in __call__
""",
}
RETRY = {
    "event": "retry",
    "time": 170.0,
    "task": "0-map-00003",
    "slice": "slice 3: part-3.parquet [0:4]",
    "reason": "its worker died of signal 9 (SIGKILL)",
    "batch_bytes": 4_000_000,
}


def drawn(*events: Any, terminal: bool = False, width: int = 130, height: int = 40) -> str:
    screen = io.StringIO()
    look = {"force_terminal": terminal, "force_interactive": terminal, "markup": False}
    with Display(Console(file=screen, width=width, height=height, **look)) as display:
        for event in events:
            display.observe(event)
    return screen.getvalue()


def last_frame(*events: Any, width: int = 130, height: int = 40) -> list[str]:
    """Lines of the screen when the last event was drawn."""
    console = Console(
        file=io.StringIO(), width=width, height=height, markup=False, force_terminal=True, color_system=None
    )
    with console.capture() as capture:
        console.print(Screen(fed(*events)))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_log_gets_a_line_soon_and_then_every_ten_seconds():
    samples = [sample(100.0 + second, 10 * second) for second in range(1, 25)]
    start = {**START, "rows_are_estimated": True}
    lines = [line for line in drawn(start, begun(0), *samples).splitlines() if "%" in line]
    assert [line.split()[1] for line in lines] == ["1.0", "11.0", "21.0"]
    assert lines[1] == (
        "penstock: 11.0 s: hash: 110 of about 1,000 documents read, 3% of all work, about 6 min 29 s left, "
        "10 documents/s, 40 kB/s, memory 150 MB of 2 GB"
    )


def test_a_run_without_a_worker_says_so_until_one_has_joined():
    start = {**START, "waits_for": "/shared/out", "passes": PASSES[:1]}
    alone, joined = sample(101.0, 0, memory=0), sample(111.0, 20)
    lines = [line for line in drawn(start, begun(0), alone, joined).splitlines() if "%" in line]
    assert lines[0].endswith("0 of 1,000 documents read, 0% of all work, no worker is in the run")
    assert "no worker" not in lines[1]


def test_an_estimated_total_is_called_about_until_everything_is_read():
    start = {**START, "rows_are_estimated": True}
    passed = [begun(0), *[task(101.0 + number, 0, rows=400) for number in range(3)]]
    assert last_frame(start, *passed)[0] == "1,200 of about 1,600 documents read"
    all_read = [task(104.0, 0, rows=300), over(0, 110.0, rows=1500)]
    assert last_frame(start, *passed, *all_read)[0] == "1,500 of 1,500 documents read"


def test_items_are_counted_and_have_no_bytes_per_second():
    facts = {"rows_are_estimated": True, "input_items": 200, "input_bytes": 0, "unit": "samples"}
    said = drawn({**START, **facts}, begun(0), task(101.0, 0, rows=100, bytes=0), sample(102.0, 120))
    assert "16 tasks to do, 200 items in all, 2 workers" in said
    assert "hash: 100 samples read, 200 items in all" in said
    assert "about 1," not in said
    assert "B/s" not in said


def test_a_screen_shows_each_pass_memory_workers_and_what_was_set_aside():
    told = [
        task(111.0, 2, set_aside={"empty": 12, "too short": 3}),
        sample(112.0, 1250, workers=[worker(0), worker(1)]),
    ]
    first = [begun(0), *[task(101.0 + each) for each in range(4)], over(0, 110.0), begun(1, 110.0), over(1, 110.5, 0.5)]
    lines = last_frame(START, *first, begun(2, 110.5), *told)
    assert lines[0] == "1,000 of 1,000 documents read"
    assert lines[1].startswith("work")
    assert "of all work, about" in lines[1]
    assert lines[2].startswith("memory")
    assert lines[2].endswith("150 MB of 2 GB")
    assert lines[3] == "done     pass 0 hash   10.0 s, 1,000 documents, 100/s, 400 kB/s, 4 tasks"
    assert lines[5].startswith("now      pass 2 map    ")
    assert lines[6] == "waiting  pass 3 pack   4 tasks"
    assert lines[7] == "worker 0  0-hash-00000  120 rows, 2.5 s  slice 3: part-3.jsonl [0:4]"
    assert lines[9] == "set aside: 12 empty, 3 too short"


def test_a_low_screen_shows_as_many_workers_as_fit_and_how_many_more_there_are():
    crowd = sample(101.0, 100, workers=[worker(number) for number in range(64)])
    lines = last_frame(START, begun(0), crowd, height=20)
    assert len(lines) < 20
    assert lines[-1] == f"and {64 - (len(lines) - 8)} more"
    assert len(last_frame(START, begun(0), crowd, height=5)) == 8  # all but workers, and their number
    assert last_frame(START, begun(0), crowd, height=5)[-1] == "64 workers at work"


@pytest.mark.parametrize("width", [20, 60, 200])
def test_no_line_is_wider_than_the_terminal(width):
    long = worker(0, slice="slice 3: " + "very/" * 40 + "long.jsonl [0:4]")
    aside = task(101.0, set_aside={"a reason of many words " * 5: 3})
    lines = last_frame(START, begun(0), aside, sample(102.0, 400, workers=[long]), width=width)
    assert len(lines) == 9
    assert max(map(len, lines)) <= width


def test_escape_codes_in_names_and_reasons_do_not_reach_the_terminal():
    wild = "\x1b]0;owned\x07\x1b[2Jx\r\n"
    events = [
        {**START, "changes": [wild], "not_seen": [wild]},
        {**begun(0), "notes": [wild]},
        task(101.0, set_aside={wild: 1}),
        sample(102.0, 300, workers=[worker(0, slice=wild), worker(1, file=wild)]),
        {**RETRY, "slice": wild, "reason": wild},
        {**STALL, "slice": wild, "stack": f"Thread 0x1 (most recent call first):\n  File {wild}"},
        {"event": "lost_file", "time": 171.0, "task": "x", "file": wild, "title": wild, "reason": wild},
        {"event": "worker_left", "time": 172.0, "member": wild, **dict.fromkeys(LEFT, wild)},
        {"event": "worker_clock", "time": 173.0, "member": wild, "ahead": 3600.0},
        {"event": "no_worker", "time": 173.0, "waits_for": wild},
    ]
    for terminal in (False, True):
        seen = drawn(*events, terminal=terminal)
        assert "\\x1b]0;owned" in seen
        assert "\x1b]0;" not in seen
        assert "\x07" not in seen
        assert "\x1b[2J" not in seen


def test_a_worker_that_has_ended_is_named_with_its_error_and_a_run_without_workers_says_how_to_start_one():
    left = dict(zip(LEFT, ["FileError", "cannot write: No space left", "/x/out/a", "free some space"], strict=True))
    seen = drawn(
        {"event": "worker_left", "time": 101.0, "member": "node3-7-ab", **left},
        {"event": "no_worker", "time": 111.0, "waits_for": "/x/my out"},
    )
    assert "worker node3-7-ab has ended: FileError: cannot write: No space left\n" in seen
    assert "where: /x/out/a\n" in seen
    assert "try: free some space\n" in seen
    assert "no worker is at work, and the run waits. Start one: penstock work '/x/my out'" in seen


def test_a_screen_without_color_has_no_color_codes(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    seen = drawn(START, begun(0), sample(101.0, 100), terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", seen)


def test_a_closed_screen_leaves_no_line_of_it_and_shows_the_cursor():
    seen = drawn(START, begun(0), sample(101.0, 100), terminal=True)
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")
    assert seen.endswith("\x1b[2K")  # the last thing is to erase the line where the screen began


def test_a_total_that_was_estimated_too_small_is_said():
    start = {**START, "passes": PASSES[:1], "rows_are_estimated": True}
    assert last_frame(start, begun(0), sample(101.0, 5000))[0] == "5,000 documents read, more than estimated"


def test_when_all_passes_are_over_it_says_that_it_is_finishing():
    start = {**START, "passes": PASSES[:1]}
    lines = last_frame(start, begun(0), *[task(101.0 + each) for each in range(4)], over(0, 110.0))
    assert lines[1].endswith("99% of all work, finishing")


def test_a_stall_names_the_slice_and_shows_where_the_users_code_stands():
    log = drawn(START, STALL)
    assert "no row for 60 s: slice 3: part-3.parquet [0:4], after 1,234 rows" in log
    assert "line 7 in wait_for_server" in log
    assert "_die_with_the_parent" not in log
    assert "in watch" not in log
    assert "run_stages" not in log


def test_documents_are_counted_once_however_many_passes_take_them():
    assert "16 tasks to do, 1,000 documents in all, 2 workers" in drawn(START)


def test_a_retry_is_told_with_its_reason():
    assert (
        "trying again: slice 3: part-3.parquet [0:4], because its worker died of signal 9 (SIGKILL); "
        "with batches of 4 MB" in drawn(START, RETRY)
    )


def test_what_changed_since_the_last_run_is_told_with_what_is_redone():
    log = drawn({**START, "tasks_kept": 1, "changes": ["stages[0].filter.where[0]: a -> b"]})
    assert "changed since the last run: stages[0].filter.where[0]: a -> b" in log
    assert "the tasks that depend on it are done again: 15 tasks to do, 1 kept" in log


def test_a_run_that_goes_on_says_so():
    assert "resuming an earlier run: 3 of 16 tasks done" in drawn({**START, "tasks_kept": 3})


def test_a_screen_that_goes_away_does_not_disturb_the_run(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:  # noqa: ARG002
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    with Display(make_console(stderr=True)) as display:
        for event in (START, begun(0), sample(101.0, 500)):
            display.observe(event)
    assert display.tracker.input_read == 500


@pytest.mark.usefixtures("capfd")
def test_a_forced_color_makes_no_screen_of_a_log(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # Jupyter kernels set it, and some CI
    assert not make_console().is_interactive
