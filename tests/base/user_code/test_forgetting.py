"""Modules are imported anew only if they may have changed: others hold their functions."""

import importlib
import os
import pickle
import sys

import pytest

from penstock.base.errors import ConfigError
from penstock.base.user_code import code_identity, forget_modules, load_object, refuse_set_values


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


def test_an_edited_module_of_another_place_is_imported_anew_too(mine, tmp_path):
    """Without workers, the old code would have run under the name of the new."""
    os.utime(mine, (1, 1))
    import forgotten_or_not

    elsewhere = str(tmp_path / "elsewhere")
    forget_modules(elsewhere, ["forgotten_or_not:one"])
    assert sys.modules["forgotten_or_not"] is forgotten_or_not
    mine.write_text("def one():\n    return 2\n")
    os.utime(mine, (1, 1))
    forget_modules(elsewhere, ["forgotten_or_not:one"])
    assert load_object("forgotten_or_not:one")() == 2


@pytest.fixture
def without_init(tmp_path, monkeypatch):
    """A package that is a folder without an `__init__.py`."""
    folder = tmp_path / "first" / "no_init"
    folder.mkdir(parents=True)
    (folder / "using.py").write_text("from no_init import used\n\n\ndef one():\n    return used.ONE\n")
    (folder / "used.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "no_init"]:
        del sys.modules[name]


def test_a_package_without_init_has_an_identity_and_is_imported_anew(without_init):
    assert load_object("no_init.using:one")() == 1
    before = code_identity("no_init.using:one")
    (without_init / "used.py").write_text("ONE = 3\n")
    forget_modules(str(without_init.parent / "elsewhere"), ["no_init.using:one"])
    assert load_object("no_init.using:one")() == 3
    assert code_identity("no_init.using:one") != before


def test_a_package_without_init_of_that_name_in_another_folder_is_imported_anew(without_init, monkeypatch):
    assert load_object("no_init.using:one")() == 1
    other = without_init.parent.parent / "second" / "no_init"
    other.mkdir(parents=True)
    (other / "using.py").write_text("def one():\n    return 4\n")
    monkeypatch.syspath_prepend(str(other.parent))
    forget_modules(str(other.parent), ["no_init.using:one"])
    assert load_object("no_init.using:one")() == 4


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("LIMIT = 5\n", True),
        ("LIMIT: int = 5\n", True),
        ("LIMIT = int('5')\n", False),
        ("LIMIT = 5\n\n\ndef count():\n    global LIMIT\n    LIMIT += 1\n", False),
        ("LIMIT = 5\nif LIMIT:\n    LIMIT = 6\n", False),
    ],
)
def test_a_constant_that_was_set_since_the_import_is_refused(mine, source, is_refused):
    """Workers import the module, and would use what its file says."""
    mine.write_text(source)
    module = importlib.import_module("forgotten_or_not")
    refuse_set_values("forgotten_or_not:one")
    module.LIMIT = 9
    if is_refused:
        with pytest.raises(ConfigError, match=r"forgotten_or_not\.LIMIT is 9, and was 5 when forgotten_or_not was"):
            refuse_set_values("forgotten_or_not:one")
    else:
        refuse_set_values("forgotten_or_not:one")
