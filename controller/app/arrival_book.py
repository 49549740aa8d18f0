"""What pods that got a node lately draw already: the part of their watts that the meter shows.

pods, agents' attribution, one tick's draws ──> PowerDomain.status.arrivals ──> placement

Placement counts the rest of each such pod's nominal watts on top of the draw. Both figures are of
one tick and one write, so that what the draw holds is neither counted twice nor forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controller.app.tick_loop import TickOutcome
from wattpack.api.power_domain import MAX_ARRIVALS, Arrival
from wattpack.kube.port import JsonObject
from wattpack.pod_binding import RAMP_SECONDS, bound_at_seconds
from wattpack.units import NS_PER_SECOND

__all__ = ["ArrivalBook", "PodsOnGpus"]

# A board at work draws more than this share of the way from idle to its limit; copying weights in
# draws less (assumed: 100 to 150 W of 700 W; to be measured on real boards).
_AT_WORK_SHARE = 0.25
# A shorter burst may be a warm-up (assumed).
_AT_WORK_NS = 10 * NS_PER_SECOND

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PodsOnGpus:
    """Who is on which board.

    Attributes:
        objects: Pods by namespace and name.
        pod_of_gpu: Namespace and name of the pod on each GPU, by UUID.
        idle_watts: Of each GPU's type, by UUID.
    """

    objects: Mapping[Key, JsonObject]
    pod_of_gpu: Mapping[str, Key]
    idle_watts: Mapping[str, float]


@dataclass(slots=True)
class _Pod:
    """One pod's boards below one domain: watts above idle, NaN if one is unread."""

    above_watts: float = 0.0
    at_work_watts: float = 0.0


class ArrivalBook:
    """Remembers since when each new pod draws like one that works."""

    def __init__(self) -> None:
        self._working_since_ns: dict[str, int] = {}

    def take(self, outcome: TickOutcome, pods: PodsOnGpus) -> dict[str, list[Arrival]]:
        """By domain directly above: pods bound within the ramp and what they draw above idle.

        A pod of which any GPU is silent or unread is left out: placement then counts all of it.
        """
        found: dict[str, list[Arrival]] = defaultdict(list)
        working: dict[str, int] = {}
        now_ns = outcome.wall_time_ns
        for (domain, key), pod in _draws(outcome, pods).items():
            if not np.isfinite(pod.above_watts):
                continue
            uid = str(pods.objects[key]["metadata"].get("uid", ""))
            if pod.above_watts >= pod.at_work_watts:
                working[uid] = self._working_since_ns.get(uid, now_ns)
            at_work = uid in working and now_ns - working[uid] >= _AT_WORK_NS
            drawn = round(pod.above_watts)
            found[domain].append(Arrival(pod_uid=uid, draw_watts=drawn, at_work=at_work))
        self._working_since_ns = working
        return {name: _most(arrivals) for name, arrivals in found.items()}


def _draws(outcome: TickOutcome, pods: PodsOnGpus) -> dict[tuple[str, Key], _Pod]:
    since = outcome.wall_time_ns / NS_PER_SECOND - RAMP_SECONDS
    bound = {key: bound_at_seconds(pods.objects.get(key, {})) for key in pods.pod_of_gpu.values()}
    recent = {key for key, at in bound.items() if since <= at < np.inf}
    topology = outcome.topology
    silent = outcome.decisions.silent_nodes
    draws: dict[tuple[str, Key], _Pod] = defaultdict(_Pod)
    for i, uuid in enumerate(topology.gpu_uuids if recent else ()):
        key = pods.pod_of_gpu.get(uuid)
        if key is None or key not in recent:
            continue
        node = topology.node_of_gpu[i]
        idle = pods.idle_watts[uuid]
        drawn = outcome.seen.gpu_draw_watts[i] if not silent[node] else np.nan
        pod = draws[topology.tree.names[int(topology.domain_of_node[node])], key]
        # Not ``max``, which would swallow a NaN.
        pod.above_watts += float(np.maximum(drawn - idle, 0.0))
        pod.at_work_watts += _AT_WORK_SHARE * float(topology.default_limit_watts[i] - idle)
    return draws


def _most(arrivals: list[Arrival]) -> list[Arrival]:
    """Those that matter most, in an order that does not change by itself."""
    most = sorted(arrivals, key=lambda a: (-a.draw_watts, a.pod_uid))[:MAX_ARRIVALS]
    return sorted(most, key=lambda a: a.pod_uid)
