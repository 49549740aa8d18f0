"""One hash over all that the plant's behaviour rests on, for results: same hash, same plant."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from capacity.model.capping_loop import CEILING_SHARES, CEILING_SPREAD, capping_loop
from gpu.simulated.board_spec import (
    BELOW_KNEE_EXCESS,
    CLOCK_POWER_EXPONENT,
    SENSOR_GAIN_SPREAD,
    SENSOR_WINDOW_SECONDS,
    WORST_EXCESS,
    WORST_SHARE,
)
from simulation.plant_constants import PlantConstants
from simulation.trip_bands import LOWER_EDGE_SHARE

_OTHER_TYPE = "any other"


def plant_sha256(constants: PlantConstants) -> str:
    """Hash over the plant's constants, the capping loops of its boards and their spreads."""
    loops = {name: asdict(capping_loop(name)) for name in (*sorted(CEILING_SHARES), _OTHER_TYPE)}
    boards = {
        "ceiling_spread": CEILING_SPREAD,
        "sensor_gain_spread": SENSOR_GAIN_SPREAD,
        "sensor_window_seconds": SENSOR_WINDOW_SECONDS,
        "worst_excess": WORST_EXCESS,
        "worst_share": WORST_SHARE,
        "below_knee_excess": BELOW_KNEE_EXCESS,
        "clock_power_exponent": CLOCK_POWER_EXPONENT,
        "lower_edge_share": LOWER_EDGE_SHARE,
    }
    everything = {"constants": constants.model_dump(), "loops": loops, "boards": boards}
    text = json.dumps(everything, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
