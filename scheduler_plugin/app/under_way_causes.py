"""Who waits for a node that is on its way is told so, and is not let go without one meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from scheduler_plugin.app.waiting_pods import UNSERVABLE, Cause
from scheduler_plugin.packing.greedy_orders import orders_of, pack
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.snapshot_builder import BuiltSnapshot
from scheduler_plugin.solver.steps import changes

__all__ = ["NODE_UNDER_WAY", "with_nodes_under_way"]

#: Reason of a pod that no present node can serve, and one that is on its way can.
NODE_UNDER_WAY: Final = "NodeUnderWay"


def with_nodes_under_way(causes: Mapping[str, Cause], built: BuiltSnapshot) -> dict[str, Cause]:
    """The causes; of pods that no present node can serve those that another one will.

    Args:
        causes: Why pods wait, by uid.
        built: With what is on its way.
    """
    hopeless = {uid for uid, (reason, _) in causes.items() if reason in UNSERVABLE}
    found = {uid: built.requested[uid] for uid in hopeless & built.requested.keys()}
    if built.coming and hopeless - found.keys():
        found |= _served(built, hopeless - found.keys())
    told = {uid: (NODE_UNDER_WAY, f"{text}; now: {causes[uid][1]}") for uid, text in found.items()}
    return {**causes, **told}


def _served(built: BuiltSnapshot, hopeless: Set[str]) -> dict[str, str]:
    """In words, of those pods that would have a place with the nodes to come, gangs whole."""
    snapshot, coming = built.snapshot, {node.name: node for node in built.coming}
    gangs = {pod.gang for pod in snapshot.pods if pod.uid in hopeless and pod.gang}
    pods = [p for p in snapshot.pods if p.node or p.uid in hopeless or p.gang in gangs]
    nodes = {node.name: node for node in snapshot.nodes} | coming
    question = snapshot.model_copy(
        update={"pods": tuple(pods), "nodes": tuple(nodes[name] for name in sorted(nodes))}
    )
    problem = compile_problem(question)
    packing = pack(problem, orders_of(problem)[0][0])
    found: dict[str, str] = {}
    for one in changes(problem, packing.assignment).arrivals:
        if one.uid in hopeless:
            name = problem.node_names[one.node]
            what = f"node {name}, which is on its way," if name in coming else f"node {name}"
            found[one.uid] = f"{what} has room for it"
    return found
