"""The twin's server beside the recorded one: close under conversation, and it tells its misses."""

from __future__ import annotations

import numpy as np

from benchmarks.runner import Options
from benchmarks.serving_draw import QUICK_RUNS, run, serve


def test_short_conversations_draw_within_15_percent_of_the_real_server_and_rise_with_the_rate(
) -> None:  # fmt: skip
    made = run(Options(quick=True))
    figures = [
        (float(made.figures[f"{served.name}_watts"]), served.measured_watts)
        for served in QUICK_RUNS
    ]
    for watts, measured in figures:
        assert abs(watts / measured - 1) < 0.15
    assert [watts for watts, _ in figures] == sorted(watts for watts, _ in figures)
    batches = [float(made.figures[f"{served.name}_batch_p50"]) for served in QUICK_RUNS]
    assert batches == sorted(batches)


def test_the_same_minutes_give_the_same_draw_and_a_later_start_another() -> None:
    first, again, later = (serve(QUICK_RUNS[0], begin, 10.0) for begin in (900.0, 900.0, 1200.0))
    assert np.array_equal(first.watts, again.watts)
    assert not np.array_equal(first.watts, later.watts)
