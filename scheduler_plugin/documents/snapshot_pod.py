"""Pods of a snapshot, and gangs of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator, model_validator

from scheduler_plugin.documents.cap_option import CapMilli
from scheduler_plugin.documents.link_groups import Megabits
from scheduler_plugin.documents.mig_placement import MAX_INSTANCES, BoardNumber, MigPlacement
from scheduler_plugin.documents.node_rules import NodeTerm, Preference, Toleration
from scheduler_plugin.documents.peer_rule import PeerRule
from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.documents.snapshot_amounts import (
    MILLI_PER_GPU,
    CpuValue,
    GpuMilli,
    GpuValue,
    GpuWatts,
    Quantity,
    ResourceName,
)
from scheduler_plugin.documents.snapshot_checks import (
    beside_the_core,
    instances,
    whole,
    within_a_host,
)
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["MAX_QUOTAS_OF_A_POD", "Gang", "Pod", "PodState"]

MAX_QUOTAS_OF_A_POD: Final = 64


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
        cpu_classes: Allowed classes of CPU, empty for any.
        cpu_class_values: How fast its work is on each class, in thousandths of the fastest; on one
            that is not named 0. Its worth on a node counts times this.
        nic_classes: Allowed classes of NIC, empty for any.
        required_terms: Alternatives of required node affinity, empty for none.
        preferences: Preferred node affinity, for the stage of that name of the objective.
        kernel_class: Chooses the node's ``class_watts_per_gpu``.
        peak_flow_megabits: Megabits a second that it sends to its gang at peak; 0 for unknown.
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
        wished_groups: That it belongs to, for ``peer_wishes`` of any pod.
        peer_wishes: What it would rather have of other pods around it, while all else is equal.
        quotas: That what it holds counts against, by name.
        beyond: Elastic gang that it belongs to beyond the least: it is placed on its own, once
            those that start together have their places.
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
    cpu_classes: tuple[Label, ...] = ()
    cpu_class_values: dict[Label, CpuValue] = {}
    nic_classes: tuple[Label, ...] = ()
    node_selector: dict[Label, Label] = {}
    required_terms: tuple[NodeTerm, ...] = ()
    preferences: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    kernel_class: Label = ""
    peak_flow_megabits: Megabits = 0
    expected_watts_per_gpu: GpuWatts | None = None
    least_cap_milli: CapMilli = 0
    cap_watts: GpuWatts = 0
    excluded_nodes: tuple[Label, ...] = ()
    shared_work: Label = ""
    move_seconds: Annotated[int | None, Field(ge=0, le=10**8)] = None
    expected_end_seconds: Annotated[int | None, Field(ge=0, le=10**9)] = None
    groups: tuple[Label, ...] = ()
    peer_rules: tuple[PeerRule, ...] = ()
    wished_groups: tuple[Label, ...] = ()
    peer_wishes: tuple[PeerWish, ...] = ()
    quotas: Annotated[tuple[Label, ...], Field(max_length=MAX_QUOTAS_OF_A_POD)] = ()
    beyond: Label = ""

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
        return within_a_host({name: n for name, n in beside_the_core(value).items() if n})

    @field_validator("mig_placements")
    @classmethod
    def _by_profile(cls, value: tuple[MigPlacement, ...]) -> tuple[MigPlacement, ...]:
        return tuple(sorted(value, key=lambda at: (at.profile, at.board, at.start)))

    @field_validator("node_selector", "mig_profiles", "gpu_model_values", "cpu_class_values")
    @classmethod
    def _in_order(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(value.items()))

    @field_validator(
        *("gpu_models", "cpu_classes", "nic_classes", "excluded_nodes"),
        *("groups", "wished_groups", "quotas"),
    )
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
        if self.gang and self.beyond:
            raise ValueError("beyond: only of pods without a gang")
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
            gang (``beyond``), as room allows.
        most: Of an elastic gang, members with places, with those beyond; None for any number.
        topology_key: Label of nodes whose value all members should share, empty for none.
        topology_required: The gang waits where no value's nodes hold all of it.
    """

    id: Id
    size: Annotated[int, Field(ge=1, le=100_000)]
    most: Annotated[int | None, Field(ge=1, le=100_000)] = None
    topology_key: Label = ""
    topology_required: bool = False

    @model_validator(mode="after")
    def _most_is_at_least_the_least(self) -> Self:
        if self.most is not None and self.most < self.size:
            raise ValueError(f"most: at least the size, which is {self.size}")
        return self
