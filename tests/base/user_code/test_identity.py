"""Identity of functions: equal in every process, other where anything that they use is other."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import ConfigError
from penstock.base.user_code import load_object
from penstock.base.user_code.carried import target_of
from penstock.base.user_code.identity import identity_of

PREAMBLE = """
import collections, dataclasses, datetime, decimal, enum, functools, logging, math, operator, pathlib, re, typing
import numpy as np, pyarrow as pa, pyarrow.compute as pc
"""
TELL = "\nfrom penstock.base.user_code.identity import identity_of\nprint(identity_of(function).digest)\n"
FUNCTION = """
BY = 2
def helper(x):
    return x * BY
def outer(shift):
    def function(x, *, more=3):
        return [helper(each) + shift + more for each in x]
    return function
function = outer(1)
"""
VALUES = [
    "None", "True", "3", "10 ** 5000", "0.1", "-0.0", "float('nan')", "1j", "'text \\ud800'", "b'bytes'", "(1, 'a')",
    "[1, [2.0, None]]", "{'a': 1, 2: [3]}", "{'b', 'a', 'c', 1, (2, 'x')}", "frozenset({'x', 'y', 'z'})", "range(9)",
    "slice(1, None)", "re.compile('a+', re.I)", "pathlib.Path('/tmp/x')", "datetime.date(2020, 1, 2)",
    "datetime.timedelta(hours=3)", "decimal.Decimal('1.10')", "np.arange(6).reshape(2, 3)", "np.float32(1.5)",
    "np.dtype('<f4')", "np.dtype([('a', '<i4'), ('b', '<f8')])", "np.dtype(('<i4', 2))",
    "np.dtype(('<f4', 2))", "np.array(['a', 'bc'])", "np.array([{'a': 1}, None])",
    "np.add", "pa.array([1, None, 3])", "pa.schema([('x', pa.int32())])", "pa.float16()", "pa.scalar(3, pa.int8())",
    "pa.table({'x': [[1], None]})", "math", "np", "math.sqrt", "len", "str.lower", "'a b'.split", "dict", "pc.multiply",
    "operator.itemgetter(1, 2)", "collections.OrderedDict(a=1)", "collections.Counter('aab')",
    "collections.defaultdict(list, a=[1])", "collections.deque([1], 2)", "collections.deque([1], 3)",
    "functools.partial(int, base=2)", "list[int]", "logging.getLogger('x')",
    "enum.Enum('Color', ['RED', 'BLUE']).RED", "collections.namedtuple('P', 'x y')(1, 2)",
    "dataclasses.make_dataclass('D', ['a'], frozen=True)(3)", "functools.lru_cache(lambda x: x)", "lambda x: x + 1",
]  # fmt: skip


def _told(code: str, folder: Path, seed: str = "1", tell: str = TELL) -> str:
    script = folder / "script.py"
    script.write_text(code + tell)
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _digest(code: str, file: str = "<cell>") -> str:
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(PREAMBLE + code, file, "exec"), space)
    return identity_of(space["function"]).digest


def using(value: str) -> str:
    return f"value = {value}\ndef function(x):\n    return value\n"


def test_all_values_have_an_identity_that_does_not_depend_on_the_process(tmp_path):
    names = [f"value_{number}" for number in range(len(VALUES))]
    code = PREAMBLE + "".join(f"{name} = {value}\n" for name, value in zip(names, VALUES, strict=True))
    code += f"def function(x):\n    return [{', '.join(names)}]\n"
    assert _told(code, tmp_path, "1") == _told(code, tmp_path, "12345")


def test_no_two_values_are_taken_for_one_another():
    digests = [_digest(using(value)) for value in VALUES]
    assert len(set(digests)) == len(VALUES)


@pytest.mark.parametrize("moved", ["\n\n\n{}", "# a comment\n{}", "import os\ndef other(): return os\n{}"])
def test_lines_comments_and_what_is_not_used_do_not_count(moved):
    assert _digest(moved.format(FUNCTION.replace("return x * BY", "return x * BY  # doubled"))) == _digest(FUNCTION)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("BY = 2", "BY = 3"),
        ("x * BY", "x / BY"),
        ("outer(1)", "outer(2)"),
        ("more=3", "more=4"),
        ("+ shift", "- shift"),
        ("helper(each)", "abs(each)"),
    ],
)
def test_an_edit_of_the_body_a_helper_a_global_a_default_or_a_captured_value_counts(before, after):
    assert _digest(FUNCTION.replace(before, after)) != _digest(FUNCTION)


CLASS = """
@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    by: int = 2
    LIMIT = 7
    def __call__(self, x):
        return min(x * self.by, self.LIMIT)
    @property
    def half(self):
        return self.by / 2
    @staticmethod
    def one():
        return 1
class Color(enum.Enum):
    RED = 1
    def shown(self):
        return self.name
def function(x):
    return Scale()(x), Color.RED, function
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("= 2", "= 3"), ("LIMIT = 7", "LIMIT = 8"), ("x * self", "x + self"), ("/ 2", "/ 3"), ("return 1", "return 2"),
     ("RED = 1", "RED = 2"), ("self.name", "self.value")],
)  # fmt: skip
def test_an_edit_of_a_class_that_is_used_counts(before, after):
    assert _digest(CLASS.replace(before, after)) != _digest(CLASS)
    assert _digest(CLASS) == _digest("\n" + CLASS)


SETTINGS = """
class Meta(type):
    def __len__(cls):
        return 11
@dataclasses.dataclass(order=True)
class Pair(metaclass=Meta):
    SCALE: typing.ClassVar[int] = 12
    first: int = 13
    second: int = dataclasses.field(default=14, compare=True)
Pair.SCALE = 15
class Point(typing.NamedTuple):
    x: int = 16
    y: int = 17
class Cached:
    __version__ = 18
    @functools.lru_cache
    def __call__(self, x):
        return 19
pair = Pair()
pair.extra = 20
def function(x):
    return Pair, Point, Cached, pair
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("11", "1"), ("12", "1"), ("13", "1"), ("14", "1"), ("15", "1"), ("16", "1"), ("17", "1"), ("18", "1"),
     ("19", "1"), ("20", "1"), ("order=True", "order=False"), ("compare=True", "compare=False"),
     ("x: int = 16\n    y: int = 17", "y: int = 17\n    x: int = 16")],
)  # fmt: skip
@pytest.mark.parametrize("file", ["<cell>", "<string>"])  # the latter is that of `python -c`
def test_whatever_a_class_or_its_objects_hold_counts(before, after, file):
    assert _digest(SETTINGS.replace(before, after), file) != _digest(SETTINGS, file)
    assert _digest(SETTINGS, file) == _digest(SETTINGS, "<stdin>")


@pytest.mark.parametrize(
    "code",
    [
        "class Base:\n    __slots__ = ('by',)\n@dataclasses.dataclass\nclass D(Base):\n    a: int = 1\nd = D()\n"
        "d.by = $\ndef function(x):\n    return d.by\n",
        "class Row:\n    a: $\ndef function(x):\n    return Row.__annotations__\n",
        "def function(x: $):\n    return function.__annotations__\n",
        "def by(x):\n    return function.by\nfunction = functools.partial(by)\nfunction.by = $\n",
        "class P(typing.NamedTuple):\n    x: int = 1\n    def __repr__(self):\n        return '$'\n"
        "def function(x):\n    return P()\n",
        "class K:\n    by = $\nkind = list[K] | None\ndef function(x):\n    return kind\n",
        "class Zone(datetime.tzinfo):\n    def utcoffset(self, at):\n        return datetime.timedelta(hours=$)\n"
        "    def __repr__(self):\n        return 'Zone'\nat = datetime.datetime(2020, 1, 1, tzinfo=Zone())\n"
        "def function(x):\n    return at\n",
    ],
)
def test_what_code_may_read_elsewhere_counts_too(code):
    assert _digest(code.replace("$", "2")) != _digest(code.replace("$", "3"))
    assert _digest(code.replace("$", "2")) == _digest(code.replace("$", "2"), "<stdin>")


def test_an_annotation_counts_without_the_address_of_an_object():
    code = "class Mark: pass\ndef function(x: typing.Annotated[int, Mark()]):\n    return x\n"
    assert _digest(code) == _digest(code)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pa.array([1], pa.time64('ns'))", "pa.array([2], pa.time64('ns'))"),
        ("pa.array([2**62], pa.timestamp('us'))", "pa.array([2**61], pa.timestamp('us'))"),
        ("pa.scalar(1, pa.timestamp('ns'))", "pa.scalar(2, pa.timestamp('ns'))"),
        ("pa.DictionaryArray.from_arrays([0], ['x', 'y'])", "pa.DictionaryArray.from_arrays([0], ['x', 'z'])"),
    ],
)
def test_values_of_arrow_count_exactly(one, other):
    assert _digest(using(one)) != _digest(using(other))


@pytest.mark.parametrize(
    "value",
    [
        "pa.array([b'\\xff']).view(pa.string())",
        "pa.StructArray.from_arrays([[1], [2]], ['a', 'a'])",
        "pa.array([[1]], pa.list_(pa.time64('ns')))",
    ],
)
def test_values_of_arrow_that_python_cannot_hold_are_refused(value):
    with pytest.raises(ConfigError, match="has no identity"):
        _digest(using(value))


def test_an_object_that_is_a_dataclass_and_a_container_is_refused():
    code = (
        "@dataclasses.dataclass\nclass Both(dict):\n    x: int = 1\nboth = Both()\ndef function(x):\n    return both\n"
    )
    with pytest.raises(ConfigError, match=r"function uses 'both', a __main__\.Both, which"):
        _digest(code)


def test_functions_that_call_each_other_have_an_identity():
    code = "def function(x):\n    return other(x)\ndef other(x):\n    return function(x)\n"
    assert _digest(code) == _digest(code)
    assert _digest(code) != _digest(code.replace("return function(x)", "return function(x) + 1"))


def test_a_module_of_the_users_own_counts_by_its_source_and_a_library_by_its_name(tmp_path):
    (tmp_path / "helping.py").write_text("def helper(x):\n    return x\n")
    code = "import numpy\nfrom helping import helper\ndef function(x):\n    return helper(x), numpy\n"
    before = _told(code, tmp_path)
    assert _told(code, tmp_path) == before
    (tmp_path / "helping.py").write_text("def helper(x):\n    return x + 1\n")
    assert _told(code, tmp_path) != before


@pytest.mark.parametrize("line", ["import helping.deep", "from helping import deep", "from helping.deep import add"])
def test_a_module_that_is_imported_inside_the_function_counts_by_its_source_too(tmp_path, line):
    (tmp_path / "helping").mkdir()
    (tmp_path / "helping" / "__init__.py").write_text("")
    code = f"def function(x):\n    {line}\n    import json\n    import not_installed\n"
    (tmp_path / "helping" / "deep.py").write_text("def add(x): return x + 1\n")
    before = _told(code, tmp_path)
    (tmp_path / "helping" / "deep.py").write_text("def add(x): return x + 2\n")
    assert _told(code, tmp_path) != before


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("helping.py", "def function(x):\n    import helping\n    return helping.helper(x)\n"),
        ("helping.py", "def function(x):\n    from helping import helper\n    return helper(x)\n"),
        ("whole/helping.py", "import whole.helping\ndef function(x):\n    return whole.helping.helper(x)\n"),
        ("whole/helping.py", "def function(x):\n    from whole import helping\n    return helping.helper(x)\n"),
        ("profile.py", "import profile\ndef function(x):\n    return profile.helper(x)\n"),
    ],
)
@pytest.mark.parametrize("is_package", [False, True])
def test_a_module_counts_wherever_it_is_imported_and_whatever_its_name(tmp_path, path, code, is_package):
    (tmp_path / "whole").mkdir()
    if is_package:
        (tmp_path / "whole" / "__init__.py").write_text("")
    (tmp_path / path).write_text("def helper(x):\n    return x\n")
    before = _told(code, tmp_path)
    assert _told(code, tmp_path, "2") == before
    (tmp_path / path).write_text("def helper(x):\n    return x + 1\n")
    assert _told(code, tmp_path) != before


def test_a_library_that_is_imported_inside_a_function_stays_unimported(tmp_path):
    code = "import sys\ndef function(x):\n    import pandas, zipapp\n    return pandas\n"
    told = _told(code, tmp_path, tell=TELL + "print({'pandas', 'zipapp'} & set(sys.modules))\n")
    assert told.splitlines()[-1] == "set()"


def test_a_value_that_a_script_sets_in_its_own_module_counts(tmp_path):
    (tmp_path / "settings.py").write_text("SCALE = 1\n")
    code = "import settings\nsettings.SCALE = {}\ndef function(x):\n    return x * settings.SCALE\n"
    assert _told(code.format(2), tmp_path) != _told(code.format(3), tmp_path)


def test_of_two_functions_of_one_name_each_is_itself(tmp_path):
    (tmp_path / "both.py").write_text("def helper(x):\n    return 1\nfirst = helper\ndef helper(x):\n    return 2\n")
    tell = "from penstock.base.user_code import load_object\nfrom penstock.base.user_code.carried import target_of\n"
    tell += "print(load_object(target_of(both.first))(0), load_object(target_of(both.helper))(0))\n"
    assert _told("import both\n", tmp_path, tell=tell) == "1 2\n"


def test_bytes_between_the_fields_of_an_array_do_not_count():
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    arrays = [np.frombuffer(bytes([filling]) * 48, kind).copy() for filling in (0, 7)]
    for array in arrays:
        array["a"], array["b"] = 1, 2.0
    assert len({identity_of(lambda _, held=array: held).digest for array in arrays}) == 1


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("threading.Lock()", "_thread.lock"),
        ("open('/dev/null')", "_io.TextIOWrapper"),
        ("(x for x in [])", "generator"),
        ("random.Random(1)", "random.Random"),
        ("np.random.default_rng(1)", "numpy.random._generator.Generator"),
        ("object()", "object"),
        ("[object()]", "object"),
        ("type('Thing', (), {})()", "__main__.Thing"),
    ],
)
def test_a_value_without_identity_is_refused_by_name_and_type(value, word):
    code = f"import threading, random\nheld = {value}\ndef helper(x):\n    return held\n"
    code += "def function(x):\n    return helper(x)\n"
    with pytest.raises(ConfigError) as caught:
        _digest(code)
    assert caught.value.what == f"helper uses 'held', a {word}, which has no identity that a later run could check"
    assert "inside the function" in str(caught.value.next_step)


def test_a_list_that_contains_itself_is_refused():
    with pytest.raises(ConfigError, match="function uses 'held', a list, which contains itself"):
        _digest("held = []\nheld.append(held)\ndef function(x):\n    return held\n")


@dataclass(frozen=True)
class Unsendable:
    def __reduce__(self):
        raise TypeError("it stays here")


def test_what_cannot_be_pickled_is_refused_by_name():
    held = Unsendable()
    with pytest.raises(ConfigError, match="lambda cannot be sent to a worker: TypeError: it stays here"):
        target_of(lambda _: held)


def test_a_captured_array_counts_by_its_values():
    def scaled(by):
        return lambda x: x * by

    one, same, other = (identity_of(scaled(np.arange(3) + shift)) for shift in (0, 0, 1))
    assert one.digest == same.digest != other.digest
    texts = [identity_of(scaled(pa.array([text]))).digest for text in ("a", "a", "b")]
    assert texts[0] == texts[1] != texts[2]


def test_a_function_of_a_module_is_its_name():
    assert target_of(textwrap.dedent) == "textwrap:dedent"


def test_of_functions_with_one_name_in_one_module_each_is_itself(tmp_path, monkeypatch):
    (tmp_path / "made_in_a_loop.py").write_text(
        "every = []\nfor k in (1, 2):\n    def function(x, k=k):\n        return k * x\n    every.append(function)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    first, last = importlib.import_module("made_in_a_loop").every
    assert target_of(last) == "made_in_a_loop:function"
    assert load_object(target_of(first))(5) == 5


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        ("class C:\n    z = 1\n    a = 1\ndef function(x):\n    return vars(C)\n", "z = 1\n    a =", "a = 1\n    z ="),
        ("class C:\n    'hello'\ndef function(x):\n    return C.__doc__\n", "hello", "bye"),
        ("class C:\n    __slots__ = ('z', 'a')\ndef function(x):\n    return C.__slots__\n", "'z', 'a'", "'a', 'z'"),
        ("def other(x):\n    return 1\ndef function(x):\n    return 2\nfunction.__wrapped__ = other\n", "1", "3"),
        ("held = np.ones((2, 3), order='C')\ndef function(x):\n    return held.sum()\n", "'C'", "'F'"),
        ("held = pathlib.PurePosixPath('a')\ndef function(x):\n    return held\n", "PurePosix", "PureWindows"),
        ("import numba\n@numba.njit('int64(int64)')\ndef f(x):\n    return x\ndef function(x):\n    return f(x)\n",
         "int64(int64)", "float64(float64)"),
    ],
)  # fmt: skip
def test_what_a_function_can_tell_apart_counts(code, before, after):
    assert _digest(code) == _digest("\n" + code)
    assert _digest(code) != _digest(code.replace(before, after))


def test_sending_an_object_does_not_change_the_identity_of_its_class():
    space: dict[str, object] = {"__name__": "__main__"}
    code = "@dataclasses.dataclass\nclass D:\n    a: int = 1\nheld = D()\ndef function(x):\n    return held\n"
    exec(compile(PREAMBLE + code, "<cell>", "exec"), space)
    before = identity_of(space["function"]).digest
    target_of(space["function"])
    assert identity_of(space["function"]).digest == before


@pytest.mark.parametrize(
    "code",
    [
        "import settings\nsettings.helper = lambda x: $\ndef function(x):\n    return settings.helper(x)\n",
        "import settings\nsettings.LIMIT = $\ndef function(x):\n    return settings.limit()\n",
        "import settings\nfrom settings import limit\nsettings.LIMIT = $\ndef function(x):\n    return limit()\n",
    ],
)
def test_whatever_a_script_sets_in_a_module_that_a_function_uses_counts(tmp_path, code):
    (tmp_path / "settings.py").write_text("LIMIT = 1\ndef limit():\n    return LIMIT\ndef helper(x):\n    return x\n")
    assert _told(code.replace("$", "2"), tmp_path) != _told(code.replace("$", "3"), tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "import __main__\nBY = 1\ndef function(x):\n    return __main__.BY\n",
        "BY = 1\ndef function(x):\n    from __main__ import BY\n    return BY\n",
        "import __main__\nheld = [__main__]\ndef function(x):\n    return held[0].BY\n",
    ],
)
def test_the_main_module_is_refused_which_is_another_program_in_each_process(code):
    with pytest.raises(ConfigError, match="a module, which is another program in each process"):
        _digest(code)
