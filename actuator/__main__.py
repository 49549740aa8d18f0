"""``python -m actuator``: how the parent starts its child."""

from __future__ import annotations

import sys

from actuator.app.actuator_command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
