"""Copying: what a worker gets, and the driver calls, is what the session has; one copy in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.base.errors import ConfigError
from penstock.base.user_code import load_object
from penstock.base.user_code.carried import refuse_own_order, target_of
from penstock.base.user_code.identity import identity_of
from tests.base.user_code.test_identity import CLASS, FUNCTION, PREAMBLE, SETTINGS, VALUES, using

MORE = {
    "a class with slots": "@dataclasses.dataclass(slots=True)\nclass D:\n    b: int = 1\n    a: int = 2\nheld = D()\n",
    "aliases of an enum": "class E(enum.Enum):\n    B = 1\n    A = 2\n    C = 1\nheld = E\n",
    "a flag of two bits": "class E(enum.Flag):\n    B = 1\n    A = 2\n    AB = A | B\nheld = E.AB\n",
    "an attribute of a base": "class A:\n    z = 1\nclass B(A):\n    y = 2\n    z = 1\nheld = B\n",
    "a class in a class": "class A:\n    class Z: b = 1\n    class B: a = 1\nheld = A\n",
    "a metaclass": "class M(type):\n    def __len__(c): return 3\nclass A(metaclass=M):\n    z = a = 1\nheld = A\n",
    "a field without a default": "@dataclasses.dataclass\nclass D:\n    b: int\n    a: list = dataclasses.field("
    "default_factory=list)\nheld = D\n",
    "a set in a set": "held = {frozenset({'a', 'b'}), frozenset({'c'})}\n",
}


def _function(code: str) -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PREAMBLE + code, "<cell>", "exec"), space)
    return space["function"]


def _copy(code: str) -> Any:
    return load_object(target_of(_function(code)))


@pytest.mark.parametrize("code", [*map(using, VALUES), CLASS, SETTINGS, FUNCTION])
def test_a_copy_has_the_identity_of_the_original(code):
    function = _function(code)
    copy = load_object(target_of(function))
    assert copy is not function
    assert identity_of(copy).digest == identity_of(function).digest


@pytest.mark.parametrize("name", MORE)
def test_a_copy_has_the_identity_of_the_original_with(name):
    function = _function(MORE[name] + "def function(x):\n    return held\n")
    copy = load_object(target_of(function))
    assert identity_of(copy).digest == identity_of(function).digest


def test_a_copy_has_its_own_classes_and_leaves_those_of_the_session_alone():
    function = _function("class Settings:\n    zeta = [1]\n    alpha = 2\ndef function(x):\n    return Settings\n")
    copy, kind = load_object(target_of(function)), function(0)
    held = kind.zeta
    assert copy(0) is not kind
    assert kind.zeta is held
    assert [name for name in vars(copy(0)) if not name.startswith("__")] == ["zeta", "alpha"]


def test_a_set_that_is_used_twice_is_one_set_in_the_copy():
    one, other = _copy("held = {'a', 'b'}\nboth = [held, held]\ndef function(x):\n    return both\n")(0)
    assert one is other


def test_sets_have_one_order_however_their_values_came_into_them():
    lists = [_copy(f"held = {order}\ndef function(x):\n    return list(held)\n")(0) for order in ("{8, 0}", "{0, 8}")]
    assert lists[0] == lists[1]


def test_code_finds_missing_values_of_a_dataclass_by_is():
    code = (
        "@dataclasses.dataclass\nclass D:\n    a: int\ndef function(x):\n    return dataclasses.fields(D)[0].default\n"
    )
    assert _copy(code)(0) is _function(code)(0)


def test_a_function_of_numba_has_the_globals_that_it_has_now():
    code = "import numba\nBY = 1\n@numba.njit\ndef inner(x):\n    return x + BY\n@numba.njit\ndef compiled(x):\n"
    code += "    return inner(x)\ncompiled(1)\nBY = 7\ndef function(x):\n    return compiled(x)\n"
    assert _copy(code)(1) == 8


def test_a_function_of_numba_may_call_itself():
    code = "import numba\n@numba.njit\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
    assert _copy(code + "def function(x):\n    return fib(x)\n")(10) == 55


SEEN = [
    "S = {'a', 'b'}\ndef function(x):\n    return list(S)\n",
    "S = {'a', 'b'}\ndef function(x, s=S):\n    return list(s)\n",
    "class C:\n    S = {'a', 'b'}\ndef function(x):\n    return list(C.S)\n",
    "D = {'x': [{'a', 'b'}]}\ndef function(x):\n    return list(D['x'][0])\n",
    "@dataclasses.dataclass\nclass D:\n    s: set\nheld = D({'a', 'b'})\ndef function(x):\n    return list(held.s)\n",
    "def outer(s):\n    return lambda x: list(s)\nfunction = outer({'a', 'b'})\n",
    "def called(x, s):\n    return list(s)\nfunction = functools.partial(called, s=frozenset('ab'))\n",
    "def function(x):\n    return function.s\nfunction.s = {'a', 'b'}\n",
    "def function(x):\n    return [each for each in {'a', 'b'}]\n",
    "def function(x):\n    return hash('a')\n",
    "S = {'a', 'b'}\ndef function(x):\n    return 'a' in S, (lambda: list(S))()\n",
    "S = {'a', 'b'}\ndef function(x):\n    if 'a' not in S:\n        S.add('a')\n    return 1\n",
]  # fmt: skip
NOT_SEEN = [
    "S = {'a', 'b'}\ndef function(x):\n    return 'a' in S, 'b' not in S, [each in S for each in x]\n",
    "def outer(s):\n    return lambda x: x in s\nfunction = outer({'a', 'b'})\n",
    "def function(x):\n    return x in {'a', 'b'}\n",
    "S = {1, 2.5, (3, 4)}\ndef function(x):\n    return list(S)\n",
    "S = {None, len, 'a'}\ndef function(x):\n    return x in S\n",
]


@pytest.mark.parametrize("code", SEEN)
def test_code_that_may_see_the_order_of_a_set_is_refused_where_the_hash_seed_is_random(code):
    with pytest.raises(ConfigError, match="the order of a set, and `hash`, differ between processes"):
        refuse_own_order(target_of(_function(code)))


@pytest.mark.parametrize("code", NOT_SEEN)
def test_a_set_that_is_only_searched_and_one_of_numbers_are_taken(code):
    refuse_own_order(target_of(_function(code)))


@pytest.mark.parametrize(
    ("value", "word"),
    [("{len, abs}", "builtin_function_or_method"), ("{float('nan')}", "float"), ("{int, str}", "type")],
)
def test_a_set_that_has_another_order_in_each_worker_is_refused(value, word):
    with pytest.raises(ConfigError) as caught:
        target_of(_function(f"S = {value}\ndef function(x):\n    return list(S)\n"))
    assert f"values of type {word} have another order in each process" in caught.value.what
    assert str(caught.value.next_step).startswith("sort it into a tuple or a list")


def test_all_workers_see_one_order_whatever_the_hash_seed_of_the_driver():
    code = "S = {'a', 'b', 'c', 'd', 8, 0, 16}\nclass C:\n    words = S\n    other = 1\ndef function(x):\n"
    code += "    return list(S), list(C.words), list(vars(C))\n"
    send = "import pickle, sys\nfrom penstock.base.user_code.carried import target_of, carried\n" + PREAMBLE + code
    send += "sys.stdout.buffer.write(pickle.dumps(carried(target_of(function))))"
    receive = "import pickle, sys\nprint(pickle.load(sys.stdin.buffer).thing(0))"
    assert len({_told(receive, "0", _told(send, seed)) for seed in ("1", "2", "77")}) == 1


def _told(code: str, seed: str, given: bytes = b"") -> bytes:
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, input=given, capture_output=True, check=True).stdout
