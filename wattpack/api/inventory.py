"""GpuNode, GPUProfile and WorkloadProfile: what is there and what it does with a watt."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattpack.api.meta import (
    AGE,
    READY,
    ApiModel,
    ApiObject,
    Conditions,
    Fraction,
    KindMeta,
    Name,
    PrintColumn,
    Watts,
)


class GpuStatus(ApiModel):
    """One device of a node."""

    uuid: Annotated[str, Field(min_length=1, max_length=128)]
    model: Annotated[str, Field(max_length=128)]
    index: Annotated[int, Field(ge=0, le=64)]
    cap_watts: float | None = None
    guaranteed_watts: float | None = None
    default_limit_watts: float | None = None
    state: Annotated[str, Field(max_length=32)] = "Unknown"
    trusted: bool = True


class GpuNodeSpec(ApiModel):
    """Written once by the node's agent."""

    node_name: Name
    host_unit: Annotated[
        bool, Field(description="The host sets guaranteed caps before kubelet starts (I10)")
    ] = False


class GpuNodeStatus(ApiModel):
    """Health and caps of a node's devices; written only by that node's agent."""

    observed_generation: int = 0
    model: Annotated[str | None, Field(max_length=128)] = None
    gpu_count: int | None = None
    capped_gpus: int | None = None
    health: Annotated[str | None, Field(max_length=32)] = None
    boot_id: Annotated[str | None, Field(max_length=64)] = None
    devices: Annotated[list[GpuStatus], Field(max_length=64)] = []
    conditions: Conditions = []


class GpuNode(ApiObject):
    """The GPUs of one node: caps, health, trust."""

    meta: ClassVar[KindMeta] = KindMeta(
        "GpuNode",
        "gpunodes",
        ("gnode",),
        False,
        (
            PrintColumn("Model", "string", ".status.model", "GPU model"),
            PrintColumn("GPUs", "integer", ".status.gpuCount", "Devices"),
            PrintColumn("Capped", "integer", ".status.cappedGpus", "Held below request"),
            PrintColumn("Health", "string", ".status.health", "Worst device state"),
            AGE,
        ),
    )
    spec: GpuNodeSpec
    status: GpuNodeStatus = GpuNodeStatus()


class KernelClassSpec(ApiModel):
    """Power and cap sensitivity of one class of kernels on a GPU type."""

    name: Name
    power_p50_watts: Watts
    power_p95_watts: Watts
    cap_fractions: Annotated[list[Fraction], Field(min_length=2, max_length=64)]
    throughput_fractions: Annotated[list[Fraction], Field(min_length=2, max_length=64)]
    provenance: Literal["measured", "derived", "assumed"]
    error_fraction: Annotated[float | None, Field(ge=0, le=10)] = None
    source: Annotated[str, Field(max_length=2048)] = ""


class GPUProfileSpec(ApiModel):
    """Measured constants of a GPU type."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    product_names: Annotated[list[str], Field(min_length=1, max_length=32)]
    idle_watts: Watts
    min_limit_watts: Watts
    default_limit_watts: Watts
    max_limit_watts: Watts
    knee_watts: Watts
    max_clock_mhz: Annotated[int, Field(gt=0, le=10000)]
    kernel_classes: Annotated[list[KernelClassSpec], Field(min_length=1, max_length=32)]
    provenance_hash: Annotated[str, Field(max_length=128)] = ""


class GPUProfileStatus(ApiModel):
    """Where the profile came from."""

    observed_generation: int = 0
    source: Annotated[str | None, Field(max_length=256)] = None
    error_fraction: float | None = None
    conditions: Conditions = []


class GPUProfile(ApiObject):
    """What one GPU type does with a watt."""

    meta: ClassVar[KindMeta] = KindMeta(
        "GPUProfile",
        "gpuprofiles",
        ("gprof",),
        False,
        (
            PrintColumn("Model", "string", ".spec.model", "GPU type"),
            PrintColumn("Source", "string", ".status.source", "Where the constants come from"),
            PrintColumn("Error", "number", ".status.errorFraction", "Worst error of a cap map"),
            AGE,
        ),
    )
    spec: GPUProfileSpec
    status: GPUProfileStatus = GPUProfileStatus()


class WorkloadProfileSpec(ApiModel):
    """What a workload needs and how it bears a cap."""

    kind: Literal["Serving", "Training", "Batch"]
    kernel_mix: Annotated[
        dict[str, Fraction], Field(max_length=32, description="Kernel class to share of GPU time")
    ]
    phases: Annotated[list[Name], Field(max_length=16)] = []
    slo_p99_slowdown: Annotated[float | None, Field(ge=1, le=1000)] = None
    checkpoint_seconds: Annotated[float | None, Field(ge=0, le=1e6)] = None
    malleable: bool = False
    priority_class: Annotated[str, Field(max_length=253)] = ""


class WorkloadProfileStatus(ApiModel):
    """Whether the profile is in use."""

    observed_generation: int = 0
    conditions: Conditions = []


class WorkloadProfile(ApiObject):
    """What a workload needs and how it bears a cap."""

    meta: ClassVar[KindMeta] = KindMeta(
        "WorkloadProfile",
        "workloadprofiles",
        ("wprof",),
        True,
        (
            PrintColumn("Kind", "string", ".spec.kind", "Serving, Training or Batch"),
            PrintColumn("SLO", "number", ".spec.sloP99Slowdown", "p99 slowdown allowed"),
            PrintColumn("Checkpoint", "number", ".spec.checkpointSeconds", "Cost of a stop"),
            READY,
            AGE,
        ),
    )
    spec: WorkloadProfileSpec
    status: WorkloadProfileStatus = WorkloadProfileStatus()
