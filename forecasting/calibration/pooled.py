"""Calibration of quantiles, pooled over the series of a class, level by level.

What came is scored by (realised - promised) / unit. Steps are counted in the spread that the
forecast itself gave, peaks in the mean change from one day to the next. The correction of
level q is a quantile of the pool's recent scores. Which quantile is moved by two feedbacks of
adaptive conformal inference: one of the whole pool, and a slow fading one of each series, so that
a series that misses more than its pool is corrected more. One instance serves steps (36 scores a
series and window), another one peaks (one score), which follows slowly: at equal risk every move
of a correction costs reserve.
Source: Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from forecasting.calibration.feedback import PEAK_FEEDBACK, Feedback
from forecasting.calibration.finished import Finished
from forecasting.calibration.score_sketch import ScoreSketch
from forecasting.calibration.scores import Unit, missed, score_units
from forecasting.series_source import Floats

WILD: Final[Mapping[Unit, float]] = {"spread": 1000.0, "change": 50_000.0}
"""A miss of every level by so many scales (assumed) is a meter's fault: it is counted and teaches
nothing. Clients that were idle for days do miss by 300 scales (82 real series), and a day's change
is a fiftieth of the scale at least."""

PRIOR_WINDOWS: Final = 100.0
"""A correction of inner levels is as strong as if so many more windows had asked for none: four
totals would else follow the errors of their last two days. Bins 0-1439, ridge: SQL ratio of the
totals 0.627 without and 0.577 with it (0.565 uncorrected), of the clients 0.807 and 0.806."""

FEW_SERIES_PRIOR: Final = 1600.0
"""The same over the number of series, where that is more: series share their hours, so windows of
few tell less. Bins 0-1439, ridge: SQL ratio of the totals 0.568 with it, 0.576 without."""

TOGETHER: Final = 3.0
"""Windows of series that miss together, since they share their hours: so many times the variance
of independent ones (assumed)."""

INNER_SHARE: Final = 0.05
"""Levels closer to 0 or 1 are promises of rare events: corrected in full from the first."""

SMALL_POOL_WINDOWS: Final = 400.0
"""Windows of series that a pool remembers at least, however few series it has: four totals would
else follow the errors of their last two days (see ``PRIOR_WINDOWS``)."""

OWN_WINDOWS: Final = 4.0
"""Windows of a series, times the series of its pool, that count as much as the pool: in a pool of
three one wild series lifted the peaks of calm ones from 154 to 500, to 260 with it."""

ALONE_CHANGES: Final = 10.0
"""Day changes by which the need of a single series may lift others; more only what two needed. The
0.99 of fewer than a hundred series can be one series' own: four totals are corrected by 4.6 day
changes at most (bins 0-1439), three calm series beside one that idled and burst were by 400."""

MIN_WINDOWS: Final = 20.0
"""Windows of series (assumed) below which a pool corrects nothing."""


@dataclass(frozen=True, slots=True)
class PooledCalibration:
    """What a class of series has learnt about its promises.

    Attributes:
        levels: Quantile levels, ascending.
        feedback: How fast it follows.
        sketch: The pool's recent scores.
        windows: Windows of series that the sketch holds, decayed like it.
        drift: By how much the pool's miss rates have moved, shape (n_levels,).
        own: The same of each series, on top, shape (n_levels,) each.
        tops: Of each series, where windows are scored whole: their number, and the highest score
            of each level, shape (1 + n_levels,).
        ignored: Scores that were not numbers, or wild.
        unit: What misses are counted in.
        until_seconds: When the newest window that taught anything was over, or broke, Unix time;
            0 before the first.
    """

    levels: tuple[float, ...]
    feedback: Feedback
    sketch: ScoreSketch
    windows: float
    drift: Floats
    own: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    tops: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    ignored: int = 0
    unit: Unit = "spread"
    until_seconds: int = 0

    @classmethod
    def new(cls, levels: Sequence[float], feedback: Feedback | None = None) -> PooledCalibration:
        """Nothing seen yet: no correction."""
        known = tuple(float(level) for level in levels)
        sketch = ScoreSketch.new(len(known))
        return cls(known, feedback or Feedback(), sketch, 0.0, np.zeros(len(known)))

    @property
    def is_in_force(self) -> bool:
        """Whether enough was seen to correct anything."""
        return self.windows >= MIN_WINDOWS

    @classmethod
    def of_peaks(cls, levels: Sequence[float]) -> PooledCalibration:
        """Nothing seen yet, for quantiles of the window's peak."""
        return replace(cls.new(levels, PEAK_FEEDBACK), unit="change")

    def offsets(self, series: Sequence[str]) -> Floats:
        """What to add to quantiles, in its units, shape (n_series, n_levels)."""
        if not self.is_in_force:
            return np.zeros((len(series), len(self.levels)))
        own = np.array([self.own.get(name, self._none) for name in series])
        aimed = self._target + self.drift + own.reshape(len(series), len(self.levels))
        nearest = self.feedback.lowest_share * np.minimum(self._target, 1 - self._target)
        found = self.sketch.quantiles(1 - np.clip(aimed, nearest, 1 - nearest))
        if self.unit == "change":
            plain = self.sketch.quantiles(1 - np.broadcast_to(self._target, aimed.shape))
            return self._within_own(series, found - plain * (1 - self._evidence()))
        doubt = max(PRIOR_WINDOWS, FEW_SERIES_PRIOR / max(1, len(self.own)))
        prior = np.where(self._inner, doubt, 0.0)
        result: Floats = found * (self.windows / (self.windows + prior))
        return result

    def _within_own(self, series: Sequence[str], offsets: Floats) -> Floats:
        """Less of what lifts a series above all that it ever needed, the more windows it had.

        And little of what only one other series ever needed, from its first window on: whoever had
        none may be like either.
        """
        unknown = np.zeros(1 + len(self.levels))
        tops = np.array([self.tops.get(name, unknown) for name in series])
        tops = tops.reshape(len(series), len(unknown))
        windows, needed = tops[:, :1], np.maximum(tops[:, 1:], 0.0)
        shared = np.where(windows > 0, self._shared_need(), np.inf)
        offsets = np.minimum(offsets, np.maximum(needed, shared))
        beyond = np.maximum(offsets - needed, 0.0)
        share = windows / (windows + OWN_WINDOWS * max(1, len(self.tops)))
        result: Floats = offsets - share * beyond
        return result

    def _shared_need(self) -> Floats:
        """What two series of the pool needed at some time, shape (n_levels,).

        Infinite in a pool of one: nobody else could have needed it.
        """
        if len(self.tops) < 2:
            return np.full(len(self.levels), np.inf)
        needed = np.array([row[1:] for row in self.tops.values()])
        result: Floats = np.maximum(np.partition(needed, -2, axis=0)[-2], ALONE_CHANGES)
        return result

    def _evidence(self) -> Floats:
        """How surely uncorrected quantiles miss more or less than they say, 0 to 1, (n_levels,).

        The square of the misses' deviation in standard deviations, over itself and one: a pool
        whose misses are as many as promised is not corrected by the luck of its worst window.
        """
        room = self._target * (1 - self._target) / max(self.windows, 1.0)
        z_squared = (self.sketch.above_zero() - self._target) ** 2 / (TOGETHER * room)
        result: Floats = z_squared / (1 + z_squared)
        return result

    def corrected(
        self, series: Sequence[str], quantiles: Floats, scale: Floats, near_steps: int = 0
    ) -> Floats:
        """Quantiles after correction: sorted over levels, never below 0.

        Args:
            series: Names.
            quantiles: As a forecast gives them, shape (n_series, n_steps, n_levels).
            scale: As in ``Finished``.
            near_steps: First steps whose inner levels stay as they are: what is true of hours is
                not of the next ten minutes.
        """
        units = self._units(quantiles, scale)
        moved = quantiles + self.offsets(series)[:, None, :] * units[:, :, None]
        moved[:, :near_steps, self._inner] = quantiles[:, :near_steps, self._inner]
        result: Floats = np.sort(np.maximum(moved, 0.0), axis=2)
        return result

    def after(self, finished: Finished) -> PooledCalibration:
        """The state after steps or windows that are over; what is no number is only counted."""
        gap = finished.realised[:, :, None] - finished.promised
        with np.errstate(invalid="ignore"):
            wild = np.min(gap, axis=2) > WILD[self.unit] * finished.scale[:, None]
        numbers = np.all(np.isfinite(gap), axis=2) & np.all(np.isfinite(finished.published), axis=2)
        usable = numbers & ~wild & (np.isfinite(finished.scale) & (finished.scale > 0))[:, None]
        ignored = self.ignored + int(np.sum(~usable & np.isfinite(finished.realised)))
        taken_back = finished.taken_back
        if not (usable.any() or taken_back.any()):
            return replace(self, ignored=ignored)
        units = self._units(finished.promised, finished.scale)
        # One window counts one, whether its steps come at once or one by one.
        windows = usable.sum(axis=1) / finished.window_steps
        n_class = max(finished.pool_size, len(windows))
        half_life = max(self.feedback.half_life_windows, SMALL_POOL_WINDOWS / n_class)
        keep = 0.5 ** (float(windows.sum()) / n_class / half_life)
        broken = missed(finished.realised, finished.published, self.levels, finished.told)
        excess = np.where(usable[:, :, None], self._target - broken, taken_back).sum(axis=1)
        excess /= finished.window_steps
        scores = gap / units[:, :, None]
        return replace(
            self,
            sketch=self.sketch.after(scores[usable], keep),
            windows=keep * self.windows + float(windows.sum()),
            drift=self._held(self.drift + self._pool_step(n_class) * excess.sum(axis=0) / n_class),
            own=self._with_own(finished.series, excess, windows),
            tops=self._with_tops(finished.series, scores, usable),
            ignored=ignored,
            until_seconds=max(self.until_seconds, finished.until_seconds),
        )

    def only(self, series: Set[str]) -> PooledCalibration:
        """Without what is known of series that are not forecast any more."""
        if self.own.keys() <= series and self.tops.keys() <= series:
            return self
        kept = {name: row for name, row in self.own.items() if name in series}
        tops = {name: row for name, row in self.tops.items() if name in series}
        return replace(self, own=MappingProxyType(kept), tops=MappingProxyType(tops))

    def after_broken(
        self, series: Sequence[str], levels: np.ndarray, pool_size: int, at_seconds: int = 0
    ) -> PooledCalibration:
        """Windows that are still open have exceeded their promise: that counts at once.

        A miss must not be counted again when its window is over (``Finished.told``).

        Args:
            series: Whose windows, each once.
            levels: Which levels broke just now, bools, shape (n_series, n_levels).
            pool_size: Series in the class.
            at_seconds: When, Unix time.
        """
        n_class = max(1, pool_size)
        # One window after the other, since sums depend on their order.
        moves = self._pool_step(n_class) * levels / n_class
        drift = np.subtract.reduce(np.concatenate([self.drift[None], moves]), axis=0)
        before = np.array([self.own.get(name, self._none) for name in series])
        own = self._held(before - self._series_step * levels)
        return replace(
            self,
            drift=self._held(drift),
            own=MappingProxyType({**self.own, **dict(zip(series, own, strict=True))}),
            until_seconds=max(self.until_seconds, at_seconds),
        )

    @property
    def _target(self) -> Floats:
        """Miss rates promised, shape (n_levels,)."""
        return 1.0 - np.array(self.levels)

    @property
    def _inner(self) -> np.ndarray:
        """Levels that are no promises of rare events, shape (n_levels,)."""
        result: np.ndarray = np.minimum(self._target, 1 - self._target) >= INNER_SHARE
        return result

    @property
    def _none(self) -> Floats:
        """No correction, shape (n_levels,)."""
        return np.zeros(len(self.levels))

    def _pool_step(self, n_class: int) -> Floats:
        """How far one window of every series moves the pool's miss rates, shape (n_levels,)."""
        told = self.feedback
        room = np.minimum(self._target, 1 - self._target)
        heard = n_class / (n_class + told.few_series)
        result: Floats = np.minimum(told.pool_step * heard, told.pool_share * room)
        return result

    @property
    def _series_step(self) -> Floats:
        """How far one window moves a series' miss rates, shape (n_levels,)."""
        room = np.minimum(self._target, 1 - self._target)
        result: Floats = np.minimum(self.feedback.series_step, self.feedback.series_share * room)
        return result

    def _units(self, quantiles: Floats, scale: Floats) -> Floats:
        """What misses are counted in, shape (n_series, n_steps)."""
        return score_units(quantiles, self.levels, scale, self.unit)

    def _with_own(
        self, series: Sequence[str], excess: Floats, windows: Floats
    ) -> Mapping[str, Floats]:
        """Every series' own correction, faded and moved."""
        step = self._series_step
        own = dict(self.own)
        for name, row, count in zip(series, excess, windows, strict=True):
            faded = self.feedback.series_keep**count * own.get(name, self._none)
            own[name] = self._held(faded + step * row)
        return MappingProxyType(own)

    def _with_tops(
        self, series: Sequence[str], scores: Floats, usable: np.ndarray
    ) -> Mapping[str, Floats]:
        """Every series' highest scores; steps have none, their units differ."""
        if self.unit != "change":
            return self.tops
        tops = dict(self.tops)
        for i in np.flatnonzero(usable.any(axis=1)).tolist():
            fresh = np.concatenate([[1.0], scores[i, usable[i]].max(axis=0)])
            before = tops.get(series[i])
            if before is not None:
                fresh[1:] = np.maximum(before[1:], fresh[1:])
                fresh[0] = before[0] + 1
            tops[series[i]] = fresh
        return MappingProxyType(tops)

    def _held(self, moved: Floats) -> Floats:
        """A drift within what a miss rate can be."""
        target = self._target
        result: Floats = np.clip(moved, -target, 1 - target)
        return result
