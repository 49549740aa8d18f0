"""Node objects as nodes of a snapshot: what they offer, what feeds them, what work draws there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from capacity.profile_library import normal_name
from scheduler_plugin.documents.mig_geometry import geometry_of
from scheduler_plugin.documents.node_rules import Taint
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from scheduler_plugin.kube_objects.asked_amounts import MOST_OFFERED, other_amounts
from scheduler_plugin.kube_objects.hami_boards import registered_boards
from scheduler_plugin.kube_objects.host_amounts import cpu_class, nic_class, offered_by_host
from scheduler_plugin.kube_objects.node_facts import is_leaving, is_ready, taints_of
from scheduler_plugin.kube_objects.pod_claims import ClaimObjects
from scheduler_plugin.kube_objects.power_view import ModelWatts, PowerView
from scheduler_plugin.kube_objects.shared_amounts import (
    limit_milli,
    offered_milli,
    shared_board_count,
)
from scheduler_plugin.kube_objects.work_draw import WorkDraws
from wattpack.device_requests import Devices
from wattpack.errors import InputError
from wattpack.gpu_resources import board_count, counts_whole_boards, gpu_demand
from wattpack.kube.port import JsonObject
from wattpack.object_names import GPU_MODEL_LABELS, UNCONTROLLED_TAINT
from wattpack.power.power_grid import Feeding
from wattpack.quantities import resources

__all__ = ["NodeReader"]

DEFAULT_POD_SLOTS: Final = 110
"""Of a kubelet that does not say (its own default)."""


@dataclass(frozen=True, slots=True)
class NodeReader:
    """What nodes are read against.

    Attributes:
        power: Which domain feeds a node.
        models: Power of GPU types by normalised name.
        devices: What nodes offer to claims.
        draws: What the work of this snapshot's pods draws.
        ports: Ports of the host that every node offers, by resource name.
        at_caps: Plans may count work at caps where the controller sets them.
    """

    power: PowerView
    models: Mapping[str, ModelWatts]
    devices: ClaimObjects
    draws: WorkDraws
    ports: Mapping[str, int]
    at_caps: bool = False

    def node(self, body: JsonObject) -> Node:
        """The node; one that cannot be read holds nothing and takes nothing."""
        try:
            return self._node(body)
        except ValidationError:
            return Node(name=body["metadata"]["name"], milli_cpu=0, memory_bytes=0, ready=False)

    def _node(self, body: JsonObject) -> Node:
        metadata, spec = body["metadata"], body.get("spec") or {}
        labels = dict(metadata.get("labels") or {})
        allocatable = (body.get("status") or {}).get("allocatable") or {}
        offered = self.devices.slices.by_node.get(metadata["name"], Devices())
        product = offered.products[0] if len(offered.products) == 1 else ""
        label = next((labels[k] for k in GPU_MODEL_LABELS if labels.get(k)), product)
        watts = self.models.get(normal_name(label))
        feeding = self.power.feeding(body)
        known, taints = True, taints_of(body)
        try:
            amounts = resources("status.allocatable", allocatable)
            slots = amounts.get("pods", DEFAULT_POD_SLOTS)
        except InputError:
            amounts, slots, known = Counter(), 0, False
        gpus = gpu_demand(amounts).whole if counts_whole_boards(labels) else 0
        gpus = max(gpus, offered.boards)
        boards = max(min(board_count(body), MAX_GPUS) if known else 0, offered.boards)
        if shared := registered_boards(body):
            gpus = boards = len(shared)
        efficiency = self.power.grid.path_efficiency(feeding.domain)
        extra = watts.added(self.draws.class_watts(watts), efficiency) if watts else {}
        return Node(
            name=metadata["name"],
            gpu_model=watts.model if watts else label,
            gpu_milli=gpus * MILLI_PER_GPU,
            milli_cpu=min(amounts["cpu"], MOST_OFFERED),
            memory_bytes=min(amounts["memory"], MOST_OFFERED),
            pods=min(slots, 100_000),
            cpu_class=cpu_class(labels),
            nic_class=nic_class(labels),
            resources=offered_by_host(body)
            | other_amounts(amounts, MOST_OFFERED)
            | dict(offered.resources)
            | offered_milli(amounts, labels, boards)
            | dict(self.ports),
            labels=labels,
            taints=taints,
            domain=feeding.domain,
            rival_domains=feeding.strangers,
            idle_watts=self._idle_watts(feeding, boards * watts.idle_watts if watts else 0.0),
            watts_per_gpu=watts.worst_added(efficiency) if watts else 0,
            class_watts_per_gpu=extra,
            ready=known and is_ready(body),
            schedulable=not spec.get("unschedulable"),
            caps_held=self.at_caps and self._holds_caps(feeding, taints),
            power_known=not feeding.strangers
            and (watts is not None or not (boards and feeding.domain)),
            shared_boards=shared_board_count(labels, boards),
            mig_geometry=geometry_of(offered.cut_into),
            slow_down_limit_milli=limit_milli(amounts, labels),
            disrupted=is_leaving(body),
        )

    def _idle_watts(self, feeding: Feeding, boards_watts: float) -> int:
        """Of idle boards, as DC watts, and of the host at its worst, AC."""
        grid = self.power.grid
        boards = boards_watts / grid.path_efficiency(feeding.domain)
        return math.ceil(boards + grid.worst_host_watts(feeding))

    def _holds_caps(self, feeding: Feeding, taints: Sequence[Taint]) -> bool:
        controlled = all(taint.key != UNCONTROLLED_TAINT for taint in taints)
        return controlled and self.power.holds_caps(feeding)
