"""How much less the published forecasts lose than seasonal naive, and than models users could take.

82 clients and 4 totals, six hours ahead, twenty origins each after ten days (``forecast_sets``).
Losses are shares of seasonal naive's; ETS(A,N,A), AutoReg, LightGBM alone and MSTL+AutoETS are
fitted in the same run on the same windows. ``--resume DIR`` keeps every run by what it rests on.
``--data FILE`` judges a file of the user's by the same rule; what its gaps leave nothing to judge
of is left out and named. ``--confirmation`` scores the second half of Helios in its place, which
nobody tuned on and which is to be scored once: with ``--record`` it is kept as
``forecast_accuracy_confirmation.json``, and with one ``--resume`` folder the other benchmarks of
forecasts read the same run. ``--quick`` has the ridge as its only model and the cheap references:
it tests the harness, it judges nothing.
"""

from __future__ import annotations

from typing import Final

from benchmarks._forecast_cases import KEPT_APART, USAGE, Case, Figures, absent, cases, targets_of
from benchmarks.forecast_run import LEVELS, Published
from benchmarks.forecast_scores import Losses, losses, ratios
from benchmarks.runner import Options, Result, Target

__all__ = ["KEPT_APART", "NAME", "SUMMARY", "TAKES_ARGUMENTS", "TARGETS", "USAGE", "run"]

NAME = "forecast_accuracy"
SUMMARY = "quantile loss of published forecasts on 86 real series against naive and fitted models"
TAKES_ARGUMENTS = True
NAIVE: Final = ("last_value",)
"""Besides seasonal naive, which is 1 by definition."""

FITTED: Final = ("ets", "autoreg", "lightgbm", "mstl_autoets")
TARGETS: Final = {
    "clients_sql_ratio": Target(at_most=0.66),
    "clients_wql_ratio": Target(at_most=0.62),
    "totals_sql_ratio": Target(at_most=0.58),
    "totals_mase_ratio": Target(at_most=0.61),
    "clients_sql_over_best_fitted": Target(at_most=0.9999),
    "totals_sql_over_best_fitted": Target(at_most=0.9999),
    "clients_worst_loss_over_best_naive": Target(at_most=1.02),
    "totals_worst_loss_over_best_naive": Target(at_most=1.02),
}


def run(options: Options) -> Result:
    """Score the process and the references on every set that is asked for."""
    figures: Figures = {"absent_references": absent(FITTED)}
    for case in cases(options, NAME):
        figures |= _scored(case)
    return Result(figures, targets_of(TARGETS, figures))


def _scored(case: Case) -> Figures:
    """One set's figures."""
    given, ours = case.given, case.ours()
    naive = case.losses("seasonal_naive")
    model = losses(ours.quantiles, LEVELS, given.truth(), given.scales())
    others = {name: case.losses(name) for name in case.references((*NAIVE, *FITTED))}
    figures: Figures = {
        "series": len(given.series),
        "windows": given.truth().shape[0] * len(given.series),
        "cpu_seconds": round(float(ours.seconds.sum()), 1),
        "mean_weights": _mean_weights(ours),
        **_ratios("", model, naive),
    }
    for name, lost in others.items():
        figures |= _ratios(f"{name}_", lost, naive)
    fitted = [others[name].sql for name in FITTED if name in others]
    figures["sql_over_best_fitted"] = model.sql / min(fitted)
    figures["worst_loss_over_best_naive"] = _over_naive(model, [naive, others["last_value"]])
    return {
        f"{case.name}_{name}": round(value, 4) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _ratios(prefix: str, model: Losses, naive: Losses) -> Figures:
    found = ratios(model, naive)
    return {
        f"{prefix}sql_ratio": found.sql,
        f"{prefix}sql_geometric_ratio": found.sql_geometric,
        f"{prefix}wql_ratio": found.wql,
        f"{prefix}mase_ratio": found.mase,
    }


def _mean_weights(ours: Published) -> str:
    """What stood behind the answers, over windows and series: model and share."""
    statuses = [status for row in ours.words for status in row]
    sums: dict[str, float] = {}
    for status in statuses:
        for tier in status.get("tiers") or [{"name": status.get("method"), "weight": 1.0}]:
            name = str(tier["name"])
            sums[name] = sums.get(name, 0.0) + float(tier["weight"]) / len(statuses)
    return ", ".join(f"{name} {sums[name]:.2f}" for name in sorted(sums))


def _over_naive(model: Losses, naive: list[Losses]) -> float:
    """The worst of three losses, each against the better of the naive forecasts."""
    return max(
        model.sql / min(lost.sql for lost in naive),
        model.wql / min(lost.wql for lost in naive),
        model.mase / min(lost.mase for lost in naive),
    )
