"""DemandForecasts of services as the forecaster leaves them, for the console."""

from __future__ import annotations

import math
from typing import Any

from tests.console.views import WALL_NS
from wattpack.times import rfc3339

NOW_SECONDS = WALL_NS // 1_000_000_000
LEVELS = (0.5, 0.9, 0.95, 0.99)


def forecast(
    name: str = "chat", namespace: str = "team", *, spec: Any = None, **status: Any
) -> dict[str, Any]:
    """A forecast in use of requests a second; ``spec`` and ``status`` replace parts of it."""
    target = {"workload": name, "series": f"requests_per_second/{name}", "unit": "requests/s"}
    return {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "DemandForecast",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"target": target, "levels": list(LEVELS), **(spec or {})},
        "status": {**in_use(), **status},
    }  # fmt: skip


def in_use() -> dict[str, Any]:
    """The status of a ready forecast, a rise towards the evening, with all that may be told."""
    shape = [41 + 22 * math.sin(i / 36 * math.pi) for i in range(36)]
    spread = {0.5: 1.0, 0.9: 1.12, 0.95: 1.18, 0.99: 1.31}
    return {
        "observedGeneration": 1, "issuedAt": ago(120), "dataUntil": ago(180),
        "validUntil": ago(-1620), "windowStart": ago(180), "method": "boosted+ridge",
        "fallback": False, "now": 43.2, "p50": 64.1, "p95": 76.5, "p99": 84.9,
        "quantiles": [
            {"level": level, "values": [round(v * (1 + (spread[level] - 1) * (i + 6) / 36), 3)
                                        for i, v in enumerate(shape)]}
            for level in LEVELS
        ],
        "lead": {"workload": "chat", "seconds": 243.6, "kinds": 1, "p50": 44, "p95": 47, "p99": 51},
        "tokens": {"mean": 412, "secondMoment": 310000, "requestP99": 2210,
                   "p50": 26400, "p95": 31500, "p99": 35200},
        "replicas": {"count": 9, "withinSeconds": 243.6, "shortRisk": 0.031,
                     "reason": "p95 of 47 requests/s within 244 s, 5.5 each"},
        "coverageP99": 0.975, "coverageN": 40, "violations": 1, "violationBound95": 0.114,
        "liveWindows": 16, "liveViolations": 0, "liveViolationBound95": 0.171,
        "reserveRatio": 1.31, "liveReserveRatio": 1.28,
        "tiers": [{"name": "boosted", "weight": 0.64}, {"name": "ridge", "weight": 0.36}],
        "modelVersion": "boosted/4+ridge/6", "fittedUntil": ago(7200),
        "calibration": {"liveWindows": 16, "rehearsedWindows": 144, "offsetP99": 3.1,
                        "updatedAt": ago(3600)},
        "flags": [], "conditions": [ready()],
    }  # fmt: skip


def ready(*, holds: bool = True, reason: str = "Forecast", message: str = "boosted+ridge") -> Any:
    """The condition Ready."""
    return {
        "type": "Ready", "status": "True" if holds else "False", "reason": reason,
        "message": message, "observedGeneration": 1, "lastTransitionTime": "2023-11-14T20:00:00Z",
    }  # fmt: skip


def ago(seconds: float) -> str:
    """A time before the view's."""
    return rfc3339(round((NOW_SECONDS - seconds) * 1_000_000_000))
