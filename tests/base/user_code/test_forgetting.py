"""Modules of a job's folder are imported anew only if they may have changed: others hold their functions."""

import os
import pickle
import sys

import pytest

from penstock.base.user_code import forget_modules


@pytest.fixture
def mine(tmp_path, monkeypatch):
    path = tmp_path / "forgotten_or_not.py"
    path.write_text("def one():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("forgotten_or_not", None)


def _forget(path):
    forget_modules(str(path.parent), iter(["forgotten_or_not:one"]))


def test_a_module_that_is_older_than_the_process_keeps_its_functions(mine):
    os.utime(mine, (1, 1))
    from forgotten_or_not import one

    for _ in range(2):
        _forget(mine)
        assert pickle.loads(pickle.dumps(one)) is one


def test_an_edited_module_is_imported_anew(mine):
    os.utime(mine, (1, 1))
    import forgotten_or_not

    _forget(mine)
    assert sys.modules["forgotten_or_not"] is forgotten_or_not
    mine.write_text("def one():\n    return 2\n")
    os.utime(mine, (1, 1))
    _forget(mine)
    assert "forgotten_or_not" not in sys.modules


def test_a_module_that_was_written_after_the_process_began_is_imported_anew(mine):
    import forgotten_or_not  # noqa: F401

    _forget(mine)
    assert "forgotten_or_not" not in sys.modules


def test_a_module_of_that_name_in_another_folder_is_imported_anew(mine, tmp_path):
    os.utime(mine, (1, 1))
    import forgotten_or_not  # noqa: F401

    other = tmp_path / "other"
    other.mkdir()
    (other / "forgotten_or_not.py").write_text("")
    forget_modules(str(other), iter(["forgotten_or_not:one"]))
    assert "forgotten_or_not" not in sys.modules
