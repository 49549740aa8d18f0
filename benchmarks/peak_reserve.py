"""What has to be kept free for the peak of six hours, at a risk that is the same for every policy.

Policies promise a peak: the maximum of the last 1, 3, 7 and 10 days, and the published quantile.
Each gets the smallest shift by a multiple of the series' scale, up or down, after which at most 1 %
of the clients' windows (5 % of the totals') pass it. So nobody wins by being bolder. Then what is
reserved is compared with what was reached, as the geometric mean over series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._forecast_cases import KEPT_APART, USAGE, Case, Figures, cases, targets_of
from benchmarks.forecast_references.naive_references import multi_day_maxima
from benchmarks.forecast_scores import broken, equal_risk_shift, reserve_ratio, shifted
from benchmarks.forecast_sets import Floats
from benchmarks.runner import Options, Result, Target

__all__ = ["KEPT_APART", "NAME", "SUMMARY", "TAKES_ARGUMENTS", "TARGETS", "USAGE", "run"]

NAME = "peak_reserve"
SUMMARY = "reserve for the 6 h peak at equal risk, published quantile against multi-day maxima"
TAKES_ARGUMENTS = True
DAYS: Final = (1, 3, 7, 10)
STRETCH: Final = 0.90
TARGETS: Final = {
    "clients_reserve_over_best_maximum": Target(at_most=0.95),
    "totals_reserve_over_best_maximum": Target(at_most=0.95),
}


@dataclass(frozen=True, slots=True)
class Risk:
    """How often a peak may pass, and the published level that promises just that."""

    share: float
    level: float


RISKS: Final = {"totals": Risk(0.05, 0.95), "later_total": Risk(0.05, 0.95)}
"""Few windows: 1 % of 80 would be none at all."""

USUAL: Final = Risk(0.01, 0.99)


def run(options: Options) -> Result:
    """Compare on every set that is asked for."""
    figures: Figures = {}
    for case in cases(options, NAME):
        figures |= _compared(case, RISKS.get(case.name, USUAL))
    return Result(figures, targets_of(TARGETS, figures))


def _compared(case: Case, risk: Risk) -> Figures:
    """One set's figures."""
    given, ours = case.given, case.ours()
    past = [multi_day_maxima(given.training(origin), DAYS) for origin in given.origins]
    maxima = {f"{days}_day_maximum": np.stack([found[days] for found in past]) for days in DAYS}
    figures: Figures = {"windows": ours.peak(risk.level).size, "risk_share": risk.share}
    at_risk = {
        name: _policy(name, reserves, case, risk, figures)
        for name, reserves in {"published": ours.peak(risk.level), **maxima}.items()
    }
    for level in (0.5, 0.95, 0.99):
        name = f"published_p{round(100 * level)}"
        if level != risk.level:
            _policy(name, ours.peak(level), case, risk, figures)
    best = min(maxima, key=lambda name: at_risk[name])
    figures["best_maximum"] = best
    figures["reserve_over_best_maximum"] = at_risk["published"] / at_risk[best]
    figures["stretch_met"] = int(at_risk["published"] <= STRETCH * at_risk[best])
    return {
        f"{case.name}_{name}": round(value, 4) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _policy(name: str, reserves: Floats, case: Case, risk: Risk, figures: Figures) -> float:
    """Reserve ratio at equal risk; adds it, and how the policy does as it stands."""
    truth, scales = case.given.truth(), case.given.scales()
    peaks = truth.max(axis=2)
    shift = equal_risk_shift(reserves, peaks, scales, risk.share)
    ratio = reserve_ratio(shifted(reserves, scales, shift), peaks)
    figures[f"{name}_reserve_ratio"] = ratio
    figures[f"{name}_shift_scales"] = shift
    figures[f"{name}_unshifted_reserve_ratio"] = reserve_ratio(reserves, peaks)
    figures[f"{name}_unshifted_violated_share"] = float(broken(reserves, truth).mean())
    return ratio
