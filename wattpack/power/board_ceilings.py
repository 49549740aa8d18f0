"""What no board can give: more is a unit mix-up (mW for W) or a broken sensor.

An agent counts such a board as unreadable, and a controller refuses the report that holds one.
"""

from __future__ import annotations

from typing import Final

HIGHEST_BOARD_WATTS: Final = 5000.0
HIGHEST_BOARD_JOULES: Final = 1e15
"""Of an energy counter."""
