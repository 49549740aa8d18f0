"""Replicas as queues: nothing is lost, a slower GPU means later answers, times are exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from capacity.step_table import PART_SHAPES, TOKENS, HeldBoard, StepErrors, StepPart, StepTable
from simulation.arrivals import Requests
from simulation.jobs import JobFleet, JobShape
from simulation.serving_queues import Replica, ServingFleet, StepResult
from simulation.serving_steps import BoardState, steady_state

SLOTS = 4


def made_up_table() -> StepTable:
    """10 ms an iteration and 0.1 ms a token, all of which follow the clock; 400 W at work."""
    parts = {}
    for name, shape in PART_SHAPES.items():
        tokens = np.array(TOKENS) if name == "layers" else np.zeros(shape)
        parts[name] = StepPart(1e-4 * tokens, 0.04 * tokens, 1e-4 * tokens)
    return StepTable(
        "g", "m", "bf16", 1, parts, 0.01, 400.0, HeldBoard(1.0, 1.0, 1.0, (0.0,) * 19), 700.0,
        StepErrors(0, 0, 0, "made up"), "assumed", "test",
    )  # fmt: skip


TABLE = made_up_table()


def requests(*rows: tuple[float, float, float]) -> Requests:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Requests(columns[0], columns[1], columns[2])


def fleet(replicas: int = 1, max_batch: int = 256, chunk: int = 1000) -> ServingFleet:
    f = ServingFleet(SLOTS)
    for _ in range(replicas):
        f.add(Replica(0, TABLE, max_batch, chunk))
    return f


def boards(drawn_over_wanted: float = 1.0, clock_ratio: float = 1.0) -> BoardState:
    return BoardState(np.full(SLOTS, drawn_over_wanted), np.full(SLOTS, clock_ratio), 0.4)


def run(
    f: ServingFleet, seconds: float, state: BoardState | None = None, step: float = 0.25
) -> list[StepResult]:
    return [f.step(i * step, step, state or boards()) for i in range(round(seconds / step))]


def latencies(results: list[StepResult]) -> list[float]:
    return np.concatenate([r.latency_seconds for r in results]).tolist()


def test_one_request_takes_its_prompt_and_its_tokens() -> None:
    f = fleet()
    f.arrive(0, requests((0.0, 1000.0, 101.0)))
    results = run(f, 3.0, step=0.01)
    # 1000 prompt tokens at 1e-4 s in one iteration, then 100 more of 10.1 ms.
    assert latencies(results) == pytest.approx([1.12], abs=0.01)
    assert np.concatenate([r.first_token_seconds for r in results]) == pytest.approx([0.11])


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


def test_a_board_that_is_held_back_slows_what_follows_its_clock() -> None:
    found = []
    for share in (1.0, 0.5):
        f = fleet()
        f.arrive(0, requests((0.0, 1000.0, 51.0)))
        results = run(f, 5.0, boards(share), step=0.01)
        found.append(np.concatenate([r.first_token_seconds for r in results])[0])
    # Wanted is twice what is drawn: a depth of 1, on the tokens' time and not on the host's.
    assert found == pytest.approx([0.11, 0.21], abs=0.005)


def test_a_locked_clock_slows_prompts_and_leaves_decode_alone_down_to_a_knee() -> None:
    times = []
    for clock in (1.0, 0.5):
        f = fleet()
        f.arrive(0, requests((0.0, 1000.0, 101.0)))
        results = run(f, 5.0, boards(clock_ratio=clock), step=0.01)
        first = np.concatenate([r.first_token_seconds for r in results])[0]
        times.append((first, latencies(results)[0] - first))
    assert times[1][0] == pytest.approx(times[0][0] + 0.1, abs=0.01)
    assert times[1][1] == pytest.approx(times[0][1], abs=0.02)


def test_a_board_without_power_serves_nothing_even_where_no_time_follows_the_clock() -> None:
    parts = {
        name: replace(part, clock_seconds=0.0 * part.clock_seconds)
        for name, part in TABLE.parts.items()
    }
    f = ServingFleet(SLOTS)
    f.add(Replica(0, replace(TABLE, parts=parts), 256, 1000))
    f.arrive(0, requests((0.0, 1000.0, 101.0)))
    run(f, 10.0, boards(0.0))
    assert f.in_flight == 1
    run(f, 10.0)
    assert f.in_flight == 0


def test_prompts_of_a_burst_queue_and_share_iterations_with_decodes() -> None:
    f = fleet(chunk=500)
    f.arrive(0, requests(*[(0.0, 500.0, 200.0)] * 10))
    results = run(f, 10.0, step=0.05)
    first = np.sort(np.concatenate([r.first_token_seconds for r in results]))
    # One prompt an iteration of 60 ms: the last one waits for nine others.
    assert first[0] == pytest.approx(0.06, abs=0.03)
    assert first[-1] == pytest.approx(0.6, abs=0.05)
    assert np.diff(first) == pytest.approx([0.06] * 9, abs=0.03)
    # Those that came first decode meanwhile, at the pace of the mixed iterations.
    assert min(latencies(results)) > 0.06 + 199 * 0.0101


def test_a_lone_short_prompt_does_not_wait_for_the_end_of_a_step() -> None:
    f = fleet()
    f.arrive(0, requests((0.0, 100.0, 5.0)))
    results = run(f, 1.0, step=0.25)
    assert np.concatenate([r.first_token_seconds for r in results]) == pytest.approx([0.02])


def test_an_answer_that_ends_inside_a_step_leaves_the_rest_of_it_idle() -> None:
    f = fleet()
    f.arrive(0, requests((0.0, 100.0, 6.0)))
    busy = [r.busy_share[0] for r in run(f, 1.0, step=0.25)]
    assert busy == pytest.approx([0.02 / 0.25, 5 * 0.0101 / 0.25, 0.0, 0.0])


def test_draw_is_one_continuous_function_of_prompts_and_batch() -> None:
    table = shipped_step_tables().find("H200-SXM", "llama-3.1-8b", 1)
    watts = []
    for n in (1, 2, 4, 8, 16, 32, 64, 128):
        f = ServingFleet(1)
        f.add(Replica(0, table, 256, 2048))
        f.arrive(0, requests(*[(0.0, 1200.0, 4000.0)] * n))
        free = BoardState(np.ones(1), np.ones(1), 0.4)
        last = [f.step(0.25 * i, 0.25, free) for i in range(24)][-1]
        assert last.busy_share[0] == pytest.approx(1.0)
        watts.append(float(last.busy_watts[0]))
    assert all(low < high * 1.01 for low, high in pairwise(watts[1:]))
    assert watts[0] < 500 < 650 < watts[-1]


def test_a_steady_state_is_what_the_queues_settle_at() -> None:
    table = shipped_step_tables().find("H200-SXM", "llama-3.1-8b", 1)
    idle = shipped_library().find("H200-SXM").context_watts
    generator = np.random.default_rng(5)
    for rate in (2.0, 6.0, 12.0):
        arrivals = np.cumsum(generator.exponential(1 / rate, round(120 * rate)))
        f = ServingFleet(1)
        f.add(Replica(0, table, 256, 2048))
        drawn, taken = [], 0
        for i in range(480):
            upto = int(np.searchsorted(arrivals, i * 0.25))
            rows = [(float(a), 1000.0, 200.0) for a in arrivals[taken:upto]]
            taken = upto
            f.arrive(0, requests(*rows))
            done = f.step(i * 0.25, 0.25, BoardState(np.ones(1), np.ones(1), 0.4))
            drawn.append(done.busy_watts[0] + (1 - done.busy_share[0]) * idle)
        busy, watts = steady_state(table, np.array([rate]), 1000.0, 200.0, 2048)
        steady = watts[0] + (1 - busy[0]) * idle
        assert np.mean(drawn[80:]) == pytest.approx(steady, rel=0.06)


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
        assert (result.busy_share <= 1.0 + 1e-9).all()
        assert (result.busy_share >= 0).all()


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
