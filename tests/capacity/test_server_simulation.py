"""Iteration-level batching does what its rules say, checked against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.model.regulator import Regulator
from capacity.serving.served_requests import ClosedLoop, OpenLoop, Size
from capacity.serving.server_simulation import simulate
from capacity.serving.serving_clock import Governor
from tests.capacity.serving_builders import ToyClock, arrivals, clients, in_order, rules


def test_one_request_waits_for_its_prompt_and_then_gets_a_token_an_iteration() -> None:
    (one,) = clients(1, [(200, 5)])
    assert one.ttft == pytest.approx(3.0)  # an iteration of 1 s and 200 tokens of 1/100 s
    assert one.tpot == pytest.approx(1.0)
    assert one.last == pytest.approx(7.0)


def test_prompts_of_one_iteration_share_the_budget_and_the_rest_is_cut() -> None:
    first, second = clients(2, [(600, 2), (600, 3)])
    assert first.ttft == pytest.approx(11.0)  # 600 + 400 tokens of the second
    # 199 tokens fit beside the first one's decode, all 200 that are left do
    assert second.ttft == pytest.approx(11.0 + 3.0)


def test_whole_prompts_wait_for_an_iteration_of_their_own() -> None:
    first, second = clients(2, [(600, 9), (600, 9)], chunked=False)
    assert first.ttft == pytest.approx(7.0)
    assert second.ttft == pytest.approx(14.0)


def test_a_prompt_stalls_the_decodes_beside_it() -> None:
    early, late = arrivals([0.0, 5.0], [(100, 10), (300, 2)])
    assert late.first == pytest.approx(6.0 + 4.0)  # joins when the running iteration ends
    assert early.last == pytest.approx(2.0 + 9.0 + 3.0)  # nine tokens, one of them 3 s longer


def test_an_engine_that_schedules_ahead_takes_newcomers_an_iteration_later() -> None:
    _, late = arrivals([0.0, 4.5], [(100, 20), (100, 2)])
    _, later = arrivals([0.0, 4.5], [(100, 20), (100, 2)], scheduled_ahead=True)
    assert late.first == pytest.approx(7.0)
    assert later.first == pytest.approx(8.0)


def test_clients_of_one_length_stay_in_step() -> None:
    done = clients(2, [(100, 5)] * 8, chunked=False, token_budget=150)
    firsts = [one.first for one in done]
    assert np.diff(firsts)[0] == pytest.approx(2.0), "the second prompt queues behind the first"
    assert {round(one.tpot, 3) for one in done[2:6]} == {1.25}, "in every round again"


def test_reserved_caches_bound_how_many_run_at_once() -> None:
    done = clients(4, [(100, 100)] * 4, cache=450, admission="whole")
    together = [one for one in done if one.first < 50]
    assert len(together) == 2, "450 tokens hold two sequences of 200"
    assert done[3].first > done[0].last


def test_grown_caches_admit_more_and_drive_out_the_youngest() -> None:
    work = ClosedLoop(4, (Size(100, 100),) * 4)
    run = simulate(work, ToyClock(), rules(admission="grown"), 450)
    assert run.preempted > 0
    done = in_order(run)
    assert len([one for one in done if one.first < 50]) == 4
    assert done[0].tpot < done[3].tpot, "the eldest is never driven out"
    assert all(one.last > one.first for one in done)


def test_no_token_is_lost_or_made_twice() -> None:
    draw = np.random.default_rng(3)
    sizes = tuple(Size(int(p), int(o)) for p, o in draw.integers(1, 300, (60, 2)))
    for admission in ("grown", "whole"):
        for chunked in (True, False):
            chosen = rules(admission=admission, chunked=chunked, largest_batch=6)
            run = simulate(ClosedLoop(9, sizes), ToyClock(), chosen, 700)
            log = run.log
            made = sum(c * d for c, d in zip(log.counts, log.decodes, strict=True))
            prompts = sum(size.prompt for size in sizes)
            assert len(run.requests) == 60
            assert sum(log.tokens) >= prompts
            if not run.preempted:
                assert made == sum(size.output - 1 for size in sizes)
                assert sum(log.tokens) == prompts
            assert all(o.sent <= o.first <= o.last <= run.seconds for o in run.requests)


def test_reused_prefixes_are_not_computed_again() -> None:
    work = OpenLoop((0.0,), (Size(200, 3, cached=150),))
    (one,) = simulate(work, ToyClock(), rules(), 1000).requests
    assert one.ttft == pytest.approx(1.5)


def test_prompts_wait_for_company_no_longer_than_they_may() -> None:
    patient = {"wait_iterations": 4, "wait_fill": 0.9}
    _, late = arrivals([0.0, 5.0], [(100, 50), (100, 2)], **patient)
    assert late.first == pytest.approx(6.0 + 4.0 + 2.0)


def test_an_idle_server_waits_for_the_next_request() -> None:
    run = simulate(OpenLoop((0.0, 100.0), (Size(100, 2),) * 2), ToyClock(), rules(), 1000)
    assert run.idle_seconds == pytest.approx(97.0)


def test_a_limit_slows_what_lasts_and_lets_short_peaks_pass() -> None:
    governor = Governor(Regulator(0.5, 1.0, 2.0, 1.0), limit_watts=80.0, free_watts=float("inf"))
    short = governor.held_seconds((0.01, 1.6, 0.01), 1)
    assert short == pytest.approx(0.01, rel=1e-6), "the second's mean is still below the limit"
    long = governor.held_seconds((1.0, 160.0, 1.0), 20)
    assert long == pytest.approx(1.5, rel=0.05), "twice the limit: depth 0.5"
    governor.idle(10.0, 0.0)
    assert governor.held_seconds((0.01, 1.6, 0.01), 1) == pytest.approx(0.01, rel=1e-6)


def test_a_prompt_beyond_the_budget_does_not_wait_for_an_empty_server() -> None:
    long, other = (2000, 2), (100, 500)
    _, late = arrivals([0.0, 5.0], [other, long], chunked=False)
    assert late.first == pytest.approx(6.0 + 21.0)
