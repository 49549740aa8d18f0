"""Coarse steps tell what fine ones tell, and the benchmark notices where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.integration_step import FINE_SECONDS, Case, Played, _figures
from gpu.simulated import board_arrays
from simulation import compiled_boards
from wattpack.units import NS_PER_SECOND

SECONDS = 25


@pytest.mark.parametrize("faulted", [False, True])
def test_coarse_steps_are_close_and_the_same_again(faulted: bool) -> None:
    case = Case(901, SECONDS, faulted=faulted)
    fine, coarse = case.play(FINE_SECONDS), case.play(1.0)
    figures = _figures("row", [(coarse, fine)])
    assert 0.0 < figures["row_mean_error_worst"] < 0.01
    assert figures["row_p999_error_worst"] < 0.02  # the highest second, at an onset
    assert np.array_equal(case.play(1.0).means, coarse.means)
    assert (fine.peak > 1.0) is faulted


def test_boards_that_take_a_second_in_one_tick_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(902, SECONDS, faulted=True)
    fine, divided = case.play(FINE_SECONDS), case.play(1.0)
    for form in (board_arrays, compiled_boards):
        monkeypatch.setattr(form, "_LONGEST_TICK_NS", NS_PER_SECOND)
    whole = case.play(1.0)
    assert _error(whole, fine) > 2.0 * _error(divided, fine)


def _error(made: Played, fine: Played) -> float:
    return _figures("row", [(made, fine)])["row_mean_error_worst"]
