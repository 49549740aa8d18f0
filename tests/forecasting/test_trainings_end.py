"""Fits beside the forecaster: none for models that are only tried, none left by models that go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forecasting.engine_question import Question
from forecasting.forecast import Forecast
from forecasting.forecast_engine import Engine
from forecasting.forecaster import Forecaster
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target
from forecasting.tiers.boosted import Boosted
from forecasting.tiers.boosted_features import Sample
from forecasting.tiers.boosted_fit import Forests
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.records import Records
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet

DAY = 144


class Beside:
    """A place where fits take for ever."""

    problem = ""

    def __init__(self) -> None:
        self.begun = 0
        self.closed = False

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        self.begun += 1
        return True

    def take(self) -> Forests | None:
        return None

    def close(self) -> None:
        self.closed = True


def world(n_series: int) -> tuple[ForecasterState, MemorySource, list[Target], list[Beside]]:
    """Many series, and every place of fits that was made for them."""
    places: list[Beside] = []

    def live(horizon: int) -> Sequence[Forecaster]:
        places.append(Beside())
        records = Records()
        return (Ridge(records, horizon), Boosted(records, horizon, places[-1]))

    t = np.arange(11 * DAY)
    rng = np.random.default_rng(2)
    values = {
        f"s{i}": 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 5, t.size)
        for i in range(n_series)
    }
    targets = [
        Target("ns", name, SeriesId(name), "workload", 36, 600, (0.5, 0.99), None, 1)
        for name in values
    ]
    known = frozenset(target.identity for target in targets)
    state = ForecasterState(TierSet(live, RIDGE_ALONE.rehearsing), rehearsed=known)
    return state, MemorySource(values), targets, places


def test_looking_for_who_spoils_a_round_begins_no_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    state, source, targets, places = world(4)
    issue = Engine.issue

    def spoiled(engine: Engine, question: Question) -> Forecast:
        if targets[1].identity in question.history.series:
            raise ArithmeticError("spoiled")
        return issue(engine, question)

    monkeypatch.setattr(Engine, "issue", spoiled)
    _, answers = step(state, 10 * 86400, source, targets)
    assert [answer.error is None for answer in answers] == [True, False, True, True]
    assert len(places) == 1, "models were made for members alone"


def test_models_that_are_not_asked_any_more_end_their_fits() -> None:
    state, source, targets, places = world(2)
    state, _ = step(state, 10 * 86400, source, targets)
    other = [Target("ns", "s0", SeriesId("s0"), "workload", 6, 600, (0.5, 0.99), None, 1)]
    assert [place.closed for place in places] == [False]
    state, _ = step(state, 10 * 86400 + 600, source, other)
    assert [place.closed for place in places] == [True, False]
    state.close()
    assert all(place.closed for place in places)
