"""The comparison is with what the paper's formula says, on cases that can be made again."""

from __future__ import annotations

from itertools import product
from math import ceil

import numpy as np
import pytest

from benchmarks._melange_formulation import solve_melange
from benchmarks._mix_cases import TOY, Bounds, Case, generate, to_problem
from benchmarks.gpu_mix import compare, planned


def by_hand(case: Case, slices: int) -> float:
    """Every way to give each slice to one type; whole GPUs carry the loads."""
    rates = case.requests_per_second / slices
    best = float("inf")
    for types in product(range(len(case.dollars)), repeat=slices * len(rates)):
        loads = np.zeros(len(case.dollars))
        for i, t in enumerate(types):
            b = i % len(rates)
            loads[t] += rates[b] / case.rates[t, b] if case.rates[t, b] > 0 else np.inf
        if np.isfinite(loads).all():
            dollars = sum(
                float(p) * ceil(x - 1e-9) for p, x in zip(case.dollars, loads, strict=True)
            )
            best = min(best, dollars)
    return best


@pytest.mark.parametrize("slices", [1, 2])
def test_melange_s_answer_is_the_best_of_all_assignments_of_slices(slices: int) -> None:
    for case in (TOY, generate(np.random.default_rng(3), 2, 4, (1.0, 6.0))):
        answer = solve_melange(case, 20.0, slices)
        assert answer.dollars_per_hour == pytest.approx(by_hand(case, slices))
        assert answer.bound == pytest.approx(answer.dollars_per_hour)


def test_the_published_point_is_reproduced_and_beaten() -> None:
    assert solve_melange(TOY, 20.0, 1).dollars_per_hour == pytest.approx(6.70)
    assert solve_melange(TOY, 20.0, 4).dollars_per_hour == pytest.approx(5.69)
    assert compare(TOY).ours.costs.total == pytest.approx(4.68)


def test_a_seed_makes_the_same_case_again_and_every_bucket_can_be_served() -> None:
    cases = [generate(np.random.default_rng([7, 1]), 4, 12, (2.0, 20.0)) for _ in range(2)]
    assert np.array_equal(cases[0].rates, cases[1].rates)
    assert (cases[0].rates > 0).any(axis=0).all()


def test_a_cap_costs_speed_and_saves_more_watts() -> None:
    [full, half] = to_problem(TOY, Bounds(caps=(1.0, 0.5))).shapes[:2]
    for key, rate in full.rates.items():
        assert 0.5 < half.rates[key].requests_per_second / rate.requests_per_second < 1.0
        assert half.rates[key].busy_watts < rate.busy_watts


def test_a_plan_that_the_checker_refuses_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu_mix.complaints", lambda *_: ("too hot",))
    with pytest.raises(Exception, match="too hot"):
        planned(to_problem(TOY, Bounds()), 5.0)


def test_phases_that_may_part_never_cost_more_and_a_slow_link_takes_it_back() -> None:
    rng = np.random.default_rng([1, 1, 0])
    pair = compare(generate(rng, int(rng.integers(2, 6)), 4, (1.0, 8.0)))
    assert pair.split_saving_percent >= pair.slow_link_saving_percent - 0.02
    assert pair.slow_link_saving_percent >= pair.saving_percent - 0.02
