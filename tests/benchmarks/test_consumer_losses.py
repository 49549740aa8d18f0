"""Losses of forecasts' consumers: what is right costs nothing, what is wrong costs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import consumer_losses
from benchmarks.consumer_losses import CONSUMERS, HORIZON, LEVELS, Window, losses_of, placed_pods
from benchmarks.forecast_sets import DAY
from benchmarks.runner import Options
from tests.forecasting.forecast_builders import make_status


def known(came: float, record: float | None = None) -> Window:
    """The forecast says what comes, at every level; the day before had a little less all along."""
    paths = [{"level": level, "values": [came] * HORIZON} for level in LEVELS]
    peaks = dict.fromkeys(("p50", "p95"), came)
    status = make_status(1e8, came, now=0.9 * came, quantiles=paths, **peaks)
    day = np.full(DAY, 0.9 * came)
    return Window(1e8, status, np.full(HORIZON, came), day, record or came)


WRONG = {
    # The last day's 0.9 and a fifth are 1.08 of what came; nobody promises more than two limits.
    "oversubscription": {"removed": 0.08, "halved": 19 * 0.5, "raised_half": 0.3},
    "planner": {"removed": 0.08, "halved": 19 * 0.5, "raised_half": 0.3},
    # The newest demand, and the mean of the day before, are 0.9 of what came.
    "pre_warming": {"removed": 1.9, "halved": 1.9, "raised_half": 0.5},
    "gpu_mix": {"removed": 1.9, "halved": 1.9, "raised_half": 0.5},
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_who_knows_the_peak_loses_nothing_and_every_wrong_forecast_costs(consumer: str) -> None:
    decide = consumer_losses.consumers()[consumer]
    losses = losses_of([known(came) for came in (10.0, 40.0, 700.0)], decide)
    # A pod is 0.9 % of a limit, and watts are counted in two-hundredths of one.
    assert losses.pop("as_is") == pytest.approx(0.0, abs=0.015)
    for change, wanted in WRONG[consumer].items():
        assert losses[change] == pytest.approx(wanted, rel=0.03, abs=0.015)


def test_without_forecast_and_fall_back_nothing_is_placed_where_all_could_draw_the_limit() -> None:
    window = known(40.0, record=60.0)
    assert placed_pods(window, 1.0) > placed_pods(window, 1.5) > 0
    assert placed_pods(window, None) > 0
    assert placed_pods(window, None, known=False) == 0


def test_a_quick_run_has_every_targeted_figure() -> None:
    result = consumer_losses.run(Options(quick=True, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
    figures = {name: float(value) for name, value in result.figures.items()}
    assert figures["windows"] == 16
    for name in ("as_is", "as_is_at_p99", "removed"):
        within = figures[f"placements_{name}"] - figures[f"placements_beyond_{name}"]
        assert 0 <= within <= figures["placements_possible"]
    assert figures["placements_as_is_at_p99"] <= figures["placements_as_is"]
