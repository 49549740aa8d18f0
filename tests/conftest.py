"""Makes builders beside the tests importable from every folder, and seeds hypothesis."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("wattpack", deadline=None, print_blob=True)
settings.load_profile("wattpack")

for folder in sorted(p for p in Path(__file__).parent.iterdir() if p.is_dir()):
    if str(folder) not in sys.path and not folder.name.startswith("__"):
        sys.path.append(str(folder))
