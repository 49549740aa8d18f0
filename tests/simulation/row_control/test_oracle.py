"""Nobody who keeps the oracle's rules does better: by brute force and by a linear program."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from simulation.row_control.compiled_oracle import MOST_RACKS, shares_with_room
from simulation.row_control.oracle import OracleLimits, best_shares, best_shares_in_numpy
from simulation.row_control.random_work import Worth
from simulation.row_control.share_curves import GRID_POINTS, ShareCurves, share_grid
from wattpack.compiled import AVAILABLE

Floats = NDArray[np.float64]


def concave(generator: np.random.Generator, n: int) -> ShareCurves:
    """Random rising curves whose slopes fall."""
    slopes = -np.sort(-generator.exponential(1.0, (n, GRID_POINTS - 1)), axis=1)
    speed = np.concatenate([np.zeros((n, 1)), np.cumsum(slopes, axis=1)], axis=1)
    return ShareCurves(speed / speed[:, -1:], np.full(n, 500.0))


def worth_of(
    generator: np.random.Generator, boards: int, priority: list[int], size: int = 1
) -> Worth:
    units = boards // size
    return Worth(
        np.repeat(np.arange(units), size),
        concave(generator, 2 * units),
        np.arange(units),
        np.arange(units, 2 * units),
        generator.uniform(0.0, 1.0, units),
        np.full(units, float(size)),
        np.array(priority),
    )


def limits_of(
    wanted: Floats, racks: list[int], rack_share: float, row_share: float, **rest: Floats
) -> OracleLimits:
    rack = np.array(racks)
    totals = np.bincount(rack, wanted)
    zeros = np.zeros(len(wanted))
    return OracleLimits(
        rack,
        totals * rack_share,
        float(totals.sum()) * row_share,
        np.ones(len(wanted)),
        rest.get("floor", zeros),
        rest.get("least", zeros),
        wanted,
    )


def work_of(worth: Worth, share: Floats) -> Floats:
    """Full-speed seconds a second of each unit whose boards have this share, (n_units,)."""
    grid = share_grid()
    low = [
        np.interp(s, grid, worth.curves.speed[c])
        for s, c in zip(share, worth.low_curve, strict=True)
    ]
    high = [
        np.interp(s, grid, worth.curves.speed[c])
        for s, c in zip(share, worth.high_curve, strict=True)
    ]
    return worth.rate * ((1 - worth.mix) * low + worth.mix * high)


@pytest.mark.parametrize("seed", range(6))
def test_no_combination_of_shares_gets_more_done(seed: int) -> None:
    generator = np.random.default_rng(seed)
    wanted = generator.uniform(200.0, 700.0, 4)
    worth = worth_of(generator, 4, [0, 0, 0, 0])
    limits = limits_of(wanted, [0, 0, 1, 1], 0.85, generator.uniform(0.5, 0.8))
    ours = best_shares(worth, wanted, limits)
    tried = np.linspace(0.0, 1.0, 21)
    each = np.array([work_of(worth, np.full(4, share)) for share in tried])
    choices = np.array(list(product(range(len(tried)), repeat=4)))
    drawn = wanted * tried[choices]
    fits = drawn.sum(axis=1) <= limits.row_watts
    for rack, watts in enumerate(limits.rack_watts):
        fits &= drawn[:, limits.rack_of_gpu == rack].sum(axis=1) <= watts
    assert 1000 < fits.sum() < len(choices)
    best = float(each[choices[fits], np.arange(4)].sum(axis=1).max())
    mine = float(work_of(worth, ours).sum())
    assert best <= mine + 1e-9
    assert mine < best + 0.1
    assert (ours * wanted).sum() <= limits.row_watts + 1e-6


def by_program(worth: Worth, wanted: Floats, limits: OracleLimits, weight: Floats) -> float:
    """Most weighted work, as a linear program over the pieces of every curve."""
    units, step = len(worth.rate), 1.0 / (GRID_POINTS - 1)
    watts = np.bincount(worth.unit_of_gpu, wanted, units)
    rack = np.zeros(units, dtype=int)
    rack[worth.unit_of_gpu] = limits.rack_of_gpu
    gains = np.diff([work_of(worth, np.full(units, share)) for share in share_grid()], axis=0).T
    cost = np.repeat(watts * step, GRID_POINTS - 1)
    rack_of_piece = np.repeat(rack, GRID_POINTS - 1)
    rows = [np.where(rack_of_piece == r, cost, 0.0) for r in range(len(limits.rack_watts))]
    found = linprog(
        -(gains * weight[:, np.newaxis]).ravel(),
        A_ub=np.array([*rows, cost]),
        b_ub=[*limits.rack_watts, limits.row_watts],
        bounds=(0.0, 1.0),
    )
    assert found.success
    return -float(found.fun)


@pytest.mark.parametrize("seed", range(8))
def test_many_units_under_racks_and_a_row_reach_the_linear_program(seed: int) -> None:
    generator = np.random.default_rng(100 + seed)
    boards, racks = 48, [0] * 16 + [1] * 16 + [2] * 16
    wanted = generator.uniform(200.0, 700.0, boards)
    # A gang of four gets one share: wanted watts of its boards are alike.
    worth = worth_of(generator, boards, list(generator.integers(0, 2, 12)), size=4)
    rack_share, row_share = generator.uniform(0.6, 0.9), generator.uniform(0.5, 0.85)
    limits = limits_of(wanted, racks, rack_share, row_share)
    unit_share = best_shares(worth, wanted, limits)[::4]
    # Low-priority work counts so little that it never takes a watt from high.
    weight = np.where(worth.priority == 1, 1.0, 1e-6)
    mine = float((work_of(worth, unit_share) * weight).sum())
    assert mine == pytest.approx(by_program(worth, wanted, limits, weight), rel=1e-6)


def test_low_gives_to_its_floor_before_high_gives_and_high_before_low_goes_below() -> None:
    generator = np.random.default_rng(7)
    wanted = np.full(4, 600.0)
    worth = worth_of(generator, 4, [0, 0, 1, 1])
    floor, least = np.full(4, 400.0), np.full(4, 180.0)
    drawn = {}
    for row_share in (0.9, 0.75, 0.6, 0.35, 0.2):
        limits = limits_of(wanted, [0, 0, 0, 0], 2.0, row_share, floor=floor, least=least)
        watts = best_shares(worth, wanted, limits) * wanted
        drawn[row_share] = (float(watts[:2].sum()), float(watts[2:].sum()))
    assert drawn[0.9] == (pytest.approx(960.0), pytest.approx(1200.0))
    assert drawn[0.75] == (pytest.approx(800.0), pytest.approx(1000.0))
    # All floors together want 1,600 W: low goes below its own first.
    assert drawn[0.6] == (pytest.approx(640.0), pytest.approx(800.0))
    assert drawn[0.35] == (pytest.approx(360.0), pytest.approx(480.0))
    # What no limit can hold is drawn, over the limit of 480 W, too.
    assert drawn[0.2] == (pytest.approx(360.0), pytest.approx(360.0))


def test_within_limits_nobody_is_held() -> None:
    generator = np.random.default_rng(1)
    worth = worth_of(generator, 4, [0, 1, 0, 1])
    wanted = np.full(4, 600.0)
    limits = limits_of(wanted, [0, 0, 1, 1], 1.0, 1.0)
    assert (best_shares(worth, wanted, limits) == 1.0).all()


@pytest.mark.skipif(not AVAILABLE, reason="numba is not there")
def test_compiled_shares_are_the_shares_wherever_there_is_room() -> None:
    generator = np.random.default_rng(8)
    with_room = 0
    for case in range(3000):
        size, units = int(generator.integers(1, 5)), int(generator.integers(2, 12))
        n, racks = size * units, int(generator.integers(1, MOST_RACKS + 1))
        worth = worth_of(generator, n, generator.integers(0, 2, units).tolist(), size)
        wanted = generator.uniform(60.0, 735.0, n)
        rack = np.sort(np.append(generator.integers(0, racks, n - 1), racks - 1))
        rack = np.repeat(rack[::size], size) if case % 2 else rack
        rack[-1] = racks - 1
        row = float(generator.choice([0.4, 0.9, 1.0, 1.3]))
        plain = limits_of(wanted, rack.tolist(), float(generator.choice([0.8, 1.2])), row)
        limits = replace(
            plain,
            ac_per_watt=generator.uniform(1.0, 1.2, n),
            floor_watts=generator.uniform(0.0, 500.0, n),
            least_watts=generator.uniform(0.0, 250.0, n),
            most_watts=generator.uniform(300.0, 735.0, n),
        )
        share, room = np.empty(n), np.append(limits.rack_watts, limits.row_watts)
        boards = (rack, limits.ac_per_watt, limits.floor_watts, limits.least_watts,
                  limits.most_watts)  # fmt: skip
        unit = worth.unit_of_gpu
        if shares_with_room(unit, worth.priority, wanted, boards, room, share):
            np.testing.assert_array_equal(share, best_shares_in_numpy(worth, wanted, limits))
            with_room += 1
    assert 300 < with_room < 2700
