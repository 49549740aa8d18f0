"""The table of pod rules lies with the cluster tests; the embedded API is judged by the same."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "cluster"))
