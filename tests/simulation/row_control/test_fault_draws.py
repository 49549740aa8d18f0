"""Random fault runs: reproducible, inside the ranges that are declared, and all of them drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np

from simulation.row_control.fault_draws import BMC_CAUSES, CAUSES, RowCounts, draw_faults
from simulation.row_control.faults import RowFaultKind

COUNTS = RowCounts(nodes=52, gpus=416, domains=5)
DRAWS = [draw_faults(seed, COUNTS) for seed in range(400)]
K = RowFaultKind


def test_a_draw_is_a_function_of_its_seed() -> None:
    again = draw_faults(17, COUNTS)
    assert again.causes == DRAWS[17].causes
    assert again.agents == DRAWS[17].agents
    for left, right in zip(again.faults.faults, DRAWS[17].faults.faults, strict=True):
        assert (left.kind, left.begin_seconds, left.end_seconds, left.amount) == (
            right.kind,
            right.begin_seconds,
            right.end_seconds,
            right.amount,
        )
        assert (left.struck == right.struck).all()


def test_every_cause_is_drawn_and_none_fills_the_runs() -> None:
    seen = Counter(cause for draw in DRAWS for cause in draw.causes)
    assert set(seen) == set(CAUSES) | set(BMC_CAUSES) | {"no_domain_meter"}
    assert min(seen.values()) >= 20
    assert 0.4 < seen["all_to_full"] / len(DRAWS) < 0.8


def test_the_step_of_everything_is_drawn_alone_too_and_never_twice() -> None:
    assert any(set(draw.causes) <= {"all_to_full", "no_domain_meter"} for draw in DRAWS)
    steps = [sum(f.kind is K.ALL_TO_FULL for f in draw.faults.faults) for draw in DRAWS]
    assert max(steps) == 1


def test_bmcs_fail_only_where_they_are_asked() -> None:
    for draw in DRAWS:
        failing = set(draw.causes) & set(BMC_CAUSES)
        assert draw.bmcs or not failing
        assert len(failing) <= 1
    asked = sum(draw.bmcs for draw in DRAWS)
    failed = sum(bool(set(draw.causes) & set(BMC_CAUSES)) for draw in DRAWS)
    assert 0.2 < failed / asked < 0.5


def test_faults_lie_in_the_declared_ranges() -> None:
    for draw in DRAWS:
        assert 60.0 <= draw.onset_seconds <= 180.0
        for fault in draw.faults.faults:
            lasts = fault.end_seconds - fault.begin_seconds
            assert lasts <= (600.0 if fault.kind is K.CONTROLLER_DOWN else 120.0)
            assert fault.end_seconds <= 900.0 - 60.0
            if fault.kind in (K.NODE_REBOOT, K.DRIVER_RELOAD):
                assert 1 <= fault.struck.sum() <= 3
            if fault.kind is K.IGNORES_CAP:
                assert fault.struck.sum() == 8
            if fault.kind is K.WRITES_FAIL:
                struck = fault.struck.mean() * fault.amount
                assert 0.009 <= struck <= 0.051
            if fault.kind is K.FEED_LOST:
                assert draw.redundancy in ("2N", "KofN")


def test_amounts_combine_over_faults_that_last_together() -> None:
    draw = next(d for d in DRAWS if "failing_writes" in d.causes)
    fault = next(f for f in draw.faults.faults if f.kind is K.WRITES_FAIL)
    inside = draw.faults.chance(K.WRITES_FAIL, fault.begin_seconds, COUNTS.gpus)
    before = draw.faults.chance(K.WRITES_FAIL, fault.begin_seconds - 1.0, COUNTS.gpus)
    assert np.array_equal(inside, np.where(fault.struck, fault.amount, 0.0))
    assert not before.any()
