"""Fingerprints are for ever: a ledger written by one version is read by the next."""

from __future__ import annotations

import pytest

from penstock.base.fingerprint import canonical_json, digest, fingerprint


def test_these_fingerprints_never_change():
    assert digest(b"") == "99aa06d3014798d86001c324468d497f"
    assert digest(b"penstock") == "c6932a2f07b073d6763ffab4001f7bdf"
    assert fingerprint({"stages": [{"filter": "rtt > 0"}], "é": 0.1, "n": None}) == "f7873a2db3246e265530337f39e6cefd"


def test_equal_values_have_one_spelling():
    assert canonical_json({"b": (1, 2), "a": "é"}) == '{"a":"é","b":[1,2]}'.encode()
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


@pytest.mark.parametrize("other", [{"a": [1, 2, 4]}, {"a": [1, 3, 2]}, {"b": [1, 2, 3]}, {"a": ["1", 2, 3]}, [1, 2, 3]])
def test_any_change_is_another_fingerprint(other):
    assert fingerprint(other) != fingerprint({"a": [1, 2, 3]})


def test_parts_are_digested_one_after_the_other():
    assert digest(b"pen", memoryview(b"stock")) == digest(b"penstock")


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint({"a": float("nan")})
