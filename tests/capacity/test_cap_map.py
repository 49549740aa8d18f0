"""The cap map recovers planted laws, keeps the laws of caps, and takes few own points."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import capacity
from capacity.fitting.curves import SweepPoint, zeus_points
from capacity.model.cap_map import CapMap, fit_cap_map
from wattpack.errors import InputError

LIMIT = 300.0
CAPS = np.arange(120.0, 300.0, 15.0)


def _planted(gpu: str, floor: float, exponent: float) -> list[SweepPoint]:
    """Jobs of a board whose law is known, at every cap below their draw."""
    return [
        SweepPoint(
            gpu,
            "set/job",
            cap,
            LIMIT,
            draw,
            ((cap - floor) / (draw - floor)) ** exponent,
            cap / draw,
        )
        for draw in np.arange(170.0, 300.0, 10.0)
        for cap in CAPS
        if cap < draw
    ]


@pytest.fixture(scope="module")
def shipped() -> CapMap:
    folder = Path(capacity.__file__).parent / "reference"
    return fit_cap_map(zeus_points(folder / "zeus_power_limit_sweep.csv.gz"))


def test_a_planted_law_is_recovered_within_two_percent() -> None:
    cap_map = fit_cap_map(_planted("A", 80.0, 0.4) + _planted("B", 95.0, 0.25))
    expected = ((CAPS - 80) / (275.0 - 80)) ** 0.4
    measured = cap_map.throughput("A", CAPS, 275.0, LIMIT)
    binding = CAPS < 275
    assert measured[binding] == pytest.approx(expected[binding], rel=0.02)
    assert np.all(measured[~binding] == 1.0)
    drawn = cap_map.draw_watts("A", CAPS[binding], 275.0, LIMIT)
    assert drawn == pytest.approx(CAPS[binding], rel=0.03)


def test_a_type_without_a_sweep_lies_between_those_that_have_one() -> None:
    cap_map = fit_cap_map(_planted("A", 80.0, 0.5) + _planted("B", 80.0, 0.2))
    slow, new, fast = (cap_map.throughput(g, 180.0, 275.0, LIMIT)[0] for g in ("A", "new", "B"))
    assert slow < new < fast


def test_one_own_point_moves_the_whole_curve_to_it() -> None:
    cap_map = fit_cap_map(_planted("A", 80.0, 0.3))
    own = SweepPoint("new", "mine", 150.0, LIMIT, 275.0, 0.45, 0.5)
    exponent = cap_map.exponent_of_own_points("new", [own])
    before, after = (
        cap_map.throughput("new", np.array([150.0, 200.0]), 275.0, LIMIT, power)
        for power in (1.0, exponent)
    )
    assert after[0] == pytest.approx(0.45, rel=0.03)
    assert after[1] < before[1]


def test_what_a_larger_batch_costs_under_a_cap_is_learned_and_told() -> None:
    def job(batch: float) -> list[SweepPoint]:
        power, draw = 0.3 + 0.05 * np.log2(batch), 270.0 + np.log2(batch)
        return [
            SweepPoint("A", "net", c, LIMIT, draw, ((c - 80) / (draw - 80)) ** power, 1.0, batch)
            for c in CAPS
            if c < draw
        ]

    cap_map = fit_cap_map([point for batch in (1.0, 4.0, 16.0) for point in job(batch)])
    own = job(4.0)[4:5]
    for jobs, ratio in ((job(1.0)[4:], 0.25), (job(16.0)[4:], 4.0)):
        exponent = cap_map.exponent_of_own_points("A", own, ratio)
        caps, draw = np.array([p.limit_watts for p in jobs]), jobs[0].uncapped_watts
        told = cap_map.throughput("A", caps, draw, LIMIT, exponent)
        assert told == pytest.approx([p.throughput for p in jobs], rel=0.02)
    with pytest.raises(InputError, match="batch_ratio"):
        cap_map.exponent_of_own_points("A", own, 0.0)


def test_an_own_point_whose_cap_does_not_bind_tells_nothing(shipped: CapMap) -> None:
    free = SweepPoint("V100", "mine", 250.0, 250.0, 200.0, 0.9, 1.0)
    assert shipped.exponent_of_own_points("V100", [free]) == 1.0


@given(
    st.sampled_from(["V100", "RTX6000", "A40", "P100", "never swept"]),
    st.floats(0.4, 1.0),
)
def test_more_cap_is_never_slower_and_never_draws_less(gpu: str, share: float) -> None:
    shipped = _shipped_once()
    uncapped = share * LIMIT
    caps = np.linspace(0.4 * uncapped, 1.1 * uncapped, 60)
    speed = shipped.throughput(gpu, caps, uncapped, LIMIT)
    assert np.all((speed > 0) & (speed <= 1))
    assert np.all(np.diff(speed) >= -0.004)
    assert np.all(np.diff(shipped.draw_watts(gpu, caps, uncapped, LIMIT)) >= -0.01 * uncapped)


@pytest.mark.parametrize("gpu", ["V100", "RTX6000", "A40"])
@pytest.mark.parametrize("uncapped", [170.0, 200.0, 240.0])
def test_a_watt_more_never_makes_speed_jump(shipped: CapMap, gpu: str, uncapped: float) -> None:
    caps = np.arange(110.0, 260.0)
    assert np.max(np.diff(shipped.throughput(gpu, caps, uncapped, 260.0))) < 0.015


def test_one_call_answers_for_many_boards(shipped: CapMap) -> None:
    caps, draws = np.array([150.0, 200.0, 100.0]), np.array([240.0, 180.0, 200.0])
    together = shipped.throughput("V100", caps, draws, 250.0)
    alone = [shipped.throughput("V100", c, d, 250.0)[0] for c, d in zip(caps, draws, strict=True)]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize("name", ["cap_watts", "uncapped_watts", "limit_watts"])
@pytest.mark.parametrize("value", [float("nan"), 0.0, -1.0, float("inf")])
def test_watts_that_are_none_are_refused_by_name(shipped: CapMap, name: str, value: float) -> None:
    watts = {"cap_watts": 150.0, "uncapped_watts": 200.0, "limit_watts": 250.0, name: value}
    for ask in (shipped.throughput, shipped.draw_watts):
        with pytest.raises(InputError, match=name):
            ask("V100", **watts)


def test_sweeps_in_which_no_cap_binds_are_refused() -> None:
    free = SweepPoint("A", "job", 300.0, 300.0, 200.0, 1.0, 1.0)
    with pytest.raises(InputError, match="points"):
        fit_cap_map([free])


_KEPT: list[CapMap] = []


def _shipped_once() -> CapMap:
    """Hypothesis and module fixtures do not mix."""
    if not _KEPT:
        folder = Path(capacity.__file__).parent / "reference"
        _KEPT.append(fit_cap_map(zeus_points(folder / "zeus_power_limit_sweep.csv.gz")))
    return _KEPT[0]
