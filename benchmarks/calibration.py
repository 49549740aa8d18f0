"""Do published quantiles hold as often as they say, for steps and for the peak of the window?

On the sets of ``forecast_sets``, after the process has rehearsed ten days and calibrated on the
windows before. Coverage is the share of bins at or below the quantile; at the median bins below and
bins at or below count half each, so that zeros that were forecast are no excuse. A window's peak is
the highest of its 36 bins.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.stats import beta

from benchmarks._forecast_cases import KEPT_APART, USAGE, Case, Figures, cases, targets_of
from benchmarks.forecast_run import LEVELS
from benchmarks.forecast_scores import at_level, broken, coverage, median_coverage
from benchmarks.runner import Options, Result, Target

__all__ = ["KEPT_APART", "NAME", "SUMMARY", "TAKES_ARGUMENTS", "TARGETS", "USAGE", "run"]

NAME = "calibration"
SUMMARY = "how often published step and peak quantiles hold on 86 real series"
TAKES_ARGUMENTS = True
LOW_COVERAGE: Final = 0.96
"""A series whose 0.99 quantile holds more seldom counts as badly calibrated."""

TARGETS: Final = {
    "clients_median_coverage": Target(at_least=0.49, at_most=0.51),
    "clients_coverage_at_0.9": Target(at_least=0.89, at_most=0.91),
    "clients_coverage_at_0.99": Target(at_least=0.985, at_most=0.995),
    "clients_series_below_0.96_share": Target(at_most=0.05),
    "clients_worst_series_coverage_at_0.99": Target(at_least=0.93),
    "clients_peak_p99_violated_share": Target(at_least=0.005, at_most=0.015),
}


def run(options: Options) -> Result:
    """Count on every set that is asked for."""
    figures: Figures = {}
    for case in cases(options, NAME):
        figures |= _counted(case)
    return Result(figures, targets_of(TARGETS, figures))


def _counted(case: Case) -> Figures:
    """One set's figures."""
    ours, truth = case.ours(), case.given.truth()
    highest = coverage(at_level(ours.quantiles, LEVELS, 0.99), truth)
    median = median_coverage(at_level(ours.quantiles, LEVELS, 0.5), truth)
    missed = broken(ours.peak(0.99), truth)
    low, high = _bounds(int(missed.sum()), missed.size)
    figures: Figures = {
        "median_coverage": float(median.mean()),
        "series_below_0.96_share": float((highest < LOW_COVERAGE).mean()),
        "worst_series_coverage_at_0.99": float(highest.min()),
        "worst_series": case.given.series[int(highest.argmin())],
        "windows": missed.size,
        "peak_p99_violated_windows": int(missed.sum()),
        "peak_p99_violated_share": float(missed.mean()),
        "peak_p99_violated_share_low95": low,
        "peak_p99_violated_share_high95": high,
        "peak_p95_violated_share": float(broken(ours.peak(0.95), truth).mean()),
        "peak_p50_violated_share": float(broken(ours.peak(0.5), truth).mean()),
    }
    for level in LEVELS:
        if level != 0.5:
            held = coverage(at_level(ours.quantiles, LEVELS, level), truth)
            figures[f"coverage_at_{level:g}"] = float(held.mean())
    return {
        f"{case.name}_{name}": round(value, 4) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _bounds(struck: int, count: int) -> tuple[float, float]:
    """Two-sided 95 % bounds of a share (Clopper and Pearson, Biometrika 26, 1934).

    Windows of one origin are not independent, so that the truth may be wider.
    """
    low = float(beta.ppf(0.025, struck, count - struck + 1)) if struck else 0.0
    high = float(beta.ppf(0.975, struck + 1, count - struck)) if struck < count else 1.0
    return float(np.round(low, 6)), float(np.round(high, 6))
