"""CapacityPlans as the forecaster leaves them, for the console."""

from __future__ import annotations

from typing import Any

RATES = {"chat": {"whole": {"requestsPerSecond": 4, "busyWatts": 780}}}


def plan(name: str = "chat", *, ready: bool = True, **status: Any) -> dict[str, Any]:
    """An answered plan of two types and caps; ``status`` replaces parts of the answer."""
    shape = {"name": "H200@700", "gpuModel": "H200-SXM", "capWatts": 700, "idleWatts": 150}
    spec = {
        "buckets": [{"name": "chat", "requestsPerSecond": 40}],
        "shapes": [{**shape, "p99Watts": 900, "rates": RATES}],
        "offers": [{"name": "h200", "gpuModel": "H200-SXM", "gpus": 8, "dollarsPerGpuHour": 3.5}],
        "powerBudgetWatts": 12000,
    }
    said = {
        "type": "Ready", "status": "True" if ready else "False",
        "reason": "Solved" if ready else "Infeasible",
        "message": "proved" if ready else "power budget of the plan; stock of h200",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    answer = {
        "observedGeneration": 1, "answeredGeneration": 1, "solvedAt": "2026-01-01T00:00:00Z",
        "ratesFrom": "Given", "demand": [{"bucket": "chat", "requestsPerSecond": 40}],
        "costPerHour": 31.4, "costs": {"rent": 30.0, "energy": 1.1, "carbon": 0.2, "start": 0.1},
        "powerWatts": 9100, "p99Watts": 11800, "operationalGramsPerHour": 3458,
        "embodiedGramsPerHour": 61, "servedFraction": 1, "gap": 0.0004, "savedFraction": 0.12,
        "countedRates": {
            "leastShare": 0.62, "mostShare": 0.78, "timeFactor": 1.28, "confidence": 0.95,
        },
        "replicas": [
            row("H200-SXM", 700, 5, "h200", "chat 45.0%"),
            row("H200-SXM", 500, 3, "h200", "chat 20.0%", "digest prefill 100.0%"),
            row("A100-SXM", 300, 4, "old-a100", "chat 35.0%", gpus=2),
        ],
        "constraintCosts": [
            {"constraint": "stock of old-a100", "gain": 3.2, "leastGain": 3.1},
            {"constraint": "power budget of the plan", "gain": 0.9, "leastGain": 0.8},
        ],
        "conditions": [said],
    }  # fmt: skip
    return {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "CapacityPlan",
        "metadata": {"name": name, "namespace": "team", "generation": 1},
        "spec": spec, "status": {**answer, **status},
    }  # fmt: skip


def row(model: str, cap: float, replicas: int, offer: str, *serves: str, gpus: int = 1) -> Any:
    """Replicas of one kind."""
    return {
        "gpuModel": model, "capWatts": cap, "gpus": gpus, "replicas": replicas, "offer": offer,
        "serves": list(serves),
    }  # fmt: skip
