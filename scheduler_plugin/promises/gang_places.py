"""Places of gang members that have none: kept ones, and pods for members that do not exist yet."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, PodState
from scheduler_plugin.promises.ledger import EXPECTED, Ledger
from scheduler_plugin.room.resource_columns import node_amounts, pod_amounts
from scheduler_plugin.room.running_boards import boards_hold
from wattpack.gangs import GangRef

#: Reasons of an elastic gang's members that are not planned now.
MINIMUM_FIRST = PendingReason.GANG_MINIMUM_FIRST.value
GANG_IS_FULL = PendingReason.GANG_IS_FULL.value
#: Reason of a gang for whose members a snapshot has no room; smaller gangs come first.
TOO_MANY_ABSENT = "TooManyAbsentMembers"
MOST_ABSENT: Final = 20_000
"""Members that do not exist, in one snapshot (assumed): a size is a number that anybody may write,
and each of them costs as much as a pod."""
#: Fewer are not compared with the cluster: planning says it better.
_MANY: Final = 1000


class Room:
    """What real pods leave free on each node; a reservation never outranks a real pod."""

    def __init__(self, nodes: list[Node], planned: list[Pod]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._free = {node.name: node_amounts(node) for node in nodes}
        self._there: dict[str, list[Pod]] = defaultdict(list)
        for pod in planned:
            if pod.node in self._free:
                self._take(pod, pod.node)

    def holds(self, pod: Pod, node: str) -> bool:
        """Take the pod's room on the node, if there is enough and the node takes new pods."""
        if node not in self._free or not self._nodes[node].is_open:
            return False
        free = self._free[node]
        if any(amount > free.get(name, 0) for name, amount in pod_amounts(pod).items()):
            return False
        if not boards_hold(self._nodes[node], self._there[node], pod):
            return False
        self._take(pod, node)
        return True

    def domain_of(self, ref: GangRef, members: Iterable[Pod]) -> dict[str, str]:
        """The label and value that a gang's further members need, if it has to be together."""
        if ref.topology is None or not ref.topology.required:
            return {}
        key = ref.topology.key
        nodes = (self._nodes[pod.node] for pod in members if pod.node in self._nodes)
        values = {node.labels[key] for node in nodes if key in node.labels}
        return {key: values.pop()} if len(values) == 1 else {}

    def most_when_empty(self, pod: Pod) -> int:
        """No more of such pods fit on all nodes together, whatever else runs there."""
        asked = {name: amount for name, amount in pod_amounts(pod).items() if amount}
        offers = map(node_amounts, self._nodes.values())
        return sum(
            min(offered.get(name, 0) // amount for name, amount in asked.items())
            for offered in offers
        )

    def _take(self, pod: Pod, node: str) -> None:
        free = self._free[node]
        self._there[node].append(pod)
        for name, amount in pod_amounts(pod).items():
            free[name] = free.get(name, 0) - amount


class GangPlan(NamedTuple):
    """What is to be planned of gangs.

    Attributes:
        planned: All pods; a member beyond what starts together is a single one.
        absent: A pod for every member that does not exist yet.
        later: Why a gang's member is not planned now, by uid: reason and message.
    """

    planned: list[Pod]
    gangs: list[Gang]
    absent: list[Pod]
    later: dict[str, tuple[str, str]]


def gangs_with_places(
    planned: list[Pod], refs: Mapping[str, GangRef], ledger: Ledger, room: Room
) -> GangPlan:
    """Gangs by declared size; members of elastic ones beyond that follow one by one."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in planned:
        if pod.gang:
            members[pod.gang].append(pod)
    gangs: list[Gang] = []
    absent: list[Pod] = []
    later: dict[str, tuple[str, str]] = {}
    single: dict[str, tuple[str, dict[str, str]]] = {}
    wanting: list[_Wanting] = []
    for gang, everybody in sorted(members.items()):
        ref = max((refs[pod.uid] for pod in everybody), key=lambda ref: ref.size or 1)
        size = ref.size or 1
        core, beyond = _core(everybody, size) if ref.is_elastic else (everybody, [])
        if beyond:
            alone, put_off = _beyond(ref, beyond, len(core), started=_has_started(core, size))
            single |= dict.fromkeys(alone, (gang, room.domain_of(ref, core)))
            later |= put_off
        gangs.append(_gang(ref, size))
        waiting = [pod for pod in core if pod.state is PodState.PENDING]
        template = max(waiting or core, key=lambda p: (p.gpu_milli, p.milli_cpu, p.uid))
        kept = _kept(gang, size - (len(core) - len(waiting)), template, ledger, room)
        # Nobody waits: the members that run have had their time, whoever comes late waits anew.
        missing = max(0, size - len(core) - len(kept)) if waiting else 0
        wanting.append(_Wanting(missing, gang, template, waiting, kept))
    for one in sorted(wanting, key=lambda w: (w.missing, w.gang)):
        if why := _too_many(one, len(absent), room):
            later |= {pod.uid: why for pod in one.waiting}
        else:
            absent += one.kept + _fresh(one.gang, one.missing, one.template, ledger)
    alone_now = [
        _single(pod, *single[pod.uid]) if pod.uid in single else pod
        for pod in planned
        if pod.uid not in later
    ]
    return GangPlan(alone_now, gangs, absent, later)


class _Wanting(NamedTuple):
    """A gang of which members do not exist, and the places that are kept for some of them."""

    missing: int
    gang: str
    template: Pod
    waiting: list[Pod]
    kept: list[Pod]


def _too_many(one: _Wanting, before: int, room: Room) -> tuple[str, str] | None:
    """Reason and message where a gang's absent members are more than can be planned."""
    if one.missing <= _MANY and before + one.missing <= MOST_ABSENT:
        return None
    said = f"{one.gang}: {one.missing:,} of its members do not exist yet"
    if (most := room.most_when_empty(one.template)) < one.missing:
        text = f"{said}; the cluster has room for {most:,} such members when it is empty"
        return PendingReason.GANG_EXCEEDS_CLUSTER.value, text
    if before + one.missing <= MOST_ABSENT:
        return None
    return TOO_MANY_ABSENT, f"{said}; with those of smaller gangs at most {MOST_ABSENT:,} may"


def _single(pod: Pod, gang: str, domain: Mapping[str, str]) -> Pod:
    """A member beyond what starts together, where the others have to be."""
    selector = {**pod.node_selector, **domain}
    return pod.model_copy(update={"gang": "", "beyond": gang, "node_selector": selector})


def places_of_expected(
    ref: GangRef, members: list[Pod], ledger: Ledger, room: Room
) -> tuple[Gang, list[Pod]]:
    """A gang of which no pod exists yet: all places that are kept for it, or all members anew.

    Args:
        ref: The gang.
        members: All of them, absent, in an order that never changes.
        ledger: With places that were kept.
        room: What real pods leave.
    """
    kept: list[Pod] = []
    for i, member in enumerate(members):
        place = ledger.reservations.get(f"{ref.id}{EXPECTED}{i}")
        if place is not None and room.holds(member, place.node):
            changes = {"uid": place.slot, "state": PodState.PROMISED, "node": place.node}
            kept.append(Pod(**(dict(member) | changes)))
    if len(kept) < len(members):
        numbered = enumerate(members)
        kept = [m.model_copy(update={"uid": f"{ref.id}{EXPECTED}{i}"}) for i, m in numbered]
    return _gang(ref, len(members)), kept


def _gang(ref: GangRef, size: int) -> Gang:
    most = None if ref.most is None else max(ref.most, size)
    if ref.topology is None:
        return Gang(id=ref.id, size=size, most=most)
    key, required = ref.topology.key, ref.topology.required
    return Gang(id=ref.id, size=size, most=most, topology_key=key, topology_required=required)


def _core(members: list[Pod], size: int) -> tuple[list[Pod], list[Pod]]:
    """Those that start together, and those beyond: who has a place first, then the first by name.

    Names of leaders and first replicas come first with every owner that numbers its pods.
    """
    order = sorted(members, key=lambda p: (p.state is PodState.PENDING, p.name, p.uid))
    return order[:size], order[size:]


def _has_started(core: list[Pod], size: int) -> bool:
    return len(core) >= size and not any(pod.state is PodState.PENDING for pod in core)


def _beyond(
    ref: GangRef, members: list[Pod], before: int, *, started: bool
) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Of an elastic gang's further members: who is planned as a single pod now, and who is not."""
    alone: set[str] = set()
    later: dict[str, tuple[str, str]] = {}
    for number, pod in enumerate(members, start=before + 1):
        if pod.state is not PodState.PENDING:
            alone.add(pod.uid)
        elif not started:
            text = f"{ref.id}: waits until the first {ref.size} members have their places"
            later[pod.uid] = (MINIMUM_FIRST, text)
        elif ref.most is not None and number > ref.most:
            later[pod.uid] = (GANG_IS_FULL, f"{ref.id}: {ref.most} members are the most")
        else:
            alone.add(pod.uid)
    return alone, later


def _kept(gang: str, most: int, template: Pod, ledger: Ledger, room: Room) -> list[Pod]:
    """Reserved places of members without a node; waiting members will claim theirs."""
    reserved = ledger.gang_slots(gang)
    found: list[Pod] = []
    for slot in sorted(reserved):
        place = reserved[slot]
        # Which rules of others and which quotas concern it may have changed since.
        here = {"uid": slot, "state": PodState.PROMISED, "node": place.node, "name": ""}
        groups = {"groups": template.groups, "wished_groups": template.wished_groups}
        now = here | groups | {"quotas": template.quotas}
        member = Pod(**(dict(place.template or template) | now))
        if len(found) < most and room.holds(member, place.node):
            found.append(member)
    return found


def _fresh(gang: str, count: int, template: Pod, ledger: Ledger) -> list[Pod]:
    """Members that do not exist and have no place: they wait like their siblings."""
    reserved = ledger.gang_slots(gang)
    names = (f"{gang}#{i}" for i in itertools.count())
    unused = (name for name in names if name not in reserved)
    changes = {"state": PodState.ABSENT, "node": "", "name": ""}
    return [Pod(**(dict(template) | changes | {"uid": next(unused)})) for _ in range(max(0, count))]
