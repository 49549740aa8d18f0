"""Boosted trees: what they may see, when they are fitted, and what serves until they are."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target
from forecasting.tiers import boosted, boosted_features, boosted_fit
from forecasting.tiers.boosted import Boosted, InlineTraining
from forecasting.tiers.boosted_features import BinTables, Sample, draw_sample
from forecasting.tiers.boosted_fit import Forests
from forecasting.tiers.naive import SeasonalNaive
from forecasting.tiers.records import Records
from forecasting.tiers.tier_sets import all_tiers
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history, nonsense


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second instead of fifteen."""
    monkeypatch.setattr(boosted_fit, "TREES", 25)
    monkeypatch.setattr(boosted, "ROWS", 4000)


class SlowTraining:
    """Forests come when the test says so."""

    problem = ""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.busy = False
        self.made: Forests | None = None

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        if self.busy:
            return False
        self.asked.append(until_seconds)
        self.made = boosted_fit.fit_forests(sample, until_seconds)
        self.busy = True
        return True

    def take(self) -> Forests | None:
        if self.busy:
            return None
        made, self.made = self.made, None
        return made


def test_features_do_not_change_with_what_comes_later() -> None:
    z = np.random.default_rng(0).random((3, 5 * DAY)).astype(np.float32)
    whole = BinTables(z, DAY, 7)
    for t in (DAY, 2 * DAY + 5, 4 * DAY):
        steps = np.arange(1, 2 * DAY)
        series, at = np.ones(len(steps), dtype=int), np.full(len(steps), t)
        before = BinTables(z[:, : t + 1], DAY, 7).at(series, at, steps)
        np.testing.assert_allclose(whole.at(series, at, steps), before, rtol=1e-5, atol=1e-6)


def test_rolling_features_are_those_of_plain_windows() -> None:
    z = np.random.default_rng(1).random((1, 3 * DAY)).astype(np.float32)
    tables = BinTables(z, DAY, 0)
    t = 2 * DAY + 17
    features = tables.at(np.array([0]), np.array([t]), np.array([4]))[0]
    now = z[0, t]
    for width, pick in ((6, np.max), (36, np.max), (DAY, np.max), (36, np.min), (6, np.mean)):
        wanted = pick(z[0, t + 1 - width : t + 1]) - now
        assert np.isclose(features, wanted, atol=1e-5).any(), (width, pick)
    assert np.isclose(features, z[0, t + 4 - DAY] - now, atol=1e-6).any()


def test_a_sample_is_drawn_by_seed_from_what_was_observed() -> None:
    values = demand(4, 6 * DAY)
    values[1, 200:260] = np.nan
    records = Records()
    records.absorb(history(values))
    drawn = [draw_sample(records, 36, seed, 2000) for seed in (1, 1, 2)]
    first, again, other = (sample for sample in drawn if sample is not None)
    np.testing.assert_array_equal(first.features, again.features)
    assert not np.array_equal(first.features[:100], other.features[:100])
    assert np.isfinite(first.features).all()
    assert np.isfinite(first.changes).all()
    assert (first.weights > 0).all()
    assert first.weights.max() <= boosted_features.MOST_WEIGHT
    short = Records()
    short.absorb(history(values[:, :DAY]))
    assert draw_sample(short, 36, 1) is None


def test_few_series_get_small_trees() -> None:
    assert boosted_fit.tree_size(1) == {"num_leaves": 6, "min_data_in_leaf": 2400}
    assert boosted_fit.tree_size(4) == {"num_leaves": 6, "min_data_in_leaf": 600}
    assert boosted_fit.tree_size(82) == {"num_leaves": 24, "min_data_in_leaf": 100}
    records = Records()
    records.absorb(history(demand(2, 6 * DAY)))
    sample = draw_sample(records, 36, 1)
    assert sample is not None
    assert sample.n_series == 2
    assert len(sample.changes) <= 2 * boosted_features.MOST_EACH


def test_it_learns_the_day_better_than_naive_and_says_the_same_twice() -> None:
    values = demand(12, 9 * DAY)
    came = values[:, -36:]
    made = []
    for _ in range(2):
        tier = Boosted()
        tier.update(history(values[:, :-36]))
        made.append(tier.quantiles(36, LEVELS))
    np.testing.assert_array_equal(made[0], made[1])
    naive = SeasonalNaive()
    naive.update(history(values[:, :-36]))
    regular = [i for i in range(12) if i % 4]
    error = np.abs(came[:, :, None] - made[0])[regular, :, 2].sum(axis=1)
    assert (
        np.mean(error < np.abs(came - naive.quantiles(36, LEVELS)[:, :, 2])[regular].sum(1)) > 0.8
    )
    assert (np.diff(made[0], axis=2) >= 0).all()
    assert (made[0][:, :, :4] <= values[:, :-36].max(axis=1)[:, None, None] * 1.0001).all()


def test_nonsense_is_answered_soberly_or_not_at_all() -> None:
    values = np.vstack([demand(6, 8 * DAY), list(nonsense().values())])
    tier = Boosted()
    tier.update(history(values))
    made = tier.quantiles(36, LEVELS)
    answered = np.array(np.isfinite(made).all(axis=(1, 2)))
    assert np.isnan(made[~answered]).all()
    assert answered[:6].all()
    assert (made[answered] >= 0).all()
    highest = np.nanmax(np.where(np.isfinite(values), values, np.nan)[answered], axis=1)
    assert (made[answered].max(axis=(1, 2)) <= 20 * highest + 1e-9).all()
    assert np.isnan(tier.quantiles(37, LEVELS)).all()


def test_the_last_forests_serve_until_the_next_are_there() -> None:
    training = SlowTraining()
    values = demand(6, 6 * DAY)
    tier = Boosted(training=training)
    ends = [5 * DAY, 5 * DAY + 6, 5 * DAY + 36, 5 * DAY + 42]
    tier.update(history(values[:, : ends[0]]))
    assert np.isnan(tier.quantiles(36, LEVELS)).all()
    assert tier.provenance.fitted_until_seconds == 0
    training.busy = False
    tier.update(history(values[:, : ends[1]]))
    assert np.isfinite(tier.quantiles(36, LEVELS)).all()
    assert len(training.asked) == 1
    tier.update(history(values[:, : ends[2]]))  # six hours later, the fit takes its time
    assert tier.provenance.fitted_until_seconds == training.asked[0]
    assert np.isfinite(tier.quantiles(36, LEVELS)).all()
    training.busy = False
    tier.update(history(values[:, : ends[3]]))
    assert tier.provenance.fitted_until_seconds == training.asked[1]


def test_without_the_library_there_is_no_answer_and_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    tier = Boosted(training=InlineTraining())
    assert "LightGBM" in tier.problem
    tier.update(history(demand(3, 5 * DAY)))
    assert np.isnan(tier.quantiles(36, LEVELS)).all()


def test_a_week_ahead_has_every_step_and_the_first_hours_as_if_nobody_had_asked_further() -> None:
    values = demand(8, 10 * DAY)
    week, near = Boosted(horizon=7 * DAY), Boosted()
    for tier in (week, near):
        tier.update(history(values))
    began = time.process_time()
    made = week.quantiles(7 * DAY, LEVELS)
    assert time.process_time() - began < 0.5 * len(values), "half a second a series"
    assert made.shape == (8, 7 * DAY, len(LEVELS))
    assert np.isfinite(made).all()
    assert (made >= 0).all()
    assert (np.diff(made, axis=2) >= 0).all()
    assert (made.max(axis=(1, 2)) <= 20 * values.max(axis=1)).all()
    np.testing.assert_array_equal(made[:, :36], near.quantiles(36, LEVELS))
    median = made[:, :, LEVELS.index(0.5)].reshape(8, 7, DAY)
    same_hours = np.corrcoef(median[:, 6].ravel(), values[:, -DAY:].ravel())[0, 1]
    assert same_hours > 0.8, "the seventh day does not know the hours"


def test_hours_are_answered_before_the_forests_of_days_are_there() -> None:
    near, far = SlowTraining(), SlowTraining()
    tier = Boosted(horizon=2 * DAY, training=near, far_training=far)
    values = demand(6, 6 * DAY)
    tier.update(history(values[:, : 5 * DAY]))
    near.busy = False
    tier.update(history(values[:, : 5 * DAY + 6]))
    assert np.isfinite(tier.quantiles(36, LEVELS)).all()
    assert np.isnan(tier.quantiles(37, LEVELS)).all()
    assert tier.provenance.fitted_until_seconds == 0
    far.busy = False
    tier.update(history(values[:, : 5 * DAY + 12]))
    assert np.isfinite(tier.quantiles(2 * DAY, LEVELS)).all()
    assert tier.provenance.fitted_until_seconds == far.asked[0]


def test_the_process_answers_a_week_by_all_models() -> None:
    values = demand(4, 10 * DAY)
    names = [f"series-{i}" for i in range(4)]
    targets = [
        Target("ns", name, SeriesId(name), "series", 7 * DAY, 600, (0.1, 0.5, 0.99), None, 1)
        for name in names
    ]
    source = MemorySource(dict(zip(names, values, strict=True)))
    _, answers = step(ForecasterState(all_tiers()), 10 * 86400, source, targets)
    made = answers[0].made
    assert made is not None
    assert made.quantiles.shape[1] == 7 * DAY
    assert np.isfinite(made.quantiles).all()
    assert all("boosted" in method and "ridge" in method for method in made.methods)
    assert (made.peaks[:, -1] <= 20 * values.max(axis=1)).all()
    assert (made.quantiles[:, :, -1] <= made.tops[:, None]).all()
