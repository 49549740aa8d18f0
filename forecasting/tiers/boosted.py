"""Boosted trees over all series at once: what one series cannot learn alone.

Fitting takes seconds and happens at most once in six hours of data, here (backtests) or in a side
process (``Training``); until the next forests are there the last ones answer.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

import numpy as np

from forecasting.lightgbm_library import ForestsError, lightgbm_problem
from forecasting.series_source import Floats
from forecasting.tiers.boosted_features import (
    ROWS,
    BinTables,
    Sample,
    bins_wanted,
    draw_sample,
    group_tables,
)
from forecasting.tiers.boosted_fit import (
    FITTED_LEVELS,
    Forests,
    ask,
    fit_forests,
    load,
)
from forecasting.tiers.level_grid import at_levels
from forecasting.tiers.past_errors import row_groups
from forecasting.tiers.records import Records
from forecasting.tiers.ridge_features import expand
from forecasting.tiers.tier import Tier

PREPARED_STEPS: Final = 36

REFIT_SECONDS: Final = 6 * 3600

SEED: Final = 1
"""Of the sample: the same history gives the same forests."""

MIN_POINTS: Final = 2000
"""Points without which forests learn nothing: a leaf holds a hundred."""

TAIL_LEVEL: Final = 0.999
"""Beyond the highest fitted level the tail is exponential. Assumed; calibration corrects it."""

BOUND: Final = 1.0
HIGH_BOUND: Final = 2.0
"""Times the record that levels up to 0.9, and those above, may reach; compressed errors of a calm
hour are large factors in a busy one."""

RETRY_SECONDS: Final = 3600
"""Time of data after which a fit that failed is tried again."""

log = logging.getLogger(__name__)


class Training(Protocol):
    """Where forests are fitted."""

    @property
    def problem(self) -> str:
        """Why the last fit failed; empty if it did not."""
        ...

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        """Begin a fit; False if the last one still runs or none can be begun."""
        ...

    def take(self) -> Forests | None:
        """Forests that came since the last call."""
        ...

    def close(self) -> None:
        """End the fit that runs."""
        ...


class InlineTraining:
    """Fits at once, in the caller's time: backtests and tests.

    Attributes:
        problem: Why the last fit failed; empty if it did not.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._made: Forests | None = None

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        """Fit; one that fails is told once, and no forests come of it."""
        try:
            self._made, self.problem = fit_forests(sample, until_seconds), ""
        except ForestsError as error:
            if str(error) != self.problem:
                log.warning("a fit of forests failed: %s", error)
            self._made, self.problem = None, str(error)
        return True

    def take(self) -> Forests | None:
        """What ``submit`` fitted."""
        made, self._made = self._made, None
        return made

    def close(self) -> None:
        """Nothing runs between the calls."""


class _Span:
    """Forests for some steps, and when they were fitted.

    Args:
        first: First step that they are asked for.
        last: Last step; all up to it are learned, which serves the later ones, too.
        training: Where forests are fitted.
        refit_seconds: Time of data between two fits.
    """

    def __init__(self, first: int, last: int, training: Training, refit_seconds: int) -> None:
        self.first, self.last = first, last
        self.training = training
        self.forests: Forests | None = None
        self.loaded: list[Any] = []
        self._refit_seconds = refit_seconds
        self._asked_seconds = 0

    def learn(self, records: Records) -> None:
        """Take what was fitted in, and ask for the next fit when it is due."""
        self._adopt(self.training.take())
        usual, now = self._refit_seconds, records.until_seconds
        patience = min(RETRY_SECONDS, usual) if self.training.problem else usual
        if self._asked_seconds and now - self._asked_seconds < patience:
            return
        sample = draw_sample(records, self.last, SEED, ROWS)
        if sample is None or len(sample.changes) < MIN_POINTS:
            return
        if self.training.submit(sample, now):
            self._asked_seconds = now
            self._adopt(self.training.take())

    def _adopt(self, made: Forests | None) -> None:
        if made is not None:
            self.forests, self.loaded = made, load(made)


class Boosted(Tier):
    """Quantile forests of all series with two days of history and more.

    The first six hours have forests of their own. One for all steps of days learns little of them:
    of 82 clients (bins 0-1439, origins 864, 936 and 1000, 432 steps) it lost 0.62 in the first half
    hour and 0.79 in the rest, one of their own 0.49 and 0.70.

    Args:
        records: Bins shared with other tiers; None keeps them for this tier alone.
        horizon: Steps that are fitted; a longer question gets no answer.
        training: Where forests are fitted; None fits in ``update``.
        refit_seconds: Time of data between two fits.
        far_training: The same for steps after ``PREPARED_STEPS``; not the same place.
    """

    model = "boosted/1"

    def __init__(
        self,
        records: Records | None = None,
        horizon: int = PREPARED_STEPS,
        training: Training | None = None,
        refit_seconds: int = REFIT_SECONDS,
        far_training: Training | None = None,
    ) -> None:
        super().__init__(records)
        self._horizon = horizon
        near = _Span(1, min(horizon, PREPARED_STEPS), training or InlineTraining(), refit_seconds)
        self._spans = [near]
        if horizon > PREPARED_STEPS:
            place = far_training or InlineTraining()
            self._spans.append(_Span(PREPARED_STEPS + 1, horizon, place, refit_seconds))
        self._missing = lightgbm_problem()

    @property
    def problem(self) -> str:
        """Why it never answers, or why its forests age; empty without a reason."""
        found = [span.training.problem for span in self._spans if span.training.problem]
        return self._missing or (found[0] if found else "")

    def close(self) -> None:
        """End fits that run; forests that are there go on answering."""
        for span in self._spans:
            span.training.close()

    def _learn(self) -> None:
        if self._missing:
            return
        for span in self._spans:
            span.learn(self.records)

    def _fitted_until(self) -> int:
        return min(
            0 if span.forests is None else span.forests.until_seconds for span in self._spans
        )

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        records = self.records
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        spans = [span for span in self._spans if span.first <= horizon]
        if not all(span.loaded for span in spans) or horizon > self._horizon:
            return result
        known_levels = np.array([*FITTED_LEVELS, TAIL_LEVEL])
        for rows, bins in row_groups(records, bins_wanted(records, self._horizon)):
            tables, z, level = group_tables(records, rows, bins)
            changes = [
                _changes(span.loaded, tables, z, np.arange(span.first, min(span.last, horizon) + 1))
                for span in spans
            ]
            raw = expand(z[:, -1, None, None] + np.concatenate(changes, axis=1), level[:, :, None])
            record = records.filled[rows, -bins:].max(axis=1)[:, None, None]
            high = np.where(np.array(FITTED_LEVELS) > 0.9, HIGH_BOUND, BOUND)
            made = np.clip(raw, 0.0, high * record)
            result[rows] = at_levels(
                np.concatenate([made, _tail(made)], axis=2), levels, known_levels
            )
        return result


def _changes(loaded: list[Any], tables: BinTables, z: np.ndarray, steps: np.ndarray) -> Floats:
    """Changes since the newest bin at the fitted levels, (n_series, n_steps, n_fitted)."""
    n_series, bins = z.shape
    series = np.repeat(np.arange(n_series), len(steps))
    origins = np.full(len(series), bins - 1)
    features = tables.at(series, origins, np.tile(steps, n_series))
    return ask(loaded, features).reshape(n_series, len(steps), -1)


def _tail(made: Floats) -> Floats:
    """The quantile at ``TAIL_LEVEL`` of a tail that is exponential from 0.95 on, (…, 1)."""
    p95, p99 = (made[..., FITTED_LEVELS.index(level), None] for level in (0.95, 0.99))
    result: Floats = p99 + (p99 - p95) * np.log(0.01 / (1 - TAIL_LEVEL)) / np.log(0.05 / 0.01)
    return result
