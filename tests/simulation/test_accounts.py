"""What a run is judged by: slowdowns, and what counts for whom."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.results import by_class, replay_uncapped, slowdowns, tokens
from simulation.serving_queues import StepResult
from simulation.slo import Ledger, quantile_ratio
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.units import NS_PER_SECOND

SECOND = NS_PER_SECOND


def watts(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_a_quantile_ratio_needs_both_samples() -> None:
    assert quantile_ratio(watts(2, 4), watts(1, 2), 0.5) == pytest.approx(2.0)
    assert quantile_ratio(watts(), watts(1), 0.5) is None
    assert quantile_ratio(watts(1), watts(), 0.5) is None


def test_requests_from_before_the_accounts_are_not_judged() -> None:
    world = World(small_scenario())
    for work in world.due(0):
        if work.workload == "chat":
            world.start(work, 0, world.assignment.choose(work, 0))
    world.advance(10 * SECOND)
    assert len(world.ledger.latencies(0, 5.0)) > 0
    world.reset_accounts()
    world.advance(20 * SECOND)
    assert len(world.ledger.latencies(0, 9.9)) == 0
    assert len(world.ledger.latencies(0, 18.0)) > 0


def test_classes_gather_their_services() -> None:
    world = World(small_scenario())
    assert by_class(world) == {"high": [0], "low": [1]}
    assert tokens(world) == {"high": 0.0, "low": 0.0}


def test_jobs_are_judged_by_time_over_work() -> None:
    ledger = Ledger(0)
    ledger.job_windows("batch", watts(1.0, 3.0))
    ledger.job_windows("batch", watts(2.0))
    ledger.job_windows("training", watts())
    assert {name: w.tolist() for name, w in ledger.job_slowdowns().items()} == {
        "batch": [1.0, 3.0, 2.0]
    }


def test_a_replay_of_an_uncapped_run_is_the_run_itself() -> None:
    scenario = small_scenario(warmup_seconds=5.0, duration_seconds=10.0)
    world = World(scenario)
    for now_ns in range(0, 15 * SECOND + 1, 5 * SECOND):
        world.advance(now_ns)
        if now_ns == 5 * SECOND:
            world.reset_accounts()
        for work in world.due(now_ns):
            nodes = range(len(world.node_names))
            free = [n for n in nodes if len(world.assignment.free(n)) >= work.gpus]
            if free:
                world.start(work, free[0], world.assignment.choose(work, free[0]))
    again = replay_uncapped(scenario, world.record, world.now_ns)
    assert np.array_equal(again.bank.energy_joules, world.bank.energy_joules)
    assert again.ledger.tokens == world.ledger.tokens
    assert set(slowdowns(world, again, 0.99).values()) == {1.0}


def test_a_token_takes_what_an_answer_took_after_its_first_token() -> None:
    ledger = Ledger(2, begin_seconds=10.0)
    ledger.served(
        StepResult(
            busy_share=np.zeros(2),
            busy_watts=np.zeros(2),
            service=np.array([0, 0, 0, 1]),
            latency_seconds=np.array([3.0, 5.0, 9.0, 2.0]),
            first_token_seconds=np.array([1.0, 5.0, 1.0, 1.0]),
            tokens=np.array([105.0, 101.0, 109.0, 102.0]),
            arrived_seconds=np.array([12.0, 13.0, 5.0, 14.0]),
            output_tokens=np.array([5.0, 1.0, 9.0, 2.0]),
        )
    )
    # The third came before the accounts; the second is an answer of one token.
    first, apart = ledger.tokens_apart(0, 20.0)
    assert (first.tolist(), apart.tolist()) == ([1.0, 5.0], [0.5])
    assert [one.tolist() for one in ledger.tokens_apart(1, 20.0)] == [[1.0], [1.0]]
    assert [len(one) for one in ledger.tokens_apart(1, 14.0)] == [0, 0]
    assert [len(one) for one in Ledger(1).tokens_apart(0, 1.0)] == [0, 0]
