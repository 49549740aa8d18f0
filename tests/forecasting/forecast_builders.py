"""DemandForecast objects as a forecaster leaves them, for tests of their readers."""

from __future__ import annotations

from typing import Any

from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

AUTHORITY = "wattpack-system"


def make_status(issued_seconds: float, p99: float = 30_000.0, **changes: Any) -> dict[str, Any]:
    """A sound status with p50, p95 and now below the p99; None takes a field away."""
    at = rfc3339(seconds_to_ns(issued_seconds))
    status = {
        "observedGeneration": 1, "issuedAt": at, "dataUntil": at, "windowStart": at,
        "validUntil": rfc3339(seconds_to_ns(issued_seconds + 1800)),
        "method": "ridge", "fallback": False,
        "now": 0.5 * p99, "p50": 0.8 * p99, "p95": 0.95 * p99, "p99": p99,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Forecast", "message": "m"}],
    } | changes  # fmt: skip
    return {key: value for key, value in status.items() if value is not None}


def make_forecast(
    issued_seconds: float = 1e8,
    p99: float = 30_000.0,
    *,
    name: str = "row",
    namespace: str = AUTHORITY,
    domain: str = "row",
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A whole object; other keywords change its status."""
    target = {"powerDomain": domain, "series": f"domain_draw_watts/{domain}"}
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "DemandForecast",
        "metadata": {"name": name, "namespace": namespace, "generation": 1, **(metadata or {})},
        "spec": {"target": target, **(spec or {})},
        "status": make_status(issued_seconds, p99, **status),
    }
