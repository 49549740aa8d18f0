"""How long forecasts take: 10,000 series, 36 steps, 11 quantiles; and one series alone."""

from __future__ import annotations

import resource

import numpy as np

from benchmarks.runner import Options, Result, Target
from forecasting.forecast_choice import forecast
from forecasting.series_source import History, SeriesId
from wattpack.clock import SystemClock

NAME = "forecast_scale"
SUMMARY = "10,000 series x 36 steps x 11 quantiles from ten days of history, in seconds"
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)
TARGETS = {
    "seconds_for_10000_series": Target(at_most=12.0),
    "milliseconds_for_one_series": Target(at_most=5.0),
}


def run(options: Options) -> Result:
    """Measure; ``--quick`` takes a tenth of the series and scales the time up."""
    share = 10 if options.quick else 1
    count, clock = 10_000 // share, SystemClock()
    random = np.random.default_rng(options.seed)
    t = np.arange(1440)
    phase = random.uniform(0, 2 * np.pi, (count, 1))
    noise = random.normal(0, 8, (count, len(t)))
    values = np.maximum(0, 100 + 40 * np.sin(2 * np.pi * t / 144 + phase) + noise)
    names = [SeriesId(str(i)) for i in range(count)]

    def seconds(rows: int) -> float:
        began = clock.monotonic_ns()
        forecast(History(names[:rows], values[:rows]), horizon=36, levels=LEVELS)
        return (clock.monotonic_ns() - began) / 1e9

    options.progress(f"{count} series")
    rounds = 1 if options.quick else 3
    before = resource.getrusage(resource.RUSAGE_SELF)
    many = min(seconds(count) for _ in range(rounds)) * share
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    one = float(np.median([seconds(1) for _ in range(50)]))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "series_measured": count,
        "seconds_for_10000_series": round(many, 2),
        "cpu_seconds_for_10000_series": round(used / rounds * share, 2),
        "milliseconds_for_one_series": round(one * 1e3, 2),
        "peak_memory_mib": round(peak_mib),
    }
    return Result(figures, TARGETS)
