"""Places of gang members that have none: kept ones, and pods for members that do not exist yet."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

from scheduler_plugin.ledger import Ledger
from scheduler_plugin.resource_columns import node_amounts, pod_amounts
from scheduler_plugin.snapshot import Gang, Node, Pod, PodState
from wattpack.gangs import GangRef


class Room:
    """What real pods leave free on each node; a reservation never outranks a real pod."""

    def __init__(self, nodes: list[Node], planned: list[Pod]) -> None:
        self._free = {node.name: node_amounts(node) for node in nodes}
        for pod in planned:
            if pod.node in self._free:
                self._take(pod, pod.node)

    def holds(self, pod: Pod, node: str) -> bool:
        """Take the pod's room on the node, if there is enough."""
        if node not in self._free:
            return False
        free = self._free[node]
        if any(amount > free.get(name, 0) for name, amount in pod_amounts(pod).items()):
            return False
        self._take(pod, node)
        return True

    def _take(self, pod: Pod, node: str) -> None:
        free = self._free[node]
        for name, amount in pod_amounts(pod).items():
            free[name] = free.get(name, 0) - amount


def gangs_with_places(
    planned: list[Pod], refs: Mapping[str, GangRef], ledger: Ledger, room: Room
) -> tuple[list[Gang], list[Pod]]:
    """Gangs by declared size, with a pod for every member that does not exist yet."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in planned:
        if pod.gang:
            members[pod.gang].append(pod)
    gangs: list[Gang] = []
    absent: list[Pod] = []
    for gang, existing in sorted(members.items()):
        size = max(refs[pod.uid].size or 1 for pod in existing)
        gangs.append(Gang(id=gang, size=size))
        waiting = [pod for pod in existing if pod.state is PodState.PENDING]
        template = max(waiting or existing, key=lambda p: (p.gpu_milli, p.milli_cpu, p.uid))
        kept = _kept(gang, size - (len(existing) - len(waiting)), template, ledger, room)
        # Nobody waits: the members that run have had their time, whoever comes late waits anew.
        missing = size - len(existing) - len(kept) if waiting else 0
        absent += kept + _fresh(gang, missing, template, ledger)
    return gangs, absent


def _kept(gang: str, most: int, template: Pod, ledger: Ledger, room: Room) -> list[Pod]:
    """Reserved places of members without a node; waiting members will claim theirs."""
    reserved = ledger.gang_slots(gang)
    found: list[Pod] = []
    for slot in sorted(reserved):
        place = reserved[slot]
        changes = {"uid": slot, "state": PodState.PROMISED, "node": place.node, "name": ""}
        member = Pod(**(dict(place.template or template) | changes))
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
