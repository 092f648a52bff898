"""A user's function in processes: the same batches come back, whatever becomes of a process, and nothing is left."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.base.errors import ConfigError, InputError, TaskError
from penstock.loader.feeding.processes import Processes
from penstock.loader.feeding.sendable import check_count, check_sendable, name_of
from tests.loader import transforms

PATIENCE = 60.0  # for a loaded machine; nothing here is expected to take so long
ROOT = Path(__file__).parents[3]


def batch_of(step: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(step, step + 1000), "y": np.full((3, 4), step, np.float32)}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def wait_for(condition: Callable[[], Any]) -> float:
    """The seconds until it is true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.01)
    return time.monotonic() - began


def is_running(pid: int) -> bool:
    """A process that nobody has reaped is none: an orphan's reaper may take its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run_script(path: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    path.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, *(words or [str(path)])],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def echo() -> Iterator[Processes]:
    with Processes(transforms.echo, 1, timeout=PATIENCE) as processes:
        yield processes


# What comes back.


def test_the_results_are_those_of_the_function_called_here():
    with Processes(transforms.double, 2, timeout=PATIENCE) as processes:
        for step in range(20):
            assert_same(processes(step, batch_of(step)), transforms.double(batch_of(step)))
        assert processes.replaced == 0


@given(
    some.dictionaries(
        some.text(max_size=8),
        arrays.arrays(
            some.one_of(
                arrays.scalar_dtypes(),
                arrays.array_dtypes(arrays.scalar_dtypes(), min_size=1, max_size=3),
                some.sampled_from([np.dtype(bool), np.dtype(np.float16), np.dtype(np.int64)]),
            ),
            arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        ),
        max_size=4,
    )
)
def test_any_arrays_come_back_as_they_were_sent(echo, batch):
    found = echo(0, batch)
    assert {name: (array.dtype, array.shape, array.tobytes()) for name, array in found.items()} == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in batch.items()
    }


@pytest.mark.parametrize(
    "array",
    [
        np.arange(100).reshape(10, 10)[::2, ::3],
        np.arange(12.0).reshape(3, 4).T,
        np.broadcast_to(np.int8(7), (5, 5)),
        np.frombuffer(b"read only", np.uint8),
        np.zeros((0, 7), np.int64),
        np.array(["2024-01-01"], "datetime64[s]"),
        np.array([{"any": "object"}, None], object),
        np.array([(1, 2.5)], [("id", "i4"), ("weight", "f2")]),
    ],
    ids=["strided", "transposed", "broadcast", "read-only", "empty", "times", "objects", "structured"],
)
def test_arrays_of_every_layout_come_back_writable(echo, array):
    found = echo(0, {"x": array})["x"]
    assert_same({"x": found}, {"x": array})
    assert found.flags.writeable
    assert found.flags.owndata


def test_a_result_keeps_its_values_when_later_ones_come(echo):
    first = echo(0, {"x": np.zeros(100_000), "y": np.zeros(100_000)})
    second = echo(1, {"x": np.ones(100_000), "y": np.ones(100_000)})
    second["x"][:] = 2
    assert not first["x"].any()
    assert not first["y"].any()
    assert (second["y"] == 1).all()


def test_the_function_may_write_into_its_batch_and_the_callers_stays_as_it_is():
    batch = batch_of(1)
    with Processes(transforms.double_in_place, 1, timeout=PATIENCE) as processes:
        assert_same(processes(1, batch), transforms.double(batch_of(1)))
    assert_same(batch, batch_of(1))


@pytest.mark.proof
def test_a_batch_much_larger_than_a_sockets_buffer_comes_back(echo):
    batch = {"x": np.random.default_rng(0).integers(0, 256, 50_000_000, np.uint8)}
    assert_same(echo(0, batch), batch)


@pytest.mark.proof
@pytest.mark.parametrize("count", [2, 4])
def test_four_threads_each_get_their_own_results(count):
    with Processes(transforms.sign, count, timeout=PATIENCE) as processes, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda step: processes(step, batch_of(step)), range(60)))
        pids = {int(result.pop("pid")[0]) for result in found}
        assert pids == set(processes.pids())
    assert len(pids) == count
    for step, result in enumerate(found):
        assert_same(result, batch_of(step))


def test_a_process_imports_little_more_than_numpy():
    with Processes(transforms.imported, 1, timeout=PATIENCE) as processes:
        modules = set(processes(0, batch_of(0))["modules"])
    ours = {name for name in modules if name.startswith("penstock.")}
    assert ours == {
        "penstock.base",
        "penstock.base.processes",
        "penstock.base.processes.child",
        "penstock.base.errors",
        "penstock.loader",
        "penstock.loader.feeding",
        "penstock.loader.feeding.served",
    }
    assert not modules & {"pyarrow", "pydantic", "yaml", "rich", "numba", "pytest", "multiprocessing.spawn"}


# Processes that die or hang.


def test_a_process_killed_in_the_middle_of_a_batch_is_replaced_and_the_result_is_the_same(tmp_path):
    function = functools.partial(transforms.double_after_one_hold_up, tmp_path)
    with Processes(function, 1, timeout=PATIENCE) as processes, ThreadPoolExecutor(1) as thread:
        result = thread.submit(processes, 5, batch_of(5))
        wait_for((tmp_path / "held_up").exists)
        killed = int((tmp_path / "held_up").read_text())
        assert processes.pids() == [killed]
        os.kill(killed, signal.SIGKILL)
        assert wait_for(lambda: processes.replaced) < 5
        assert_same(result.result(PATIENCE), transforms.double(batch_of(5)))
        assert processes.replaced == 1
        assert killed not in processes.pids()
        assert not is_running(killed)


@pytest.mark.proof
@pytest.mark.parametrize(
    "hold_up",
    [
        transforms.double_after_one_hold_up,
        transforms.double_after_one_hold_up_in_c,
        transforms.double_after_one_hold_up_with_a_child,
    ],
    ids=["asleep", "with the GIL held", "with a child of its own"],
)
def test_a_process_that_hangs_is_replaced_and_the_result_is_the_same(tmp_path, hold_up):
    with Processes(functools.partial(hold_up, tmp_path), 1, timeout=2.0) as processes, ThreadPoolExecutor(1) as thread:
        result = thread.submit(processes, 5, batch_of(5))
        wait_for((tmp_path / "held_up").exists)
        assert wait_for(lambda: processes.replaced) < 5
        assert_same(result.result(PATIENCE), transforms.double(batch_of(5)))
        assert processes.replaced == 1
        wait_for(lambda: not is_running(int((tmp_path / "held_up").read_text())))


@pytest.mark.proof
def test_a_process_stopped_from_outside_is_replaced_too():
    with Processes(transforms.double, 1, timeout=2.0) as processes:
        processes(0, batch_of(0))
        os.kill(processes.pids()[0], signal.SIGSTOP)
        assert_same(processes(1, batch_of(1)), transforms.double(batch_of(1)))
        assert processes.replaced == 1


@pytest.mark.proof
def test_a_process_that_died_between_two_batches_is_replaced():
    with Processes(transforms.double, 2, timeout=PATIENCE) as processes:
        for step in range(6):
            if step == 2:
                for pid in processes.pids():
                    os.kill(pid, signal.SIGKILL)
            assert_same(processes(step, batch_of(step)), transforms.double(batch_of(step)))
        assert processes.replaced == 2


@pytest.mark.proof
def test_a_stream_from_four_threads_is_unchanged_while_processes_are_killed():
    stop = threading.Event()
    with Processes(transforms.sign, 4, timeout=PATIENCE) as processes, ThreadPoolExecutor(5) as threads:
        killer = threads.submit(_kill_now_and_then, processes, stop)
        try:
            found = list(threads.map(lambda step: processes(step, batch_of(step)), range(120)))
        finally:
            stop.set()
        assert killer.result() > 0
        assert processes.replaced > 0
    for step, result in enumerate(found):
        del result["pid"]
        assert_same(result, batch_of(step))


def _kill_now_and_then(processes: Processes, stop: threading.Event) -> int:
    kills = 0
    while not stop.wait(0.5) and kills < 4:  # seldom enough that no batch can meet three
        os.kill(processes.pids()[kills % 4], signal.SIGKILL)
        kills += 1
    return kills


@pytest.mark.proof
def test_a_batch_whose_process_dies_three_times_is_given_up_and_the_next_one_is_done():
    with Processes(transforms.exit_if_negative, 1, timeout=PATIENCE) as processes:
        with pytest.raises(TaskError, match="exit_if_negative") as caught:
            processes(-7, batch_of(-7))
        assert "step -7 in 3 attempts" in caught.value.what
        assert "its process died of exit code 3 each time" in caught.value.what
        assert "transforms.py, line " in str(caught.value.where)
        assert "threads" in str(caught.value.next_step)
        assert_same(processes(1, batch_of(1)), transforms.double(batch_of(1)))
        assert processes.replaced == 3


@pytest.mark.proof
def test_a_batch_that_hangs_three_times_is_given_up_with_the_place_where_it_hangs():
    with Processes(transforms.hang, 1, timeout=1.0) as processes, pytest.raises(TaskError) as caught:
        processes(4, batch_of(4))
    assert "in 3 attempts: its process hung for 1 s each time" in caught.value.what
    assert "raise timeout=1" in str(caught.value.next_step)
    assert "in hang" in caught.value.notes[0]


def test_a_crash_is_told_with_its_signal_and_stack():
    with Processes(transforms.crash, 1, timeout=PATIENCE) as processes, pytest.raises(TaskError) as caught:
        processes(4, batch_of(4))
    assert "died of signal 11 (Segmentation fault) each time" in caught.value.what
    assert "in crash" in caught.value.notes[0]


# Functions that raise, or return something else.


def test_what_the_function_raises_is_raised_here_with_its_traceback_and_is_not_tried_again():
    with Processes(transforms.raise_if_negative, 1, timeout=PATIENCE) as processes:
        with pytest.raises(ValueError, match="x is negative") as caught:
            processes(-3, batch_of(-3))
        (note,) = caught.value.__notes__
        assert "step -3 of map(tests.loader.transforms.raise_if_negative)" in note
        assert 'raise ValueError("x is negative")' in note
        assert_same(processes(1, batch_of(1)), transforms.double(batch_of(1)))
        assert processes.replaced == 0


def test_an_error_of_our_own_keeps_its_place_and_next_step():
    with Processes(transforms.raise_with_place, 1, timeout=PATIENCE) as processes:
        with pytest.raises(InputError, match="2 arrays are too many") as caught:
            processes(0, batch_of(0))
        assert (caught.value.where, caught.value.next_step) == ("the batch", "send fewer")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (transforms.raise_what_does_not_come_back, "TwoArguments: 2 teapots"),
        (transforms.raise_what_does_not_pickle, "Local: 2 local teapots"),
    ],
)
def test_an_error_that_does_not_survive_the_way_is_told_in_words(function, text):
    with Processes(function, 1, timeout=PATIENCE) as processes:
        with pytest.raises(TaskError, match=text) as caught:
            processes(9, batch_of(9))
        assert "step 9" in caught.value.what
        assert "Traceback" in caught.value.notes[0]
        assert processes.replaced == 0


@pytest.mark.proof
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([1, 2], "returned a list at step 3"),
        (None, "returned a NoneType at step 3"),
        ({"x": np.zeros(2), 4: np.zeros(2)}, "a dict with the key 4, a int"),
        ({"x": np.zeros(2), "y": [1.0]}, "a dict whose 'y' is a list"),
        ({"x": np.float32(1)}, "a dict whose 'x' is a numpy.float32"),
    ],
)
def test_a_result_that_is_no_dict_of_arrays_is_refused(result, text):
    with Processes(functools.partial(transforms.return_this, result), 1, timeout=PATIENCE) as processes:
        with pytest.raises(TaskError) as caught:
            processes(3, batch_of(3))
        assert text in caught.value.what


# Functions that a process can find, and those it cannot.


def test_a_lambda_or_a_local_function_is_refused_before_anything_is_started():
    def local(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return batch

    for function in (lambda batch: batch, local, functools.partial(local)):
        for refuse in (check_sendable, lambda function: Processes(function, 1)):
            with pytest.raises(ConfigError, match="import functions by name") as caught:
                refuse(function)
            assert "top level of a module, or run map in threads" in str(caught.value.next_step)
    check_sendable(functools.partial(transforms.return_this, {"x": np.zeros(2)}))


@pytest.mark.parametrize(("count", "timeout"), [(0, 4.0), (1, 0.0), (1, float("inf"))])
def test_numbers_that_cannot_be_are_refused(count, timeout):
    with pytest.raises(ConfigError, match=f"{count} processes with timeout={timeout}") as caught:
        Processes(transforms.echo, count, timeout)
    assert "processes=1 or more, and timeout= in seconds" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("count", "timeout"),
    [(-1, 4.0), (1.5, 4.0), (True, 4.0), (0, -1.0), (2, float("nan")), ("2", 4.0), (2**63, 4.0), (1, "4"), (1, True)],
)
def test_a_map_in_no_process_is_one_in_threads_and_fewer_are_refused(count, timeout):
    check_count(0, 4.0)
    with pytest.raises(ConfigError, match="is not possible") as caught:
        check_count(count, timeout)
    assert "or 0: the loader's threads" in str(caught.value.next_step)


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array * self.factor for name, array in batch.items()}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (transforms.double, "tests.loader.transforms.double"),
        (Scaled(2.0), "tests.loader.feeding.test_processes.Scaled"),
        (Scaled(2.0).__call__, "tests.loader.feeding.test_processes.Scaled.__call__"),
        (functools.partial(transforms.double), "tests.loader.transforms.double"),
        (functools.partial(transforms.return_this, 3, by="x"), "tests.loader.transforms.return_this(3, by='x')"),
        (
            functools.partial(functools.partial(transforms.return_this, 1), 2),
            "tests.loader.transforms.return_this(1, 2)",
        ),
        (
            functools.partial(Scaled(2.0), {"b": {3, 1, 2}, "a": transforms.double}),
            "tests.loader.feeding.test_processes.Scaled({'a': tests.loader.transforms.double, 'b': {1, 2, 3}})",
        ),
        (functools.partial(transforms.return_this, object()), "tests.loader.transforms.return_this(<object object>)"),
    ],
)
def test_a_function_is_named_by_its_module_and_what_a_partial_has_frozen(function, name):
    assert name_of(function) == name


def test_the_name_of_a_function_stays_short_whatever_is_frozen():
    name = name_of(functools.partial(transforms.return_this, *[np.arange(10_000)] * 50, text="x" * 10_000))
    assert name.startswith("tests.loader.transforms.return_this(array([")
    assert len(name) < 150


SCRIPT = """
import numpy as np
from penstock.loader.feeding.processes import Processes

class OwnError(Exception):
    pass

def add_one(batch):
    if batch["x"][0] > 5:
        raise OwnError("too large")
    return {"x": batch["x"] + 1}

def main():
    with Processes(add_one, 1) as processes:
        print(processes(0, {"x": np.arange(3)})["x"].tolist())
        try:
            processes(1, {"x": np.arange(6, 9)})
        except OwnError as error:
            print("raised", error)
"""


@pytest.mark.parametrize("words", [[], ["-m", "script"]], ids=["by path", "by name"])
def test_a_function_of_the_script_itself_works_where_the_script_is_guarded(tmp_path, words):
    done = run_script(tmp_path / "script.py", SCRIPT + "\nif __name__ == '__main__':\n    main()\n", *words)
    assert done.stdout.splitlines() == ["[1, 2, 3]", "raised too large"], done.stderr


def test_a_script_may_make_a_loader_when_a_process_imports_it(tmp_path):
    text = SCRIPT + "\nfrom penstock.loader.feeding.sendable import check_sendable\ncheck_sendable(add_one)\n"
    done = run_script(tmp_path / "script.py", text + "if __name__ == '__main__':\n    main()\n")
    assert done.stdout.splitlines() == ["[1, 2, 3]", "raised too large"], done.stderr


def test_a_script_that_would_start_processes_without_end_is_told_to_guard_itself(tmp_path):
    done = run_script(tmp_path / "script.py", SCRIPT + "\nmain()\n")
    assert done.returncode == 1
    assert "penstock.base.errors.ConfigError: map(__mp_main__.add_one)" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr


def test_a_script_whose_function_is_in_a_module_needs_no_guard(tmp_path):
    (tmp_path / "own_module.py").write_text("def halve(batch):\n    return {'x': batch['x'] // 2}\n")
    text = """
        import numpy as np
        from own_module import halve
        from penstock.loader.feeding.processes import Processes

        print("once")
        processes = Processes(halve, 2)
        print(processes(0, {"x": np.arange(4)})["x"].tolist())
        processes.close()
    """
    done = run_script(tmp_path / "script.py", text)
    assert done.stdout.splitlines() == ["once", "[0, 0, 1, 1]"], done.stderr


def test_a_function_of_an_interactive_session_is_refused():
    done = subprocess.run(
        [sys.executable, "-"], input=SCRIPT + "\nmain()\n", cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "ConfigError: map(__main__.add_one): this function is defined in an interactive session" in done.stderr


def test_a_module_that_fails_to_import_in_a_process_is_told_as_it_is(tmp_path):
    text = """
        import os
        import numpy as np
        from penstock.loader.feeding.processes import Processes

        os.environ["IN_PROCESS"] = ""
        from own_module import same
        os.environ["IN_PROCESS"] = "yes"
        Processes(same, 1)(0, {"x": np.arange(4)})
    """
    (tmp_path / "own_module.py").write_text(
        "import os\nif os.environ['IN_PROCESS']:\n    raise LookupError('not here')\ndef same(batch): return batch\n"
    )
    done = run_script(tmp_path / "script.py", text)
    assert "\nLookupError: not here\nin the import of map(own_module.same), process " in done.stderr


# What is left.


@pytest.mark.proof
def test_close_leaves_no_process_and_no_file_descriptor(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    function = functools.partial(transforms.double_after_one_hold_up, tmp_path)
    with Processes(function, 3, timeout=2.0) as processes:
        pids = set(processes.pids())
        for step in range(6):
            processes(step, batch_of(step))
        pids |= set(processes.pids())
    assert len(pids) == 4
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]  # no zombie either
    assert set(os.listdir("/proc/self/fd")) == before
    assert processes.pids() == []
    processes.close()


def test_close_ends_a_call_that_is_under_way(tmp_path):
    function = functools.partial(transforms.double_after_one_hold_up, tmp_path)
    with ThreadPoolExecutor(3) as threads:
        processes = Processes(function, 1, timeout=PATIENCE)
        under_way = threads.submit(processes, 5, batch_of(5))
        wait_for((tmp_path / "held_up").exists)
        waiting = [threads.submit(processes, step, batch_of(step)) for step in (6, 7)]
        processes.close()
        for call in (under_way, *waiting):
            assert isinstance(call.exception(PATIENCE), TaskError)
    assert not is_running(int((tmp_path / "held_up").read_text()))
    with pytest.raises(TaskError, match="was closed before step 8"):
        processes(8, batch_of(8))


@pytest.mark.proof
def test_nothing_is_put_into_dev_shm():
    # Others on this machine may use it, so a listing proves nothing: we look at what our own processes hold.
    held = transforms.held_in_shared_memory()
    with Processes(transforms.hold_in_shared_memory, 2, timeout=PATIENCE) as processes:
        for step in range(4):
            assert not processes(step, batch_of(step))["held"].size
            os.kill(processes.pids()[step % 2], signal.SIGKILL)
        assert transforms.held_in_shared_memory() == held
    assert transforms.held_in_shared_memory() == held


PARENT = """
import sys, threading
from pathlib import Path
import numpy as np
from penstock.loader.feeding.processes import Processes
from tests.loader import transforms

function = getattr(transforms, sys.argv[1])
processes = Processes(function, 2, timeout=float(sys.argv[2]))
for step in range(2):
    threading.Thread(target=processes, args=(step, {"x": np.arange(3)})).start()
print(*processes.pids(), flush=True)
threading.Event().wait()
"""


@pytest.mark.proof
@pytest.mark.parametrize(("function", "timeout"), [("echo", 600), ("hang", 600), ("hang_in_c", 5)])
def test_no_process_survives_a_parent_that_is_killed(function, timeout):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, function, str(timeout)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout
        pids = [int(word) for word in parent.stdout.readline().split()]
        time.sleep(1.5)  # for the batches to be where they hang; any earlier moment must do as well
        assert all(map(is_running, pids))
    finally:
        parent.kill()
        parent.communicate()
    wait_for(lambda: not any(map(is_running, pids)))


def test_ctrl_c_is_left_to_the_parent():
    with Processes(transforms.double, 1, timeout=PATIENCE) as processes:
        processes(0, batch_of(0))
        os.kill(processes.pids()[0], signal.SIGINT)
        processes(1, batch_of(1))
        assert processes.replaced == 0


def test_after_ctrl_c_in_the_middle_of_a_batch_the_next_one_gets_its_own_result(tmp_path):
    text = """
        import functools, pathlib, signal
        import numpy as np
        from penstock.loader.feeding.processes import Processes
        from tests.loader.transforms import double_after_one_hold_up

        def interrupt_when_held_up(*_):
            if pathlib.Path("held_up").exists():
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

        function = functools.partial(double_after_one_hold_up, pathlib.Path("."))
        with Processes(function, 1, timeout=600) as processes:
            signal.signal(signal.SIGALRM, interrupt_when_held_up)
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            try:
                processes(0, {"x": np.arange(3)})
            except KeyboardInterrupt:
                print(processes(1, {"x": np.arange(3, 6)})["x"].tolist())
    """
    done = run_script(tmp_path / "script.py", text)
    assert done.stdout == "[6, 8, 10]\n", done.stderr
