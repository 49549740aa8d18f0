"""The order that plans go by, and on nodes the prices of GPUs and the carbon that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from capacity.profile_library import normal_name
from scheduler_plugin.documents.objective_order import (
    DEFAULT_ORDER,
    ObjectiveStage,
)
from scheduler_plugin.documents.snapshot import Node, Snapshot
from scheduler_plugin.packing.domain_rooms import ancestors

__all__ = ["ObjectiveChoice", "with_objective"]

MILLI_PER_CURRENCY: Final = 1000


@dataclass(frozen=True, slots=True)
class ObjectiveChoice:
    """What plans are compared by, and the figures that this needs.

    Attributes:
        order: Of stages; None for what the snapshot says.
        gpu_prices: Of an hour of one GPU by model, any currency. A model without a price counts as
            the dearest.
        carbon_grams_per_kwh: Of energy by power domain, CO2e; the nearest above a node counts. A
            node below none of them counts as the worst.
    """

    order: tuple[ObjectiveStage, ...] | None = DEFAULT_ORDER
    gpu_prices: Mapping[str, float] = field(default_factory=dict)
    carbon_grams_per_kwh: Mapping[str, int] = field(default_factory=dict)


def with_objective(snapshot: Snapshot, choice: ObjectiveChoice) -> Snapshot:
    """The snapshot in that order, with figures of its nodes where a named stage needs them."""
    order = snapshot.objective if choice.order is None else choice.order
    domains = {domain.name: domain for domain in snapshot.domains}
    prices = {normal_name(model): price for model, price in choice.gpu_prices.items()}
    dearest = max(prices.values(), default=0.0)
    grams = choice.carbon_grams_per_kwh
    worst = max(grams.values(), default=0)
    found = {
        name: next((grams[each] for each in ancestors(domains, name) if each in grams), worst)
        for name in ("", *domains)
    }

    def figured(node: Node) -> Node:
        more: dict[str, Any] = {}
        if prices and ObjectiveStage.COST in order:
            price = prices.get(normal_name(node.gpu_model), dearest)
            more["gpu_hour_cost_milli"] = round(price * MILLI_PER_CURRENCY)
        if grams and ObjectiveStage.CARBON in order:
            more["carbon_grams_per_kwh"] = found[node.domain]
        return node.model_copy(update=more) if more else node

    nodes = tuple(figured(node) for node in snapshot.nodes)
    if order == snapshot.objective and nodes == snapshot.nodes:
        return snapshot
    return snapshot.model_copy(update={"objective": order, "nodes": nodes})
