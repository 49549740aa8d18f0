"""The row's boards hold their limits as recorded boards do."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.model.capping_loop import RECORDED_LOOP, capping_loop
from simulation.capping_boards import CappingRegulation, row_loops

N = 5
IDLE = np.full(N, 120.0)
LEAST = np.full(N, 180.0)


def boards() -> CappingRegulation:
    return CappingRegulation(RECORDED_LOOP, IDLE)


def played(
    regulation: CappingRegulation, demand: float, limit: float, seconds: float, tick: float = 0.1
) -> np.ndarray:
    """Draw of the first board by tick."""
    limits, wanted = np.full(N, limit), np.full(N, demand)
    return np.array(
        [regulation.hold(wanted, limits, LEAST, tick)[0] for _ in range(round(seconds / tick))]
    )


@pytest.mark.parametrize("tick", [0.02, 0.05, 0.1])
def test_a_row_draws_what_the_capacity_models_loop_draws(tick: float) -> None:
    demands = np.repeat([120.0, 934.0, 120.0, 934.0, 650.0, 934.0], round(3.0 / tick))
    state = RECORDED_LOOP.settled(IDLE, 700.0, tick)
    _, expected = RECORDED_LOOP.play(state, np.tile(demands[:, None], N), 700.0)
    regulation, limits = boards(), np.full(N, 700.0)
    drawn = [regulation.hold(np.full(N, watts), limits, 0.0 * LEAST, tick) for watts in demands]
    assert np.array(drawn) == pytest.approx(expected, rel=1e-6)


def test_work_that_begins_overshoots_then_dips_and_beats() -> None:
    regulation = boards()
    played(regulation, 120.0, 700.0, 2.0)
    first = played(regulation, 934.0, 700.0, 8.0)
    assert first[0] > 1.08 * 700.0
    assert first[2:8] == pytest.approx(1.028 * 700.0, rel=0.01)
    assert first[8:13].min() < 0.9 * 700.0
    assert first[40:].mean() == pytest.approx(0.987 * 700.0, rel=0.01)


def test_a_lowered_limit_brings_neither_a_dip_nor_a_second_of_grace() -> None:
    regulation = boards()
    played(regulation, 934.0, 700.0, 10.0)
    lowered = played(regulation, 934.0, 400.0, 3.0)
    assert lowered[1:].max() < 1.03 * 400.0
    assert lowered.min() > 0.95 * 400.0


def test_a_raised_limit_is_met_like_new_work() -> None:
    regulation = boards()
    played(regulation, 934.0, 400.0, 10.0)
    raised = played(regulation, 934.0, 600.0, 3.0)
    assert raised[2:5] == pytest.approx(1.028 * 600.0, rel=0.01)
    assert raised.min() < 0.97 * 600.0


def test_a_board_that_holds_no_limit_draws_its_demand_and_comes_back() -> None:
    regulation = boards()
    assert played(regulation, 934.0, np.inf, 3.0)[-1] == pytest.approx(934.0)
    assert played(regulation, 934.0, 500.0, 8.0)[-20:].mean() == pytest.approx(493.5, rel=0.02)


def test_no_tick_goes_below_what_silicon_needs() -> None:
    regulation = boards()
    played(regulation, 934.0, np.inf, 3.0)
    assert played(regulation, 934.0, 200.0, 5.0).min() == pytest.approx(180.0)


def test_ceilings_are_drawn_a_board_around_its_types() -> None:
    loop = row_loops(["H200-SXM"] * 200 + ["H100-SXM"] * 200, np.random.default_rng(1))
    ceilings = np.asarray(loop.ceiling_share)
    for part, name in ((ceilings[:200], "H200-SXM"), (ceilings[200:], "H100-SXM")):
        assert part.mean() == pytest.approx(float(capping_loop(name).ceiling_share), abs=0.003)
        assert part.std() == pytest.approx(0.01, abs=0.003)
