"""Losses of forecasts' consumers: what is right costs nothing, what is wrong costs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import consumer_losses
from benchmarks.consumer_losses import CONSUMERS, LEVELS, Window, losses_of
from benchmarks.runner import Options


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_who_knows_the_peak_loses_nothing_and_every_wrong_forecast_costs(consumer: str) -> None:
    decide = consumer_losses.consumers()[consumer]
    windows = [
        Window(np.full(len(LEVELS), came), came, last_day=0.9 * came, record=came)
        for came in (10.0, 40.0, 700.0)
    ]
    losses = losses_of(windows, decide)
    assert losses["as_is"] == pytest.approx(0.0, abs=1e-9)
    # The last day's 0.9 and a fifth are 1.08 of what came; half of it is 0.5 short at 19 a unit.
    assert losses["removed"] == pytest.approx(0.08)
    assert losses["halved"] == pytest.approx(19 * 0.5)
    most = 0.3 if consumer == "oversubscription" else 0.5
    assert losses["raised_half"] == pytest.approx(most)


def test_a_quick_run_has_every_targeted_figure() -> None:
    result = consumer_losses.run(Options(quick=True, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
    assert result.figures["windows"] == 16
