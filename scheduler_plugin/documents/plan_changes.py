"""What could be different so that a waiting pod starts: a closed vocabulary.

Each change is one thing that somebody can do; ``changed_snapshot`` says what it means.

    request of the pod    accept_gpu_model, accept_host_class, drop_selector, drop_affinity,
                          drop_peer_rules, drop_gang_topology, tolerate_taint, lift_quarantine
    nodes                 return_node, state_power, allow_slow_down
    limits                raise_limit, lower_guarantees, widen_uplink, raise_quota
    pods that run         move_pod, evict_pod
    capacity              free_on_node, add_nodes
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from scheduler_plugin.documents.link_groups import MAX_MEGABITS
from scheduler_plugin.documents.node_rules import TaintEffect
from scheduler_plugin.documents.peer_rule import PeerKind
from scheduler_plugin.documents.snapshot_amounts import Quantity, ResourceName
from scheduler_plugin.documents.value import Id, Label, Value

MAX_ADDED_NODES: Final = 1000
MAX_RAISE: Final = 2**63 - 1
"""Of a quota, beyond what all pods of a snapshot may ask for together."""
WattsMore = Annotated[int, Field(ge=1, le=10**10)]


class AcceptGpuModel(Value):
    """The pod takes another GPU model, too.

    Attributes:
        waiting: Uid of the pod, or id of its gang: then all its waiting members, here and below.
    """

    kind: Literal["accept_gpu_model"] = "accept_gpu_model"
    waiting: Id
    gpu_model: Annotated[Label, Field(min_length=1)]


class AcceptHostClass(Value):
    """The pod takes another class of CPU or NIC, too."""

    kind: Literal["accept_host_class"] = "accept_host_class"
    waiting: Id
    part: Literal["CPU", "NIC"]
    name: Annotated[Label, Field(min_length=1)]


class DropSelector(Value):
    """The pod gives up one key of its node selector."""

    kind: Literal["drop_selector"] = "drop_selector"
    waiting: Id
    key: Label


class DropAffinity(Value):
    """The pod gives up its required node affinity."""

    kind: Literal["drop_affinity"] = "drop_affinity"
    waiting: Id


class DropPeerRules(Value):
    """The pod gives up what it wants of other pods around it: all rules of one kind.

    Attributes:
        rules: ``apart``, ``together`` or ``spread``.
    """

    kind: Literal["drop_peer_rules"] = "drop_peer_rules"
    waiting: Id
    rules: PeerKind


class DropGangTopology(Value):
    """The gang prefers one topology domain and no longer requires it; ``waiting`` is its id."""

    kind: Literal["drop_gang_topology"] = "drop_gang_topology"
    waiting: Id


class TolerateTaint(Value):
    """The pod tolerates a taint."""

    kind: Literal["tolerate_taint"] = "tolerate_taint"
    waiting: Id
    key: Label
    value: Label = ""
    effect: TaintEffect


class LiftQuarantine(Value):
    """The pod may use a node again that refused it before."""

    kind: Literal["lift_quarantine"] = "lift_quarantine"
    waiting: Id
    node: Id


class ReturnNode(Value):
    """A node is ready, not cordoned and not about to be disrupted."""

    kind: Literal["return_node"] = "return_node"
    node: Id


class StatePower(Value):
    """A profile says what the node's GPUs draw, and one power domain alone claims the node."""

    kind: Literal["state_power"] = "state_power"
    node: Id


class AllowSlowDown(Value):
    """Pods that share a node's boards may slow one another down to so many thousandths."""

    kind: Literal["allow_slow_down"] = "allow_slow_down"
    node: Id
    slow_down_milli: Annotated[int, Field(ge=1000, le=100_000)]


class RaiseLimit(Value):
    """A power domain's limit is higher by so many watts."""

    kind: Literal["raise_limit"] = "raise_limit"
    domain: Id
    watts: WattsMore


class LowerGuarantees(Value):
    """Guaranteed caps below a power domain are lower by so many watts (invariant I1)."""

    kind: Literal["lower_guarantees"] = "lower_guarantees"
    domain: Id
    watts: WattsMore


class RaiseQuota(Value):
    """A quota lets in so much more of one resource, in the units of its ``limits``."""

    kind: Literal["raise_quota"] = "raise_quota"
    quota: Id
    resource: ResourceName
    amount: Annotated[int, Field(ge=1, le=MAX_RAISE)]


class WidenUplink(Value):
    """The uplink of a link group carries so many more megabits a second each way."""

    kind: Literal["widen_uplink"] = "widen_uplink"
    group: Id
    megabits: Annotated[int, Field(ge=1, le=MAX_MEGABITS)]


class MovePod(Value):
    """A running pod runs elsewhere. Its draw counts there, and still where it was."""

    kind: Literal["move_pod"] = "move_pod"
    uid: Id
    source: Id
    target: Id
    gpu_seconds: Annotated[int, Field(ge=0)]


class EvictPod(Value):
    """A running pod of lower priority waits again."""

    kind: Literal["evict_pod"] = "evict_pod"
    uid: Id
    node: Id
    priority: int
    gpu_seconds: Annotated[int, Field(ge=0)]


class FreeOnNode(Value):
    """So much more is free on one node, because something there ended."""

    kind: Literal["free_on_node"] = "free_on_node"
    node: Id
    gpus: Annotated[int, Field(ge=0, le=1000)] = 0
    milli_cpu: Quantity = 0
    memory_bytes: Quantity = 0
    pods: Annotated[int, Field(ge=0, le=100_000)] = 0
    resources: dict[ResourceName, Quantity] = Field(default_factory=dict)


class AddNodes(Value):
    """So many more nodes like one that is there, empty, below the same power domain.

    What they draw without work is added to what is used there.
    """

    kind: Literal["add_nodes"] = "add_nodes"
    like: Id
    count: Annotated[int, Field(ge=1, le=MAX_ADDED_NODES)]


OfThePod = (
    AcceptGpuModel
    | AcceptHostClass
    | DropSelector
    | DropAffinity
    | DropPeerRules
    | TolerateTaint
    | LiftQuarantine
)
Change = Annotated[
    OfThePod
    | DropGangTopology
    | ReturnNode
    | StatePower
    | AllowSlowDown
    | RaiseLimit
    | LowerGuarantees
    | WidenUplink
    | RaiseQuota
    | MovePod
    | EvictPod
    | FreeOnNode
    | AddNodes,
    Field(discriminator="kind"),
]

RANKS: Final = {
    "accept_gpu_model": 0, "accept_host_class": 0, "drop_selector": 0, "drop_affinity": 0,
    "drop_peer_rules": 0, "drop_gang_topology": 0, "tolerate_taint": 0, "lift_quarantine": 0,
    "return_node": 1, "state_power": 1, "allow_slow_down": 1,
    "raise_limit": 2, "lower_guarantees": 2, "widen_uplink": 2, "raise_quota": 2,
    "move_pod": 3, "evict_pod": 4, "free_on_node": 5, "add_nodes": 6,
}  # fmt: skip
"""How much a change asks of others. The set whose worst rank asks least is told."""


def is_of_request(change: Change) -> bool:
    """Whether it is one of the waiting pod's or gang's own request, and not of the cluster."""
    return RANKS[change.kind] == 0
