"""The pages about metrics list every number that `on_metrics` is given."""

import inspect
import re

import pytest

from penstock.loader.feeding.metrics import loader_numbers
from penstock.show.running.metrics import run_numbers
from tests.docs.page import DOCS

UNITS = ("tokens", "events", "rows")  # `Stats.unit`, by the kind of batch


def named_by(function):
    names = re.findall(r'"(penstock/[^"]+)"', inspect.getsource(function))
    return {name.replace("{now.unit}", unit) for name in names for unit in UNITS}


@pytest.mark.parametrize(
    ("function", "page"), [(run_numbers, "how-to/watch-a-run.md"), (loader_numbers, "how-to/training-loops.md")]
)
def test_every_metric_stands_in_the_table_of_its_page(function, page):
    rows = [line.split("|")[1] for line in (DOCS / page).read_text().splitlines() if line.startswith("| `penstock/")]
    assert set(re.findall(r"`(penstock/[^`]+)`", "".join(rows))) == named_by(function)
