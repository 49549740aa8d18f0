"""Seeds hypothesis for every tier; how many examples a test tries says ``tests.examples``."""

from __future__ import annotations

from hypothesis import settings

from tests.examples import examples

settings.register_profile("wattpack", examples(100), print_blob=True)
settings.load_profile("wattpack")
