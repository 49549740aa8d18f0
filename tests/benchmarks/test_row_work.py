"""Work of a window: a policy that is late has not done more of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks._row_work import WindowWork
from benchmarks._unbreakable_row import unbreakable
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.request_classes import HIGH, LOW, POLCA_CLASSES
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import (
    UNCAPPED,
    PolicyRun,
    Window,
    polca_scenario,
    run_policy,
)
from simulation.inference_row.row_work import InferenceWork

SERVERS, SEED = 4, 3
ARRIVALS = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=SEED, days=1)
UNTIL_DONE, NO_TIME_LEFT = 200.0, 1.0


def played(drain_seconds: float) -> tuple[WindowWork, WindowWork, PolicyRun]:
    """Of a policy that holds the row back from before the window on, and of the row alone."""
    row = polca_scenario(SERVERS, SEED, ServerPower.of(), 1.0)
    tight = row.model_copy(update={"row": row.row.model_copy(update={"rated_servers": 2.8})})
    window = Window(50_000.0, 200.0, 60.0, drain_seconds)
    held = run_policy("one_threshold_all", ARRIVALS, window, tight)
    free = run_policy(UNCAPPED, ARRIVALS, window, unbreakable(tight))
    held_work, free_work = (WindowWork.of(run, window, ARRIVALS.times) for run in (held, free))
    return held_work, free_work, free


def test_work_that_was_left_over_is_no_work_of_the_window() -> None:
    held, free, _ = played(UNTIL_DONE)
    made = held.over(free)
    # By the clock it does more than nobody could, at every moment it has done less.
    assert made["work_low"] > 1.03
    assert made["work_high"] > 1.01
    assert made["work_from_start_low"] < 0.995
    assert made["work_from_start_high"] < 0.97
    # The same requests, all of them answered.
    assert made["answered_work_low"] == made["answered_work_high"] == 1.0


def test_what_is_not_answered_by_the_end_is_no_work() -> None:
    cut, whole = (played(drain)[0] for drain in (NO_TIME_LEFT, UNTIL_DONE))
    assert (cut.answered < 0.9 * whole.answered).all()
    # What the servers did until then is the same.
    assert cut.from_start == pytest.approx(whole.from_start)


def test_nothing_answered_is_told_as_not_known() -> None:
    held, free, _ = played(NO_TIME_LEFT)
    nothing = WindowWork(free.inside, free.from_start, np.zeros(2))
    made = held.over(nothing)
    assert np.isnan(made["answered_work_low"])
    assert made["work_low"] > 1.0


def test_an_answers_work_is_what_its_server_books() -> None:
    *_, run = played(NO_TIME_LEFT)
    begin, asked_for, long = 50_000.0, 100.0, 400.0
    requests = ARRIVALS.between(begin, begin + asked_for)
    work = InferenceWork(requests, ARRIVALS.class_of_server, begin, times=ARRIVALS.times)
    work.servers.full_speed_watts(round(long), 1.0)
    window = Window(begin, 0.0, asked_for, long - asked_for)
    counted = WindowWork.of(replace(run, work=work), window, ARRIVALS.times)
    priority = np.array([one.priority for one in POLCA_CLASSES])[ARRIVALS.class_of_server]
    booked = [work.servers.work_seconds[priority == which].sum() for which in (LOW, HIGH)]
    assert counted.answered == pytest.approx(booked, rel=1e-9)
