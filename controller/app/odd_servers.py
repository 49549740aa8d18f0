"""Servers that are counted otherwise than their agents say: told where people look. Pure.

The Node gets an Event, its domain a condition, the metrics a count by reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from controller.app.desired_state import Refusal
from controller.tick_values import Topology
from wattpack.api import GpuNode
from wattpack.api.conditions import Finding

__all__ = ["MEMBERS_UNDERSTOOD", "members_understood", "odd_by_domain", "odd_servers"]

#: Condition of a PowerDomain: each server directly below it is counted as its agent describes it.
MEMBERS_UNDERSTOOD = "MembersUnderstood"
#: What agents say of themselves goes into the text; a condition is for people.
_MOST_CHARACTERS = 1000


def odd_servers(refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Those that are about a server."""
    return tuple(r for r in refusals if r.kind == GpuNode.meta.kind)


def odd_by_domain(
    topology: Topology, refusals: Sequence[Refusal]
) -> Mapping[str, Sequence[Refusal]]:
    """The odd servers directly below each domain that runs, by its name."""
    domain_of = dict(zip(topology.node_names, topology.domain_of_node.tolist(), strict=True))
    found: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in odd_servers(refusals):
        if refusal.name in domain_of:
            found[topology.tree.names[domain_of[refusal.name]]].append(refusal)
    return found


def members_understood(odd: Sequence[Refusal]) -> Finding:
    """The domain's condition."""
    if not odd:
        text = "every server is counted as its agent describes it"
        return Finding(MEMBERS_UNDERSTOOD, True, "AsTheySay", text)
    others = len({refusal.name for refusal in odd}) - 1
    more = f" (and {others} more servers)" if others else ""
    text = f"{odd[0].name}: {odd[0].message}"[:_MOST_CHARACTERS]
    return Finding(MEMBERS_UNDERSTOOD, False, odd[0].reason, text + more)
