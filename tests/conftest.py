"""How long the generated tests look. Each run looks at the same examples; a thorough one at more, and at new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("thorough" if os.environ.get("PENSTOCK_THOROUGH") else "same")
