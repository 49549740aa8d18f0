"""HARMONY's one-step protocol (arXiv 2408.01000) on data that the user supplies.

Its repository names no licence, so its data are not shipped: ``--data DIR`` reads the ten files
``container1.csv`` to ``container10.csv``, eleven indicators in bins of ten minutes. Scaled by
minimum and maximum of the first 70 %, judged on the last 20 %, one step ahead; CRPS and MSE are
means over steps, indicators and containers. Without ``--data`` a synthetic stand-in shows that the
harness works; its figures say nothing about the data of the paper.

Arms: ours (the ridge tier inside the forecaster, updated bin by bin: neither calibrated nor
combined with other models, so not what the process publishes), least squares on eight lags with the
errors of its training, and the newest value with the errors of its training.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks._arguments import read_arguments
from benchmarks.runner import Options, Result, Target
from forecasting.series_source import History, SeriesId
from forecasting.tiers.direct_ridge import Ridge
from wattpack.errors import InputError

NAME = "fisher_protocol"
SUMMARY = "HARMONY's one-step protocol on supplied data: CRPS and MSE beside the published ones"
TAKES_ARGUMENTS = True
USAGE: Final = "--data DIR"

Floats = npt.NDArray[np.float64]

PUBLISHED: Final = {"published_crps": 0.0940, "published_mse": 0.0453}
"""The best input lengths in ``result_Fisher.txt`` of HARMONY's repository at 87b49f0."""

TARGETS: Final = {
    "ours_crps": Target(at_most=PUBLISHED["published_crps"]),
    "ours_mse": Target(at_most=PUBLISHED["published_mse"]),
}
"""With the data; the stand-in is held to nothing."""

CONTAINERS: Final = 10
LAGS: Final = (1, 2, 3, 6, 36, 143, 144, 145)
TRAIN_SHARE, TEST_SHARE = 0.7, 0.2
LEVELS: Final = (np.arange(50) + 0.5) / 50
"""Midpoints of equal shares, so that the mean of twice the pinball loss is the CRPS."""

LEAST_BINS: Final = 600
DAY, STEP_SECONDS = 144, 600


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over steps and series, in scaled units."""

    crps: float
    mse: float


def run(options: Options) -> Result:
    """All arms; ``--quick`` takes a fortieth of the steps of a smaller stand-in."""
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, exit_on_error=False)
    parser.add_argument("--data", type=Path)
    given = read_arguments(parser, options.arguments, USAGE)
    values = stand_in(options.seed, 3 if options.quick else CONTAINERS)
    if given.data is not None:
        values = read_folder(given.data)
    every = 40 if options.quick else 1
    scaled, test = scaled_test(values, every)
    told: dict[str, float | int | str] = {
        "data": "supplied" if given.data is not None else "synthetic stand-in",
        "series": len(values), "steps": len(test), **PUBLISHED,
    }  # fmt: skip
    arms = {
        "ours": ours(values, scaled, test),
        "least_squares": least_squares(scaled, test),
        "newest_value": newest_value(scaled, test),
    }
    for arm, scores in arms.items():
        told |= {f"{arm}_crps": scores.crps, f"{arm}_mse": scores.mse}
        options.progress(f"{arm}: CRPS {scores.crps:.4f}, MSE {scores.mse:.4f}")
    return Result(told, TARGETS if given.data is not None else {})


# -- data ------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> Floats:
    """Indicators of all containers, shape (n_series, n_bins); a first column of dates is left out.

    Raises:
        InputError: naming the file and line that cannot be used.
    """
    tables = [_table(folder / f"container{k}.csv") for k in range(1, CONTAINERS + 1)]
    bins = {len(table) for table in tables}
    if len(bins) != 1 or bins.pop() < LEAST_BINS:
        rows = [len(table) for table in tables]
        raise InputError("--data", f"at least {LEAST_BINS} rows, as many in each file", rows)
    return np.concatenate([table.T for table in tables])


def _table(file: Path) -> Floats:
    try:
        lines = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("--data", "container1.csv to container10.csv", str(error)) from error
    rows: list[list[float]] = []
    for number, line in enumerate(lines, start=1):
        cells = line if line and _is_number(line[0]) else line[1:]
        if number == 1 and not all(map(_is_number, cells)):
            continue
        if not cells or not all(map(_is_number, cells)) or (rows and len(cells) != len(rows[0])):
            raise InputError(f"line {number}", "finite numbers, as many a line", line, str(file))
        rows.append([float(cell) for cell in cells])
    return np.array(rows, dtype=np.float64)


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def stand_in(seed: int, containers: int) -> Floats:
    """Eleven indicators a container, two of them counters that rise, with a day and bursts."""
    rng = np.random.default_rng(seed)
    bins, count = 31 * DAY, 11 * containers
    day = 1 + 0.4 * np.sin(2 * np.pi * (np.arange(bins) / DAY + rng.random((count, 1))))
    walk = np.cumsum(rng.normal(0, 0.02, (count, bins)), axis=1)
    noise = rng.normal(0, 0.1, (count, bins)) + (rng.random((count, bins)) < 0.01)
    values = np.maximum(10 * (day + walk - walk.min(axis=1, keepdims=True) + noise), 0.0)
    values[::11] = np.cumsum(values[::11], axis=1)
    values[1::11] = np.cumsum(values[1::11], axis=1)
    return np.asarray(values, dtype=np.float64)


def scaled_test(values: Floats, every: int = 1) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Series scaled by their first 70 %, and the bins of the last 20 % that are judged."""
    bins = values.shape[1]
    low, span = _scale(values)
    first = bins - int(bins * TEST_SHARE)
    return (values - low) / span, np.arange(first, bins, every)


def _scale(values: Floats) -> tuple[Floats, Floats]:
    train = values[:, : int(values.shape[1] * TRAIN_SHARE)]
    low = train.min(axis=1, keepdims=True)
    span = train.max(axis=1, keepdims=True) - low
    return low, np.where(span > 0, span, 1.0)


# -- arms ------------------------------------------------------------------------------------------


def ours(values: Floats, scaled: Floats, test: npt.NDArray[np.intp]) -> Scores:
    """The ridge tier as the forecaster runs it: ten days of history, updated before every step."""
    tier, names = Ridge(horizon=1), [SeriesId(str(i)) for i in range(len(values))]
    low, span = _scale(values)
    crps, mse = [], []
    for at in test:
        start = max(0, at - 10 * DAY)
        batch = History(names, values[:, start:at], int(at) * STEP_SECONDS, STEP_SECONDS)
        tier.update(batch)
        quantiles = tier.quantiles(1, [float(level) for level in LEVELS])[:, 0]
        # A series that the tier has no answer for keeps its newest value.
        quantiles = np.where(np.isnan(quantiles), values[:, at - 1 : at], quantiles)
        told = (quantiles - low) / span
        crps.append(quantile_crps(told, scaled[:, at]))
        mse.append((told.mean(axis=1) - scaled[:, at]) ** 2)
    return Scores(float(np.mean(crps)), float(np.mean(mse)))


def least_squares(scaled: Floats, test: npt.NDArray[np.intp]) -> Scores:
    """Eight lags and a constant, fitted once on the first 70 %, with the errors made there."""
    fitted = np.arange(max(LAGS), int(scaled.shape[1] * TRAIN_SHARE))
    crps, mse = [], []
    for row in scaled:
        known, asked = _lagged(row, fitted), _lagged(row, test)
        weights = np.linalg.lstsq(known, row[fitted], rcond=None)[0]
        errors = row[fitted] - known @ weights
        crps.append(sample_crps(asked @ weights, errors, row[test]))
        mse.append((asked @ weights + errors.mean() - row[test]) ** 2)
    return Scores(float(np.mean(crps)), float(np.mean(mse)))


def _lagged(row: Floats, at: npt.NDArray[np.intp]) -> Floats:
    return np.stack([np.ones(len(at)), *(row[at - lag] for lag in LAGS)], axis=1)


def newest_value(scaled: Floats, test: npt.NDArray[np.intp]) -> Scores:
    """No change, with the changes of the first 70 %."""
    train = int(scaled.shape[1] * TRAIN_SHARE)
    crps = [sample_crps(row[test - 1], np.diff(row[:train]), row[test]) for row in scaled]
    mse = [(row[test - 1] - row[test]) ** 2 for row in scaled]
    return Scores(float(np.mean(crps)), float(np.mean(mse)))


# -- scores ----------------------------------------------------------------------------------------


def quantile_crps(quantiles: Floats, truth: Floats) -> Floats:
    """CRPS of quantiles at ``LEVELS``, shape (n, n_levels), for truths of shape (n,)."""
    error = truth[:, None] - quantiles
    result: Floats = 2 * np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=1)
    return result


def sample_crps(points: Floats, errors: Floats, truth: Floats) -> Floats:
    """CRPS of ``point + errors``: E|X - y| - E|X - X'| / 2, exactly, shape of ``points``."""
    ordered = np.sort(errors)
    count = len(ordered)
    rank = np.arange(1, count + 1)
    spread = 2 * float((2 * rank - count - 1) @ ordered) / count**2
    wanted = truth - points
    place = np.searchsorted(ordered, wanted)
    below = np.concatenate([[0.0], np.cumsum(ordered)])
    distance = wanted * (2 * place - count) - 2 * below[place] + below[-1]
    result: Floats = distance / count - spread / 2
    return result
