"""Who believes what is untrue is told; who doubts it is not (I7 from outside)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulation.row_control.faults import RowFault, RowFaultKind
from simulation.row_control.row_policy import Doubted
from tests.simulation.row_control.rows import SERVERS, small_row, wattpack_run

K = RowFaultKind
N = SERVERS * 8
SOME = np.arange(N) < 4
EVERY = np.ones(N, dtype=np.bool_)


def faults_of(kind: str) -> list[RowFault]:
    if kind == "ignored caps":
        return [RowFault(K.IGNORES_CAP, 30.0, 80.0, SOME)]
    frozen = [RowFault(K.READINGS_FROZEN, 25.0, 80.0, EVERY)]
    if kind == "counters, too":
        return [*frozen, RowFault(K.COUNTERS_FROZEN, 25.0, 80.0, EVERY)]
    return frozen


@pytest.mark.parametrize("kind", ["ignored caps", "frozen readings", "counters, too"])
def test_blind_trust_is_seen_and_the_product_does_not_have_it(kind: str) -> None:
    levels = [(0.0, 350.0), (40.0, 690.0)]
    run = wattpack_run(small_row(), levels, *faults_of(kind), meters=False)
    assert run.run(62.0).violations.get("I7 boards", 0) == 0
    assert run.trust.counts == {}
    believer = wattpack_run(small_row(), levels, *faults_of(kind), meters=False)
    policy = believer.policy
    true_doubted = policy.doubted  # type: ignore[attr-defined]

    def believes_all() -> Doubted | None:
        told: Doubted | None = true_doubted()
        nobody = np.zeros(N, dtype=np.bool_)
        return told and replace(told, boards=nobody, readings=nobody)

    policy.doubted = believes_all  # type: ignore[attr-defined]
    believer.run(62.0)
    expected = "I7 boards" if kind == "ignored caps" else "I7 readings"
    assert believer.trust.counts[expected] > 0
    assert believer.trust.details


def test_a_board_out_of_band_that_ignores_its_cap_is_doubted_too() -> None:
    fault = RowFault(K.IGNORES_CAP, 20.0, 80.0, SOME)
    run = wattpack_run(small_row(), [(0.0, 690.0)], fault)
    run.actuators.out_of_band[0] = True
    run.run(60.0)
    assert run.policy.doubted().boards[:4].all()  # type: ignore[attr-defined]
    assert run.trust.counts == {}


def test_what_an_estimate_hides_is_measured() -> None:
    run = wattpack_run(small_row(), [(0.0, 400.0)])
    run.run(20.0)
    assert 0.0 <= run.trust.hidden_share < 0.05
    half = run.policy.doubted  # type: ignore[attr-defined]

    def too_low() -> Doubted | None:
        told: Doubted | None = half()
        return told and replace(told, draw_watts=0.5 * told.draw_watts)

    run.policy.doubted = too_low  # type: ignore[attr-defined]
    run.run(10.0)
    assert run.trust.hidden_share > 0.2


def test_what_heat_an_estimate_hides_is_measured() -> None:
    run = wattpack_run(small_row(), [(0.0, 400.0)])
    run.run(20.0)
    assert 0.0 <= run.trust.hidden_heat < 0.01
    told_heat = run.policy.doubted  # type: ignore[attr-defined]

    def always_cool() -> Doubted | None:
        told: Doubted | None = told_heat()
        return told and replace(told, heat=np.zeros_like(told.heat))

    run.policy.doubted = always_cool  # type: ignore[attr-defined]
    run.plant.breakers.heat[:] = 0.4
    run.run(6.0)
    assert 0.2 < run.trust.hidden_heat <= 0.4
