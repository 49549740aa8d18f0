"""What a tick told, in plain words and numbers for the monitor: the only place that knows both."""

from __future__ import annotations

import numpy as np

from controller.tick_values import CapReason, Decisions, Observations, Topology
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
    order = [world.bank.index_of[GpuUuid(uuid)] for uuid in topology.gpu_uuids]
    other = CAUSES.index(FallCause.OTHER)
    causes = np.array(
        [CAUSES.index(_CAUSE_OF.get(reason, FallCause.OTHER)) for reason in CapReason]
    )
    caps = DecidedCaps(
        np.full(len(world.bank), np.nan), np.full(len(world.bank), other, dtype=np.int64)
    )
    caps.watts[order] = decisions.decided_cap_watts
    caps.cause[order] = causes[decisions.reason]
    return caps


def told_by(topology: Topology, seen: Observations, decisions: Decisions) -> Told:
    """A tick's decisions, boards in the topology's order, enumerations by name."""
    names = topology.tree.names
    return Told(
        gpu_uuids=topology.gpu_uuids,
        silent_nodes=frozenset(
            name
            for name, silent in zip(topology.node_names, decisions.silent_nodes, strict=True)
            if silent
        ),
        decided_watts=tuple(decisions.decided_cap_watts.tolist()),
        request_watts=tuple(topology.request_watts.tolist()),
        floor_watts=tuple(topology.floor_watts.tolist()),
        priority=tuple(topology.priority.tolist()),
        reason=tuple(CapReason(value).name for value in decisions.reason.tolist()),
        held_by=tuple("" if i < 0 else names[i] for i in decisions.binding_domain.tolist()),
        controlled=tuple(seen.gpu_controlled.tolist()),
        trusted=tuple(decisions.trusted.tolist()),
    )
