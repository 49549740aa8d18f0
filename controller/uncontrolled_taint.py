"""When a server carries the taint ``wattpack.io/uncontrolled`` (I1). Pure.

Electricity that flows cannot be refused, but new work can: in a domain that enforces, no pod is put
on a server before each of its GPUs' guaranteed caps was read back. In a domain that only watches
nothing is tainted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.tick_values import Observations, Topology
from wattpack.power.domain_tree import BoolArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["EFFECT", "TAINT_KEY", "Word", "has_taint", "taint_patch", "unheld_gpus", "wanted_taint"]

TAINT_KEY = "wattpack.io/uncontrolled"
EFFECT = "NoSchedule"

# A server that was controlled a moment ago keeps its guaranteed caps in its actuator: an agent that
# is rolled out anew (about 5 s) moves no taint.
PATIENCE_NS = 10 * NS_PER_SECOND
# A controller that has just started has heard nobody; agents call again within a back-off of 30 s.
LISTENING_NS = 40 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Word:
    """What is known of one server.

    Attributes:
        enforcing: It is a member of a domain that enforces.
        held: Every guaranteed cap was read back, in a report that is fresh.
        tainted: It carries the taint now.
        unheld_ns: For how long it has not been held.
        was_held: It was held at some time since this process began.
        listening_ns: For how long this process has heard agents.
    """

    enforcing: bool
    held: bool
    tainted: bool
    unheld_ns: int = 0
    was_held: bool = False
    listening_ns: int = LISTENING_NS


def wanted_taint(word: Word) -> bool:
    """Whether the server shall carry the taint."""
    if not word.enforcing or word.held:
        return False
    if word.tainted:
        return True
    if word.was_held:
        return word.unheld_ns >= PATIENCE_NS
    return word.listening_ns >= LISTENING_NS


def unheld_gpus(topology: Topology, seen: Observations, silent_nodes: BoolArray) -> IntArray:
    """GPUs of each server whose guaranteed cap nobody vouches for now, (n_nodes,).

    Args:
        topology: Who hangs where.
        seen: The tick's observations.
        silent_nodes: Without a fresh report: all their GPUs count, (n_nodes,).
    """
    unheld = ~seen.gpu_controlled | np.isnan(seen.gpu_guaranteed_watts)
    unheld |= silent_nodes[topology.node_of_gpu]
    return np.bincount(topology.node_of_gpu[unheld], minlength=topology.n_nodes)


def has_taint(taints: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ours is among them, with whatever value."""
    return any(_is_ours(taint) for taint in taints)


def taint_patch(node: Mapping[str, Any], *, wanted: bool) -> list[dict[str, Any]]:
    """A JSON Patch that adds or removes our taint and keeps every other; empty if nothing is to do.

    It holds for the version of the node that was read: a taint's place in the list may have moved.
    """
    spec = node.get("spec")
    taints = (spec or {}).get("taints") or []
    if has_taint(taints) == wanted:
        return []
    version = node["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    ours = {"key": TAINT_KEY, "effect": EFFECT}
    if not wanted:
        places = [i for i, taint in enumerate(taints) if _is_ours(taint)]
        return [test, *({"op": "remove", "path": f"/spec/taints/{i}"} for i in reversed(places))]
    if taints:
        return [test, {"op": "add", "path": "/spec/taints/-", "value": ours}]
    if isinstance(spec, Mapping):
        return [test, {"op": "add", "path": "/spec/taints", "value": [ours]}]
    return [test, {"op": "add", "path": "/spec", "value": {"taints": [ours]}}]


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == TAINT_KEY and taint.get("effect") == EFFECT
