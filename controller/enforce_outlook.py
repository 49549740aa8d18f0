"""What enforcing would mean for each breaker, before it is asked for (I1, I2). Pure.

The arithmetic is the controller's own (``wattpack.power.feasibility``), on servers as they are
planned: each has a host unit and an actuator, so its boards hold guaranteed caps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.acceptance import undeclared
from controller.breaker_heat import heat_limits
from controller.tick_values import PowerSettings
from wattpack.api import PowerDomain
from wattpack.api.power_domain import Enforcement
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import (
    NODES_AT_DEFAULT_SHARE,
    LoadTree,
    guaranteed_case_watts,
    size_where_feasible,
    survivable_watts,
    worst_watts,
)
from wattpack.power.host_line import host_lines
from wattpack.power.power_grid import Feeding, PowerGrid

__all__ = ["DomainOutlook", "PlannedBoard", "PlannedServer", "enforce_outlooks"]


@dataclass(frozen=True, slots=True)
class PlannedBoard:
    """One GPU.

    Attributes:
        model: What people call its type.
        default_limit_watts: After a driver load.
        min_limit_watts: The lowest that can be set.
        guaranteed_watts: What its lease's end falls to; None where nobody said.
    """

    model: str
    default_limit_watts: float
    min_limit_watts: float
    guaranteed_watts: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """A server below a domain, with its boards."""

    feeding: Feeding
    boards: tuple[PlannedBoard, ...]


@dataclass(frozen=True, slots=True)
class DomainOutlook:
    """One breaker, all watts AC there.

    Attributes:
        rating_watts: Continuous, after declared feed losses and over phase imbalance.
        servers_at_default: Servers that I1 counts at their default limits in any case.
        default_watts: Everything at its default limit.
        lowest_watts: I1's worst case with boards at their lowest limits.
        guaranteed_watts: The same at guaranteed caps; None where one is not known.
        fitting_watts: Lowest and highest guaranteed cap that fit together, by model; empty where
            not even the lowest limits do.
        survivable_watts: What the breaker survives for T_fault, cold (I2).
        survivable_share: Share of default limits that boards may hold for it, at most 1.
        cap_band_watts: Draw from which boards are capped, until the domain's own rises say more.
        objection: What the spec has to declare before it may enforce (I10); empty for nothing.
    """

    domain: str
    servers: int
    gpus: int
    rating_watts: float
    servers_at_default: int
    default_watts: float
    lowest_watts: float
    guaranteed_watts: float | None
    fitting_watts: dict[str, tuple[float, float]]
    survivable_watts: float
    survivable_share: float
    cap_band_watts: float
    objection: str

    @property
    def fits(self) -> bool:
        """Whether I1 holds, at guaranteed caps where they are known."""
        worst = self.lowest_watts if self.guaranteed_watts is None else self.guaranteed_watts
        return worst <= self.rating_watts


def enforce_outlooks(
    grid: PowerGrid,
    domains: Sequence[PowerDomain],
    servers: Sequence[PlannedServer],
    settings: PowerSettings,
) -> list[DomainOutlook]:
    """Every domain, parents first, as if all of them enforced.

    Args:
        grid: Of the domains' specs.
        domains: The same as objects.
        servers: With at least one board each, all below a domain.
        settings: For T_fault and bands.
    """
    load = LoadTree(
        grid.tree,
        np.array([grid.index(server.feeding.domain) for server in servers], dtype=np.int64),
        np.array([i for i, server in enumerate(servers) for _ in server.boards], dtype=np.int64),
    )
    boards = [board for server in servers for board in server.boards]
    efficiency = grid.efficiency[[grid.index(server.feeding.domain) for server in servers]]
    hosts = np.array([grid.host_watts(server.feeding) for server in servers]) * efficiency
    lines = host_lines([grid.host_line(server.feeding) for server in servers], efficiency)
    default = np.array([board.default_limit_watts for board in boards])
    lowest = np.array([board.min_limit_watts for board in boards])
    # NaN goes up the tree: a domain's figure is known where all caps below it are.
    given = np.array([np.nan if b.guaranteed_watts is None else b.guaranteed_watts for b in boards])
    nowhere = np.zeros(len(servers), dtype=np.bool_)

    def case(caps: FloatArray) -> FloatArray:
        return guaranteed_case_watts(load, caps, default, hosts, nowhere, lines)

    unknown = load.any_gpu_below(np.isnan(given))
    guaranteed = case(np.where(np.isnan(given), default, given))
    at_lowest, at_default = case(lowest), worst_watts(load, default, hosts)
    fitting = size_where_feasible(load, lowest, default, default, hosts, nowhere, lines)
    borne = survivable_watts(
        load, np.zeros(len(grid.tree)), settings.fault_seconds, heat_limits(load, settings)
    )
    rest = load.sum_nodes(hosts) / load.efficiency + load.external_watts
    of_boards = np.maximum(at_default - rest, 1e-9)
    objections = _objections(domains)
    return [
        DomainOutlook(
            domain=name,
            servers=int(load.nodes_below[i]),
            gpus=int(load.gpus_below[i]),
            rating_watts=float(load.rating_watts[i]),
            servers_at_default=_at_default(int(load.nodes_below[i])),
            default_watts=float(at_default[i]),
            lowest_watts=float(at_lowest[i]),
            guaranteed_watts=None if unknown[i] else float(guaranteed[i]),
            fitting_watts=_by_model(load, i, boards, fitting)
            if at_lowest[i] <= load.rating_watts[i]
            else {},
            survivable_watts=float(borne[i]),
            survivable_share=float(np.clip((borne - rest)[i] / of_boards[i], 0.0, 1.0)),
            cap_band_watts=float(load.rating_watts[i]) * (1.0 - settings.rise_quantile_prior),
            objection=objections[name],
        )
        for i, name in enumerate(grid.tree.names)
    ]


def _at_default(servers: int) -> int:
    return min(servers, max(1, int(np.ceil(NODES_AT_DEFAULT_SHARE * servers))))


def _by_model(
    load: LoadTree, domain: int, boards: Sequence[PlannedBoard], caps: FloatArray
) -> dict[str, tuple[float, float]]:
    """Lowest and highest cap of each model below a domain."""
    found: dict[str, tuple[float, float]] = {}
    for gpu in np.flatnonzero((load.gpu_domains == domain).any(axis=0)).tolist():
        cap, model = float(caps[gpu]), boards[gpu].model
        low, high = found.get(model, (cap, cap))
        found[model] = (min(low, cap), max(high, cap))
    return found


def _objections(domains: Sequence[PowerDomain]) -> dict[str, str]:
    """What each spec lacks before it may enforce (I10)."""
    told = {}
    for domain in domains:
        enforcing = domain.spec.model_copy(update={"enforcement": Enforcement.ENFORCE})
        refusal = undeclared(domain.model_copy(update={"spec": enforcing}))
        told[domain.name] = "" if refusal is None else refusal.message
    return told
