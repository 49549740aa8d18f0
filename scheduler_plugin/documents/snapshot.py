"""``wattpack.io/snapshot/v1``: everything that one planning cycle may know, as a value.

Quantities are integers: milliGPU, milliCPU, bytes, watts (AC, at the breaker). Unknown keys are
refused, ids are sorted, and the digest names the content.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from scheduler_plugin.documents.cap_option import CapMilli, CapOption
from scheduler_plugin.documents.mig_geometry import MigGeometryName
from scheduler_plugin.documents.mig_placement import MAX_INSTANCES, BoardNumber, MigPlacement
from scheduler_plugin.documents.node_rules import NodeTerm, Taint, Toleration
from scheduler_plugin.documents.objective_order import DEFAULT_ORDER, ObjectiveOrder
from scheduler_plugin.documents.peer_rule import PeerRule
from scheduler_plugin.documents.snapshot_checks import (
    beside_the_core,
    boards_there,
    instances,
    whole,
)
from scheduler_plugin.documents.snapshot_limits import (
    MAX_GPUS,
    MAX_NODES,
    MAX_PAIRS,
    MAX_PODS,
    refuse_huge,
)
from scheduler_plugin.documents.snapshot_references import known, shallow_tree, unique
from scheduler_plugin.documents.snapshot_texts import SnapshotTexts, texts_of
from scheduler_plugin.documents.value import Id, Label, Value
from scheduler_plugin.documents.value_json import parse_value

MILLI_PER_GPU = 1000

#: Far above any real node, far below where sums of 200,000 items leave 64 bits.
MAX_QUANTITY = 2**45
Quantity = Annotated[int, Field(ge=0, le=MAX_QUANTITY)]
#: As in core/v1: a name of 63 characters behind a domain of 253.
ResourceName = Annotated[str, Field(min_length=1, max_length=317)]
GpuMilli = Annotated[int, Field(ge=0, le=MAX_GPUS * MILLI_PER_GPU)]
#: Twenty kilowatts on one GPU is a figure in milliwatts, or of a whole node.
GpuWatts = Annotated[int, Field(ge=0, le=20_000)]
WattsInt = Annotated[int, Field(ge=0, le=10**9)]
#: What a placement is worth beside others, per GPU; sums of 200,000 pods stay below 64 bits.
GpuValue = Annotated[int, Field(ge=0, le=10**6)]
SlowDownMilli = Annotated[int, Field(ge=0, le=100_000)]


class Node(Value):
    """What a node can hold in total.

    Attributes:
        resources: Everything else that it offers, by name, GPU resources too: bytes of
            ``ephemeral-storage`` and ``hugepages-*``, whole units of extended resources.
        domain: The power domain directly above it, empty if none is declared.
        rival_domains: Domains of other branches that claim the node too; it gets no promises.
        idle_watts: Draw without work; already part of the domain's ``used_watts``.
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


class PodState(StrEnum):
    """Where a pod stands.

    ``bound`` has a node; ``promised`` has our pin but no binding yet; ``pending`` waits at our
    gate; ``absent`` is a declared gang member that does not exist yet.
    """

    BOUND = "bound"
    PROMISED = "promised"
    PENDING = "pending"
    ABSENT = "absent"

    @property
    def waits(self) -> bool:
        """For a node."""
        return self in (PodState.PENDING, PodState.ABSENT)


class Pod(Value):
    """What a pod asks for, and where it is.

    Attributes:
        gpu_milli: A share of one board, 1 to 999, or whole boards in thousandths.
        gpu_boards: Numbers of the boards that a pod with a node has, from 0, as far as they are
            known. Otherwise it is taken to be on the first idle ones, with a share on the fullest
            board that still has it.
        mig_profiles: MIG instances that are cut for it, how many by name; it then asks for no other
            part of boards.
        mig_placements: Where they are, of a pod with a node, as far as that is known. Otherwise
            each is taken to be on the first board that has its slices.
        resources: Everything else that it asks for, by name, in the node's units.
        drawn_milli: Of boards, thousandths whose watts its work draws beside those that it asks
            for above: instances and replicas that are ``resources``.
        gpu_models: Allowed GPU models, empty for any.
        gpu_model_values: What one of its GPUs is worth on each model, in a unit that all pods
            share, such as measured speed; models that are not named are worth nothing more.
        required_terms: Alternatives of required node affinity, empty for none.
        kernel_class: Chooses the node's ``class_watts_per_gpu``.
        expected_watts_per_gpu: Declared draw, overrides the node's figures.
        least_cap_milli: Of a board's default limit, what its policies keep; 1000 for no cap.
        cap_watts: Of a promised pod, the cap that it was planned at; 0 for none.
        excluded_nodes: Pairs under quarantine.
        move_seconds: What a move would cost each GPU of a running pod: the mean start of its work
            and what the stop loses; None where it cannot be moved or nobody knows.
        expected_end_seconds: When a running pod is expected to end, from the snapshot on; None for
            unknown. Only ``wattpack plan what-if`` asks.
        shared_work: Kind of work of a pod that shares boards, as in ``slow_downs``; empty for
            unknown.
        groups: That it belongs to, for ``peer_rules`` of any pod.
        peer_rules: What it wants of other pods around it.
    """

    uid: Id
    namespace: Label = ""
    name: Label = ""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31)] = 0
    state: PodState = PodState.PENDING
    node: Label = ""
    gang: Label = ""
    gpu_milli: GpuMilli = 0
    gpu_boards: Annotated[tuple[BoardNumber, ...], Field(max_length=MAX_GPUS)] = ()
    mig_profiles: dict[Label, Annotated[int, Field(ge=1, le=MAX_INSTANCES)]] = {}
    mig_placements: Annotated[tuple[MigPlacement, ...], Field(max_length=MAX_INSTANCES)] = ()
    milli_cpu: Quantity = 0
    memory_bytes: Quantity = 0
    resources: dict[ResourceName, Quantity] = {}
    drawn_milli: GpuMilli = 0
    gpu_models: tuple[Label, ...] = ()
    gpu_model_values: dict[Label, GpuValue] = {}
    node_selector: dict[Label, Label] = {}
    required_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    kernel_class: Label = ""
    expected_watts_per_gpu: GpuWatts | None = None
    least_cap_milli: CapMilli = 0
    cap_watts: GpuWatts = 0
    excluded_nodes: tuple[Label, ...] = ()
    shared_work: Label = ""
    move_seconds: Annotated[int | None, Field(ge=0, le=10**8)] = None
    expected_end_seconds: Annotated[int | None, Field(ge=0, le=10**9)] = None
    groups: tuple[Label, ...] = ()
    peer_rules: tuple[PeerRule, ...] = ()

    @field_validator("gpu_milli")
    @classmethod
    def _a_share_or_whole_gpus(cls, value: int) -> int:
        return value if value < MILLI_PER_GPU else whole(value, "a share of one board or ")

    @field_validator("gpu_boards")
    @classmethod
    def _boards_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each board once")
        return tuple(sorted(value))

    @field_validator("resources")
    @classmethod
    def _only_what_is_asked_for(cls, value: dict[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in beside_the_core(value).items() if amount}

    @field_validator("mig_placements")
    @classmethod
    def _by_profile(cls, value: tuple[MigPlacement, ...]) -> tuple[MigPlacement, ...]:
        return tuple(sorted(value, key=lambda at: (at.profile, at.board, at.start)))

    @field_validator("node_selector", "mig_profiles", "gpu_model_values")
    @classmethod
    def _in_order(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(value.items()))

    @field_validator("gpu_models", "excluded_nodes", "groups")
    @classmethod
    def _sorted(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _node_fits_the_state(self) -> Self:
        placed = self.state in (PodState.BOUND, PodState.PROMISED)
        if placed != bool(self.node):
            raise ValueError("node must be set for bound and promised pods, and only for them")
        if self.state is PodState.ABSENT and not self.gang:
            raise ValueError("an absent pod must belong to a gang")
        if self.cap_watts and self.state is not PodState.PROMISED:
            raise ValueError("cap_watts: only of promised pods")
        instances(self, has_node=placed)
        boards = -(-self.gpu_milli // MILLI_PER_GPU)
        if self.gpu_boards and (not placed or len(self.gpu_boards) != boards):
            raise ValueError(f"gpu_boards: none, or {boards if placed else 0} for this pod")
        return self


class Gang(Value):
    """Pods that start together or not at all.

    Attributes:
        size: How many members have to be in the snapshot, those not created yet too, before any
            starts. Where there are more, all that wait start together: nobody knows which of them
            are too many. Of an elastic gang it is the least; members beyond it are pods without a
            gang, as room allows.
        topology_key: Label of nodes whose value all members should share, empty for none.
        topology_required: The gang waits where no value's nodes hold all of it.
    """

    id: Id
    size: Annotated[int, Field(ge=1, le=100_000)]
    topology_key: Label = ""
    topology_required: bool = False


class PowerDomain(Value):
    """One node of the power tree.

    Attributes:
        limit_watts: The upper edge of the cap band.
        used_watts: Forecast p99 (or the worst, without a forecast) of everything that is bound.
        guaranteed_margin_watts: What I1 leaves; negative means that nothing may be added.
    """

    name: Id
    parent: Label = ""
    limit_watts: WattsInt
    used_watts: WattsInt = 0
    guaranteed_margin_watts: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0


class SlowDown(Value):
    """What one kind of work suffers beside another on one board, by measured pairs.

    Attributes:
        slow_down_milli: Time over time alone, in thousandths.
    """

    gpu_model: Label
    work: Id
    beside: Id
    slow_down_milli: Annotated[int, Field(ge=1000, le=100_000)]


class Snapshot(Value):
    """One consistent view. Lists are sorted by id whatever order they came in.

    Attributes:
        objective: What plans that place as much are compared by, what counts first first.
    """

    api_version: Literal["wattpack.io/snapshot/v1"] = "wattpack.io/snapshot/v1"
    nodes: Annotated[tuple[Node, ...], Field(max_length=MAX_NODES)] = ()
    pods: Annotated[tuple[Pod, ...], Field(max_length=MAX_PODS)] = ()
    gangs: Annotated[tuple[Gang, ...], Field(max_length=MAX_PODS)] = ()
    domains: Annotated[tuple[PowerDomain, ...], Field(max_length=MAX_NODES)] = ()
    slow_downs: Annotated[tuple[SlowDown, ...], Field(max_length=MAX_PAIRS)] = ()
    cap_options: Annotated[tuple[CapOption, ...], Field(max_length=MAX_PAIRS)] = ()
    objective: ObjectiveOrder = DEFAULT_ORDER

    @field_validator("nodes")
    @classmethod
    def _sort_nodes(cls, value: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(sorted(value, key=lambda node: node.name))

    @field_validator("pods")
    @classmethod
    def _sort_pods(cls, value: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(sorted(value, key=lambda pod: pod.uid))

    @field_validator("gangs")
    @classmethod
    def _sort_gangs(cls, value: tuple[Gang, ...]) -> tuple[Gang, ...]:
        return tuple(sorted(value, key=lambda gang: gang.id))

    @field_validator("domains")
    @classmethod
    def _sort_domains(cls, value: tuple[PowerDomain, ...]) -> tuple[PowerDomain, ...]:
        return tuple(sorted(value, key=lambda domain: domain.name))

    @field_validator("slow_downs")
    @classmethod
    def _sort_slow_downs(cls, value: tuple[SlowDown, ...]) -> tuple[SlowDown, ...]:
        return tuple(sorted(value, key=lambda s: (s.gpu_model, s.work, s.beside)))

    @field_validator("cap_options")
    @classmethod
    def _sort_cap_options(cls, value: tuple[CapOption, ...]) -> tuple[CapOption, ...]:
        return tuple(sorted(value, key=lambda o: (o.gpu_model, o.kernel_class, o.cap_watts)))

    @model_validator(mode="after")
    def _ids_and_references_hold(self) -> Self:
        unique("nodes.name", [node.name for node in self.nodes])
        unique("pods.uid", [pod.uid for pod in self.pods])
        unique("gangs.id", [gang.id for gang in self.gangs])
        unique("domains.name", [domain.name for domain in self.domains])
        unique("slow_downs", [f"{s.gpu_model}/{s.work}/{s.beside}" for s in self.slow_downs])
        caps = [f"{o.gpu_model}/{o.kernel_class}/{o.cap_watts}" for o in self.cap_options]
        unique("cap_options", caps)
        domains = {domain.name for domain in self.domains}
        known("nodes.domain", {node.domain for node in self.nodes} - {""}, domains)
        known("domains.parent", {domain.parent for domain in self.domains} - {""}, domains)
        known("pods.gang", {pod.gang for pod in self.pods} - {""}, {g.id for g in self.gangs})
        shallow_tree("domains.parent", {domain.name: domain.parent for domain in self.domains})
        boards_there(self.nodes, self.pods)
        return self

    def __copy__(self) -> Self:
        """Without what was computed of the original, which ``model_copy`` may change."""
        copied = super().__copy__()
        for name in ("content_digest", "texts"):
            copied.__dict__.pop(name, None)
        return copied

    def digest(self) -> str:
        """``sha256:`` and a hash that does not depend on the order of lists and keys."""
        return self.content_digest

    @cached_property
    def content_digest(self) -> str:
        """Computed once."""
        return self.texts.digest()

    @cached_property
    def texts(self) -> SnapshotTexts:
        """What is digested and sent, written once: it costs about 20 microseconds a node."""
        rest = self.model_dump_json(exclude={"nodes", "pods"}, exclude_defaults=True)
        return SnapshotTexts(texts_of(self.nodes), texts_of(self.pods), rest.encode())


def parse_snapshot(text: str | bytes, source: str = "") -> Snapshot:
    """A snapshot from JSON.

    Raises:
        InputError: naming the first wrong field, for anything that is not one.
    """
    refuse_huge(text, source)
    return parse_value(Snapshot, text, source)


def snapshot_schema() -> dict[str, Any]:
    """The JSON Schema of ``wattpack.io/snapshot/v1``."""
    return Snapshot.model_json_schema()
