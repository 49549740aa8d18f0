"""Boosted trees over all series at once: what one series cannot learn alone.

Fitting takes seconds and happens at most once in six hours of data, here (backtests) or in a side
process (``Training``); until the next forests are there the last ones answer.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from forecasting.series_source import Floats
from forecasting.tiers.boosted_features import (
    ROWS,
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
    lightgbm_problem,
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


class InlineTraining:
    """Fits at once, in the caller's time: backtests and tests."""

    problem = ""

    def __init__(self) -> None:
        self._made: Forests | None = None

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        """Fit."""
        self._made = fit_forests(sample, until_seconds)
        return True

    def take(self) -> Forests | None:
        """What ``submit`` fitted."""
        made, self._made = self._made, None
        return made


class Boosted(Tier):
    """Quantile forests of all series with two days of history and more.

    Args:
        records: Bins shared with other tiers; None keeps them for this tier alone.
        horizon: Steps that are fitted; a longer question gets no answer.
        training: Where forests are fitted; None fits in ``update``.
        seed: Of the sample.
    """

    model = "boosted/1"

    def __init__(
        self,
        records: Records | None = None,
        horizon: int = PREPARED_STEPS,
        training: Training | None = None,
        refit_seconds: int = REFIT_SECONDS,
    ) -> None:
        super().__init__(records)
        self._horizon = horizon
        self._training = InlineTraining() if training is None else training
        self._refit_seconds = refit_seconds
        self._asked_seconds = 0
        self._forests: Forests | None = None
        self._loaded: list[Any] = []
        self._missing = lightgbm_problem()

    @property
    def problem(self) -> str:
        """Why it never answers, or why its forests age; empty without a reason."""
        return self._missing or self._training.problem

    def _learn(self) -> None:
        if self._missing:
            return
        now = self.records.until_seconds
        self._adopt(self._training.take())
        patience = min(RETRY_SECONDS, self._refit_seconds) if self.problem else self._refit_seconds
        if self._asked_seconds and now - self._asked_seconds < patience:
            return
        sample = draw_sample(self.records, self._horizon, SEED, ROWS)
        if sample is None or len(sample.changes) < MIN_POINTS:
            return
        if self._training.submit(sample, now):
            self._asked_seconds = now
            self._adopt(self._training.take())

    def _adopt(self, made: Forests | None) -> None:
        if made is not None:
            self._forests, self._loaded = made, load(made)

    def _fitted_until(self) -> int:
        return 0 if self._forests is None else self._forests.until_seconds

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        records = self.records
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        if not self._loaded or horizon > self._horizon:
            return result
        known_levels = np.array([*FITTED_LEVELS, TAIL_LEVEL])
        steps = np.arange(1, horizon + 1)
        for rows, bins in row_groups(records, bins_wanted(records, self._horizon)):
            tables, z, level = group_tables(records, rows, bins)
            series = np.repeat(np.arange(len(rows)), horizon)
            origins = np.full(len(series), bins - 1)
            features = tables.at(series, origins, np.tile(steps, len(rows)))
            changes = ask(self._loaded, features).reshape(len(rows), horizon, -1)
            raw = expand(z[:, -1, None, None] + changes, level[:, :, None])
            record = records.filled[rows, -bins:].max(axis=1)[:, None, None]
            high = np.where(np.array(FITTED_LEVELS) > 0.9, HIGH_BOUND, BOUND)
            made = np.clip(raw, 0.0, high * record)
            result[rows] = at_levels(
                np.concatenate([made, _tail(made)], axis=2), levels, known_levels
            )
        return result


def _tail(made: Floats) -> Floats:
    """The quantile at ``TAIL_LEVEL`` of a tail that is exponential from 0.95 on, (…, 1)."""
    p95, p99 = (made[..., FITTED_LEVELS.index(level), None] for level in (0.95, 0.99))
    result: Floats = p99 + (p99 - p95) * np.log(0.01 / (1 - TAIL_LEVEL)) / np.log(0.05 / 0.01)
    return result
