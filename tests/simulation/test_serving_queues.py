"""Replicas as queues: nothing is lost, a slower GPU means later answers, times are exact."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.serving_model import ServingTimes
from simulation.arrivals import Requests
from simulation.jobs import JobFleet, JobShape
from simulation.serving_queues import ServingFleet, StepResult

TIMES = ServingTimes("g", "m", "bf16", 1, 0.01, 1e-4, 0.0, "assumed", "test", 0, 0.0)


def requests(*rows: tuple[float, float, float]) -> Requests:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Requests(columns[0], columns[1], columns[2])


def fleet(replicas: int = 1, max_batch: int = 256) -> ServingFleet:
    f = ServingFleet(4)
    for _ in range(replicas):
        f.add(0, TIMES, max_batch, 1000)
    return f


def run(
    f: ServingFleet, seconds: float, speed: float = 1.0, step: float = 0.25
) -> list[StepResult]:
    ones = np.full(4, speed)
    return [f.step(i * step, step, ones, ones) for i in range(round(seconds / step))]


def latencies(results: list[StepResult]) -> list[float]:
    return np.concatenate([r.latency_seconds for r in results]).tolist()


def test_one_request_takes_its_prompt_and_its_tokens() -> None:
    f = fleet()
    f.arrive(0, requests((0.0, 1000.0, 101.0)))
    results = run(f, 3.0, step=0.01)
    # 1000 prompt tokens at 1e-4 s, then 100 more iterations of 10 ms.
    assert latencies(results) == pytest.approx([1.1], abs=0.02)
    assert np.concatenate([r.first_token_seconds for r in results]) == pytest.approx([0.1])


def test_long_steps_give_the_same_times_as_short_ones() -> None:
    found = []
    for step in (0.05, 0.25):
        f = fleet(2)
        rows = [(0.0, 200.0 + 10 * i, 40.0 + i) for i in range(40)]
        f.arrive(0, requests(*rows))
        found.append(sorted(latencies(run(f, 10.0, step=step))))
    assert found[1] == pytest.approx(found[0], rel=0.15)


def test_every_request_is_finished_once_and_every_token_counted() -> None:
    f = fleet(3)
    generator = np.random.default_rng(0)
    rows = [(0.0, float(p), float(o)) for p, o in generator.integers(1, 300, (200, 2))]
    f.arrive(0, requests(*rows))
    results = run(f, 30.0)
    assert f.in_flight == 0
    assert sum(len(r.service) for r in results) == 200
    assert sum(r.tokens.sum() for r in results) == sum(p + o for _, p, o in rows)


def test_half_the_speed_is_about_twice_the_latency() -> None:
    found = []
    for speed in (1.0, 0.5):
        f = fleet()
        f.arrive(0, requests((0.0, 500.0, 51.0)))
        found += latencies(run(f, 5.0, speed, step=0.01))
    assert found[1] == pytest.approx(2 * found[0], rel=0.05)


def test_a_replica_that_goes_leaves_its_requests_to_others() -> None:
    f = fleet(2)
    f.arrive(0, requests(*[(0.0, 500.0, 200.0)] * 10))
    run(f, 0.5)
    f.remove(0)
    results = run(f, 20.0)
    assert f.in_flight == 0
    assert sum(len(r.service) for r in results) == 10


def test_requests_wait_while_there_is_no_replica() -> None:
    f = ServingFleet(4)
    f.arrive(0, requests((0.0, 10.0, 10.0)))
    run(f, 1.0)
    assert f.in_flight == 1
    assert f.waiting_since(0).tolist() == [0.0]


def test_a_busy_share_never_exceeds_the_step() -> None:
    f = fleet(2, max_batch=8)
    f.arrive(0, requests(*[(0.0, 900.0, 300.0)] * 100))
    for result in run(f, 20.0):
        busy = result.prefill_share + result.decode_share
        assert (busy <= 1.0 + 1e-9).all()
        assert (result.prefill_share >= 0).all()


def jobs() -> JobFleet:
    return JobFleet(8, 1, dip_ratio=0.5, dip_share=0.25)


MEMBER = JobShape(0, 2, np.inf, 1.0, 8.0)
BATCH = JobShape(-1, 1, 10.0, 0.8, 1.0)


def test_a_gang_waits_for_all_its_members() -> None:
    j = jobs()
    j.add(MEMBER)
    assert j.draw_ratio()[0] == 0.0
    j.add(MEMBER)
    assert j.draw_ratio()[:2].tolist() == [1.0, 1.0]


def test_a_gang_moves_at_the_speed_of_its_slowest_member_and_dips_together() -> None:
    j = jobs()
    j.add(MEMBER), j.add(MEMBER)
    speed = np.ones(8)
    speed[1] = 0.5
    j.step(12.0, speed)
    assert j.last_work_seconds[:2].tolist() == [6.0, 6.0]
    assert j.draw_ratio()[:2].tolist() == [0.5, 0.5]  # 6 of 8 s: the exchange
    slowdown, training = j.take_windows()
    assert slowdown.tolist() == [2.0, 2.0]
    assert training.all()


def test_a_batch_pod_ends_after_its_work_and_resumes_where_it_stood() -> None:
    j = jobs()
    slot = j.add(BATCH)
    assert j.draw_ratio()[slot] == 0.8
    assert len(j.step(6.0, np.ones(8))) == 0
    slot = j.add(BATCH, done_seconds=j.remove(slot))
    assert j.step(4.0, np.ones(8)).tolist() == [slot]
