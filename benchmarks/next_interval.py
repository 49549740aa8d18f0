"""Points of the next interval and of the next hours against the predictors of Dynamo's planner.

Theirs (constant, Kalman, ARIMA and, where the library is installed, Prophet) say one point, the
next bin's; further ahead it is held. Ours is the published median. Errors are pooled over the set:
sum of absolute errors over the sum of what came, ten minutes ahead and one to six hours ahead.
"""

from __future__ import annotations

from typing import Final

from benchmarks._forecast_cases import KEPT_APART, USAGE, Case, Figures, absent, cases, targets_of
from benchmarks.forecast_run import LEVELS
from benchmarks.forecast_scores import at_level, wape
from benchmarks.forecast_sets import BIN_SECONDS, Floats
from benchmarks.runner import Options, Result, Target

__all__ = ["KEPT_APART", "NAME", "SUMMARY", "TAKES_ARGUMENTS", "TARGETS", "USAGE", "run"]

NAME = "next_interval"
SUMMARY = "error at 10 min and at 1-6 h against the load predictors of Dynamo's planner"
TAKES_ARGUMENTS = True
PREDICTORS: Final = ("dynamo_constant", "dynamo_kalman", "dynamo_arima", "dynamo_prophet")
FIRST_HOUR_STEP: Final = 3600 // BIN_SECONDS
TARGETS: Final = {
    "clients_10_minutes_over_constant": Target(at_most=1.0),
    "totals_10_minutes_over_constant": Target(at_most=1.0),
    "clients_1_to_6_hours_over_best": Target(at_most=0.80),
    "totals_1_to_6_hours_over_best": Target(at_most=0.88),
}


def run(options: Options) -> Result:
    """Compare on every set that is asked for."""
    figures: Figures = {"absent_references": absent(PREDICTORS)}
    for case in cases(options, NAME):
        figures |= _compared(case)
    return Result(figures, targets_of(TARGETS, figures))


def _compared(case: Case) -> Figures:
    """One set's figures."""
    truth = case.given.truth()
    median = at_level(case.ours().quantiles, LEVELS, 0.5)
    ours = _errors(median, truth)
    theirs = {
        name: _errors(case.points(name)[:, :, None], truth) for name in case.references(PREDICTORS)
    }
    figures: Figures = {"windows": truth.shape[0] * truth.shape[1]}
    for name, (next_bin, hours) in {"published": ours, **theirs}.items():
        figures[f"{name}_10_minutes_wape"] = next_bin
        figures[f"{name}_1_to_6_hours_wape"] = hours
    constant = theirs["dynamo_constant"]
    figures["10_minutes_over_constant"] = ours[0] / constant[0]
    figures["1_to_6_hours_over_constant"] = ours[1] / constant[1]
    figures["1_to_6_hours_over_best"] = ours[1] / min(hours for _, hours in theirs.values())
    return {
        f"{case.name}_{name}": round(value, 4) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _errors(points: Floats, truth: Floats) -> tuple[float, float]:
    """Pooled WAPE of the next bin, and of the bins that end one to six hours ahead.

    Args:
        points: Shape (W, S, H), or (W, S, 1) where one point is held.
        truth: Shape (W, S, H).
    """
    hours = points if points.shape[2] == 1 else points[:, :, FIRST_HOUR_STEP - 1 :]
    return (
        wape(points[:, :, 0], truth[:, :, 0]),
        wape(hours, truth[:, :, FIRST_HOUR_STEP - 1 :]),
    )
