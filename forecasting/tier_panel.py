"""The tiers of an engine, asked together: one answer, and what stands behind it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting import near_steps
from forecasting.clean_history import Cleaned
from forecasting.combination import LossRecord, combine, step_bands, weights
from forecasting.engine_memory import Pool
from forecasting.engine_question import Shape
from forecasting.forecast import LAST_DAY, LIMIT, level_index
from forecasting.forecaster import Forecaster, Provenance
from forecasting.open_issues import WEIGHED_LEVELS
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.last_day import LastDayMaximum
from forecasting.tiers.roster import close_tiers
from wattpack.errors import WattpackError

FRESH_SHARE: Final = 0.5
"""Share of the last day that must have been observed before a model may answer (assumed)."""

NAMED_WEIGHT: Final = 0.05
"""Tiers with less weight are not named in ``method``."""

LONGEST_METHOD: Final = 64
"""Letters that a status has room for."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Combined:
    """What the tiers say together, not calibrated.

    Attributes:
        steps: Step quantiles over the grid, shape (n_series, horizon, n_levels); zeros where
            nothing is known.
        methods: What made each row.
        shares: Of each tier in each row, shape (n_series, n_tiers).
        by_tier: Each tier's answer at ``WEIGHED_LEVELS``.
        tiers: Names of the tiers.
        told: Each tier's answer at ``Shape.levels``, shape (n_tiers, n_series, horizon, n_levels),
            NaN where it has none; None where nobody asked.
    """

    steps: Floats
    methods: tuple[str, ...]
    shares: Floats
    by_tier: NDArray[np.float32]
    tiers: tuple[str, ...]
    told: NDArray[np.float32] | None = None

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Rows that a model or the last day's maximum stands behind, shape (n_series,)."""
        return np.array([method != LIMIT for method in self.methods], dtype=bool)


class TierPanel:
    """Tiers with the last day's maximum under them.

    Args:
        shape: What is asked of them.
        tiers: Models of step quantiles.
    """

    def __init__(self, shape: Shape, tiers: Sequence[Forecaster]) -> None:
        self._shape = shape
        self._tiers = tuple(tiers)
        self._floor = LastDayMaximum()

    @property
    def provenances(self) -> tuple[Provenance, ...]:
        """What stands behind each tier's answers."""
        return tuple(tier.provenance for tier in self._tiers)

    def close(self) -> None:
        """End what tiers work at beside the rounds."""
        close_tiers(self._tiers)

    def combined(
        self,
        history: History,
        cleaned: Cleaned,
        losses: LossRecord,
        pools: Mapping[SeriesId, Pool],
        *,
        tells_tiers: bool = False,
    ) -> Combined:
        """The tiers' answers to what comes after the history, combined by their losses.

        Args:
            history: What models see.
            cleaned: The same without gaps.
            losses: Of the tiers so far.
            pools: Of every series.
            tells_tiers: Whether each tier's answer is wanted, too.
        """
        answers = self._answers(history, cleaned)
        names = tuple(provenance.model for provenance in self.provenances)
        numbers = {pool: i for i, pool in enumerate(dict.fromkeys(pools.values()))}
        classes = np.array([numbers[pools[name]] for name in history.series], dtype=np.intp)
        weighed = weights(losses, names, history.series, classes)
        shares = _shares(weighed, answers)
        near = near_steps.shares(losses, history.series, classes)
        median = level_index(self._shape.grid, 0.5)
        mixed = combine(list(answers), weighed)
        mixed = near_steps.with_near_medians(mixed, answers, names, median, near)
        steps, methods = self._with_floor(history, mixed, shares, cleaned)
        by_tier = self._at(answers, WEIGHED_LEVELS)
        told = self._at(answers, self._shape.levels) if tells_tiers else None
        return Combined(steps, tuple(methods), shares, by_tier, names, told)

    def _at(self, answers: Floats, levels: Sequence[float]) -> NDArray[np.float32]:
        """The answers at some levels of the grid."""
        places = [level_index(self._shape.grid, level) for level in levels]
        return answers[..., places].astype(np.float32)

    def _answers(self, history: History, cleaned: Cleaned) -> Floats:
        """Step quantiles of each tier, NaN where it has none, (n_tiers, n_series, horizon, n)."""
        shape = (len(self._tiers), len(history.series), self._shape.horizon, len(self._shape.grid))
        answers = np.full(shape, np.nan)
        stale = np.asarray(cleaned.last_day_known < FRESH_SHARE)
        for place, tier in enumerate(self._tiers):
            try:
                tier.update(history)
                answers[place] = tier.quantiles(self._shape.horizon, self._shape.grid)
            except (WattpackError, ArithmeticError, ValueError) as error:
                log.warning("%s has no answer this round: %s", tier.provenance.model, error)
            partly = ~np.isfinite(answers[place].reshape(len(stale), -1)).all(axis=1)
            answers[place, np.logical_or(stale, partly)] = np.nan
        return answers

    def _with_floor(
        self, history: History, steps: Floats, shares: Floats, cleaned: Cleaned
    ) -> tuple[Floats, list[str]]:
        """The last day's maximum where no tier has an answer, and what made each row."""
        names = [provenance.model.split("/")[0] for provenance in self.provenances]
        missing = np.isnan(steps.reshape(len(steps), -1).sum(axis=1))
        if missing.any():
            self._floor.update(history)
            steps[missing] = self._floor.quantiles(self._shape.horizon, self._shape.grid)[missing]
        methods = []
        for i, row in enumerate(shares):
            if cleaned.length[i] < self._shape.day_steps or not np.isfinite(steps[i]).all():
                methods.append(LIMIT)
                steps[i] = 0.0
            elif missing[i]:
                methods.append(LAST_DAY)
            else:
                heavy = [j for j in np.argsort(-row, kind="stable") if row[j] >= NAMED_WEIGHT]
                methods.append(_method([names[j] for j in heavy]))
        return steps, methods


def _method(heavy: Sequence[str]) -> str:
    """The heaviest models by name, as many as there is room for."""
    while len(heavy) > 1 and len("+".join(heavy)) > LONGEST_METHOD:
        heavy = heavy[:-1]
    return "+".join(heavy)


def _shares(weighed: Floats, answers: Floats) -> Floats:
    """Share of each tier that answers, mean over steps, shape (n_series, n_tiers)."""
    there = np.isfinite(answers[:, :, 0, 0])
    by_step = weighed[:, :, step_bands(answers.shape[2])].mean(axis=2) * there
    total = by_step.sum(axis=0)
    result: Floats = (by_step / np.where(total > 0, total, 1.0)).T
    return result
