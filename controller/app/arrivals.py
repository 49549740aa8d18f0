"""What pods that got a node lately draw already: the part of their watts that the meter shows.

pods, agents' attribution, one tick's draws ──> PowerDomain.status.arrivals ──> placement

Placement counts the rest of each such pod's nominal watts on top of the draw. Both figures are of
one tick and one write, so that what the draw holds is neither counted twice nor forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from controller.app.tick_loop import TickOutcome
from wattpack.api.power_domain import MAX_ARRIVALS, Arrival
from wattpack.kube.port import JsonObject
from wattpack.pod_binding import RAMP_SECONDS, bound_at_seconds
from wattpack.units import NS_PER_SECOND

__all__ = ["arrivals_by_domain"]


def arrivals_by_domain(
    outcome: TickOutcome,
    pods: Mapping[tuple[str, str], JsonObject],
    pod_of_gpu: Mapping[str, tuple[str, str]],
    idle_watts: Mapping[str, float],
) -> dict[str, list[Arrival]]:
    """By domain directly above: pods bound within the ramp and what their GPUs draw above idle.

    A pod of which any GPU is silent or unread is left out: placement then counts all of it.

    Args:
        outcome: A tick.
        pods: Objects by namespace and name.
        pod_of_gpu: Namespace and name of the pod on each GPU, by UUID.
        idle_watts: Of each GPU's type, by UUID.
    """
    since = outcome.wall_time_ns / NS_PER_SECOND - RAMP_SECONDS
    topology = outcome.topology
    fresh = ~outcome.decisions.silent_nodes
    drawn: dict[tuple[str, tuple[str, str]], list[float]] = defaultdict(list)
    for i, uuid in enumerate(topology.gpu_uuids):
        pod = pod_of_gpu.get(uuid)
        if pod is None or not since <= bound_at_seconds(pods.get(pod, {})) < np.inf:
            continue
        node = topology.node_of_gpu[i]
        domain = int(topology.domain_of_node[node])
        seen = outcome.seen.gpu_draw_watts[i] if fresh[node] else np.nan
        above = max(0.0, seen - idle_watts[uuid]) if np.isfinite(seen) else np.nan
        drawn[topology.tree.names[domain], pod].append(above)
    found: dict[str, list[Arrival]] = defaultdict(list)
    for (domain_name, pod), watts in drawn.items():
        total = sum(watts)
        if np.isfinite(total):
            uid = str(pods[pod]["metadata"].get("uid", ""))
            found[domain_name].append(Arrival(pod_uid=uid, draw_watts=round(total)))
    return {name: _most(arrivals) for name, arrivals in found.items()}


def _most(arrivals: list[Arrival]) -> list[Arrival]:
    """Those that matter most, in an order that does not change by itself."""
    most = sorted(arrivals, key=lambda a: (-a.draw_watts, a.pod_uid))[:MAX_ARRIVALS]
    return sorted(most, key=lambda a: a.pod_uid)
