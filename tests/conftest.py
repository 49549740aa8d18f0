"""Seeds hypothesis for every tier."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("wattpack", deadline=None, print_blob=True)
settings.load_profile("wattpack")
