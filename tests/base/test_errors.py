"""Errors say what, where and the next step, and lose none of it on the way from a worker to the screen."""

from __future__ import annotations

import errno
import pickle
import traceback

import pytest

from penstock.base import errors
from penstock.base.errors import ConfigError, FileError, InputError, PenstockError, TaskError, did_you_mean, file_error
from penstock.show.failure import message


def test_an_error_that_crossed_a_process_keeps_everything():
    error = TaskError("it broke", where="here, line 7", next_step="mend it")
    error.add_note("in slice 3")
    error.add_note("stage 2 (filter)")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is TaskError
    assert copy.as_dict() == error.as_dict()
    assert copy.notes == ["in slice 3", "stage 2 (filter)"]
    assert str(copy) == "it broke\n  where: here, line 7\n  try: mend it"


def test_an_error_whose_words_were_changed_on_the_way_crosses_with_the_new_words():
    error = ConfigError("unknown option 'colunm'")
    error.what = f"stages[2].filter: {error.what}"
    assert pickle.loads(pickle.dumps(error)).what == "stages[2].filter: unknown option 'colunm'"


def test_a_printed_error_holds_no_escape_code_of_the_data():
    red, kept = "\x1b[31mred", r"\x1b[31mred"
    error = ConfigError(f"there is no column {red!r}, but {red}", where=f"{red}.csv", next_step=f"rename {red}")
    error.add_note(f"line 1\nline 2 of {red}")
    assert str(error) == f"there is no column '{kept}', but {kept}\n  where: {kept}.csv\n  try: rename {kept}"
    assert error.notes == [f"line 1\nline 2 of {kept}"]
    assert "\x1b" not in "".join(traceback.format_exception(pickle.loads(pickle.dumps(error))))
    assert error.where == f"{red}.csv"  # the name of the file, for code that opens it


def test_every_kind_of_error_has_an_exit_code_of_its_own():
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)]
    codes = [kind.exit_code for kind in kinds]
    assert len(kinds) == 9
    assert len(set(codes)) == 9
    assert {f"{kind.__name__:16} {kind.exit_code:>3}" for kind in kinds if kind is not PenstockError} <= {
        f"{line.split()[1]:16} {line.split()[2]:>3}" for line in (errors.__doc__ or "").splitlines() if "──" in line
    }


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "permissions"), (errno.EIO, "check the disk")],
)
def test_a_refusal_of_the_file_system_names_the_path_and_what_to_do(number, words):
    error = file_error(OSError(number, "why"), "write", "/data/x")
    assert isinstance(error, FileError)
    assert error.what == f"cannot write: why ({errno.errorcode[number]})"
    assert error.where == "/data/x"
    assert words in error.next_step


def test_an_os_error_without_a_number_still_says_what_it_said():
    assert file_error(OSError("odd"), "read", "/x").what == "cannot read: odd (OSError)"


def test_a_close_name_is_offered_and_a_far_one_is_not():
    assert did_you_mean("colunm", ["column", "keep"]) == " Did you mean 'column'?"
    assert did_you_mean("zzz", ["column", "keep"]) == ""


def test_an_error_has_the_name_by_which_it_can_be_caught():
    class Misspelt(InputError):
        pass

    error = Misspelt("there is no column 'amnt'")
    assert error.as_dict()["error"] == "InputError"
    assert next(message(error, debug=False)).plain.startswith("InputError: ")
