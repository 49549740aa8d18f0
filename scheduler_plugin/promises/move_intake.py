"""A plan's steps as steps to carry out: what belongs together, and what the budget pays for. Pure.

Steps that share no node do not depend on one another, so each chain of dependent steps is taken up
or left on its own. A chain that costs more than is left of the budget is cut where a waiting pod
has just got its place: every prefix of a plan is an acceptable state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler_plugin.documents.changed_snapshot import ON_NO_BOARD
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.move_book import Coming, Leaving, Member, Step
from wattpack.kube.port import JsonObject

__all__ = ["Intake", "affordable", "chains_of"]


@dataclass(frozen=True, slots=True)
class Intake:
    """What a plan is read against.

    Attributes:
        pods: Of the snapshot, by uid.
        bodies: All pods as they were read, by uid.
        until_ns: When what cannot be carried out is given up, on the monotonic clock.
        first_chain: A number that no open chain has.
        wall_ns: Unix time.
    """

    pods: Mapping[str, Pod]
    bodies: Mapping[str, JsonObject]
    until_ns: int
    first_chain: int = 1
    wall_ns: int = 0


def chains_of(plan: Plan, intake: Intake) -> list[list[Step]]:
    """The plan's steps by chain, in order, each chain with its own number."""
    steps = _steps(plan, intake)
    nodes = [_nodes(step) for step in steps]
    groups: list[tuple[set[str], list[int]]] = []
    for i, touched in enumerate(nodes):
        joined = [group for group in groups if group[0] & touched]
        groups = [group for group in groups if not group[0] & touched]
        together = touched.union(*(group[0] for group in joined))
        members = sorted([i, *(m for group in joined for m in group[1])])
        groups.append((together, members))
    groups.sort(key=lambda group: group[1][0])
    return [
        [replace(steps[i], chain=intake.first_chain + number) for i in members]
        for number, (_, members) in enumerate(groups)
    ]


def affordable(
    chain: Sequence[Step],
    pays: Callable[[Iterable[str]], bool],
    may_evict: Callable[[str], bool],
) -> list[Step]:
    """What of a chain can be taken up; empty for nothing.

    Args:
        chain: Steps in order.
        pays: Whether the budget has room for one more pod of each of these owners.
        may_evict: Whether others may lose their places for a waiting pod (by uid): not where its
            ``preemptionPolicy`` is Never.
    """
    ends = [i + 1 for i, step in enumerate(chain) if isinstance(step, Coming)]
    if any(isinstance(step, Leaving) and step.goes_first for step in chain):
        # Cut within a circle, the pod that leaves first would be nowhere.
        ends = [len(chain)] if ends else []
    for end in reversed(ends):
        part = chain[:end]
        leaving = [step for step in part if isinstance(step, Leaving)]
        coming = [m for step in part if isinstance(step, Coming) for m in step.members]
        evicts = any(not step.target for step in leaving)
        if pays([step.owner for step in leaving]) and (
            not evicts or any(may_evict(member.uid) for member in coming)
        ):
            return list(part)
    return []


def _nodes(step: Step) -> set[str]:
    if isinstance(step, Leaving):
        return {step.source, step.target} - {""}
    return {member.node for member in step.members}


def _steps(plan: Plan, intake: Intake) -> list[Step]:
    """A pod that leaves and arrives is one step, and so is a gang."""
    arrives = {step.uid: i for i, step in enumerate(plan.steps) if step.arrives}
    moved = {step.uid for step in plan.steps if not step.arrives}
    found: list[Step] = []
    gangs: dict[str, int] = {}
    caps = {placement.uid: placement.cap_watts for placement in plan.placements}
    for i, step in enumerate(plan.steps):
        if not step.arrives:
            at = arrives.get(step.uid)
            target = "" if at is None else plan.steps[at].node
            late = at is not None and at != i + 1
            found.append(_leaving(step.uid, step.node, target, intake, goes_first=late))
        elif step.uid not in moved:
            member = _member(step.uid, step.node, intake)
            member = replace(member, cap_watts=caps.get(step.uid, 0))
            gang = member.template.gang
            if gang in gangs:
                known = found[gangs[gang]]
                assert isinstance(known, Coming)
                found[gangs[gang]] = replace(known, members=(*known.members, member))
                continue
            if gang:
                gangs[gang] = len(found)
            found.append(Coming((member,), 0, intake.until_ns))
    return found


def _leaving(uid: str, source: str, target: str, intake: Intake, *, goes_first: bool) -> Leaving:
    body = intake.bodies[uid]
    return Leaving(
        uid,
        pod_facts.key(body),
        pod_facts.owner_key(body),
        source,
        target,
        intake.pods[uid].model_copy(update=ON_NO_BOARD),
        0,
        intake.until_ns,
        goes_first,
        None,
        intake.wall_ns,
    )


def _member(uid: str, node: str, intake: Intake) -> Member:
    pod = intake.pods[uid]
    body = intake.bodies.get(uid)
    if body is None:
        return Member(uid, f"{pod.namespace}/", node, pod, exists=False)
    return Member(uid, pod_facts.key(body), node, pod, gated=pod_facts.is_gated(body))
