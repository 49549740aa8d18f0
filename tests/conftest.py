"""Seeds hypothesis for every tier; the long form tries ten times as many examples."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("wattpack", deadline=None, print_blob=True)
settings.register_profile("long", settings.get_profile("wattpack"), max_examples=1000)
settings.load_profile(os.environ.get("WATTPACK_HYPOTHESIS_PROFILE", "wattpack"))
