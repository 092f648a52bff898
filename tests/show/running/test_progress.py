"""Progress on a terminal and in a log, drawn from literal events."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from penstock.show.console import make_console
from penstock.show.running.progress import Display, progress_words
from tests.show.running.test_tracker import START, fed, sample

STALL = {
    "event": "stall",
    "time": 170.0,
    "task": "0-map-00003",
    "slice": "slice 3: part-3.parquet [0:4]",
    "seconds": 60.2,
    "rows": 1234,
    "stack": """\
Thread 0x1 (most recent call first):
  File "/x/penstock/base/child.py", line 112 in _die_with_the_parent

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


def drawn(*events: dict[str, Any], terminal: bool = False) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, force_interactive=terminal, width=130, markup=False)
    with Display(console) as display:
        for event in events:
            display.observe(event)
    return screen.getvalue()


def test_a_log_gets_a_line_soon_and_then_every_ten_seconds():
    samples = [sample(100.0 + second, 10 * second) for second in range(1, 25)]
    lines = [line for line in drawn(START, *samples).splitlines() if "%" in line]
    assert [line.split()[1] for line in lines] == ["1.0", "11.0", "21.0"]
    assert lines[1] == ("penstock: 11.0 s: 3%, 110 of 4,000 rows, 10 rows/s, memory 150 MB of 2 GB, 6 min 29 s left")


def test_a_terminal_gets_a_bar_with_speed_memory_and_time_left():
    screen = drawn(START, {"event": "pass", "time": 100.0, "kind": "map"}, sample(102.0, 1000), terminal=True)
    assert "25%  1,000 of 4,000 rows  500 rows/s  memory 150 MB of 2 GB  6 s left" in screen


def test_words_are_said_only_of_what_is_known():
    assert progress_words(fed(START)) == ["0 of 4,000 rows"]
    assert progress_words(fed(START, sample(102.0, 1000)), with_total=False) == [
        "1,000 rows",
        "500 rows/s",
        "memory 150 MB of 2 GB",
        "6 s left",
    ]


def test_a_total_that_was_estimated_too_small_grows_with_the_rows():
    words = progress_words(fed(START, sample(101.0, 5000)))
    assert (words[0], words[-1]) == ("5,000 of 5,000 rows", "finishing")


def test_a_stall_names_the_slice_and_shows_where_the_users_code_stands():
    log = drawn(START, STALL)
    assert "no row for 60 s: slice 3: part-3.parquet [0:4], after 1,234 rows" in log
    assert "line 7 in wait_for_server" in log
    assert "_die_with_the_parent" not in log
    assert "in watch" not in log
    assert "run_stages" not in log


def test_documents_are_counted_once_however_many_passes_take_them():
    assert "4 tasks to do, 1,000 documents in all, 2 workers" in drawn(START)


def test_a_retry_is_told_with_its_reason():
    assert (
        "trying again: slice 3: part-3.parquet [0:4], because its worker died of signal 9 (SIGKILL); "
        "with batches of 4 MB" in drawn(START, RETRY)
    )


def test_what_changed_since_the_last_run_is_told_with_what_is_redone():
    log = drawn({**START, "tasks_kept": 1, "changes": ["stages[0].filter.where[0]: a -> b"]})
    assert "changed since the last run: stages[0].filter.where[0]: a -> b" in log
    assert "what that concerns is redone: 3 tasks to do, 1 kept" in log


def test_a_run_that_goes_on_says_so():
    assert "going on from an earlier run: 3 of 4 tasks done" in drawn({**START, "tasks_kept": 3})


def test_a_screen_that_goes_away_does_not_disturb_the_run(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:  # noqa: ARG002
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    with Display(make_console(stderr=True)) as display:
        display.observe(START)
        display.observe(sample(101.0, 500))
    assert display.tracker.rows == 500
