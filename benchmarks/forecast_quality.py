"""Forecasts of real demand: how often the p99 of the six-hour peak holds, and against what price.

21 series of 14 days (ServeGen clients and model totals, Helios virtual clusters; see
``data/forecasting/PROVENANCE.md``), rolling origins every six hours from day 4, each forecast with
what was known then. Compared with last value, same time yesterday (both with empirical errors) and
the usual "last-24 h maximum times 1.2".
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.runner import Options, Result, Target
from forecasting.forecast_choice import forecast, level_index
from forecasting.forecast_round import ForecasterState, TargetForecast, step
from forecasting.memory_source import MemorySource
from forecasting.rehearsal import pinball_loss, replay
from forecasting.residuals import PathFit, decay_weights, point_quantiles
from forecasting.series_source import Floats, History, SeriesId
from forecasting.targets import Target as ForecastTarget

NAME = "forecast_quality"
SUMMARY = "p99 of the 6 h demand peak on real traces: coverage, loss against naive forecasts"
DATA: Final = Path(__file__).parent / "data" / "forecasting"
FILES: Final = {
    "clients": "servegen_m-small_top12_10min.csv.gz",
    "totals": "servegen_model_totals_10min.csv.gz",
    "clusters": "helios_earth_top6_vc_gpus_10min.csv.gz",
}
DAY: Final = 144
HORIZON: Final = 36
LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
TARGETS = {
    "peak_p99_violation_ratio": Target(at_most=0.025),
    "point_p90_coverage_ratio": Target(at_least=0.85, at_most=0.95),
    "loss_ratio_to_last_value": Target(at_most=1.0),
    "loss_ratio_to_yesterday": Target(at_most=1.0),
}


def load(name: str) -> Floats:
    """One file's series, shape (n_series, n_bins)."""
    text = gzip.decompress((DATA / FILES[name]).read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text)))[1:]
    return np.array(rows, dtype=np.float64)[:, 1:].T


def run(options: Options) -> Result:
    """Measure; ``--quick`` takes every fourth window."""
    figures: dict[str, float | int | str] = {}
    pooled: dict[str, list[Floats]] = {}
    for name in FILES:
        values = load(name)
        options.progress(f"{name}: {len(values)} series")
        windows, missed = _promises(values)
        found = _losses(values, stride=HORIZON * (4 if options.quick else 1))
        figures[f"peak_p99_violation_ratio_{name}"] = missed / windows
        figures[f"loss_ratio_to_last_value_{name}"] = _ratio(found, "last_value")
        figures[f"loss_ratio_to_last_value_with_choice_{name}"] = _ratio(
            found, "chosen_last_value", "chosen"
        )
        pooled.setdefault("windows", []).append(np.array([windows, missed]))
        for key, part in found.items():
            pooled.setdefault(key, []).append(part)
    windows, missed = np.sum(pooled.pop("windows"), axis=0)
    every = {key: np.concatenate(parts, axis=1) for key, parts in pooled.items()}
    figures |= {
        "series": int(every["model"].shape[1]),
        "windows": int(windows),
        "peak_p99_violation_ratio": float(missed / windows),
        "peak_p99_violation_ratio_uncalibrated": float(np.mean(every["uncalibrated"])),
        "peak_violation_ratio_last_day_maximum_times_1_2": float(np.mean(every["rule"])),
        "point_p90_coverage_ratio": float(np.mean(every["below_p90"])),
        "point_p99_coverage_ratio": float(np.mean(every["below_p99"])),
        "loss_ratio_to_last_value": _ratio(every, "last_value"),
        "loss_ratio_to_yesterday": _ratio(every, "yesterday"),
        "loss_ratio_to_last_value_with_choice": _ratio(every, "chosen_last_value", "chosen"),
    }
    return Result(
        {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}, TARGETS
    )


def _ratio(losses: dict[str, Floats], baseline: str, model_key: str = "model") -> float:
    """Geometric mean over series of the quantile loss against a baseline's."""
    model, other = (losses[key].mean(axis=0) for key in (model_key, baseline))
    usable = (model > 0) & (other > 0)
    return float(np.exp(np.mean(np.log(model[usable] / other[usable]))))


def _promises(values: Floats) -> tuple[int, int]:
    """Windows counted and missed by the whole service, replay included."""
    names = [f"s{i}" for i in range(len(values))]
    source = MemorySource(dict(zip(names, values, strict=True)))
    targets = [
        ForecastTarget("", n, SeriesId(n), "series", HORIZON, 600, (0.5, 0.99), None, 0)
        for n in names
    ]
    state = ForecasterState()
    answers: list[TargetForecast] = []
    for bins in range(10 * DAY, values.shape[1] + 1, HORIZON):
        state, answers = step(state, bins * 600.0, source, targets)
    records = [answer.record for answer in answers]
    totals = [r.total for r in records]
    return sum(t.windows for t in totals), sum(t.violations[0] for t in totals)


def _losses(values: Floats, stride: int) -> dict[str, Floats]:
    """Losses and whether quantiles held, each of shape (n_windows, n_series)."""
    names = [SeriesId(str(i)) for i in range(len(values))]
    levels = np.array(LEVELS)
    known = values[:, : 10 * DAY]
    replayed = replay(History(names, known), horizon=HORIZON, levels=(0.5, 0.95, 0.99))
    chosen = dict(zip(names, replayed.methods, strict=True))
    found: dict[str, list[Floats]] = {}
    for cut in range(4 * DAY, values.shape[1] - HORIZON + 1, stride):
        past, truth = values[:, max(0, cut - 10 * DAY) : cut], values[:, cut : cut + HORIZON]
        made = forecast(History(names, past), horizon=HORIZON, levels=LEVELS)
        paths = {"model": made.quantiles}
        for key, predict in BASELINES.items():
            paths[key] = np.maximum(point_quantiles(_baseline(past, predict), levels), 0)
        for key, quantiles in paths.items():
            found.setdefault(key, []).append(_loss(quantiles, truth))
        if cut >= 10 * DAY:
            best = forecast(History(names, past), horizon=HORIZON, levels=LEVELS, prefer=chosen)
            found.setdefault("chosen", []).append(_loss(best.quantiles, truth))
            found.setdefault("chosen_last_value", []).append(found["last_value"][-1])
        peak = truth.max(axis=1)
        top = level_index(LEVELS, 0.99)
        held = {
            "uncalibrated": peak > made.peaks[:, top] + 1e-9,
            "rule": peak > 1.2 * past[:, -DAY:].max(axis=1) + 1e-9,
            "below_p90": (truth <= made.quantiles[..., level_index(LEVELS, 0.9)] + 1e-9).mean(
                axis=1
            ),
            "below_p99": (truth <= made.quantiles[..., top] + 1e-9).mean(axis=1),
        }
        for key, share in held.items():
            found.setdefault(key, []).append(np.asarray(share, dtype=np.float64))
    return {key: np.array(rows) for key, rows in found.items()}


def _loss(quantiles: Floats, truth: Floats) -> Floats:
    """Mean quantile loss over levels 0.1 to 0.9 and the window, shape (n_series,)."""
    losses = [
        pinball_loss(level, quantiles[..., i], truth).mean(axis=1)
        for i, level in enumerate(LEVELS)
        if level <= 0.9
    ]
    result: Floats = np.mean(losses, axis=0)
    return result


def _last_value(past: Floats, origins: Floats) -> Floats:
    """The newest value, for every step."""
    return np.repeat(past[:, origins.astype(np.intp)][:, None, :], HORIZON, axis=1)


def _yesterday(past: Floats, origins: Floats) -> Floats:
    """The value one day before."""
    place = origins.astype(np.intp)[None, :] + np.arange(1, HORIZON + 1)[:, None] - DAY
    return past[:, place]


BASELINES: Final[dict[str, Callable[[Floats, Floats], Floats]]] = {
    "last_value": _last_value,
    "yesterday": _yesterday,
}


def _baseline(past: Floats, predict: Callable[[Floats, Floats], Floats]) -> PathFit:
    """A simple forecast with its own empirical errors, weighted as the model's."""
    last = past.shape[1] - 1
    origins = np.arange(last - HORIZON, DAY, -6, dtype=np.float64)[::-1]
    target = origins.astype(np.intp)[None, :] + np.arange(1, HORIZON + 1)[:, None]
    return PathFit(
        mean=predict(past, np.array([float(last)]))[..., 0],
        residuals=(past[:, target] - predict(past, origins)).astype(np.float32),
        weights=decay_weights(last - origins, 600),
    )
