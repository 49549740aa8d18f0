"""What hosts and bound pods add below each power domain, for its room."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping

from scheduler_plugin.documents.snapshot import Node, Pod, PodState
from scheduler_plugin.kube_objects.power_view import BoundLoad
from scheduler_plugin.room.resource_columns import gpu_watts, pod_watts

__all__ = ["bound_loads", "host_watts"]


def host_watts(nodes: list[Node]) -> dict[str, float]:
    """Servers at worst and idle boards directly below each domain, AC watts."""
    watts: dict[str, float] = defaultdict(float)
    for node in nodes:
        if node.domain:
            watts[node.domain] += node.idle_watts
    return watts


def bound_loads(
    nodes: list[Node],
    planned: list[Pod],
    bound_at: Mapping[str, float],
    spread_share: Callable[[str, str], float] | None = None,
    ready_at: Mapping[str, float] | None = None,
) -> list[BoundLoad]:
    """What every bound pod below a domain adds, and since when.

    Args:
        nodes: Of the snapshot.
        planned: Pods of it.
        bound_at: Unix time by uid.
        spread_share: Of a GPU model and kernel class, the standard deviation of the draw over its
            95th percentile, both above idle; None counts no spread. Declared draw has none.
        ready_at: Unix time by uid since when probes say that the pod serves; None for no word.
    """
    by_name = {node.name: node for node in nodes}
    found: list[BoundLoad] = []
    for pod in planned:
        on = by_name.get(pod.node)
        if pod.state is PodState.BOUND and on is not None and on.domain and gpu_watts(pod, 1):
            share = 0.0
            known = pod.kernel_class in on.class_watts_per_gpu
            if spread_share is not None and known and pod.expected_watts_per_gpu is None:
                share = spread_share(on.gpu_model, pod.kernel_class)
            watts, since = pod_watts(pod, on), bound_at[pod.uid]
            ready = math.inf if ready_at is None else ready_at.get(pod.uid, math.inf)
            found.append(BoundLoad(on.domain, pod.uid, watts, since, share * watts, ready))
    return found
