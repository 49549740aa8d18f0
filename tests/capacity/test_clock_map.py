"""The clock map repeats its one recording and says where it only assumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import benchmarks
from capacity.fitting.reference_files import number, read_csv
from capacity.model.clock_map import VIDEO_CLOCK_BOUND, ClockMap, clock_map
from wattpack.errors import InputError

SWEEP = Path(benchmarks.__file__).parent / "data" / "capacity" / "ltx_video_power_sweep.csv.gz"


def test_speed_and_draw_at_the_recorded_clocks_are_within_two_percent() -> None:
    names = ("sm_clock_mhz", "render_ms", "power_w", "start_celsius")
    rows = [[number(r, n, SWEEP.name) for n in names] for r in read_csv(SWEEP, names)]
    clock, render, watts, _ = np.array([row for row in rows if row[3] >= 45]).T
    top = clock > 2290
    share, best, full = clock / clock[top].mean(), render[top].mean(), watts[top].mean()
    made = clock_map("RTX-PRO-6000")
    speed = made.throughput(share, VIDEO_CLOCK_BOUND)
    assert np.mean(np.abs(speed * render / best - 1)) < 0.02
    assert np.mean(np.abs(made.draw_watts(share, full) / watts - 1)) < 0.02


def test_only_types_with_a_recording_are_more_than_assumed() -> None:
    assert clock_map("RTX-PRO-6000").provenance == "derived"
    assert clock_map("H200-SXM").provenance == "assumed"


def test_work_that_never_waits_for_the_clock_keeps_its_speed() -> None:
    made = clock_map("H200-SXM")
    assert made.throughput(0.5, 0.0) == pytest.approx(1.0)
    assert made.throughput(0.5, 1.0) == pytest.approx(0.5)
    assert made.throughput(1.0, 0.7) == pytest.approx(1.0)
    assert made.draw_watts(1.0, 600.0) == pytest.approx(600.0)


def test_constants_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="standing_share"):
        ClockMap("assumed", standing_share=1.5)
