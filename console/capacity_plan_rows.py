"""CapacityPlans as the console shows them: figures, replicas by type and cap, costs of constraints.

Whatever the API server holds gives a row; what cannot be read is said in that row.
"""

from __future__ import annotations

from collections.abc import Iterable

from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanStatus
from wattpack.api.conditions import find_condition
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.times import parse_rfc3339

__all__ = ["SHOWN_PLANS", "capacity_view"]

#: Plans that are listed; the others are counted.
SHOWN_PLANS = 50


def capacity_view(plans: Iterable[JsonObject]) -> dict[str, object]:
    """What the page shows of CapacityPlans, the unanswered ones first, then the dearest."""
    rows = [_row(body) for body in plans]
    rows.sort(key=lambda row: (row["ready"] is True, -_dollars(row), str(row["name"])))
    return {"plans": rows[:SHOWN_PLANS], "more": max(0, len(rows) - SHOWN_PLANS)}


def _row(body: JsonObject) -> dict[str, object]:
    metadata = body.get("metadata") or {}
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    try:
        plan = CapacityPlan.read(body)
    except InputError as error:
        return _unreadable(name, f"{error.field}: expected {error.expected}"[:300])
    status = plan.status
    ready = find_condition(status.conditions, "Ready")
    return {
        "name": name,
        "ready": ready is not None and ready.status.value == "True",
        "reason": ready.reason if ready is not None else "AwaitingAnswer",
        "message": ready.message if ready is not None else "no process has judged it yet",
        "solvedMs": _milliseconds(status.solved_at),
        "isOfThisSpec": status.answered_generation == plan.generation,
        "ratesFrom": status.rates_from or "",
        "requestsPerSecond": sum(row.requests_per_second for row in status.demand),
        "buckets": len(status.demand),
        "budgetWatts": plan.spec.power_budget_watts,
        "goal": plan.spec.goal,
        "replicas": [row.to_json() for row in status.replicas],
        "constraintCosts": [row.to_json() for row in status.constraint_costs],
        **_figures(status),
    }


def _figures(status: CapacityPlanStatus) -> dict[str, object]:
    return {
        "dollarsPerHour": status.cost_per_hour,
        "costs": None if status.costs is None else status.costs.to_json(),
        "powerWatts": status.power_watts,
        "p99Watts": status.p99_watts,
        "operationalGramsPerHour": status.operational_grams_per_hour,
        "embodiedGramsPerHour": status.embodied_grams_per_hour,
        "servedFraction": status.served_fraction,
        "savedFraction": status.saved_fraction,
        "gap": status.gap,
        "countedRates": None if status.counted_rates is None else status.counted_rates.to_json(),
    }


def _unreadable(name: str, why: str) -> dict[str, object]:
    return {
        "name": name, "ready": False, "reason": "Unreadable", "message": why, "solvedMs": 0,
        "isOfThisSpec": False, "ratesFrom": "", "requestsPerSecond": 0.0, "buckets": 0,
        "budgetWatts": None, "goal": "leastCost", "replicas": [], "constraintCosts": [],
        **_figures(CapacityPlanStatus()),
    }  # fmt: skip


def _dollars(row: dict[str, object]) -> float:
    value = row["dollarsPerHour"]
    return float(value) if isinstance(value, int | float) else 0.0


def _milliseconds(stamp: str | None) -> int:
    try:
        return round(parse_rfc3339(stamp or "").timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
