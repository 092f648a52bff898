"""The columns of a schema of samples as people write them."""

from __future__ import annotations

from penstock.prepare.samples.schema import SampleSchema
from penstock.shards.schema import short_type


def short_words(schema: SampleSchema) -> dict[str, str]:
    """Such as {"features": "float32[893]"}."""
    return {field.name: short_type(field.type) for field in schema}
