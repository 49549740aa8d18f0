"""The judge of value per watt: its optimum, its plain divisions, its hidden truth."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import value_per_watt
from benchmarks._watt_optimum import optimum, proportional_caps, uniform_caps, work_at
from benchmarks._watt_plant import SHARES, Board, draw_fleet
from benchmarks.runner import Options
from capacity.profile_library import shipped_library
from wattpack.errors import InputError


def board(speed: list[float], draw: list[float]) -> Board:
    caps, none = np.array([200.0, 400.0, 600.0]), np.zeros(0)
    return Board("X", "training", caps, np.array(speed), np.array(draw), none, none, 1.0)


CONCAVE = board([0.4, 0.8, 1.0], [200.0, 400.0, 600.0])
FLAT = board([0.9, 0.95, 1.0], [200.0, 400.0, 600.0])


def test_the_optimum_is_the_best_of_all_divisions() -> None:
    boards = [CONCAVE, FLAT]
    best = max(
        work_at(boards, np.array(caps))[0]
        for caps in itertools.product(np.linspace(200.0, 600.0, 41), repeat=2)
        if sum(caps) <= 700.0
    )
    assert optimum(boards, 700.0, locks=False) == pytest.approx(best, abs=1e-3)


def test_what_the_lowest_limits_do_not_fit_into_has_no_optimum() -> None:
    with pytest.raises(InputError, match="budget_watts"):
        optimum([CONCAVE, FLAT], 399.0, locks=False)


def test_locks_are_chosen_only_where_they_are_allowed() -> None:
    lock = replace(CONCAVE, lock_speed=np.full(len(SHARES), 1.0), lock_draw=200.0 + 400.0 * SHARES)
    assert optimum([lock], 400.0, locks=True) == pytest.approx(1.0)
    assert optimum([lock], 400.0, locks=False) == pytest.approx(0.8)
    assert lock.at(600.0, 0.4) == (pytest.approx(1.0), pytest.approx(360.0))
    assert lock.at(200.0, 0.4) == (pytest.approx(0.4), pytest.approx(200.0))


def test_plain_divisions_stay_in_their_budget() -> None:
    boards = [CONCAVE, FLAT, replace(FLAT, draw=np.array([100.0, 200.0, 300.0]))]
    assert uniform_caps(boards, 0.7).tolist() == pytest.approx([420.0] * 3)
    caps = proportional_caps(boards, 1200.0)
    assert caps.sum() == pytest.approx(1200.0, abs=1e-3)
    assert caps[2] == pytest.approx(caps[0] / 2)


def test_the_hidden_truth_is_off_by_what_the_profiles_state() -> None:
    library = shipped_library()
    kernel = library.find("A40").kernel_classes["training"]
    rng = np.random.default_rng(7)
    fleets = [draw_fleet(library.profiles, [("A40", "training")], rng)[0] for _ in range(200)]
    known = np.interp(fleets[0].caps / 300.0, kernel.cap_fractions, kernel.throughput)
    binds = known < 1.0
    off = [np.abs(truth.speed / known - 1)[binds].mean() for truth in fleets]
    assert np.mean(off) == pytest.approx(kernel.error_mape, rel=0.3)
    assert all(truth.speed[-1] == pytest.approx(1.0) for truth in fleets)
    assert all(np.all(np.diff(truth.speed) >= 0) for truth in fleets)


def test_a_short_run_says_what_limits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_per_watt, "TYPES", ("H200-SXM", "L40S"))
    monkeypatch.setattr(value_per_watt, "QUICK_SECONDS", 130)
    monkeypatch.setattr(value_per_watt, "JUDGED_SECONDS", 20)
    figures = value_per_watt.run(Options(quick=True, progress=lambda _: None)).figures
    for arm in value_per_watt.ARMS:
        share = figures[f"{arm}_of_optimum_of_watts_drawn_at_60"]
        assert isinstance(share, float)
        assert 0.8 < share <= 1.0 + 1e-6
        drawn = figures[f"{arm}_budget_drawn_peak_at_60"]
        assert isinstance(drawn, float)
        assert drawn <= 1.0
    assert figures["limits_of_optimum_at_60"] > figures["default_floors_of_optimum_at_60"]
