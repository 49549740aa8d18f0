"""What Prometheus learns about pods that wait, how long they did, and GPUs that nobody has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.packing.free_gpus import free_gpus, open_gpus
from scheduler_plugin.packing.held_amounts import held_room
from scheduler_plugin.packing.objective import FRAGMENTATION_STEP_MILLI
from scheduler_plugin.packing.planned_levels import planned_levels
from scheduler_plugin.room.resource_columns import gpu_value_milli
from wattpack.kube.port import JsonObject

__all__ = ["RoomMetrics"]

_WAITED_SECONDS: Final = (1, 2, 5, 10, 30, 60, 300, 1800, 3600, 14400, 86400)


class RoomMetrics:
    """Series of the replica that plans; the others show none of the gauges.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pending = Gauge(
            "wattpack_placement_pending_pods",
            "Managed pods without a place by dominant cause.",
            ["reason"],
            registry=registry,
        )
        self._waited = Histogram(
            "wattpack_placement_waited_seconds",
            "From a pod's creation to its release with a node; creation is told in whole seconds.",
            buckets=_WAITED_SECONDS,
            registry=registry,
        )
        self._gpus = Gauge(
            "wattpack_placement_gpus",
            "GPUs of nodes that take pods as the newest plan leaves them: held or free.",
            ["gpu_model", "state"],
            registry=registry,
        )
        self._stranded = Gauge(
            "wattpack_placement_stranded_gpus",
            "Of the free GPUs what the expected demand cannot use on its nodes (the measure of "
            "FGD), as the newest plan leaves them.",
            registry=registry,
        )
        self._capped = Gauge(
            "wattpack_placement_capped_gpus",
            "GPUs of placed and promised pods that the newest plan counts at a cap, in watts of a "
            "board, which the controller is expected to set; none where nobody counts at one.",
            ["gpu_model", "kernel_class", "cap_watts"],
            registry=registry,
        )
        self._longest_wait = Gauge(
            "wattpack_placement_longest_wait_seconds",
            "Since the creation of the managed pod that waits longest for a place; 0 if none does.",
            registry=registry,
        )
        self._patience = Gauge(
            "wattpack_placement_patience_seconds",
            "What work with GPUs waits before room is held for it; 0 where none ever is.",
            registry=registry,
        )
        self._held_gpus = Gauge(
            "wattpack_placement_held_gpus",
            "Free GPUs that are kept for work which waited longer than its patience, as the newest "
            "plan leaves them.",
            registry=registry,
        )
        self._held_watts = Gauge(
            "wattpack_placement_held_watts",
            "Free watts of power domains that are kept for such work, as the newest plan leaves "
            "them, AC.",
            ["domain"],
            registry=registry,
        )

    def waiting(self, causes: Iterable[str]) -> None:
        """Who waits now, a cause each."""
        self._pending.clear()
        counts = Counter(causes)
        for reason, count in counts.items():
            self._pending.labels(reason).set(count)
        if not counts:
            self._longest_wait.set(0.0)
            self._none_held()

    def longest_wait(self, seconds: float, patience_seconds: float) -> None:
        """Of all that wait for a place now, and after what time room is held for it."""
        self._longest_wait.set(seconds)
        self._patience.set(patience_seconds)

    def released(self, pods: Iterable[JsonObject], wall_seconds: float) -> None:
        """They got their nodes at this Unix time."""
        for pod in pods:
            if (created := pod_facts.created_seconds(pod)) is not None:
                self._waited.observe(max(0.0, wall_seconds - created))

    def planned(self, plan: Plan, snapshot: Snapshot) -> None:
        """GPUs once the plan is carried out."""
        total, free = open_gpus(snapshot), free_gpus(snapshot)
        for model, gpus in _taken(plan, snapshot).items():
            free[model] = max(0.0, free.get(model, 0.0) - gpus)
        self._gpus.clear()
        for model, gpus in total.items():
            self._gpus.labels(model, "free").set(free[model])
            self._gpus.labels(model, "held").set(gpus - free[model])
        self._capped.clear()
        for level, gpus in planned_levels(plan, snapshot).items():
            self._capped.labels(*map(str, level)).set(gpus)
        self._none_held()
        gpus, watts = held_room(snapshot, plan)
        self._held_gpus.set(gpus)
        for domain, each in watts.items():
            self._held_watts.labels(domain).set(each)
        order = snapshot.objective
        if plan.objective and ObjectiveStage.FRAGMENTATION in order:
            stages = 2 * len(plan.tiers)
            steps = -plan.objective[stages + order.index(ObjectiveStage.FRAGMENTATION)]
            self._stranded.set(steps * FRAGMENTATION_STEP_MILLI / MILLI_PER_GPU)

    def stands_by(self) -> None:
        """Another replica tells."""
        self._pending.clear()
        self._gpus.clear()
        self._capped.clear()
        self._stranded.set(0.0)
        self._longest_wait.set(0.0)
        self._none_held()

    def _none_held(self) -> None:
        self._held_gpus.set(0.0)
        self._held_watts.clear()


def _taken(plan: Plan, snapshot: Snapshot) -> Mapping[str, float]:
    """GPUs that a plan takes from what is free, by model; below 0 for given back.

    Where a plan has steps, placements are among them.
    """
    models = {node.name: node.gpu_model for node in snapshot.nodes if node.is_open}
    walk = [(step.uid, step.node, step.arrives) for step in plan.steps]
    walk = walk or [(placed.uid, placed.node, True) for placed in plan.placements]
    named = {uid for uid, _, _ in walk}
    pods = (pod for pod in snapshot.pods if pod.uid in named)
    gpus = {pod.uid: gpu_value_milli(pod) / MILLI_PER_GPU for pod in pods}
    taken: dict[str, float] = defaultdict(float)
    for uid, node, arrives in walk:
        taken[models.get(node, "")] += gpus[uid] if arrives else -gpus[uid]
    return taken
