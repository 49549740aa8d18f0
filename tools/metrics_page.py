"""Writes docs/metrics.md from what the processes register: ``python tools/metrics_page.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics import MetricWrapperBase

from actuator.lease_messages import ActuatorStatus
from controller.app.controller_metrics import ControllerMetrics
from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.plan_metrics import PlanMetrics
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from telemetry.exporter import NodeCollector
from telemetry.node_state import NodeState
from wattpack.metrics_port import RefusalCollector

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"

Row = tuple[str, str, str, str]
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


def forecaster_rows() -> list[Row]:
    """Forecasts and capacity plans share one registry."""
    registry = ForecastMetrics().registry
    PlanMetrics(registry)
    return rows(registry)


def agent_rows() -> list[Row]:
    """The same of what the agent's collector makes of a node whose actuator answers."""
    actuator = ActuatorStatus(
        boot_id="", nonce=0, clock_ns=0, highest_epoch=0, highest_sequence=0, devices={}
    )
    node = NodeState(node="", boot_id="", now_ns=0, samples=(), actuator=actuator)
    return family_rows(NodeCollector(lambda: node).collect())


def family_rows(families: Iterable[Metric]) -> list[Row]:
    """The same of what a collector makes on each scrape."""
    found = []
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(getattr(family, "_labelnames", ())) or "–"
        found.append((name, family.type, labels, family.documentation.rstrip(".")))
    return found


def table(title: str, body: Iterable[Row]) -> str:
    """One section."""
    lines = [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in body]
    head = ["", f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def page() -> str:
    """The whole page."""
    return (
        _HEAD
        + table("Controller (port 8081)", rows(ControllerMetrics().registry))
        + table("Scheduler (port 8081)", rows(PlacementMetrics().registry))
        + table("Forecaster (port 8081)", forecaster_rows())
        + table("Agent (port 9400)", agent_rows())
        + table("Each of them", family_rows(RefusalCollector(dict).collect()))
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/metrics.md is stale")
    PAGE.write_text(page(), encoding="utf-8")
