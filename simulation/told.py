"""What a tick told, in plain words and numbers for the monitor: the only place that knows both."""

from __future__ import annotations

from controller.tick_values import CapReason, Decisions, Observations, Topology
from simulation.monitor import Told

__all__ = ["told_by"]


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
