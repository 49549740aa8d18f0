"""What the benchmarks of served models compute from what they see."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._capacity_alone import capacity_alone
from benchmarks._served_runs import PowerLog, ServedRun
from benchmarks._twin_server import Batching, part_of_trace, play
from benchmarks.board_check import averaging_window
from benchmarks.serving_model import TableClock
from benchmarks.serving_twin import largest_rise, summary
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork
from simulation.arrivals import Requests
from simulation.traces import Trace


def test_a_rise_counts_from_the_lowest_second_of_the_span_and_not_from_the_start() -> None:
    start = np.array([0.0, 0.0, 900.0, 900.0, 500.0])
    seconds = np.concatenate([start, [500.0, 300.0, 400.0, 450.0, 700.0]])
    assert largest_rise(seconds, 2) == 300.0
    assert largest_rise(seconds, 40) == 400.0


def test_errors_of_all_runs_are_counted_without_their_sign() -> None:
    rows = [
        ("H200-SXM", 1, "a", {"mean_watts_error": -0.2, "measured_mean_watts": 500.0}),
        ("H200-SXM", 2, "b", {"mean_watts_error": 0.1, "measured_mean_watts": 400.0}),
        ("H100-SXM", 1, "c", {"mean_watts_error": -0.3, "measured_mean_watts": 300.0}),
    ]
    figures = summary(rows).figures
    assert figures["h200_mean_watts_error_worst"] == 0.2
    assert figures["h100_mean_watts_error_worst"] == 0.3
    assert figures["h200_recording_1_mean_watts_error_signed_mean"] == -0.2
    assert figures["b_measured_mean_watts"] == 400.0


def test_an_averaged_field_is_found_to_be_the_mean_that_it_is() -> None:
    seconds = np.arange(0.0, 40.0, 0.05)
    instant = np.where(seconds % 7.0 < 3.0, 650.0, 150.0)
    average = np.array([instant[max(0, i - 15) : i + 1].mean() for i in range(len(instant))])
    none = np.zeros(1)
    window, delay, _ = averaging_window(PowerLog(seconds, instant, average, none, none))
    assert window == pytest.approx(0.8, abs=0.11)
    assert delay == pytest.approx(0.0, abs=0.051)


def test_a_table_asked_iteration_by_iteration_gives_its_own_seconds() -> None:
    table = shipped_step_tables().find("H200-SXM", "llama-3.1-8b", 1)
    seconds, joules, _ = TableClock(table).prompt(8, 900.0, 1, 1024, 1024 * 1024 / 2)
    made = table.iteration(IterationWork.of(1024, 1024, 8, 900.0))
    assert seconds == pytest.approx(table.limited_seconds(made, 700.0)[0], rel=1e-3)
    assert joules == pytest.approx(made.joules[0], rel=1e-3)


def test_a_lone_request_takes_its_iterations_and_the_wait_for_its_step() -> None:
    table = shipped_step_tables().find("H200-SXM", "llama-3.1-8b", 1)
    run = play(
        table, Requests(np.array([0.1]), np.array([1000.0]), np.array([41.0])), 2.0, Batching()
    )
    prompt = table.limited_seconds(table.iteration(IterationWork.of(1000, 1000, 0, 1)), 700.0)[0]
    each = table.iteration(IterationWork.of(0, 1, 1, 1020)).seconds[0]
    assert run.first_token_seconds[0] == pytest.approx(0.15 + prompt, abs=0.002)
    assert run.per_token_seconds[0] == pytest.approx(each + (0.25 - prompt) / 40, rel=0.02)


def test_a_part_of_a_trace_is_told_in_server_time() -> None:
    trace = Trace(
        np.array([0.0, 10.0, 10.0, 12.0, 30.0]), np.arange(5.0), np.arange(5.0) + 1, "made"
    )
    part = part_of_trace(trace, 2.0, 8.0, 5.0)
    assert part.arrival_seconds == pytest.approx([1.0, 1.0, 2.0], abs=1e-5)
    assert len(np.unique(part.arrival_seconds)) == 3
    assert part.prompt_tokens.tolist() == [1.0, 2.0, 3.0]


def served_run(arrivals: list[float], output: float) -> ServedRun:
    n = len(arrivals)
    requests = Requests(np.array(arrivals), np.full(n, 1000.0), np.full(n, output))
    return ServedRun("made", "made", 0.0, 20.0, requests, np.zeros(n), np.zeros(n), {})


def test_capacity_alone_tells_a_lone_request_s_iterations_and_the_wait_around_it() -> None:
    run = capacity_alone("H200-SXM", "llama-3.1-8b", served_run([5.2], 401.0), Batching())
    model = find_language_model("llama-3.1-8b")
    deployment = Deployment(model, "H200-SXM", 1, "bf16", "bf16")
    prompt, answer = deployment.step(1000, 0, 0), deployment.step(0, 1, 1200)
    # One prompt is over before the regulator has seen it.
    assert run.first_token_seconds == pytest.approx([prompt.uncapped_seconds], rel=0.05)
    assert run.per_token_seconds == pytest.approx([answer.seconds], rel=0.05)
    assert run.watts.shape == (20,)
    waits = deployment.prices.gap_watts
    assert run.watts[:4] == pytest.approx(waits)
    assert run.watts[-5:] == pytest.approx(waits)
    # Answers of 401 tokens at 4.5 ms: at work from 5.2 s for about two seconds.
    assert run.watts[6] == pytest.approx(answer.mean_watts, rel=0.1)


def test_capacity_alone_counts_as_the_recordings_do_what_ended_within_the_run() -> None:
    run = capacity_alone("H200-SXM", "llama-3.1-8b", served_run([1.0, 19.9], 101.0), Batching())
    assert len(run.first_token_seconds) == len(run.per_token_seconds) == 1
    alone = capacity_alone("H200-SXM", "llama-3.1-8b", served_run([1.0, 2.5], 1.0), Batching())
    assert (len(alone.first_token_seconds), len(alone.per_token_seconds)) == (2, 0)
