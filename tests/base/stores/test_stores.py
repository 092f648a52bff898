"""Stores: a path -> the store that serves it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

import penstock
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


TOY = '''
import os
from dataclasses import dataclass

from penstock.base import machine, stores
from penstock.base.stores.local import LocalStore

BUCKETS = os.environ["TOY_BUCKETS"]


@dataclass(frozen=True)
class ToyStore(LocalStore):
    """Files of toy://name lie in a folder that only this class knows."""

    def _path(self, name):
        return os.path.join(BUCKETS, self.root.removeprefix("toy://"), name)

    def free_bytes(self):
        return machine.free_disk(BUCKETS)


stores.SERVED["toy"] = ToyStore
'''


@pytest.mark.proof
def test_one_line_in_served_lets_every_door_take_the_urls_of_a_new_store(tmp_path):
    """As sitecustomize, the toy is there in every process, as a module beside the local store would be."""
    (tmp_path / "sitecustomize.py").write_text(TOY)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"a": {n}, "b": "t{n}"}}\n' for n in range(50)))
    source = os.path.dirname(os.path.dirname(penstock.__file__))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{source}", "TOY_BUCKETS": str(tmp_path / "buckets")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode of sitecustomize would lie among the files
    job = {"input": "in.jsonl", "output": "toy://bucket/made", "workers": 1, "memory": "2GB"}
    script = f"""
import penstock
penstock.run({job})
assert penstock.open("toy://bucket/made")[7] == {{"a": 7, "b": "t7"}}
assert penstock.verify("toy://bucket/made").ok
penstock.load("toy://bucket/made", batch_size=4, columns=["a"]).close()
from penstock.cli import main
assert main(["verify", "toy://bucket/made"]) == 0
assert main(["inspect", "toy://bucket/made"]) == 0
assert main(["export", "toy://bucket/made", "--to", "hf", "--output", "exported"]) == 0
assert main(["export", "toy://bucket/made", "--to", "hf"]) == 2
assert main(["verify", "other://bucket/made"]) == 2
assert main(["plan", "toy://bucket/job.yaml"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["buckets", "exported", "in.jsonl", "sitecustomize.py"]
    assert (tmp_path / "buckets" / "bucket" / "made" / "manifest.json").exists()
