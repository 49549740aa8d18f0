"""``wattpack.io/plan/v1``: what one planning cycle promises, and how good that is."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from scheduler_plugin.documents.mig_placement import MAX_INSTANCES, BoardNumber, MigPlacement
from scheduler_plugin.documents.plan_changes import Change, MovePod
from scheduler_plugin.documents.snapshot_limits import (
    MAX_GPUS,
    MAX_PODS,
    MAX_VALUES,
    refuse_huge,
)
from scheduler_plugin.documents.value import Id, Label, Value
from scheduler_plugin.documents.value_json import parse_value


class PendingReason(StrEnum):
    """The one dominant cause for a pod without a place."""

    NO_NODES = "NoNodes"
    NO_GPU_MODEL = "NoGpuModel"
    NO_CPU_CLASS = "NoCpuClass"
    NO_NIC_CLASS = "NoNicClass"
    NODE_AFFINITY = "NodeAffinityMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NO_READY_NODE = "NoReadyNode"
    GPU_POWER_UNKNOWN = "GpuPowerUnknown"
    QUARANTINED = "NodeQuarantined"
    LARGER_THAN_ANY_NODE = "LargerThanAnyNode"
    INSUFFICIENT_GPUS = "InsufficientGpus"
    INSUFFICIENT_CPU = "InsufficientCpu"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    INSUFFICIENT_RESOURCE = "InsufficientResource"
    TOO_MANY_PODS = "TooManyPods"
    SLOW_NEIGHBOURS = "SlowNeighbours"
    POD_AFFINITY = "PodAffinityOrSpread"
    FRAGMENTED = "ResourcesFragmented"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POWER_DOMAIN_FULL = "PowerDomainFull"
    UPLINK_FULL = "UplinkFull"
    GUARANTEED_CAPS_INFEASIBLE = "GuaranteedCapsInfeasible"
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_DOES_NOT_FIT = "GangDoesNotFit"
    GANG_MINIMUM_FIRST = "GangMinimumFirst"
    GANG_IS_FULL = "GangIsFull"
    GANG_EXCEEDS_CLUSTER = "GangExceedsCluster"
    HELD_FOR = "HeldFor"
    NOT_EXPLAINED = "NotExplained"
    PLAN_REFUSED = "PlanRefused"


class Placement(Value):
    """One pod, or one absent gang member, and its node.

    Attributes:
        watts: What it adds there.
        cap_watts: Of its boards, that ``watts`` counts on: an expectation of the controller, which
            sets caps; 0 for none.
        boards: Numbers of the boards that the plan expects it to get, from 0; told only where
            somebody asks for a part of a board. Which one it gets is the device plugin's choice.
        mig: The same of MIG instances that are cut for it.
    """

    uid: Id
    node: Id
    gang: Label = ""
    watts: Annotated[int, Field(ge=0)] = 0
    cap_watts: Annotated[int, Field(ge=0, le=20_000)] = 0
    boards: Annotated[tuple[BoardNumber, ...], Field(max_length=MAX_GPUS)] = ()
    mig: Annotated[tuple[MigPlacement, ...], Field(max_length=MAX_INSTANCES)] = ()


class Step(Value):
    """A pod leaves a node, or arrives there.

    Attributes:
        arrives: False where it leaves. A running pod that moves leaves first and arrives later; one
            that leaves and never arrives is evicted.
        boards: That the plan expects it to get, as in ``Placement``.
        mig: The same of MIG instances.
    """

    uid: Id
    node: Id
    arrives: bool
    boards: Annotated[tuple[BoardNumber, ...], Field(max_length=MAX_GPUS)] = ()
    mig: Annotated[tuple[MigPlacement, ...], Field(max_length=MAX_INSTANCES)] = ()


class Pending(Value):
    """One pod without a place; the message names the binding constraint with figures.

    Attributes:
        domains: Power domains that are short above its best node, the tightest first.
        remedy: Whether ``changes`` are a smallest set, nothing has to change since the next plan
            can place the pod, nothing that we know lets it in, or time was over before that.
        changes: With all of these, and everything else as it is, this pod or its whole gang has a
            place; without any one of them it has none. Nobody makes them. Of a gang they stand at
            its first member by uid.
        pays_after_seconds: Moves and evictions among them pay where it would otherwise wait for
            longer; 0 without any.
        operator_changes: Where ``changes`` ask something of the pod's owner: the same without
            that, of nodes, limits and running pods alone.
        operator_pays_after_seconds: Of those.
        against: What stands against every change where there are none, or against those of the
            operator where there are none of them; empty where it was not looked for.
    """

    uid: Id
    reason: PendingReason
    message: str = ""
    gang: Label = ""
    domains: tuple[Id, ...] = ()
    remedy: Literal["smallest", "next_plan", "none", "late"] = "none"
    changes: tuple[Change, ...] = ()
    pays_after_seconds: Annotated[int, Field(ge=0)] = 0
    operator_changes: tuple[Change, ...] = ()
    operator_pays_after_seconds: Annotated[int, Field(ge=0)] = 0
    against: str = ""

    @property
    def moves(self) -> tuple[MovePod, ...]:
        """Running pods that would have to be somewhere else."""
        return tuple(change for change in self.changes if isinstance(change, MovePod))


class Tier(Value):
    """One priority. Values are in milliGPU; a pod without GPUs counts as one GPU.

    That is for counting: in a plan no number of them outweighs a GPU of the same priority. So there
    are two bounds, and a plan is proved best where it reaches both in every tier.

    Attributes:
        demanded_value: Of all pods that wait in this tier.
        placed_value: Of those placed.
        bound_value: No plan that does as well for the tiers above and for this one's pods with GPUs
            can place more of this tier and those above it, together.
        cumulative_value: Placed in this tier and those above it, comparable with the bound.
        bound_gpu_value: No plan that does as well for the tiers above can place more of them and of
            this tier's pods with GPUs, together.
        cumulative_gpu_value: The same of those placed, comparable with that bound. Both are 0 in
            plans of before they were told.
    """

    priority: int
    demanded_value: int
    placed_value: int
    cumulative_value: int
    bound_value: int
    cumulative_gpu_value: int = 0
    bound_gpu_value: int = 0

    @property
    def gap(self) -> float:
        """The larger of the shares of its two bounds that are not reached."""
        reached = (
            (self.cumulative_value, self.bound_value),
            (self.cumulative_gpu_value, self.bound_gpu_value),
        )
        return max((1 - value / bound for value, bound in reached if bound), default=0.0)


class Statistics(Value):
    """How the plan came about; everything is deterministic for a seed and one worker."""

    nodes: int = 0
    pending_pods: int = 0
    pod_classes: int = 0
    rounds: int = 0
    improving_rounds: int = 0
    deterministic_time: float = 0.0
    incumbent_value: tuple[int, ...] = ()


class Plan(Value):
    """One cycle's answer.

    Attributes:
        steps: In this order, each prefix a state that holds; empty where no running pod has to
            leave its node: ``placements`` then hold in any order.
        objective: Placed value by tier, most important first, of pods with GPUs and then of those
            without, then the stages of the snapshot's ``objective`` in their
            order, larger is better: disruption in GPU seconds, fragmentation in steps of
            ``FRAGMENTATION_STEP_MILLI``, unmet weights of preferences, watts, cost (thousandths an
            hour) and carbon (milligrams an hour) negated. Last, where waiting pods have any, the
            weights of unmet ``peer_wishes``, negated.
        gap: Worst (bound - placed) / bound over tiers; 0 is a proof.
        refusals: What the independent checker said of plans that it refused.
    """

    api_version: Literal["wattpack.io/plan/v1"] = "wattpack.io/plan/v1"
    snapshot_digest: str
    method: Literal["none", "greedy", "cp_sat"]
    placements: tuple[Placement, ...] = ()
    pending: tuple[Pending, ...] = ()
    steps: tuple[Step, ...] = ()
    tiers: tuple[Tier, ...] = ()
    objective: tuple[int, ...] = ()
    gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    statistics: Statistics = Statistics()
    refusals: tuple[str, ...] = ()


#: Members of a plan that grow with the cluster; a pod may leave, arrive and be carried once more.
_MEMBERS = {"placements": MAX_PODS, "pending": MAX_PODS, "steps": 4 * MAX_PODS}


def parse_plan(text: str | bytes, source: str = "") -> Plan:
    """A plan from JSON.

    Raises:
        InputError: naming the first wrong field.
    """
    refuse_huge(text, source, _MEMBERS, MAX_VALUES)
    return parse_value(Plan, text, source)


def plan_schema() -> dict[str, Any]:
    """The JSON Schema of ``wattpack.io/plan/v1``."""
    return Plan.model_json_schema()
