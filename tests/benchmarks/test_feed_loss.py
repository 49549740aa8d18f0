"""The judge of ``feed_loss``: what UPSes have spent, and what its lines ask for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import feed_loss
from benchmarks._power_house import Trip
from benchmarks.runner import Options, Result

UPS = Trip(points=((1.25, 600.0), (1.5, 60.0)))


def test_a_ups_spends_what_its_curve_says_and_forgives_nothing() -> None:
    load = np.concatenate([np.full(100, 0.99), np.full(300, 1.5), np.full(100, 0.5)])
    assert feed_loss.feed_heat(UPS, load, 0.1) == pytest.approx(0.5)
    # Held at its first point below it, and beyond the last nothing is borne.
    assert feed_loss.feed_heat(UPS, np.full(60, 1.01), 1.0) == pytest.approx(0.1)
    assert feed_loss.feed_heat(UPS, np.array([1.51]), 0.1) == math.inf
    assert feed_loss.feed_heat(UPS, np.ones(10), 1.0) == 0.0


def one(**changes: Any) -> dict[str, Any]:
    arm = {
        "seconds": 2.0, "load_before": 1.2, "calm_peak": 0.9, "peak": 1.2, "heat": 0.1,
        "feed_heat": 0.01, "trips": 0, "brakes": 0, "violations": 0,
    }  # fmt: skip
    return arm | changes


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("reserve", {"seconds": 5.1}),
        ("reserve", {"seconds": 0.0}),
        ("reserve", {"load_before": 1.0}),
        ("no_reserve", {"seconds": 0.1}),
        ("controller_dies", {"feed_heat": 0.6}),
        ("everything_steps", {"trips": 1}),
        ("late_meter", {"violations": 1}),
    ],
)
def test_each_line_can_be_missed(name: str, changes: dict[str, Any]) -> None:
    quiet = {"no_reserve", "unseen"}
    row = {n: one(seconds=0.0) if n in quiet else one() for n in feed_loss.CASES}
    names = list(feed_loss.CASES)
    assert Result(feed_loss.figures([row], names), feed_loss.TARGETS).met()
    row[name] |= changes
    assert not Result(feed_loss.figures([row], names), feed_loss.TARGETS).met()


def test_a_row_from_a_file_is_judged_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "row.yaml"
    file.write_text(
        "name: own\nstep_seconds: 0.25\nrow:\n"
        "  groups: [{gpu_model: H200-SXM, count: 3}]\n  racks: 1\n  external_watts: 0\n"
        "  rated_servers: 2.3\n  rack_rated_servers: 2.3\n"
        "  redundancy: 2N\n  use_reserve: true\n"
    )
    arguments = ("--scenario", str(file), "--runs", "1")
    made = feed_loss.run(Options(quick=True, arguments=arguments, progress=lambda _: None))
    assert made.figures["given_trips"] == 0
    assert made.figures["given_runs_above_rating"] == 1
