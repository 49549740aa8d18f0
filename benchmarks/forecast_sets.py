"""The series, windows and scales that forecasts are judged on; shares no code with ``forecasting``.

*clients* are 82 bursty series (users of two served models, virtual clusters), *totals* the sums of
four. Ten days of training before each origin, six hours of truth behind it, in bins of ten minutes.
Whoever tunes sees ``tuning(...)`` alone: bins 0 to 1439, which no judged window reaches into.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks._wide_csv import Wide, read_wide, ten_minute_bins, without_gaps
from wattpack.errors import InputError

__all__ = [
    "BIN_SECONDS",
    "DAY",
    "HORIZON",
    "LATER",
    "ORIGINS",
    "SETS",
    "STRIDE",
    "TRAINING",
    "Floats",
    "ForecastSet",
    "clients",
    "from_file",
    "later_clusters",
    "later_total",
    "totals",
    "tuning",
]

Floats = npt.NDArray[np.float64]

DATA: Final = Path(__file__).parent / "data" / "forecasting"
BIN_SECONDS: Final = 600
DAY: Final = 144
TRAINING: Final = 10 * DAY
HORIZON: Final = 36
STRIDE: Final = 28
ORIGINS: Final = 20
CLIENTS: Final = {"m-large": 49, "m-small": 20, "helios": 13}
"""Series of each source that the rule of ``_kept`` leaves."""

LONGEST_GAP: Final = 6
"""Bins of ten minutes, an hour."""

MOST_BINS: Final = 100_000
_LATER_FROM: Final = 2016


@dataclass(frozen=True, slots=True)
class ForecastSet:
    """Series of one length with the origins that they are judged at.

    Attributes:
        name: For figures and files.
        series: Names, unique.
        values: Means of bins, finite, at least 0, shape (n_series, n_bins).
        origins: First bin of each judged window, ascending; an origin sees the bins before it.
        start_seconds: Start of the first bin, Unix time; midnight, as nearly as is known.
        left_out: Series of a file that gaps leave nothing to judge of.
    """

    name: str
    series: tuple[str, ...]
    values: Floats
    origins: tuple[int, ...]
    start_seconds: int = 0
    left_out: tuple[str, ...] = ()

    def training(self, origin: int) -> Floats:
        """The ten days before an origin, or what there is of them, shape (n_series, n)."""
        return self.values[:, max(0, origin - TRAINING) : origin]

    def truth(self) -> Floats:
        """What came, shape (n_origins, n_series, HORIZON)."""
        return np.stack([self.values[:, o : o + HORIZON] for o in self.origins])

    def scales(self) -> Floats:
        """Mean |y_t − y_{t−144}| of each training window, shape (n_origins, n_series)."""
        windows = [self.training(origin) for origin in self.origins]
        return np.stack([np.abs(w[:, DAY:] - w[:, :-DAY]).mean(axis=1) for w in windows])

    def digest(self) -> str:
        """Of series, values and origins, 12 hex digits."""
        made = hashlib.sha256("\0".join(self.series).encode())
        made.update(str((self.origins, self.start_seconds, self.values.shape)).encode())
        made.update(np.ascontiguousarray(self.values).tobytes())
        return made.hexdigest()[:12]

    def sample(self, every_series: int, every_origin: int) -> ForecastSet:
        """Every so many-th series and origin: for quick runs."""
        return replace(
            self,
            series=self.series[::every_series],
            values=self.values[::every_series],
            origins=self.origins[::every_origin],
        )


def _rolling(n_bins: int, most: int | None = ORIGINS) -> tuple[int, ...]:
    return tuple(range(TRAINING, n_bins - HORIZON + 1, STRIDE))[:most]


@cache
def clients() -> ForecastSet:
    """The 82 series with work in at least half of bins 0 to 1439: 49 + 20 + 13."""
    names: list[str] = []
    rows: list[Floats] = []
    for source, expected in CLIENTS.items():
        columns, values = _shipped(_FILES[source])
        kept = _kept(values)
        if int(kept.sum()) != expected:
            raise InputError(_FILES[source], f"{expected} active series", int(kept.sum()))
        names += [f"{source}/{name}" for name, keep in zip(columns, kept, strict=True) if keep]
        rows.append(values[kept, :_LATER_FROM])
    values = np.concatenate(rows)
    return ForecastSet("clients", tuple(names), values, _rolling(values.shape[1]))


@cache
def totals() -> ForecastSet:
    """All requests of three models, and the GPUs in use in all virtual clusters."""
    columns, models = _shipped("servegen_model_totals_10min.csv.gz")
    _, clusters = _shipped(_FILES["helios"])
    total = clusters.sum(axis=0, keepdims=True)[:, :_LATER_FROM]
    values = np.concatenate([models, total])
    return ForecastSet("totals", (*columns, "helios"), values, _rolling(values.shape[1]))


@cache
def later_clusters() -> ForecastSet:
    """The virtual clusters' second half, 68 disjoint windows: to be scored once."""
    columns, values = _shipped(_FILES["helios"])
    kept = _kept(values)
    names = tuple(f"helios/{name}" for name, keep in zip(columns, kept, strict=True) if keep)
    return ForecastSet("later_clusters", names, values[kept], _disjoint(values))


@cache
def later_total() -> ForecastSet:
    """Their sum."""
    _, values = _shipped(_FILES["helios"])
    total = values.sum(axis=0, keepdims=True)
    return ForecastSet("later_total", ("helios",), total, _disjoint(values))


SETS: Final = {"clients": clients, "totals": totals}
"""That are judged, in one run of the process."""

LATER: Final = {"later_clusters": later_clusters, "later_total": later_total}
"""That are scored once, in another."""


def _disjoint(values: Floats) -> tuple[int, ...]:
    return tuple(range(_LATER_FROM, values.shape[1] - HORIZON + 1, HORIZON))


def tuning(given: ForecastSet, first: int = 4 * DAY, stride: int = STRIDE) -> ForecastSet:
    """Bins 0 to 1439 alone with rolling origins of their own: what may be tuned on.

    Args:
        given: Any set.
        first: Its first origin; training windows are shorter than ten days here.
        stride: Bins between origins.
    """
    origins = tuple(range(first, TRAINING - HORIZON + 1, stride))
    values = given.values[:, :TRAINING]
    return replace(given, name=f"{given.name}_tuning", values=values, origins=origins)


def from_file(path: Path) -> ForecastSet:
    """The same rule on any wide CSV: seconds, or times with offset, then one column a series.

    Every window that fits is judged, not twenty only. Rows that are closer than ten minutes are
    averaged. Gaps of up to an hour are filled by a straight line, as the product does; a column
    with a longer one is left out: what nobody saw judges nobody.

    Raises:
        InputError: for a file that cannot be read, rows further apart than ten minutes, out of
            order or too few, cells that are no finite number of at least 0, or no active series.
    """
    table = ten_minute_bins(read_wide(path), BIN_SECONDS)
    n_bins = table.values.shape[1]
    if not TRAINING + HORIZON <= n_bins <= MOST_BINS:
        wanted = f"{TRAINING + HORIZON} to {MOST_BINS} rows of ten minutes"
        raise InputError("--data", wanted, n_bins, str(path))
    filled, left_out = _without_gaps(table)
    kept = _kept(np.array(list(filled.values())))
    if not kept.any():
        wanted = "a column with work in half of its first ten days"
        raise InputError("--data", wanted, table.columns[:3], str(path))
    active = {name: row for (name, row), keep in zip(filled.items(), kept, strict=True) if keep}
    return ForecastSet(
        "data", tuple(active), np.array(list(active.values())), _rolling(n_bins, None),
        int(table.times[0]), left_out,
    )  # fmt: skip


def _without_gaps(table: Wide) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Columns whose gaps could be filled, and the names of the others.

    Raises:
        InputError: no column is without longer gaps.
    """
    filled = dict(zip(table.columns, without_gaps(table.values, LONGEST_GAP), strict=True))
    whole = {name: row for name, row in filled.items() if np.isfinite(row).all()}
    if not whole:
        name, row = next(iter(filled.items()))
        begins = int(table.times[np.argmax(np.isnan(row))])
        expected = f"a column without gaps of more than {LONGEST_GAP} bins of ten minutes"
        raise InputError("--data", expected, f"{name} from {begins} s on", table.source)
    return whole, tuple(name for name in filled if name not in whole)


def _kept(values: Floats) -> npt.NDArray[np.bool_]:
    """Series with at least half of bins 0 to 1439 above 0 and not all the same."""
    first = values[:, :TRAINING]
    kept: npt.NDArray[np.bool_] = ((first > 0).mean(axis=1) >= 0.5) & (np.ptp(first, axis=1) > 0)
    return kept


_FILES: Final = {
    "m-large": "servegen_m-large_client_rate_10min.csv.gz",
    "m-small": "servegen_m-small_client_rate_10min.csv.gz",
    "helios": "helios_earth_vc_gpus_10min.csv.gz",
}


@cache
def _shipped(name: str) -> tuple[tuple[str, ...], Floats]:
    """Columns and values of a file of ours, shape (n_series, n_bins)."""
    table = read_wide(DATA / name)
    if np.isnan(table.values).any():
        raise InputError(name, "a number in every cell")
    return table.columns, table.values
