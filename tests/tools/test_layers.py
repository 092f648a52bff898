"""The rules of `make layers`: each one finds what it forbids, in a small package made for it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "layers.py"


def check(root: Path, **modules: str) -> tuple[int, list[str]]:
    """Write a package of these modules, `room___name` for `room/name.py`, and ask the rules about it."""
    package = root / "house"
    for name, text in {"__init__": "", **modules}.items():
        path = package.joinpath(*name.split("___")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(package).parents:
            (package / folder / "__init__.py").touch()
        path.write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, package], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_a_package_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    code, said = check(tmp_path, low="", high="from house import low\nimport house.low\nimport os")
    assert (code, len(said)) == (0, 1)
    assert said[0].endswith("no cycle, no crowded module or folder, no question about kinds of pass")


@pytest.mark.parametrize(
    "back",
    [
        "import house.one",
        "from house import one",
        "from house.one import value",
        "from . import one",
        "from .one import value",
        "def later():\n    from house.one import value",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.one import value",
    ],
)
def test_a_cycle_is_named_wherever_its_imports_stand(tmp_path: Path, back: str) -> None:
    code, said = check(tmp_path, one="from house.two import other\nvalue = 1", two=f"{back}\nother = 2")
    assert code == 1
    assert said in (["import cycle: one -> two -> one"], ["import cycle: two -> one -> two"])


def test_every_cycle_is_named_also_one_through_a_room(tmp_path: Path) -> None:
    code, said = check(
        tmp_path,
        a="from house.b import x",
        b="from house.a import y",
        room_____init__="from house.room.inner import value",
        room___inner="from house.room import value",
    )
    assert code == 1
    assert [line.partition(":")[0] for line in said] == ["import cycle"] * 2
    assert any("room.inner" in line for line in said)
    assert any("b -> a" in line or "a -> b" in line for line in said)


def test_a_module_may_import_twelve_others_and_not_thirteen(tmp_path: Path) -> None:
    others = {f"{'left' if number < 7 else 'right'}___m{number}": "" for number in range(13)}
    lines = [f"from house.{name.replace('___', '.')} import x" for name in others]
    inside = "def later():\n    " + lines[-1]
    code, said = check(
        tmp_path,
        **others,
        twelve="\n".join([*lines[:12], *lines[:12]]),
        thirteen="\n".join([*lines[:12], inside]),
        cli="\n".join(lines),
        __init__="\n".join(lines),
    )
    assert (code, said) == (1, ["thirteen imports 13 modules, more than 12"])


def test_a_folder_may_have_sixteen_entries_and_not_seventeen(tmp_path: Path) -> None:
    full = {f"full___m{number}": "" for number in range(15)}  # and its __init__
    over = {f"over___m{number}": "" for number in range(16)}
    (tmp_path / "house" / "full" / "__pycache__").mkdir(parents=True)
    code, said = check(tmp_path, **full, **over)
    assert (code, said) == (1, [f"{tmp_path / 'house' / 'over'} has 17 entries, more than 16"])


@pytest.mark.parametrize(
    "question",
    [
        "if each.kind == 'map': pass",
        "if each.pass_.kind not in ('map', 'fit'): pass",
        "many = [one for one in passes if 'gather' != one.kind]",
        "match each.kind:\n    case 'map': pass",
        "if isinstance(each, Fold): pass",
        "if isinstance(each, (int, Another)): pass",
        "if isinstance(each, int | fold.Fold): pass",
    ],
)
def test_asking_a_pass_for_its_kind_is_found_outside_the_passes(tmp_path: Path, question: str) -> None:
    imports = (
        "from house.prepare.passes.fold import Fold\n"
        "from house.prepare.passes.fold import Fold as Another\n"
        "from house.prepare.passes import fold\n"
    )
    code, said = check(
        tmp_path,
        prepare___passes___fold="class Fold: kind = 'map'",
        prepare___passes___other=imports + question,
        prepare___run=imports + question,
    )
    assert (code, len(said)) == (1, 1)
    assert said[0].startswith(f"{tmp_path / 'house' / 'prepare' / 'run.py'}:4: asks which kind a pass is: ")


def test_other_kinds_and_other_classes_are_no_question_about_passes(tmp_path: Path) -> None:
    asked = (
        "from house.prepare.passes.fold import Fold\n"
        "if values.dtype.kind in 'iu': pass\n"
        "if parameter.kind != inspect.Parameter.KEYWORD_ONLY: pass\n"
        "if isinstance(value, int): pass\n"
        "made: Fold = Fold(each.kind)\n"
    )
    code, _ = check(
        tmp_path,
        prepare___passes___fold="class Fold: kind = 'map'",
        prepare___run=asked,
        loader="if recipe.kind == 'rows': pass",
    )
    assert code == 0
