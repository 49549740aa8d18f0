"""What every breaker would bear if all GPUs below it went back to their default limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wattpack.api.inventory import GpuNode
from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS, board_count
from wattpack.kube.port import JsonObject
from wattpack.power.feasibility import LoadTree, worst_watts
from wattpack.power.member_claims import newest_claims
from wattpack.power.power_grid import Feeding, PowerGrid, accepted_domains


@dataclass(frozen=True, slots=True)
class BreakerAtDefaults:
    """One domain with every GPU at its default limit.

    Attributes:
        load_watts: AC at the breaker, servers at their worst, declared external load included.
        rating_watts: Continuous, after the feed loss that the domain declares.
        unknown_gpus: GPUs below it whose default limit no agent told; they are not in the load.
    """

    domain: str
    load_watts: float
    rating_watts: float
    gpus: int
    unknown_gpus: int

    @property
    def bears_it(self) -> bool:
        """Whether the rating is kept for certain: what nobody told could be any load."""
        return self.load_watts <= self.rating_watts and not self.unknown_gpus

    def sentence(self) -> str:
        """For the person who decides."""
        kw, rating_kw = self.load_watts / 1000, self.rating_watts / 1000
        verdict = "bears it" if self.bears_it else f"OVERLOAD by {kw - rating_kw:.1f} kW"
        if self.unknown_gpus and kw <= rating_kw:
            verdict = "CANNOT BE SAID"
        unknown = f", {self.unknown_gpus} GPUs of unknown limit NOT counted"
        text = f"{self.domain}: {kw:.1f} of {rating_kw:.1f} kW with {self.gpus} GPUs: {verdict}"
        return text + (unknown if self.unknown_gpus else "")


def breakers_at_defaults(objects: Iterable[JsonObject]) -> list[BreakerAtDefaults]:
    """Every accepted domain, parents first.

    Args:
        objects: PowerDomains, GpuNodes and Nodes, as ``kubectl get -o json`` lists them.

    Raises:
        InputError: if no accepted domain is among them.
    """
    by_kind: dict[str, list[JsonObject]] = {}
    for body in objects:
        by_kind.setdefault(str(body.get("kind")), []).append(body)
    bodies = by_kind.get("PowerDomain", [])
    domains = accepted_domains(bodies)
    if not domains:
        raise InputError("items", "at least one accepted PowerDomain", len(by_kind))
    specs = {name: domain.spec for name, domain in domains.items()}
    grid = PowerGrid.of_read(specs, newest_claims(bodies))
    labels = {_name(body): body["metadata"].get("labels") or {} for body in by_kind.get("Node", [])}
    servers = {name: _told(body) for name, body in _by_name(by_kind.get("GpuNode", [])).items()}
    for name, body in _by_name(by_kind.get("Node", [])).items():
        # A server without an agent, or with more boards than its agent told, draws all the same.
        told = servers.setdefault(name, [])
        told += [None] * (min(board_count(body), MAX_BOARDS) - len(told))
    fed = [(told, grid.feeding(name, labels.get(name, {}))) for name, told in servers.items()]
    return _judge(grid, [(told, feeding) for told, feeding in fed if told and feeding.domain])


def _by_name(bodies: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Objects by their name."""
    return {_name(body): body for body in bodies}


def _name(body: JsonObject) -> str:
    return str(body["metadata"]["name"])


def _told(body: JsonObject) -> list[float | None]:
    """The default limit of each board that an agent told, watts; None for what it left out."""
    status = GpuNode.read(body).status
    told = [device.default_limit_watts for device in status.devices]
    return told + [None] * ((status.gpu_count or 0) - len(told))


def _judge(
    grid: PowerGrid, fed: list[tuple[list[float | None], Feeding]]
) -> list[BreakerAtDefaults]:
    defaults: list[float] = []
    known: list[bool] = []
    node_of_gpu: list[int] = []
    for i, (told, _) in enumerate(fed):
        defaults += [watts or 0.0 for watts in told]
        known += [watts is not None for watts in told]
        node_of_gpu += [i] * len(told)
    load = LoadTree(
        grid.tree,
        np.array([grid.index(feeding.domain) for _, feeding in fed], dtype=np.int64),
        np.array(node_of_gpu, dtype=np.int64),
    )
    # Hosts are declared at the breaker, as the controller counts them; sums run in DC.
    hosts = np.array([grid.host_watts(feeding) for _, feeding in fed], dtype=np.float64)
    hosts *= grid.efficiency[[grid.index(feeding.domain) for _, feeding in fed]]
    watts = worst_watts(load, np.array(defaults, dtype=np.float64), hosts)
    unknown = load.sum_gpus(np.array([not k for k in known], dtype=np.float64))
    return [
        BreakerAtDefaults(
            name, float(watts[i]), grid.rating_watts(name), int(load.gpus_below[i]), int(unknown[i])
        )
        for i, name in enumerate(grid.tree.names)
    ]
