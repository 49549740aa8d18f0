"""Nodes of a snapshot."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from scheduler_plugin.documents.mig_geometry import MigGeometryName
from scheduler_plugin.documents.node_rules import Taint
from scheduler_plugin.documents.snapshot_amounts import (
    GpuMilli,
    GpuWatts,
    Quantity,
    ResourceName,
    SlowDownMilli,
    WattsInt,
)
from scheduler_plugin.documents.snapshot_checks import beside_the_core, whole
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["Node"]


class Node(Value):
    """What a node can hold in total.

    Attributes:
        resources: Everything else that it offers, by name, GPU resources too: bytes of
            ``ephemeral-storage`` and ``hugepages-*``, whole units of extended resources. One of
            ``HOST_RESOURCES`` that is not named does not limit the node.
        cpu_class: Of its CPUs, any name; empty for unknown.
        nic_class: Of its NICs, such as ``8x400g-roce``; empty for unknown.
        domain: The power domain directly above it, empty if none is declared.
        rival_domains: Domains of other branches that claim the node too; it gets no promises.
        idle_watts: Draw without work, the host at its worst; already part of the domain's
            ``used_watts``.
        watts_per_gpu: What one busy GPU adds, for work of unknown kind.
        class_watts_per_gpu: The same for known kernel classes, at the cap that they get.
        gpu_hour_cost_milli: What an hour of one of its GPUs costs, thousandths of any currency.
        carbon_grams_per_kwh: Of the energy that feeds it, CO2e.
        caps_held: The controller sets its boards' caps: plans may count work there at one.
        power_known: False below a power domain without figures for the GPU type, or where it is
            unknown which breaker feeds it: no promises (I8).
        disrupted: Marked for drain, consolidation or maintenance: gets no promises.
        shared_boards: Boards that pods share here.
        slow_down_limit_milli: The most that they may slow one another down, in thousandths of the
            time alone; 0 for no limit.
        mig_geometry: How its boards can be cut into MIG instances as pods ask for them, one of
            ``GEOMETRIES`` in ``mig_geometry``; empty where they are as they are: instances that
            exist are ``resources``.
    """

    name: Id
    gpu_model: Label = ""
    gpu_milli: GpuMilli = 0
    cpu_class: Label = ""
    nic_class: Label = ""
    milli_cpu: Quantity
    memory_bytes: Quantity
    pods: Annotated[int, Field(ge=0, le=100_000)] = 110
    resources: dict[ResourceName, Quantity] = {}
    labels: dict[Label, Label] = {}
    taints: tuple[Taint, ...] = ()
    domain: Label = ""
    rival_domains: tuple[Label, ...] = ()
    idle_watts: WattsInt = 0
    watts_per_gpu: GpuWatts = 0
    class_watts_per_gpu: dict[Label, GpuWatts] = {}
    gpu_hour_cost_milli: Annotated[int, Field(ge=0, le=10**9)] = 0
    carbon_grams_per_kwh: Annotated[int, Field(ge=0, le=10_000)] = 0
    caps_held: bool = False
    power_known: bool = True
    ready: bool = True
    schedulable: bool = True
    disrupted: bool = False
    shared_boards: Annotated[int, Field(ge=1, le=MAX_GPUS)] = 1
    slow_down_limit_milli: SlowDownMilli = 0
    mig_geometry: MigGeometryName = ""

    @property
    def is_open(self) -> bool:
        """Whether it takes pods: it is ready, not cordoned, and nobody is about to drain it."""
        return self.ready and self.schedulable and not self.disrupted

    @property
    def feed_known(self) -> bool:
        """Whether watts of new work can be counted: against which domains, and how many (I8)."""
        return self.power_known and not self.rival_domains

    @field_validator("gpu_milli")
    @classmethod
    def _whole_gpus(cls, value: int) -> int:
        return whole(value)

    @field_validator("labels", "class_watts_per_gpu")
    @classmethod
    def _in_order(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(value.items()))

    @field_validator("resources")
    @classmethod
    def _each_once(cls, value: dict[str, int]) -> dict[str, int]:
        return beside_the_core(value)
