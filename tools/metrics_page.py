"""Writes docs/metrics.md from what the processes register: ``python tools/metrics_page.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from controller.app.controller_metrics import ControllerMetrics
from forecasting.app.forecast_metrics import ForecastMetrics
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from telemetry.exporter import GAUGES, LABELS

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"

Row = tuple[str, str, str, str]
_GPU = ", ".join(LABELS)

# What the agent's collector makes beside its table of gauges, from the state of a node.
_AGENT: tuple[Row, ...] = (
    ("wattpack_gpu_reading_age_seconds", "gauge", _GPU, "Age of the reading shown"),
    ("wattpack_gpu_energy_joules_total", "counter", _GPU, "Energy since the driver was loaded"),
    ("wattpack_gpu_throttle_active", "gauge", f"{_GPU}, reason", "1 while clocks are lowered"),
    ("wattpack_gpu_ecc_errors_total", "counter", f"{_GPU}, kind", "Aggregate ECC errors"),
    ("wattpack_gpu_xid_events_total", "counter", f"{_GPU}, xid", "XID events since agent start"),
    ("wattpack_gpu_pod_info", "gauge", "uuid, namespace, pod, pod_uid", "1 for each pod on it"),
    ("wattpack_gpu_processes_outside_kubernetes", "gauge", "uuid", "Processes of no pod"),
    ("wattpack_gpu_guaranteed_watts", "gauge", _GPU, "Cap that lease expiry falls to"),
    ("wattpack_gpu_lease_active", "gauge", _GPU, "1 while a lease holds the cap"),
    ("wattpack_gpu_clock_lock_hertz", "gauge", _GPU, "Clock lock"),
    ("wattpack_gpu_failed_writes_total", "counter", _GPU, "Writes without effect"),
    ("wattpack_node_telemetry_missing_ratio", "gauge", "node", "Share without a fresh reading"),
    ("wattpack_node_gpus", "gauge", "node", "GPUs that the driver lists"),
    ("wattpack_node_actuator_up", "gauge", "node", "1 while the actuator answers"),
)

_HEAD = """\
# Metrics

Base units, names as Prometheus sees them. Written by `python tools/metrics_page.py` from what the
processes register.
All controller replicas export the domains: aggregate with `max by (domain)`. Alerts on them:
`manifests/alerts`.
"""


def rows(registry: CollectorRegistry) -> list[Row]:
    """Name, type, labels and meaning of each metric in a registry."""
    found: dict[str, Row] = {}
    for collector in registry._names_to_collectors.values():
        assert isinstance(collector, MetricWrapperBase)
        family = next(iter(collector.describe()))
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(collector._labelnames) or "–"
        found[name] = (name, family.type, labels, family.documentation.rstrip("."))
    return list(found.values())


def table(title: str, body: Iterable[Row]) -> str:
    """One section."""
    lines = [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in body]
    head = ["", f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def page() -> str:
    """The whole page."""
    gauges = [(f"wattpack_gpu_{g.name}", "gauge", _GPU, g.help.rstrip(".")) for g in GAUGES]
    return (
        _HEAD
        + table("Controller (port 8081)", rows(ControllerMetrics().registry))
        + table("Scheduler (port 8081)", rows(PlacementMetrics().registry))
        + table("Forecaster (port 8081)", rows(ForecastMetrics().registry))
        + table("Agent (port 9400)", [*gauges, *_AGENT])
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/metrics.md is stale")
    PAGE.write_text(page(), encoding="utf-8")
