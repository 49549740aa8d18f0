"""What PowerDomain, DemandForecast and GPUProfile objects say about power, in whole AC watts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_plugin.snapshot import PowerDomain as SnapshotDomain
from wattpack.api import DemandForecast, GPUProfile, PowerDomain
from wattpack.api.power import PowerDomainSpec
from wattpack.domains import OVERSHOOT_RATIO
from wattpack.kube.port import JsonObject

#: Cap band over rating where the controller has not said: its lower design value (section 5).
DEFAULT_CAP_BAND = 0.87
#: Used watts are rounded up to this share of the limit, so that noise causes no new plan.
USED_STEP = 1 / 200


@dataclass(frozen=True, slots=True)
class ModelWatts:
    """Board watts of one GPU type that placement needs.

    Attributes:
        model: The name that pods and nodes are compared by.
        idle_watts: Without work.
        worst_watts: The most that one board draws: its highest limit with overshoot.
        class_watts: 95th percentile of each kernel class.
    """

    model: str
    idle_watts: float
    worst_watts: float
    class_watts: Mapping[str, float]


def normal_name(name: str) -> str:
    """Case and the blank-or-dash spelling of node labels do not matter."""
    return name.strip().lower().replace(" ", "-")


def model_watts(profiles: Iterable[JsonObject]) -> dict[str, ModelWatts]:
    """By every normalised name of a GPUProfile's type."""
    found: dict[str, ModelWatts] = {}
    for body in profiles:
        spec = GPUProfile.from_json(body).spec
        watts = ModelWatts(
            spec.model,
            spec.idle_watts,
            spec.max_limit_watts * OVERSHOOT_RATIO,
            {k.name: k.power_p95_watts for k in spec.kernel_classes},
        )
        for name in (spec.model, *spec.product_names):
            found[normal_name(name)] = watts
    return found


class PowerView:
    """The power tree as placement sees it.

    Args:
        domains: PowerDomain objects.
        forecasts: DemandForecast objects.
    """

    def __init__(self, domains: Iterable[JsonObject], forecasts: Iterable[JsonObject]) -> None:
        self._domains = {d.name: d for d in map(PowerDomain.from_json, domains)}
        self._p99: dict[str, float] = {}
        for body in forecasts:
            forecast = DemandForecast.from_json(body)
            name = forecast.spec.target.power_domain
            if name is not None and forecast.status.p99 is not None:
                self._p99[name] = max(self._p99.get(name, 0.0), forecast.status.p99)

    def domain_of(self, node: Mapping[str, Any]) -> str:
        """The domain that a node hangs directly below; empty if none claims it."""
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        for name in sorted(self._domains):
            members = self._spec(name).members
            if metadata["name"] in members.node_names:
                return name
            wanted = members.node_selector
            if wanted and all(labels.get(key) == value for key, value in wanted.items()):
                return name
        return ""

    def efficiency(self, domain: str) -> float:
        """The lowest supply efficiency from the domain up to its root; 1 without a domain."""
        lowest = 1.0
        seen: set[str] = set()
        while domain in self._domains and domain not in seen:
            seen.add(domain)
            spec = self._spec(domain)
            lowest = min(lowest, spec.supply_efficiency)
            domain = spec.parent or ""
        return lowest

    def worst_host_watts(self, domain: str) -> float:
        """Worst draw of one server below the domain without its GPUs."""
        if domain not in self._domains:
            return 0.0
        return self._spec(domain).non_gpu_per_node.worst_watts

    def snapshot_domains(self, estimated: Mapping[str, float]) -> tuple[SnapshotDomain, ...]:
        """Limits and what is used of them.

        Args:
            estimated: Watts of what hangs directly below each domain by static figures; it is
                used where no forecast exists, and the domain's measured draw is never undercut.
        """
        result: list[SnapshotDomain] = []
        for name in sorted(self._domains):
            domain = self._domains[name]
            spec, status = self._spec(name), domain.status
            budget = status.budget_watts or spec.rating_watts
            limit = math.floor(status.cap_band_watts or DEFAULT_CAP_BAND * budget)
            forecast = self._p99.get(name, status.forecast_p99_watts)
            used = forecast if forecast is not None else self._static(name, estimated, frozenset())
            used = max(used, status.draw_watts or 0.0)
            step = max(1, math.floor(limit * USED_STEP))
            result.append(
                SnapshotDomain(
                    name=name,
                    parent=spec.parent or "" if spec.parent in self._domains else "",
                    limit_watts=limit,
                    used_watts=math.ceil(used / step) * step,
                    guaranteed_margin_watts=-1 if self._degraded(name) else 0,
                )
            )
        return tuple(result)

    def _static(self, name: str, estimated: Mapping[str, float], above: frozenset[str]) -> float:
        """Everything at or below a domain without a forecast."""
        total = sum(load.worst_watts for load in self._spec(name).external_loads)
        total += estimated.get(name, 0.0)
        children = [n for n in self._domains if self._spec(n).parent == name and n not in above]
        return total + sum(self._static(child, estimated, above | {name}) for child in children)

    def _degraded(self, name: str) -> bool:
        """The controller found that I1 fails here; it alone has what is needed to judge."""
        return any(
            c.type == "Degraded" and c.status.value == "True"
            for c in self._domains[name].status.conditions
        )

    def _spec(self, name: str) -> PowerDomainSpec:
        domain = self._domains[name]
        return domain.status.accepted_spec or domain.spec
