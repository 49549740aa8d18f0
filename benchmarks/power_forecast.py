"""Is the p99 of a domain's power right where its past is nothing like its present?

Domains of the twin with a hidden mix of work (``_power_domains``), and ten days before of another
level, shape and mix. Windows of six hours, one behind the other, from one hour after the run's
begin: the forecaster sees draws, the pods that run, and how many boards there are; not what they do
to the draw. Pods that began since the data's end are told, too.

References are the maxima of the last day, 3, 7 and 10 days plus c times the domain's seasonal
error, c the smallest in hindsight that leaves 1 % of windows violated, cut at the limit as ours is.
Ours is what the process publishes (``forecast_round.step``), with nothing in hindsight. It is
printed, too, where nobody tells the process of boards.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_array, eye_array, hstack

from benchmarks._arguments import read_arguments
from benchmarks._kept_runs import chance_bound
from benchmarks._power_domains import HISTORY_BINS, PowerDomain, domain_of, domain_row
from benchmarks._rests_on import rests_on_digest
from benchmarks.runner import Options, Result, Target, finished_rows
from capacity.gpu_profile import GpuProfile
from capacity.profile_library import shipped_library
from capacity.work_mix import mix_of_classes
from forecasting import targets
from forecasting.memory_source import MemorySource
from forecasting.power_forecast.present_peaks import (
    LEVELS,
    PresentDraw,
    anchors,
)
from forecasting.power_forecast.present_rows import UNKNOWN_BOARDS, BoardWatts
from forecasting.power_forecast.present_work import WorkChange, history_of_present
from forecasting.power_forecast.work_watts import Boards, busy_watts, startable_watts
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import BIN_SECONDS, History, SeriesId
from wattpack.errors import InputError

NAME = "power_forecast"
SUMMARY = "p99 of domains' power after days of another kind, against multi-day maxima at equal risk"
TAKES_ARGUMENTS = True
USAGE: Final = "--domains N, --fit"

Floats = NDArray[np.float64]

DOMAINS: Final = 150
QUICK_DOMAINS: Final = 24
WINDOW_BINS: Final = 36
FIRST_BIN: Final = 6
WINDOWS: Final = 11
DAY_BINS: Final = 144
REFERENCE_DAYS: Final = (1, 3, 7, 10)
RISK: Final = 0.01
TOLD: Final = (0.5, 0.95, 0.99)

TARGETS: Final = {
    "windows": Target(at_least=1500),
    "violated_share": Target(at_least=0.005, at_most=0.015),
    "reserve_over_best_maximum": Target(at_most=0.95),
}


class Windows(NamedTuple):
    """All windows, by domain and window.

    Attributes:
        peaks: What came, watts, (n, WINDOWS).
        scales: Seasonal errors of the ten days before each, the same shape.
        maxima: Of each of ``REFERENCE_DAYS``, (n_days, n, WINDOWS).
        limits: (n,).
    """

    peaks: Floats
    scales: Floats
    maxima: Floats
    limits: Floats


def run(options: Options) -> Result:
    """All windows of all domains, those of ``--resume`` included."""
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, exit_on_error=False)
    parser.add_argument("--domains", type=int, default=QUICK_DOMAINS if options.quick else DOMAINS)
    parser.add_argument("--fit", action="store_true")
    asked = read_arguments(parser, options.arguments, USAGE)
    if asked.domains < 1:
        raise InputError("--domains", "an integer >= 1", asked.domains)
    digest = rests_on_digest(domain_row.__module__)
    kept = finished_rows(options, NAME, domain_row, asked.domains, digest)
    domains = [domain_of(dict(row)) for row in kept]
    seen = windows_of(domains)
    if asked.fit:
        _tell_fit(options, domains, seen)
    without = _figures(seen, _published(domains, seen, boards=False))
    names = ("violated_share", "reserve_over_best_maximum")
    figures = _figures(seen, _published(domains, seen))
    return Result(figures | {f"{name}_without_boards": without[name] for name in names}, TARGETS)


def windows_of(domains: Sequence[PowerDomain]) -> Windows:
    """What came, and what the references take; shares nothing with the forecaster."""
    draw = np.array([one.draw_watts for one in domains])
    begins = [HISTORY_BINS + FIRST_BIN + WINDOW_BINS * k for k in range(WINDOWS)]
    ten = REFERENCE_DAYS[-1] * DAY_BINS
    seasonal = [
        np.abs(draw[:, b - ten + DAY_BINS : b] - draw[:, b - ten : b - DAY_BINS]).mean(axis=1)
        for b in begins
    ]
    highest = [
        [draw[:, b - days * DAY_BINS : b].max(axis=1) for b in begins] for days in REFERENCE_DAYS
    ]
    return Windows(
        np.stack([draw[:, b : b + WINDOW_BINS].max(axis=1) for b in begins], axis=1),
        np.stack(seasonal, axis=1),
        np.array(highest).transpose(0, 2, 1),
        np.array([one.limit_watts for one in domains]),
    )


# -- ours ------------------------------------------------------------------------------------------


def present_of(domains: Sequence[PowerDomain], window: int) -> PresentDraw:
    """What the forecaster may see as a window begins."""
    now = FIRST_BIN + WINDOW_BINS * window
    values = np.array([one.draw_watts[: HISTORY_BINS + now] for one in domains])
    profile = _profile()
    changes = [
        WorkChange(row, pod.begin * BIN_SECONDS, startable_watts([_boards(profile, pod.boards)]))
        for row, one in enumerate(domains)
        for pod in one.pods
        # Placed since the newest bin began, and told in its ten minutes.
        if now <= pod.begin < now + 1
    ]
    names = [SeriesId(str(row)) for row in range(len(domains))]
    told = history_of_present(History(names, values, now * BIN_SECONDS), changes)
    free = [
        one.pod_boards
        - sum(pod.boards for pod in one.pods if pod.begin < now + 1 and pod.end > now)
        for one in domains
    ]
    return PresentDraw(
        values=told,
        step_seconds=BIN_SECONDS,
        startable_watts=np.array([startable_watts([_boards(profile, n)]) for n in free]),
        busy_watts=np.array(
            [
                busy_watts(
                    [
                        _boards(profile, one.pod_boards),
                        _boards(profile, one.serving_boards, "decode"),
                    ]
                )
                for one in domains
            ]
        ),
        ceiling_watts=np.array([one.limit_watts for one in domains]),
    )


def _profile() -> GpuProfile:
    return shipped_library().profiles["A100-SXM"]


def _boards(profile: GpuProfile, count: int, kernel: str = "training") -> Boards:
    return Boards(profile, mix_of_classes({kernel: 1.0}), max(0, count))


def _published(domains: Sequence[PowerDomain], seen: Windows, *, boards: bool = True) -> Floats:
    """The p99 of each window as the process publishes it, (n, WINDOWS)."""
    state, published = ForecasterState(), np.full(seen.peaks.shape, np.nan)
    for k in range(WINDOWS):
        present = present_of(domains, k)
        asked = [
            targets.Target(
                "power", f"domain-{i}", SeriesId(f"draw-{i}"), "domain", WINDOW_BINS, BIN_SECONDS,
                TOLD, one.limit_watts, 1, f"domain-{i}",
                boards=BoardWatts(float(startable), float(busy)) if boards else UNKNOWN_BOARDS,
            )
            for i, (one, startable, busy) in enumerate(
                zip(domains, present.startable_watts, present.busy_watts, strict=True)
            )
        ]  # fmt: skip
        source = MemorySource({f"draw-{i}": row for i, row in enumerate(present.values)})
        now_seconds = float(present.values.shape[1] * BIN_SECONDS)
        state, answers = step(state, now_seconds, source, asked)
        published[:, k] = [answer.peaks[TOLD.index(0.99)] for answer in answers]
    return published


# -- figures ---------------------------------------------------------------------------------------


def reserve_ratio(reserves: Floats, peaks: Floats) -> float:
    """Geometric mean over domains of reserve over realised peak."""
    return float(np.exp(np.log(reserves.sum(axis=1) / peaks.sum(axis=1)).mean()))


def at_equal_risk(reserves: Floats, seen: Windows, risk: float = RISK) -> Floats:
    """Plus the smallest c times scale that leaves at most the risk violated; cut at the limit."""
    missing = np.sort(((seen.peaks - reserves) / seen.scales).ravel())[::-1]
    offset = missing[int(risk * missing.size)]
    return np.asarray(np.clip(reserves + offset * seen.scales, 0.0, seen.limits[:, None]))


def violated(reserves: Floats, seen: Windows) -> NDArray[np.bool_]:
    """Windows whose peak was above."""
    return np.asarray(seen.peaks > reserves * (1 + 1e-9))


def _figures(seen: Windows, published: Floats) -> dict[str, float | int | str]:
    missed = violated(published, seen)
    ours = reserve_ratio(published, seen.peaks)
    ratios = {
        days: reserve_ratio(at_equal_risk(maxima, seen), seen.peaks)
        for days, maxima in zip(REFERENCE_DAYS, seen.maxima, strict=True)
    }
    day_violated = violated(seen.maxima[0], seen)
    return {
        "sources": rests_on_digest(domain_row.__module__),
        "domains": len(seen.peaks),
        "windows": int(seen.peaks.size),
        "violated_share": float(missed.mean()),
        "violated_share_upper_95": chance_bound(int(missed.sum()), missed.size),
        "violated_share_first_window": float(missed[:, 0].mean()),
        "reserve_ratio": ours,
        "reserve_ratio_at_equal_risk": reserve_ratio(at_equal_risk(published, seen), seen.peaks),
        "reserve_over_best_maximum": ours / min(ratios.values()),
        **{f"reserve_ratio_maximum_{days}_days": ratio for days, ratio in ratios.items()},
        "violated_share_of_bare_day_maximum": float(day_violated.mean()),
        "reserve_ratio_limit": reserve_ratio(
            np.repeat(seen.limits[:, None], WINDOWS, axis=1), seen.peaks
        ),
    }


# -- the policy's weights --------------------------------------------------------------------------


def _tell_fit(options: Options, domains: Sequence[PowerDomain], seen: Windows) -> None:
    """Print what ``present_peaks.WEIGHTS`` would be from these domains."""
    at = np.concatenate([anchors(present_of(domains, k)) for k in range(WINDOWS)])
    shares, peaks = at / at[:, -1:], seen.peaks.T.ravel() / at[:, -1]
    for columns, name in (((0, 1, 2, 3, 4), "with boards"), ((0, 1, 4), "without")):
        for level in LEVELS:
            weights = regression_quantile(shares[:, columns], peaks, level)
            options.progress(f"{name} {level:g}: {', '.join(f'{one:.2f}' for one in weights)}")


def regression_quantile(features: Floats, values: Floats, level: float) -> Floats:
    """Weights with the least pinball loss, as the linear program of Koenker and Bassett (1978)."""
    n, k = features.shape
    cost = np.concatenate([np.zeros(k), np.full(n, level), np.full(n, 1.0 - level)])
    above, below = eye_array(n), -eye_array(n)
    equal = csc_array(hstack([csc_array(features), above, below]))
    bounds = [(None, None)] * k + [(0.0, None)] * (2 * n)
    solved = linprog(cost, A_eq=equal, b_eq=values, bounds=bounds, method="highs")
    return np.asarray(solved.x[:k])
