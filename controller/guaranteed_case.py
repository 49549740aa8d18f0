"""I1's worst case with what is really controlled, kept from tick to tick while nothing changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.tick_values import Observations, Topology
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree, guaranteed_case_watts

__all__ = ["GuaranteedCase", "case_watts", "guaranteed_case", "unheld_nodes"]


@dataclass(frozen=True, slots=True)
class GuaranteedCase:
    """I1's worst case now.

    Attributes:
        watts: (n_domains,).
        fixed_nodes: Nodes that count at their default limits, (n_nodes,).
        caps_watts: Guaranteed caps of the others, (n_gpus,).
    """

    watts: FloatArray
    fixed_nodes: BoolArray
    caps_watts: FloatArray


def guaranteed_case(
    topology: Topology,
    load: LoadTree,
    observed: Observations,
    before: GuaranteedCase | None = None,
) -> GuaranteedCase:
    """What every domain would bear with what is really controlled.

    Args:
        topology: For sizes and declared worsts.
        load: Tree and members.
        observed: What is controlled.
        before: Of the last tick and the same topology: it mostly still holds.
    """
    fixed = unheld_nodes(topology, observed)
    caps = np.fmax(observed.gpu_guaranteed_watts, topology.guaranteed_watts)
    if before is not None and not (
        some(caps != before.caps_watts) or some(fixed != before.fixed_nodes)
    ):
        return before
    return GuaranteedCase(case_watts(topology, load, caps, fixed), fixed, caps)


def unheld_nodes(topology: Topology, observed: Observations) -> BoolArray:
    """Nodes that count at their default limits: unheard, no host unit, no actuator, (n_nodes,)."""
    unheld = ~observed.gpu_controlled | np.isnan(observed.gpu_guaranteed_watts)
    fixed = (observed.node_received_ns < 0) | ~topology.node_host_unit
    if some(unheld):
        fixed[topology.node_of_gpu[unheld]] = True
    return fixed


def case_watts(
    topology: Topology, load: LoadTree, caps: FloatArray, fixed: BoolArray
) -> FloatArray:
    """I1's worst case with some nodes at their default limits, (n_domains,)."""
    return guaranteed_case_watts(
        load,
        caps,
        topology.default_limit_watts,
        topology.node_worst_watts,
        fixed,
        topology.host_lines,
    )
