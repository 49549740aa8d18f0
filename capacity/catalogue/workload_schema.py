"""One catalogue entry: what a kind of work computes, moves, waits for, keeps and bears.

``docs/workloads.md`` explains it; its JSON Schema is generated from these models. Units are in the
names. Unknown keys, NaN and infinities are refused by name.

Workload
├── parameters      figures that scale the phases: weight_bits, tokens_per_step, sparsity, …
├── stages[]        what one user request waits for, where it is a graph of calls
├── phases[]        one after the other, then again from the first
│   ├── kernels[]   what one GPU runs: gemm, attention, stream, launches, sequence, decoder
│   └── traffic     what crosses PCIe, host memory, NVMe, NIC and the links between GPUs
├── memory, startup, checkpoint, malleability, slo
└── shape           level, depth and period of its draw on the reference GPU
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from capacity.catalogue.request_stages import Stages
from capacity.kernels import LaunchMode, Mask, NumberFormat, Phase, StreamPattern
from wattpack.settings import Settings

Bound = Literal[
    "compute", "bandwidth", "launch", "latency", "host", "storage", "network", "deadline"
]
"""What a phase waits for. ``latency``: each operation needs the one before. ``deadline``: nothing
in the machine; the next frame, request or answer."""

Evidence = Literal["measured", "derived"]
"""``derived``: from the method's description. ``measured``: confirmed by benchmark rows, whose
``profile_hash`` the entry then carries."""

Positive = Annotated[float, Field(gt=0, le=1e21)]
NonNegative = Annotated[float, Field(ge=0, le=1e21)]
Duration = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=2**31)]
Size = Annotated[int, Field(ge=1, le=2**40)]
Word = Annotated[
    str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
]
LibraryKey = Annotated[str, Field(pattern=r"^[a-z0-9_.-]+/[a-z0-9_.+-]+/[a-z0-9_.+-]+$")]


class GemmPart(Settings):
    """A linear layer: m tokens, k inputs, n outputs."""

    kernel: Literal["gemm"]
    m: Size
    n: Size
    k: Size
    number_format: NumberFormat = "bf16"
    weights: Annotated[
        bool, Field(description="n and k are of stored weights: weight_bits and sparsity apply")
    ] = True
    count: Count = 1


class AttentionPart(Settings):
    """Attention of one layer."""

    kernel: Literal["attention"]
    phase: Phase
    batch: Size
    query_tokens: Size
    kv_tokens: Size
    heads: Size
    kv_heads: Size
    head_dim: Size = 128
    mask: Mask = "causal"
    window: Annotated[int, Field(ge=0, le=2**40)] = 0
    documents: Size = 1
    count: Count = 1


class StreamPart(Settings):
    """A buffer passed once through the GPU's memory; element-wise work in general."""

    kernel: Literal["stream"]
    pattern: StreamPattern = "copy"
    buffer_bytes: Positive
    efficiency: Annotated[
        float,
        Field(
            ge=0.001,
            le=1,
            description="Of a plain pass's bandwidth; irregular access reaches less",
        ),
    ] = 1.0
    count: Count = 1


class LaunchesPart(Settings):
    """Kernels too small to matter but for their launch."""

    kernel: Literal["launches"]
    count: Count


class SequencePart(Settings):
    """Operations of which each needs the one before: only the clock makes them faster."""

    kernel: Literal["sequence"]
    steps: Count
    cycles: Annotated[Positive, Field(description="SM clock cycles of one step")]
    count: Count = 1


class DecoderPart(Settings):
    """One forward pass of the entry's language model, or one forward and backward pass."""

    kernel: Literal["decoder"]
    phase: Phase
    batch: Size
    query_tokens: Size
    kv_tokens: Size
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] = 1
    number_format: NumberFormat = "bf16"
    layer_share: Annotated[
        float, Field(gt=0, le=1, description="Of the layers on this GPU (pipeline stages)")
    ] = 1.0
    training: Annotated[
        bool, Field(description="Backward pass too: twice the products, 2.5 times the attention")
    ] = False
    recompute: Annotated[bool, Field(description="One more forward pass")] = False
    is_draft: Annotated[
        bool, Field(description="Guesses tokens that another pass verifies: yields none itself")
    ] = False
    count: Count = 1


KernelPart = Annotated[
    GemmPart | AttentionPart | StreamPart | LaunchesPart | SequencePart | DecoderPart,
    Field(discriminator="kernel"),
]


class Traffic(Settings):
    """What one GPU's share of a phase moves outside its memory, bytes, and what the host does."""

    pcie_bytes: NonNegative = 0
    host_memory_bytes: NonNegative = 0
    storage_bytes: NonNegative = 0
    nic_bytes: NonNegative = 0
    link_bytes: Annotated[NonNegative, Field(description="Between GPUs of one host")] = 0
    core_seconds: Annotated[NonNegative, Field(description="CPU work, seconds of one core")] = 0


class WorkPhase(Settings):
    """One phase of the cycle."""

    name: Word
    bound: Annotated[Bound, Field(description="What binds on the reference GPU")]
    kernels: Annotated[tuple[KernelPart, ...], Field(max_length=64)] = ()
    repeats: Annotated[int, Field(ge=1, le=10**7, description="Of the kernels and traffic")] = 1
    launch_mode: LaunchMode = "graph"
    traffic: Traffic = Traffic()
    overlap: Annotated[
        Share, Field(description="Share of the traffic that hides behind the kernels")
    ] = 0.0
    wait_seconds: Annotated[
        Duration, Field(description="Nothing to do: until the next request, answer or member")
    ] = 0.0
    deadline_seconds: Annotated[
        Positive | None, Field(description="Not done before: frames come at a fixed rate")
    ] = None

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        traffic = any(getattr(self.traffic, name) for name in Traffic.model_fields)
        if not (self.kernels or traffic or self.wait_seconds or self.deadline_seconds):
            raise ValueError("a phase with kernels, traffic or a wait")
        return self


class Parameters(Settings):
    """Figures of a method that scale what an entry does; each extends an entry by inheritance.

    ``tokens_per_step``, ``output_tokens``, ``offload_to_client``, ``fan_out`` and
    ``step_time_spread`` change no cycle: they say what users get of it (``work_done``).
    """

    weight_bits: Annotated[
        int, Field(ge=1, le=16, description="Stored width of weights; every integer is accepted")
    ] = 16
    tokens_per_step: Annotated[
        float,
        Field(
            ge=1,
            le=64,
            description="Accepted tokens a sequence and decode step",
        ),
    ] = 1.0
    output_tokens: Annotated[
        float | None, Field(gt=0, le=1e7, description="Mean of one model call")
    ] = None
    kernel_efficiency: dict[LibraryKey, dict[Word, Annotated[float, Field(ge=0.01, le=20)]]] = (
        Field(
            default_factory=dict,
            description="Speed of each kernel class relative to the measured library, keyed by "
            "vendor/library/version",
        )
    )
    library: Annotated[
        LibraryKey | None, Field(description="Which key of kernel_efficiency runs")
    ] = None
    optimizer_bits: Annotated[
        int, Field(ge=1, le=32, description="Of each of the optimiser's two states")
    ] = 32
    activation_factor: Annotated[
        float, Field(gt=0, le=10, description="Activation bytes relative to the plain method")
    ] = 1.0
    fusion: Annotated[
        bool, Field(description="Element-wise passes are part of the kernels beside them")
    ] = False
    sparsity: Literal["none", "2:4", "butterfly"] = "none"
    offload_to_client: Annotated[
        float, Field(ge=0, lt=1, description="Share of requests that never reach the cluster")
    ] = 0.0
    expert_skew: Annotated[
        float, Field(ge=0, le=3, description="Zipf exponent of experts' load; 0 is even")
    ] = 0.0
    multiprocessor_share: Annotated[
        float,
        Field(ge=0.05, le=1, description="Of prefill, where both phases share one GPU"),
    ] = 1.0
    step_time_spread: Annotated[
        float,
        Field(
            ge=0,
            le=5,
            description="Standard deviation over mean of a cycle's time",
        ),
    ] = 0.0
    fan_out: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="Model calls of one user request that come at once",
        ),
    ] = 1

    @model_validator(mode="after")
    def _the_library_is_listed(self) -> Self:
        if self.library is not None and self.library not in self.kernel_efficiency:
            raise ValueError(f"library {self.library!r} to be a key of kernel_efficiency")
        return self


class Memory(Settings):
    """What one GPU keeps, and what it keeps elsewhere."""

    parameters: Annotated[NonNegative, Field(description="Stored weights on one GPU")] = 0
    trained_parameters: Annotated[
        NonNegative, Field(description="Of them, those with gradient and optimiser on this GPU")
    ] = 0
    cache_bytes: Annotated[NonNegative, Field(description="Keys and values")] = 0
    activation_bytes: NonNegative = 0
    other_bytes: NonNegative = 0
    host_bytes: Annotated[NonNegative, Field(description="In the host's memory, a GPU")] = 0
    storage_bytes: Annotated[NonNegative, Field(description="On local NVMe, a GPU")] = 0
    p99_ratio: Annotated[
        float, Field(ge=1, le=10, description="99th percentile over mean of GPU memory")
    ] = 1.0


class Startup(Settings):
    """What has to happen before the first useful step, beside loading the weights."""

    image_bytes: NonNegative = 8e9
    compile_seconds: NonNegative = 0.0
    warmup_seconds: NonNegative = 0.0


class Checkpoint(Settings):
    """What stopping costs."""

    mode: Annotated[
        Literal["stateless", "synchronous", "asynchronous", "none"],
        Field(description="none: a stop loses all work; stateless: it loses requests in flight"),
    ] = "stateless"
    bytes: Annotated[
        NonNegative | None, Field(description="A GPU; None: trained weights and optimiser")
    ] = None
    stall_seconds: Annotated[
        NonNegative | None, Field(description="GPU time lost a checkpoint; None: from bytes")
    ] = None
    interval_seconds: Annotated[Positive | None, Field(description="Between checkpoints")] = None

    @model_validator(mode="after")
    def _saved_work_has_an_interval(self) -> Self:
        if self.mode in ("synchronous", "asynchronous") and self.interval_seconds is None:
            raise ValueError("interval_seconds where checkpoints are written")
        return self


class Malleability(Settings):
    """What may be done to it while it runs."""

    gang: Annotated[bool, Field(description="All members run or none")] = False
    min_gpus: Count = 1
    max_gpus: Count = 1
    suspend: Annotated[bool, Field(description="May be stopped and continued")] = False
    drain_seconds: Annotated[NonNegative, Field(description="To finish what is in flight")] = 0.0
    shared_gpu: Annotated[bool, Field(description="Several fit on one GPU")] = False

    @model_validator(mode="after")
    def _a_range(self) -> Self:
        if self.max_gpus < self.min_gpus:
            raise ValueError("max_gpus of at least min_gpus")
        return self


class Slo(Settings):
    """What its users notice."""

    kind: Literal["ttft-tpot", "end-to-end", "per-frame", "throughput", "finish-time", "none"] = (
        "throughput"
    )
    target_seconds: Annotated[
        Positive | None, Field(description="First token, request or frame")
    ] = None
    per_token_seconds: Positive | None = None


class DrawShape(Settings):
    """The draw of one cycle as a sensor with 100 ms means sees it, on the reference GPU.

    Shares are of the default power limit.
    """

    level: Annotated[Share, Field(description="Mean draw over the limit")]
    depth: Annotated[
        float,
        Field(
            ge=0,
            le=2,
            description="Highest less lowest draw over the limit; a step of "
            "heavy work begins above it",
        ),
    ]
    period_seconds: Annotated[Positive, Field(description="Length of one cycle")]


class Workload(Settings):
    """One entry of the catalogue."""

    name: Word
    title: Annotated[str, Field(min_length=1, max_length=200)]
    kind: Literal["Serving", "Training", "Batch"]
    abstract: Annotated[
        bool, Field(description="Only there to be extended: not listed, not judged")
    ] = False
    model: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Language model of its decoder kernels"),
    ] = None
    gpus: Annotated[Count, Field(description="Of one member of the gang or one replica")] = 1
    parameters: Parameters = Parameters()
    phases: Annotated[tuple[WorkPhase, ...], Field(min_length=1, max_length=16)]
    stages: Annotated[Stages, Field(description="What one user request waits for, if calls")] = ()
    cpu_cores: Annotated[NonNegative, Field(description="Busy host cores a GPU")] = 1.0
    memory: Memory = Memory()
    startup: Startup = Startup()
    checkpoint: Checkpoint = Checkpoint()
    malleability: Malleability = Malleability()
    slo: Slo = Slo()
    shape: DrawShape | None = None
    evidence: Evidence = "derived"
    profile_hash: Annotated[str | None, Field(max_length=128)] = None
    source: Annotated[
        str, Field(min_length=1, max_length=500, description="Paper and year, or data file")
    ]

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise ValueError("phases with different names")
        parts = [part for phase in self.phases for part in phase.kernels]
        if any(isinstance(part, DecoderPart) for part in parts) and self.model is None:
            raise ValueError("model, since a phase has decoder kernels")
        if (self.evidence == "measured") != (self.profile_hash is not None):
            raise ValueError("profile_hash with evidence measured, and only then")
        return self
