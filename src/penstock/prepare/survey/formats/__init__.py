"""Formats: refuse a job whose stages or columns do not fit `format:`, before a row is used. Called by taking.py.

A format that takes everything has no module here. How each is written is in passes/.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.prepare.job.config import Config
from penstock.prepare.stages.interfaces import Named
from penstock.prepare.survey.formats import arrayrecord, arrays, batches
from penstock.shards.schema import Schema

Check = Callable[[list[Named], Schema, tuple[pa.Schema, ...]], None]  # stages, what they write and are given
_CHECKS: Mapping[str, Check] = {
    "arrayrecord": arrayrecord.refuse_unfit,
    "arrays": arrays.refuse_unfit,
    "npz": batches.refuse_unfit,
}


def refuse_unfit_format(config: Config, stages: list[Named], output: Schema, given: tuple[pa.Schema, ...]) -> None:
    if config.format in _CHECKS:
        _CHECKS[config.format](stages, output, given)
