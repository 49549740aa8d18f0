"""One run of the forecaster over a set: what it published at every origin, for all who judge it.

The process itself is driven, as a cluster would see it: one round at each origin with the state of
the round before, a history that ends at the origin, and the status that it would write. All metrics
read these arrays; nothing is computed twice, and no inner function is asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks._kept_arrays import Arrays, digest_of, kept_arrays
from benchmarks.forecast_scores import DECILES
from benchmarks.forecast_sets import BIN_SECONDS, HORIZON, Floats, ForecastSet
from forecasting.forecast_round import ForecasterState, step
from forecasting.forecast_status import status_of
from forecasting.memory_source import MemorySource
from forecasting.series_source import SeriesId
from forecasting.targets import Target
from forecasting.tiers.tier_sets import RIDGE_ALONE, all_tiers
from wattpack.errors import InputError

__all__ = ["LEVELS", "PEAK_LEVELS", "Published", "published"]

LEVELS: Final = (0.01, 0.05, *DECILES, 0.95, 0.99, 0.995, 0.999)
"""Step quantiles that are asked of the process."""

PEAK_LEVELS: Final = {0.5: "p50", 0.95: "p95", 0.99: "p99"}
"""Quantiles of the window's peak that every status has."""

DAY_ZERO_SECONDS: Final = 1_577_836_800
"""2020-01-01 00:00 UTC, a Wednesday: series with a time of their own begin at a midnight."""

LIBRARIES: Final = ("numpy", "scipy", "lightgbm", "statsmodels", "statsforecast")


@dataclass(frozen=True, slots=True)
class Published:
    """What the process said.

    Attributes:
        quantiles: Of steps, over ``LEVELS``, shape (n_origins, n_series, HORIZON, n_levels).
        peaks: Of windows, over ``PEAK_LEVELS``, shape (n_origins, n_series, 3).
        words: The rest of each status, by origin and series.
        seconds: CPU time of each round, shape (n_origins,).
    """

    quantiles: Floats
    peaks: Floats
    words: tuple[tuple[Mapping[str, Any], ...], ...]
    seconds: Floats

    def peak(self, level: float) -> Floats:
        """Promised quantile of the window's highest bin, shape (n_origins, n_series)."""
        found: Floats = self.peaks[..., list(PEAK_LEVELS).index(level)]
        return found

    def methods(self) -> dict[str, int]:
        """How often each method was named."""
        named = [str(status.get("method")) for row in self.words for status in row]
        return {method: named.count(method) for method in sorted(set(named))}


def published(
    given: ForecastSet,
    resume: Path | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    is_light: bool = False,
) -> Published:
    """The run over a set; one that the folder of ``--resume`` holds is not made again.

    Args:
        given: The set.
        resume: That folder.
        progress: Told of every round.
        is_light: With the ridge alone, in seconds; else with all that is installed, in minutes.

    Raises:
        InputError: naming series and origin where the process had no answer.
    """
    digest = digest_of(__name__, LIBRARIES, given.digest())

    def make() -> Arrays:
        state = ForecasterState(tiers=RIDGE_ALONE if is_light else all_tiers())
        return _arrays(_drive(given, state, progress or (lambda _: None)))

    name = f"{given.name}-{'light' if is_light else 'published'}"
    arrays, _ = kept_arrays(resume, name, digest, make)
    words = tuple(tuple(json.loads(text) for text in row) for row in arrays["words"].tolist())
    return Published(arrays["quantiles"], arrays["peaks"], words, arrays["seconds"])


def _arrays(run: Published) -> Arrays:
    words = np.array([[json.dumps(status, sort_keys=True) for status in row] for row in run.words])
    return {
        "quantiles": run.quantiles,
        "peaks": run.peaks,
        "words": words,
        "seconds": run.seconds,
    }


def _drive(
    given: ForecastSet, state: ForecasterState, progress: Callable[[str], None]
) -> Published:
    """Round after round; each sees the bins before its origin, and no others exist for it."""
    start = given.start_seconds or DAY_ZERO_SECONDS
    targets = [_target(given.name, name) for name in given.series]
    quantiles, peaks, words, seconds = [], [], [], []
    for number, origin in enumerate(given.origins, start=1):
        known = {name: given.values[i, :origin] for i, name in enumerate(given.series)}
        now = float(start + origin * BIN_SECONDS)
        began = time.process_time()
        state, answers = step(state, now, MemorySource(known, start), targets)
        seconds.append(time.process_time() - began)
        said = [status_of(answer, now) for answer in answers]
        where = f"{given.name} at bin {origin}"
        quantiles.append(np.stack([_steps(status, where) for status in said]))
        peaks.append(np.array([_window(status, where) for status in said]))
        words.append(tuple(_rest(status) for status in said))
        progress(f"{where}: {number} of {len(given.origins)} rounds, {seconds[-1]:.1f} CPU s")
    return Published(np.stack(quantiles), np.stack(peaks), tuple(words), np.array(seconds))


def _target(namespace: str, name: str) -> Target:
    return Target(namespace, name, SeriesId(name), "series", HORIZON, BIN_SECONDS, LEVELS, None, 1)


def _steps(status: Mapping[str, Any], where: str) -> npt.NDArray[np.float64]:
    """Step quantiles of a status, shape (HORIZON, n_levels)."""
    found: Sequence[Mapping[str, Any]] = status.get("quantiles", ())
    paths = {round(float(path["level"]), 6): path["values"] for path in found}
    if not set(LEVELS) <= set(paths):
        raise InputError(where, "quantiles of every level that was asked", _rest(status))
    return np.array([paths[level] for level in LEVELS], dtype=np.float64).T


def _window(status: Mapping[str, Any], where: str) -> list[float]:
    if not set(PEAK_LEVELS.values()) <= set(status):
        raise InputError(where, "the window's p50, p95 and p99", _rest(status))
    return [float(status[name]) for name in PEAK_LEVELS.values()]


def _rest(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in status.items() if key not in ("quantiles", "lead")}
