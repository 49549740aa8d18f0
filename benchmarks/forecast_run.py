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
from benchmarks.forecast_sets import BIN_SECONDS, HORIZON, LATER, SETS, Floats, ForecastSet
from forecasting.forecast_status import status_of
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
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
    together = _together(given)
    digest = digest_of(__name__, LIBRARIES, *(one.digest() for one in together))

    def make() -> Arrays:
        state = ForecasterState(tiers=RIDGE_ALONE if is_light else all_tiers())
        runs = _drive(together, state, progress or (lambda _: None))
        return {f"{name}.{key}": part for name, run in runs.items() for key, part in run.items()}

    name = f"{'-'.join(one.name for one in together)}-{'light' if is_light else 'published'}"
    kept, _ = kept_arrays(resume, name, digest, make)
    own = {key: kept[f"{given.name}.{key}"] for key in ("quantiles", "peaks", "words", "seconds")}
    words = tuple(tuple(json.loads(text) for text in row) for row in own["words"].tolist())
    return Published(own["quantiles"], own["peaks"], words, own["seconds"])


def _together(given: ForecastSet) -> tuple[ForecastSet, ...]:
    """The sets that one process forecasts: those judged as one, as in a cluster; any other alone.

    What models learn from all series they learn from both sets of a run; calibration is by
    namespace, which is the set, so that neither corrects the other. The run of later windows is
    made by the same rule, with what there is: no requests were recorded beyond day 14, so forests
    learn from the 13 clusters and their sum (86 series in the judged run), the clusters' pool is of
    13 (82), and the sum is alone in its own (4). The sum is not put in with the clusters: no total
    is calibrated by its parts in the judged run either.
    """
    for sets in (SETS, LATER):
        shipped = tuple(make() for make in sets.values())
        if given.digest() in {one.digest() for one in shipped}:
            return shipped
    return (given,)


def _drive(
    sets: Sequence[ForecastSet], state: ForecasterState, progress: Callable[[str], None]
) -> dict[str, Arrays]:
    """Round after round; each sees the bins before its origin, and no others exist for it."""
    start, origins = sets[0].start_seconds or DAY_ZERO_SECONDS, sets[0].origins
    targets = [_target(one.name, name) for one in sets for name in one.series]
    rows = dict(zip((t.series for t in targets), (r for s in sets for r in s.values), strict=True))
    said: list[list[Mapping[str, Any]]] = []
    seconds = []
    for number, origin in enumerate(origins, start=1):
        known = {name: row[:origin] for name, row in rows.items()}
        now = float(start + origin * BIN_SECONDS)
        began = time.process_time()
        state, answers = step(state, now, MemorySource(known, start), targets)
        seconds.append(time.process_time() - began)
        said.append([status_of(answer, now) for answer in answers])
        progress(f"bin {origin}: {number} of {len(origins)} rounds, {seconds[-1]:.1f} CPU s")
    found, first = {}, 0
    for one in sets:
        last = first + len(one.series)
        own = [row[first:last] for row in said]
        found[one.name] = _arrays(own, np.array(seconds), one)
        first = last
    return found


def _arrays(
    said: Sequence[Sequence[Mapping[str, Any]]], seconds: Floats, given: ForecastSet
) -> Arrays:
    """A set's statuses as arrays, by origin and series."""
    where = [f"{given.name} at bin {origin}" for origin in given.origins]
    rounds = list(zip(said, where, strict=True))
    return {
        "quantiles": np.array([[_steps(status, at) for status in row] for row, at in rounds]),
        "peaks": np.array([[_window(status, at) for status in row] for row, at in rounds]),
        "words": np.array(
            [[json.dumps(_rest(status), sort_keys=True) for status in row] for row in said]
        ),
        "seconds": seconds,
    }


def _target(namespace: str, name: str) -> Target:
    series = SeriesId(f"{namespace}/{name}")
    return Target(namespace, name, series, "series", HORIZON, BIN_SECONDS, LEVELS, None, 1)


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
