"""Curves of serving classes from the cap map: rising, honest below the sweeps, and better there."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from capacity.fitting.board_power import Draw
from capacity.fitting.curves import curve_error, fit_curve, mmbt_points, zeus_points
from capacity.fitting.fit import CAP_FRACTIONS, REFERENCE, SWEEP
from capacity.fitting.map_classes import map_curves, map_error
from capacity.model.cap_map import CapMap, fit_cap_map
from capacity.profile_library import shipped_library

POINTS = zeus_points(REFERENCE / SWEEP)


@lru_cache(maxsize=1)
def cap_map() -> CapMap:
    return fit_cap_map(POINTS)


@pytest.mark.parametrize("gpu", [None, "V100", "A40", "RTX6000"])
@pytest.mark.parametrize("watts", [130.0, 200.0, 260.0])
def test_more_watts_never_cost_speed_and_no_cap_is_free(gpu: str | None, watts: float) -> None:
    draw = Draw(watts, watts, "measured", "a test", 1)
    for curve in map_curves(cap_map(), gpu, draw, 260.0, CAP_FRACTIONS):
        assert (np.diff(curve) >= 0).all()
        assert curve[-1] == pytest.approx(1.0)
        assert curve[0] < 0.25, "a tenth of the limit is below all sweeps"


def test_servers_of_a_type_in_no_fit_are_told_better_than_by_the_line() -> None:
    served = mmbt_points(REFERENCE / "mmbt_power_limit_sweep.csv.gz")
    assert map_error(cap_map(), served) < 0.5 * curve_error(fit_curve(POINTS), served)


def test_profiles_of_types_without_own_steps_read_the_map_when_they_serve() -> None:
    for name in ("A100-SXM", "B200-SXM", "L40S", "A40"):
        classes = shipped_library().find(name).kernel_classes
        for served, trained in (("prefill", "batch"), ("decode", "training")):
            assert "cap map" in classes[served].curve_source
            assert "cap map" not in classes[trained].curve_source
    assert "cap map" not in shipped_library().find("H200-SXM").kernel_classes["decode"].curve_source
