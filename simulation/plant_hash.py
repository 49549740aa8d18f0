"""One hash over all that the plant's behaviour rests on, for results: same hash, same plant."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from capacity.model.capping_loop import CEILING_SHARES, CEILING_SPREAD, capping_loop
from gpu.simulated.board_spec import (
    BELOW_KNEE_EXCESS,
    CLOCK_POWER_EXPONENT,
    SAMPLE_PERIOD_SECONDS,
    SAMPLE_SECONDS,
    SENSOR_GAIN_SPREAD,
    SENSOR_WINDOW_SECONDS,
    WORST_EXCESS,
    WORST_SHARE,
)
from simulation.plant_constants import PlantConstants
from simulation.trip_bands import LOWER_EDGE_SHARE

_OTHER_TYPE = "any other"


def plant_sha256(constants: PlantConstants, power_sensor: str = "averaged") -> str:
    """Hash over the plant's constants, the capping loops of its boards and their spreads.

    Args:
        constants: Of the scenario.
        power_sensor: ``row.power_sensor`` of the scenario; the frozen plant has means of a second.
    """
    loops = {name: asdict(capping_loop(name)) for name in (*sorted(CEILING_SHARES), _OTHER_TYPE)}
    boards: dict[str, float | str] = {
        "ceiling_spread": CEILING_SPREAD,
        "sensor_gain_spread": SENSOR_GAIN_SPREAD,
        "sensor_window_seconds": SENSOR_WINDOW_SECONDS,
        "worst_excess": WORST_EXCESS,
        "worst_share": WORST_SHARE,
        "below_knee_excess": BELOW_KNEE_EXCESS,
        "clock_power_exponent": CLOCK_POWER_EXPONENT,
        "lower_edge_share": LOWER_EDGE_SHARE,
    }
    if power_sensor != "averaged":
        boards |= {
            "power_sensor": power_sensor,
            "sample_seconds": SAMPLE_SECONDS,
            "sample_period_seconds": SAMPLE_PERIOD_SECONDS,
        }
    everything = {"constants": constants.model_dump(), "loops": loops, "boards": boards}
    text = json.dumps(everything, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
