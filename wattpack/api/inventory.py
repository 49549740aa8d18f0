"""GpuNode, GPUProfile and WorkloadProfile: what is there and what it does with a watt."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from wattpack.api.object_meta import (
    AGE,
    READY,
    ApiModel,
    ApiObject,
    CelRule,
    Conditions,
    Counter,
    Fraction,
    KindMeta,
    ModelName,
    Name,
    NonNegativeWatts,
    ObservedGeneration,
    PrintColumn,
    Watts,
)
from wattpack.gpu_resources import MAX_BOARDS


class GpuStatus(ApiModel):
    """One device of a node."""

    uuid: Annotated[
        str, Field(min_length=1, max_length=128, description="UUID as the driver gives it")
    ]
    model: Annotated[str, Field(max_length=128, description="Product name")]
    index: Annotated[int, Field(ge=0, le=MAX_BOARDS, description="Index on the node")]
    limit_watts: Annotated[
        NonNegativeWatts | None, Field(description="Power limit as read back, watts")
    ] = None
    guaranteed_watts: Annotated[
        NonNegativeWatts | None, Field(description="What expiry of a lease falls to, watts")
    ] = None
    default_limit_watts: Annotated[
        NonNegativeWatts | None, Field(description="Limit after a reboot, watts")
    ] = None
    state: Annotated[
        str, Field(max_length=32, description="Ok, Unreadable, Uncontrolled or Unknown")
    ] = "Unknown"
    trusted: Annotated[bool, Field(description="Its energy counter agrees with its cap (I7)")] = (
        True
    )


class GpuNodeSpec(ApiModel):
    """Written once by the node's agent."""

    node_name: Annotated[Name, Field(description="The node; equals metadata.name")]
    host_unit: Annotated[
        bool, Field(description="The host sets guaranteed caps before kubelet starts (I10)")
    ] = False


class GpuNodeStatus(ApiModel):
    """Health and caps of a node's devices; written only by that node's agent."""

    observed_generation: ObservedGeneration = 0
    model: Annotated[str | None, Field(max_length=128, description="GPU model of the node")] = None
    gpu_count: Annotated[Counter | None, Field(description="Devices on the node")] = None
    capped_gpus: Annotated[Counter | None, Field(description="Devices held below request")] = None
    health: Annotated[str | None, Field(max_length=32, description="Worst device state")] = None
    boot_id: Annotated[
        str | None, Field(max_length=64, description="Changes with each boot of the node")
    ] = None
    devices: Annotated[
        list[GpuStatus],
        Field(
            max_length=MAX_BOARDS,
            description="The devices, one entry a UUID",
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uuid"],
            },
        ),
    ] = []
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
    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.metadata.name == self.spec.nodeName", "spec.nodeName: the same as metadata.name"
        ),
    )
    spec: Annotated[GpuNodeSpec, Field(description="Written once by the node's agent")]
    status: Annotated[GpuNodeStatus, Field(description="Health and caps, by the agent")] = (
        GpuNodeStatus()
    )

    @model_validator(mode="after")
    def _named_like_its_node(self) -> Self:
        if self.name and self.name != self.spec.node_name:
            raise ValueError("spec.nodeName: the same as metadata.name")
        return self


class KernelClassSpec(ApiModel):
    """Power and cap sensitivity of one class of kernels on a GPU type."""

    name: Annotated[Name, Field(description="Kernel class, for example gemm or decode")]
    power_p50_watts: Annotated[Watts, Field(description="Median draw uncapped, watts")]
    power_p95_watts: Annotated[Watts, Field(description="95th percentile uncapped, watts")]
    cap_fractions: Annotated[
        list[Fraction],
        Field(min_length=2, max_length=64, description="Caps as share of the default, rising"),
    ]
    throughput_fractions: Annotated[
        list[Fraction],
        Field(min_length=2, max_length=64, description="Throughput kept at each of capFractions"),
    ]
    provenance: Annotated[
        Literal["measured", "derived", "assumed"],
        Field(description="Whether the figures were measured, derived from others or assumed"),
    ]
    error_fraction: Annotated[
        float | None, Field(ge=0, le=10, description="Relative error of the cap map (speed)")
    ] = None
    power_error_fraction: Annotated[
        float | None, Field(ge=0, le=10, description="Relative error of predicted draws, held out")
    ] = None
    time_error_fraction: Annotated[
        float | None, Field(ge=0, le=10, description="Relative error of predicted times, held out")
    ] = None
    source: Annotated[
        str, Field(max_length=2048, description="Paper and section, or data file and script")
    ] = ""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.capFractions.size() == self.throughputFractions.size()",
            "throughputFractions: one value for each of capFractions",
        ),
        CelRule("self.capFractions.isSorted()", "capFractions: values that rise"),
        CelRule("self.powerP50Watts <= self.powerP95Watts", "powerP50Watts: at most powerP95Watts"),
    )

    @model_validator(mode="after")
    def _the_map_is_one(self) -> Self:
        if len(self.cap_fractions) != len(self.throughput_fractions):
            raise ValueError("throughputFractions: one value for each of capFractions")
        if any(a > b for a, b in pairwise(self.cap_fractions)):
            raise ValueError("capFractions: values that rise")
        if self.power_p50_watts > self.power_p95_watts:
            raise ValueError("powerP50Watts: at most powerP95Watts")
        return self


class SharedPairSpec(ApiModel):
    """Two kinds of work measured beside one another on one board of this type."""

    workload: Annotated[Name, Field(description="One of them, as pods' wattpack.io/workload says")]
    batch_size: Annotated[int, Field(ge=1, le=10**9, description="Samples of a step of it")] = 1
    beside: Annotated[Name, Field(description="The other")]
    beside_batch_size: Annotated[int, Field(ge=1, le=10**9, description="Of the other")] = 1
    speed: Annotated[
        float, Field(gt=0, le=1.02, description="Of the first, over its own alone on this type")
    ]
    beside_speed: Annotated[float, Field(gt=0, le=1.02, description="Of the other")]


class GPUProfileSpec(ApiModel):
    """Measured constants of a GPU type."""

    model: Annotated[ModelName, Field(description="GPU type, for example H200-SXM")]
    product_names: Annotated[
        list[ModelName],
        Field(min_length=1, max_length=32, description="Names that the driver gives this type"),
    ]
    idle_watts: Annotated[Watts, Field(description="Draw when idle, watts")]
    min_limit_watts: Annotated[Watts, Field(description="Lowest settable power limit, watts")]
    default_limit_watts: Annotated[Watts, Field(description="Power limit after boot, watts")]
    max_limit_watts: Annotated[Watts, Field(description="Highest settable power limit, watts")]
    knee_watts: Annotated[Watts, Field(description="Below this cap work per watt falls, watts")]
    max_clock_mhz: Annotated[int, Field(gt=0, le=10000, description="Highest SM clock, MHz")]
    kernel_classes: Annotated[
        list[KernelClassSpec],
        Field(min_length=1, max_length=32, description="Power and cap map by class of kernels"),
    ]
    shared_pairs: Annotated[
        list[SharedPairSpec],
        Field(max_length=1024, description="Measured pairs of work that share a board, if any"),
    ] = []
    provenance_hash: Annotated[
        str, Field(max_length=128, description="Digest of the data that the figures come from")
    ] = ""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.minLimitWatts <= self.defaultLimitWatts"
            " && self.defaultLimitWatts <= self.maxLimitWatts",
            "defaultLimitWatts: between minLimitWatts and maxLimitWatts",
        ),
        CelRule("self.model == oldSelf.model", "model cannot be changed; make a new profile"),
    )

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> Self:
        if not self.min_limit_watts <= self.default_limit_watts <= self.max_limit_watts:
            raise ValueError("defaultLimitWatts: between minLimitWatts and maxLimitWatts")
        return self


class GPUProfileStatus(ApiModel):
    """Where the profile came from."""

    observed_generation: ObservedGeneration = 0
    source: Annotated[
        str | None, Field(max_length=256, description="Where the constants come from")
    ] = None
    error_fraction: Annotated[
        float | None, Field(description="Worst relative error of a cap map")
    ] = None
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
            READY,
            AGE,
        ),
    )
    spec: Annotated[GPUProfileSpec, Field(description="Measured constants of a GPU type")]
    status: Annotated[GPUProfileStatus, Field(description="Where the profile came from")] = (
        GPUProfileStatus()
    )


class WorkloadProfileSpec(ApiModel):
    """What a workload needs and how it bears a cap."""

    kind: Annotated[
        Literal["Serving", "Training", "Batch"], Field(description="Serving, Training or Batch")
    ]
    workload: Annotated[
        str,
        Field(max_length=64, description="Entry of the workload catalogue; empty = none"),
    ] = ""
    kernel_mix: Annotated[
        dict[str, Fraction],
        Field(
            max_length=32,
            description="Kernel class to share of GPU time; empty = that of the workload's entry",
        ),
    ] = {}
    confidence: Annotated[
        Fraction | None,
        Field(description="Probability that a classifier gave; unset where people say it"),
    ] = None
    phases: Annotated[
        list[Name],
        Field(
            max_length=16,
            description="Names of its phases, in order. Recorded, not acted on yet: kernelMix or "
            "the workload's entry says what it does",
        ),
    ] = []
    checkpoint_seconds: Annotated[
        float | None, Field(ge=0, le=1e6, description="Work lost by a stop, seconds")
    ] = None
    malleable: Annotated[
        bool,
        Field(
            description="Can shrink or be suspended at a checkpoint. Recorded, not acted on yet: "
            "nothing is shrunk or suspended for power"
        ),
    ] = False
    priority_class: Annotated[
        str,
        Field(
            max_length=253,
            description="PriorityClass of its pods; empty = any. Recorded, not acted on yet: the "
            "pod's own class counts",
        ),
    ] = ""


class WorkloadProfileStatus(ApiModel):
    """Whether the profile is in use."""

    observed_generation: ObservedGeneration = 0
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
            PrintColumn("Workload", "string", ".spec.workload", "Entry of the catalogue"),
            PrintColumn(
                "Classified",
                "string",
                ".metadata.labels.wattpack\\.io/classified",
                "What binds the work, where the controller found out",
            ),
            PrintColumn("Confidence", "number", ".spec.confidence", "Of a classified profile"),
            PrintColumn("Checkpoint", "number", ".spec.checkpointSeconds", "Cost of a stop"),
            READY,
            AGE,
        ),
    )
    spec: Annotated[WorkloadProfileSpec, Field(description="What the work needs and bears")]
    status: Annotated[WorkloadProfileStatus, Field(description="Whether it is in use")] = (
        WorkloadProfileStatus()
    )
