"""Stores: a path -> the store that serves it."""

from __future__ import annotations

import pickle

import pytest

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store


@pytest.mark.parametrize("url", ["s3://bucket/data", "gs://bucket", "s3:/bucket/data", "hf://datasets/a/b"])
def test_a_url_that_no_store_serves_is_refused_by_name(url):
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert repr(url) in caught.value.what


def test_a_store_is_the_same_wherever_it_is_opened(tmp_path, monkeypatch):
    store = open_store(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    assert store == open_store("out") == pickle.loads(pickle.dumps(store))
    assert hash(store) == hash(open_store(store.root))
    assert not store.exists("")
