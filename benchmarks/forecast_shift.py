"""What judged windows have that tuning windows had not: ``python -m benchmarks.forecast_shift``.

Describes, tunes nothing and judges nothing: the reader of a missed pass line wants to know whether
the forecaster or the days have changed. Both sets at 20 origins of bins 0 to 1439 and at the judged
ones, by the process with the ridge alone, which shows the same shift as all models and takes
seconds. Prints one JSON object a set, and one of watts promised.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.consumer_losses import consumers, judged_windows, losses_of
from benchmarks.forecast_references.naive_references import multi_day_maxima
from benchmarks.forecast_references.refitted_daily import LEVELS as REFERENCE_LEVELS
from benchmarks.forecast_references.refitted_daily import reference_quantiles
from benchmarks.forecast_run import LEVELS, Published, published
from benchmarks.forecast_scores import (
    Booleans,
    at_level,
    broken,
    equal_risk_shift,
    losses,
    median_coverage,
    reserve_ratio,
    shifted,
)
from benchmarks.forecast_sets import DAY, HORIZON, Floats, ForecastSet, clients, totals, tuning
from forecasting.peak_policy.peak_policies import RecordPolicy

FIRST_TUNING: Final = 6 * DAY
"""20 origins, every 28 bins, as many as are judged."""

OUTAGE: Final = (8.9, 10.9)
"""Days of origins whose windows or yesterdays reach into day 9, when no cluster has any work."""

MORNING: Final = (6, 10)
"""Hours of the origins before the daily rise."""

HEAVIEST: Final = 10
DAYS: Final = (1, 3, 7, 10)

Figures = dict[str, float]


def losses_by_series(given: ForecastSet, ours: Published, resume: Path | None) -> Figures:
    """Ratios to seasonal naive, whole, without the outage, and each series' share of its loss."""
    naive = reference_quantiles("seasonal_naive", given, resume)
    whole = np.ones((len(given.origins), len(given.series)), dtype=np.bool_)
    days = np.array(given.origins) / DAY
    is_cluster = np.array([name.startswith("helios") for name in given.series])
    hit = ((days > OUTAGE[0]) & (days < OUTAGE[1]))[:, None] & is_cluster
    figures: Figures = {}
    for name, kept in {
        "": whole,
        "_without_outage": ~hit,
        "_without_m_small": whole & (np.array(given.series) != "m-small"),
    }.items():
        model, base = (
            _kept_losses(given, ours.quantiles, LEVELS, kept),
            _kept_losses(given, naive, REFERENCE_LEVELS, kept),
        )
        figures[f"sql_ratio{name}"] = float(np.nanmean(model[0]) / np.nanmean(base[0]))
        figures[f"mase_ratio{name}"] = float(np.nanmean(model[1]) / np.nanmean(base[1]))
        if not name and len(given.series) < HEAVIEST:
            moved = _changes(given) / given.scales().mean(axis=0)
            for i, series in enumerate(given.series):
                figures[f"{series}_share_of_naive_sql"] = base[0][i] / base[0].sum()
                figures[f"{series}_sql_ratio"] = model[0][i] / base[0][i]
                figures[f"{series}_change_over_scale"] = moved[i]
    return figures


def _kept_losses(
    given: ForecastSet, quantiles: Floats, levels: Sequence[float], kept: Booleans
) -> tuple[Floats, Floats]:
    """SQL and MASE by series, over the windows that are kept; NaN where none is."""
    found = losses(quantiles, levels, given.truth(), given.scales())
    counts = np.where(kept.any(axis=0), kept.sum(axis=0), np.nan)
    usable = np.where(kept & (given.scales() > 0), given.scales(), np.inf)
    by_series = [
        (lost.mean(axis=2) / usable).sum(axis=0) / counts
        for lost in (found.pinball, found.absolute)
    ]
    return by_series[0], by_series[1]


def coverage_by_round(given: ForecastSet, ours: Published) -> Figures:
    """Coverage of the steps by round, by source and before the daily rise."""
    truth = given.truth()
    median, high = (at_level(ours.quantiles, LEVELS, level) for level in (0.5, 0.9))
    half = 0.5 * ((truth < median).astype(float) + (truth <= median))
    rounds, high_rounds = half.mean(axis=(1, 2)), (truth <= high).mean(axis=(1, 2))
    hours = np.array(given.origins) % DAY / (DAY / 24)
    is_morning = (hours >= MORNING[0]) & (hours < MORNING[1])
    figures: Figures = {
        "median_coverage": float(rounds.mean()),
        "median_coverage_standard_error": float(rounds.std(ddof=1) / len(rounds) ** 0.5),
        "coverage_at_0.9": float(high_rounds.mean()),
        "coverage_at_0.9_standard_error": float(high_rounds.std(ddof=1) / len(rounds) ** 0.5),
        "morning_rounds": float(is_morning.sum()),
        "median_coverage_of_mornings": float(rounds[is_morning].mean()),
        "coverage_at_0.9_of_mornings": float(high_rounds[is_morning].mean()),
        "coverage_at_0.9_of_other_rounds": float(high_rounds[~is_morning].mean()),
        "bins_above_yesterday": float(1 - median_coverage(_yesterday(given), given.truth()).mean()),
    }
    sources = np.array([name.partition("/")[0] for name in given.series])
    days = np.array(given.origins) // DAY
    by_series = median_coverage(median, truth)
    for source in dict.fromkeys(sources.tolist()):
        figures[f"{source}_median_coverage"] = float(by_series[sources == source].mean())
    for day in dict.fromkeys(days.tolist()):
        covered = half[days == day][:, sources == "helios"]
        figures[f"helios_median_coverage_on_day_{day}"] = float(covered.mean())
    return figures


def _yesterday(given: ForecastSet) -> Floats:
    """The same hours a day before, shaped as the truth."""
    return np.stack([given.values[:, o - DAY : o - DAY + HORIZON] for o in given.origins])


def _changes(given: ForecastSet) -> Floats:
    """Mean change of the windows from the day before, by series."""
    found: Floats = np.abs(given.truth() - _yesterday(given)).mean(axis=(0, 2))
    return found


def weight_of_few(given: ForecastSet) -> Figures:
    """Whose error the pooled error of the newest value is, ten minutes ahead."""
    newest = np.stack([given.values[:, origin - 1] for origin in given.origins])
    errors = np.abs(given.truth()[:, :, 0] - newest)
    ordered = np.sort(errors.ravel())[::-1]
    by_series = errors.sum(axis=0) / errors.sum()
    heaviest = given.series[int(by_series.argmax())]
    return {
        f"share_of_constant_error_of_{heaviest}": float(by_series.max()),
        f"share_of_constant_error_of_{HEAVIEST}_windows": float(
            ordered[:HEAVIEST].sum() / ordered.sum()
        ),
        "windows_that_the_constant_hits": float((errors == 0).mean()),
    }


def peaks(given: ForecastSet, ours: Published, share: float, level: float) -> Figures:
    """How wild the windows are, and what policies need at equal risk."""
    truth, scales = given.truth(), given.scales()
    top = truth.max(axis=2)
    past = [multi_day_maxima(given.training(origin), DAYS) for origin in given.origins]
    maxima = {days: np.stack([found[days] for found in past]) for days in DAYS}
    usual = np.stack(
        [np.quantile(given.values[:, max(0, o - 7 * DAY) : o], 0.95, axis=1) for o in given.origins]
    )
    record = maxima[7] + RecordPolicy().room(maxima[7], maxima[3], usual)
    reserves = {"record": record, "published": ours.peak(level)}
    shifts = {days: equal_risk_shift(maxima[days], top, scales, share) for days in DAYS}
    best = min(reserve_ratio(shifted(maxima[d], scales, shifts[d]), top) for d in DAYS)
    figures: Figures = {
        "7_day_maximum_broken_share": float(broken(maxima[7], truth).mean()),
        "7_day_maximum_shift_scales": shifts[7],
        "best_maximum_reserve_ratio": best,
    }
    for name, promised in reserves.items():
        shift = equal_risk_shift(promised, top, scales, share)
        missed = broken(promised, truth)
        figures[f"{name}_broken_share"] = float(missed.mean())
        figures[f"{name}_broken_series"] = float(missed.any(axis=0).sum())
        found = reserve_ratio(shifted(promised, scales, shift), top)
        figures[f"{name}_over_best_maximum"] = found / best
    low, high = _resampled(reserves["published"], maxima, top, scales, share)
    return figures | {"published_over_best_p10": low, "published_over_best_p90": high}


def _resampled(
    promised: Floats, maxima: dict[int, Floats], top: Floats, scales: Floats, share: float
) -> tuple[float, float]:
    """The published reserve over the best maximum's: 0.1 and 0.9 over 200 draws of series."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(200):
        drawn = random.integers(top.shape[1], size=(top.shape[1],))

        def at_risk(reserves: Floats, drawn: npt.NDArray[np.intp] = drawn) -> float:
            part = (reserves[:, drawn], top[:, drawn], scales[:, drawn])
            moved = shifted(part[0], part[2], equal_risk_shift(*part, share))
            return reserve_ratio(moved, part[1])

        found.append(at_risk(promised) / min(map(at_risk, maxima.values())))
    low, high = np.quantile(found, (0.1, 0.9))
    return float(low), float(high)


def watts_promised() -> Figures:
    """What removing the forecast costs who promises watts, by origin (``consumer_losses``)."""
    windows = list(judged_windows(1))
    consumer = consumers()["oversubscription"]
    per_origin = len(totals().series)
    found = []
    for first in range(0, len(windows), per_origin):
        lost = losses_of(windows[first : first + per_origin], consumer)
        found.append(lost["removed"] - lost["as_is"])
    lost_more = np.array(found)
    short = {
        name: sum(consumer.provided(w, factor) < consumer.came(w) for w in windows)
        for name, factor in (("as_is", 1.0), ("removed", None))
    }
    return {
        "removing_costs": float(lost_more.mean()),
        "removing_costs_standard_error": float(lost_more.std(ddof=1) / len(found) ** 0.5),
        "origins_at_which_it_costs": float((lost_more > 0).sum()),
        **{f"windows_short_{name}": float(count) for name, count in short.items()},
    }


def described(make: Callable[[], ForecastSet], resume: Path | None) -> None:
    """Print both forms of one set."""
    share, level = (0.05, 0.95) if make is totals else (0.01, 0.99)
    for given in (tuning(make(), FIRST_TUNING), make()):
        ours = published(given, resume, is_light=True)
        figures = {
            **losses_by_series(given, ours, resume),
            **coverage_by_round(given, ours),
            **weight_of_few(given),
            **peaks(given, ours, share, level),
        }
        told = {name: round(value, 4) for name, value in figures.items()}
        print(json.dumps({"set": given.name, **told}))


def main(argv: Sequence[str] | None = None) -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--resume", type=Path, help="folder of finished runs")
    resume = parser.parse_args(argv).resume
    for make in (clients, totals):
        described(make, resume)
    print(json.dumps({name: round(value, 4) for name, value in watts_promised().items()}))


if __name__ == "__main__":
    main()
