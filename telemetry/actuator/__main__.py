"""``python -m telemetry.actuator``: how the parent starts its child."""

from __future__ import annotations

import sys

from telemetry.actuator.app import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
