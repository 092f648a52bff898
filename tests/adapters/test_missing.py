"""Without its library an adapter says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from penstock.base.errors import ConfigError
from tests.adapters.test_maxtext import Pictures


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_an_adapter_without_its_library_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"penstock.loader.consumers.to_{name}", raising=False)
    with pytest.raises(ConfigError, match=f"pip install {name}"):
        importlib.import_module(f"penstock.loader.consumers.to_{name}")


def test_dataset_without_grain_says_what_to_install(monkeypatch):
    from penstock.loader.consumers.to_grain import to_grain

    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(ConfigError, match="pip install grain"):
        to_grain(Pictures())
