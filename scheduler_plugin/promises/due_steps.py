"""Which steps of open plans can go now: there is room and power for them where they go. Pure.

Capacity, rules and watts, at the caps that plans counted on, are asked of the same arrays as in
planning, with everything that is bound or promised in them. A step that has no room yet closes its
nodes to later steps, because the plan's order says who comes first; steps elsewhere go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.promises.move_book import Coming, Leaving, Step

__all__ = ["due_steps"]


def due_steps(snapshot: Snapshot, steps: Sequence[Step]) -> list[Step]:
    """The steps that can go now, in order; pods that have left already are none.

    Args:
        snapshot: Of now, with the steps' places as promised pods.
        steps: All that are open, in order.
    """
    if not steps:
        return []
    packing, classes = _packing(snapshot, steps)
    index = {name: n for n, name in enumerate(packing.problem.node_names)}
    closed: set[str] = set()
    due: list[Step] = []
    for step in steps:
        places = _places(step)
        nodes = {node for _, _, node in places}
        mark = packing.mark()
        fits = not nodes & closed
        for uid, _, node in places if fits else ():
            if node not in index or not packing.capacity(classes[uid])[index[node]]:
                fits = False
                break
            packing.put(classes[uid], index[node], 1)
        if not fits:
            packing.undo_to(mark)
            closed |= nodes
        if _can_go(step, steps, fits=fits):
            due.append(step)
    return due


def _can_go(step: Step, steps: Sequence[Step], *, fits: bool) -> bool:
    if isinstance(step, Coming):
        return fits and not step.waits_for_successors(steps)
    return step.left_ns is None and (fits or step.goes_first)


def _places(step: Step) -> list[tuple[str, Pod, str]]:
    """Uid in the snapshot, what is asked for, and where."""
    if isinstance(step, Leaving):
        return [(step.slot, step.template, step.target)] if step.target else []
    return [
        (m.slot, m.template.model_copy(update={"cap_watts": m.cap_watts}), m.node)
        for m in step.members
    ]


def _packing(snapshot: Snapshot, steps: Sequence[Step]) -> tuple[Packing, dict[str, int]]:
    """What is left beside everything else that stands or is promised; class by uid."""
    asked = [place for step in steps for place in _places(step)]
    ours = {uid for uid, _, _ in asked}
    others = [
        pod
        for pod in snapshot.pods
        if pod.uid not in ours and pod.state in (PodState.BOUND, PodState.PROMISED)
    ]
    # Quotas were asked when this was planned, and count who leaves until it is gone.
    waits = {
        "state": PodState.PENDING,
        "node": "",
        "gang": "",
        "priority": 0,
        "quotas": (),
        "beyond": "",
    }
    waiting = [template.model_copy(update={"uid": uid} | waits) for uid, template, _ in asked]
    problem = compile_problem(snapshot.model_copy(update={"pods": (*others, *waiting)}))
    classes = {uid: c for c, pod_class in enumerate(problem.classes) for uid in pod_class.uids}
    return Packing(problem), classes
