"""What a tick told, in plain words and numbers for the monitor: the only place that knows both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.cap_reason import CapReason
from controller.tick_values import Decisions, Observations, Topology
from simulation.cap_effects import CAUSES, DecidedCaps, FallCause
from simulation.monitor import Told
from simulation.world import World
from wattpack.units import GpuUuid

__all__ = ["decided_caps", "told_by"]

_CAUSE_OF = {
    CapReason.DOMAIN_BAND: FallCause.BAND,
    CapReason.BRAKE: FallCause.BRAKE,
    CapReason.SURVIVABLE_JUMP: FallCause.JUMP,
}


def decided_caps(world: World, topology: Topology, decisions: Decisions) -> DecidedCaps:
    """A tick's caps in the world's order of boards, NaN for boards that it does not know."""
    known = _known_boards(world, topology)
    order = [world.bank.index_of[GpuUuid(topology.gpu_uuids[i])] for i in known]
    other = CAUSES.index(FallCause.OTHER)
    causes = np.array(
        [CAUSES.index(_CAUSE_OF.get(reason, FallCause.OTHER)) for reason in CapReason]
    )
    caps = DecidedCaps(
        np.full(len(world.bank), np.nan), np.full(len(world.bank), other, dtype=np.int64)
    )
    caps.watts[order] = decisions.decided_cap_watts[known]
    caps.cause[order] = causes[decisions.reason[known]]
    return caps


def told_by(world: World, topology: Topology, seen: Observations, decisions: Decisions) -> Told:
    """A tick's decisions on the world's boards, in the topology's order, enumerations by name."""
    names, known = topology.tree.names, _known_boards(world, topology)
    return Told(
        gpu_uuids=tuple(topology.gpu_uuids[i] for i in known),
        silent_nodes=frozenset(
            name
            for name, silent in zip(topology.node_names, decisions.silent_nodes, strict=True)
            if silent
        ),
        decided_watts=tuple(decisions.decided_cap_watts[known].tolist()),
        request_watts=tuple(topology.request_watts[known].tolist()),
        floor_watts=tuple(topology.floor_watts[known].tolist()),
        priority=tuple(topology.priority[known].tolist()),
        reason=tuple(CapReason(value).name for value in decisions.reason[known].tolist()),
        held_by=tuple("" if i < 0 else names[i] for i in decisions.binding_domain[known].tolist()),
        controlled=tuple(seen.gpu_controlled[known].tolist()),
        trusted=tuple(decisions.trusted[known].tolist()),
    )


def _known_boards(world: World, topology: Topology) -> NDArray[np.int64]:
    """Which boards of the topology exist.

    A server that nobody has heard yet stands in it with boards under made-up names.
    """
    found = [i for i, uuid in enumerate(topology.gpu_uuids) if uuid in world.bank.index_of]
    return np.array(found, dtype=np.int64)
