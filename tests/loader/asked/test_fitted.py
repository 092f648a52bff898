"""Bins that a job has fitted become fields of a loader; others are refused by name."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import penstock
from penstock.base.errors import ConfigError
from tests.loader.making import prepare
from tests.prepare.stages.test_bins import GROUP, VISITS


@pytest.mark.parametrize("stages", [[{"bins": {"seconds": 16}}, GROUP], [GROUP, {"bins": {"seconds": 16}}]])
def test_a_loader_uses_the_edges_that_a_job_has_fitted(tmp_path, stages):
    output = prepare(tmp_path, VISITS, stages)
    artifact = json.loads((output / "artifacts/bins.json").read_text())["seconds"]
    loader = penstock.load(output, batch_size=4, length=200, fields={"at": "time", "seconds": "bins"}, workers=0)
    batch = loader.batch(0)
    counts = loader.stats().counts
    assert counts["nulls"] > 0
    assert counts["values_too_small"] == counts["values_too_large"] == 0
    pairs = set(itertools.pairwise(artifact["edges"]))
    found = {
        event["seconds"]
        for row in range(4)
        for event in penstock.decode(batch["inputs"][row], loader.vocabulary, batch["inputs_segmentation"][row])
        if event.get("seconds")
    }
    assert found <= pairs
    assert len(found) > 8


def test_bins_that_were_not_fitted_are_refused_by_name(tmp_path):
    plain = prepare(tmp_path / "plain", VISITS, [GROUP])
    one = prepare(tmp_path / "one", VISITS, [{"bins": {"seconds": 16}}, GROUP])
    other = prepare(tmp_path / "other", VISITS.slice(0, 2000), [{"bins": {"seconds": 16}}, GROUP])
    options: dict[str, Any] = {"batch_size": 2, "length": 64, "fields": {"seconds": "bins"}}
    with pytest.raises(ConfigError, match="no bins of column 'seconds' were fitted for this dataset: it has none"):
        penstock.load(plain, **options)
    with pytest.raises(ConfigError, match="their bins of 'seconds' differ"):
        penstock.load([one, other], **options)
    with penstock.load(one, **options) as loader:
        both = penstock.load([one, other], **{**options, "fields": loader.vocabulary})
    assert both.vocabulary == loader.vocabulary
    both.close()
