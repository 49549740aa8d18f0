"""What a plan would be if nodes went or came or a limit were another, and when a gang would start.

Pure: a snapshot and a question in, another snapshot and comparisons of two plans out. Pods whose
node goes wait again. What leaves is taken to have drawn its nominal watts, so that a domain's
forecast falls by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from scheduler_plugin.documents.changed_snapshot import ON_NO_BOARD, apply_changes
from scheduler_plugin.documents.plan_changes import AddNodes
from scheduler_plugin.documents.plan_document import Pending, Plan
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, Snapshot
from scheduler_plugin.documents.value import Id, Label, Value
from scheduler_plugin.packing.domain_rooms import ancestors, counted_watts
from scheduler_plugin.room.resource_columns import gpu_value_milli, pod_watts
from scheduler_plugin.solver.steps import evicted_by
from wattpack.errors import InputError
from wattpack.near_names import did_you_mean

__all__ = [
    "MAX_ADDED",
    "AddedNodes",
    "Comparison",
    "DomainWatts",
    "FewerNodes",
    "Question",
    "Relocation",
    "altered",
    "compared",
    "held",
    "named",
    "with_parts",
    "without_pods",
]

Planner = Callable[[Snapshot], Plan]
MAX_ADDED: Final = 5000


class AddedNodes(Value):
    """So many more nodes.

    Attributes:
        count: How many.
        like: GPU model, or the name of a node, that they are like.
        domain: Power domain directly above them; empty for that of the node they are like.
    """

    count: Annotated[int, Field(ge=1, le=MAX_ADDED)]
    like: Id
    domain: Label = ""


class FewerNodes(Value):
    """So many nodes less: those that running pods hold least of, then by name.

    Attributes:
        count: How many.
        model: GPU model of theirs.
        domain: Power domain above them, directly or not; empty for any.
    """

    count: Annotated[int, Field(ge=1, le=MAX_ADDED)]
    model: Id
    domain: Label = ""


class Question(Value):
    """What would be different; everything else is as it is.

    Attributes:
        drain: Nodes that take no pods and lose theirs.
        remove: Nodes that go.
        fewer: Nodes that go by number.
        add: Nodes that come.
        limits: Limits of power domains, watts.
    """

    drain: tuple[Id, ...] = ()
    remove: tuple[Id, ...] = ()
    fewer: tuple[FewerNodes, ...] = ()
    add: tuple[AddedNodes, ...] = ()
    limits: dict[Id, Annotated[int, Field(ge=0, le=10**9)]] = Field(default_factory=dict)


class Relocation(Value):
    """A pod that is elsewhere in the new plan; empty for waiting.

    Attributes:
        runs: Whether it runs now; the others wait now, and plans differ in where they go.
        reason: Why it waits in the new plan.
    """

    uid: Id
    runs: bool
    before: Label = ""
    after: Label = ""
    reason: str = ""


class DomainWatts(Value):
    """A power domain in both plans, watts: what runs, what is promised and what is placed."""

    name: Id
    limit_before: int
    limit_after: int
    counted_before: int
    counted_after: int


class Comparison(Value):
    """``wattpack.io/what-if/v1``: the new plan against the old one.

    Attributes:
        relocations: Pods that are elsewhere, or wait where they did not, and the other way round.
        gpu_milli_before: Of all nodes that take pods.
        held_before: Thousandths of GPUs that pods hold once the plan is carried out; MIG instances
            by their part of a board's compute.
        removed: Nodes that are gone.
        pending: What waits in the new plan, and why.
    """

    api_version: Literal["wattpack.io/what-if/v1"] = "wattpack.io/what-if/v1"
    relocations: tuple[Relocation, ...]
    waiting_before: int
    waiting_after: int
    gpu_milli_before: int
    gpu_milli_after: int
    held_before: int
    held_after: int
    domains: tuple[DomainWatts, ...]
    removed: tuple[Id, ...] = ()
    pending: tuple[Pending, ...]


def altered(snapshot: Snapshot, question: Question) -> Snapshot:
    """The snapshot as the question has it.

    Raises:
        InputError: for a node, GPU model or power domain that it does not have.
    """
    question = named(snapshot, question)
    names = {node.name for node in snapshot.nodes}
    for flag, asked in (("--drain", question.drain), ("--remove", question.remove)):
        for name in asked:
            if name not in names:
                raise InputError(flag, f"a node of the snapshot{did_you_mean(name, names)}", name)
    made = snapshot
    for added in question.add:
        made = _with_nodes(made, added)
    made = _with_limits(made, question.limits)
    gone = {*question.drain, *question.remove}
    made = without_pods(made, [p for p in made.pods if p.node in gone], waiting=True)
    nodes = tuple(
        node.model_copy(update={"schedulable": False}) if node.name in gone else node
        for node in made.nodes
        if node.name not in question.remove
    )
    removed = [node for node in made.nodes if node.name in question.remove]
    return _less_idle(with_parts(made, nodes=nodes), removed)


def named(snapshot: Snapshot, question: Question) -> Question:
    """The same question with nodes that go by their names.

    Raises:
        InputError: if there are not so many, or no such power domain.
    """
    remove = list(question.remove)
    held: Counter[str] = Counter()
    for pod in snapshot.pods:
        held[pod.node] += gpu_value_milli(pod)
    domains = {domain.name: domain for domain in snapshot.domains}
    models = sorted({node.gpu_model for node in snapshot.nodes} - {""})
    for fewer in question.fewer:
        if fewer.model not in models:
            raise InputError("--remove", f"a GPU model: {', '.join(models)}", fewer.model)
        if fewer.domain and fewer.domain not in domains:
            raise InputError("--remove", _a_domain(fewer.domain, domains), fewer.domain)
        able = sorted(
            (held[node.name], node.name)
            for node in snapshot.nodes
            if node.gpu_model == fewer.model
            and node.name not in remove
            and (not fewer.domain or fewer.domain in ancestors(domains, node.domain))
        )
        if len(able) < fewer.count:
            where = f" below {fewer.domain}" if fewer.domain else ""
            expected = f"at most {len(able)} nodes of {fewer.model}{where}"
            raise InputError("--remove", expected, fewer.count)
        remove += [name for _, name in able[: fewer.count]]
    return question.model_copy(update={"remove": tuple(remove), "fewer": ()})


def without_pods(snapshot: Snapshot, pods: Iterable[Pod], *, waiting: bool) -> Snapshot:
    """Pods that ran are gone, or wait again, and draw nothing where they were."""
    nodes = {node.name: node for node in snapshot.nodes}
    left = {pod.uid: pod for pod in pods}
    drawn = [
        (pod.node, pod_watts(pod, nodes[pod.node]))
        for pod in left.values()
        if pod.state is PodState.BOUND and pod.node in nodes
    ]
    again = {"state": PodState.PENDING, "node": "", "move_seconds": None} | ON_NO_BOARD
    kept = tuple(
        pod.model_copy(update=again) if pod.uid in left else pod
        for pod in snapshot.pods
        if waiting or pod.uid not in left
    )
    return _less_watts(with_parts(snapshot, pods=kept), drawn)


def held(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """As a plan leaves it: who is placed or moved is promised a place, who is evicted waits."""
    placed = {placement.uid: placement.node for placement in plan.placements}
    placed |= {step.uid: step.node for step in plan.steps if step.arrives}
    evicted = set(evicted_by(plan.steps))
    pods: list[Pod] = []
    for pod in snapshot.pods:
        if pod.uid in placed:
            update = {"state": PodState.PROMISED, "node": placed[pod.uid]} | ON_NO_BOARD
        elif pod.uid in evicted:
            update = {"state": PodState.PENDING, "node": ""} | ON_NO_BOARD
        else:
            update = {}
        pods.append(pod.model_copy(update=update) if update else pod)
    return with_parts(snapshot, pods=tuple(pods))


def compared(before: tuple[Snapshot, Plan], after: tuple[Snapshot, Plan]) -> Comparison:
    """Two plans of the same pods, over other nodes or limits."""
    old, new = held(*before), held(*after)
    runs = {pod.uid for pod in before[0].pods if pod.node}
    where = {pod.uid: pod.node for pod in old.pods}
    why = {entry.uid: entry.reason.value for entry in after[1].pending}
    relocations = tuple(
        Relocation(
            uid=pod.uid,
            runs=pod.uid in runs,
            before=where[pod.uid],
            after=pod.node,
            reason=why.get(pod.uid, ""),
        )
        for pod in new.pods
        if pod.node != where[pod.uid]
    )
    return Comparison(
        relocations=relocations,
        waiting_before=_waiting(old),
        waiting_after=_waiting(new),
        gpu_milli_before=_open_milli(old),
        gpu_milli_after=_open_milli(new),
        held_before=_held_milli(old),
        held_after=_held_milli(new),
        domains=_domains(old, new),
        removed=tuple(sorted({n.name for n in old.nodes} - {n.name for n in new.nodes})),
        pending=after[1].pending,
    )


def _waiting(snapshot: Snapshot) -> int:
    return sum(pod.state.waits for pod in snapshot.pods)


def _open_milli(snapshot: Snapshot) -> int:
    takes = (n for n in snapshot.nodes if n.is_open)
    return sum(node.gpu_milli for node in takes)


def _held_milli(snapshot: Snapshot) -> int:
    return sum(gpu_value_milli(pod) for pod in snapshot.pods if pod.node)


def _domains(old: Snapshot, new: Snapshot) -> tuple[DomainWatts, ...]:
    limits = {domain.name: domain.limit_watts for domain in old.domains}
    before, after = counted_watts(old), counted_watts(new)
    return tuple(
        DomainWatts(
            name=domain.name,
            limit_before=limits[domain.name],
            limit_after=domain.limit_watts,
            counted_before=before[domain.name],
            counted_after=after[domain.name],
        )
        for domain in new.domains
    )


def _with_nodes(snapshot: Snapshot, added: AddedNodes) -> Snapshot:
    """Those of the model with most GPUs are the pattern; idle draw is added to the domains."""
    named = [node for node in snapshot.nodes if node.name == added.like]
    of_model = sorted(
        (node for node in snapshot.nodes if node.gpu_model == added.like),
        key=lambda node: (-node.gpu_milli, node.name),
    )
    if not named and not of_model:
        near = did_you_mean(
            added.like, [n for at in snapshot.nodes for n in (at.gpu_model, at.name)]
        )
        raise InputError("--add", f"a GPU model or a node of the snapshot{near}", added.like)
    domains = {domain.name for domain in snapshot.domains}
    if added.domain and added.domain not in domains:
        raise InputError("--add", _a_domain(added.domain, domains), added.domain)
    pattern = (named or of_model)[0]
    update = {"domain": added.domain or pattern.domain, "rival_domains": ()}
    moved = pattern.model_copy(update=update)
    nodes = tuple(moved if node is pattern else node for node in snapshot.nodes)
    many = AddNodes.model_construct(like=pattern.name, count=added.count)
    grown = apply_changes(with_parts(snapshot, nodes=nodes), [many])
    back = tuple(pattern if node.name == pattern.name else node for node in grown.nodes)
    return with_parts(grown, nodes=back)


def _a_domain(got: str, names: Iterable[str]) -> str:
    return f"a power domain of the snapshot{did_you_mean(got, names)}"


def _with_limits(snapshot: Snapshot, limits: Mapping[str, int]) -> Snapshot:
    unknown = sorted(limits.keys() - {domain.name for domain in snapshot.domains})
    if unknown:
        known = [domain.name for domain in snapshot.domains]
        raise InputError("--limit", _a_domain(unknown[0], known), unknown[0])
    domains = tuple(
        domain.model_copy(
            update={"limit_watts": limits.get(domain.at_risk_of or domain.name, domain.limit_watts)}
        )
        for domain in snapshot.domains
    )
    return with_parts(snapshot, domains=domains)


def _less_idle(snapshot: Snapshot, removed: Sequence[Node]) -> Snapshot:
    domains = {domain.name: domain for domain in snapshot.domains}
    less: Counter[str] = Counter()
    for node in removed:
        for name in ancestors(domains, node.domain):
            less[name] += node.idle_watts
    return _drawing_less(snapshot, less)


def _less_watts(snapshot: Snapshot, drawn: Iterable[tuple[str, int]]) -> Snapshot:
    """Domains above nodes use so many watts less, none less than nothing."""
    domains = {domain.name: domain for domain in snapshot.domains}
    above = {node.name: ancestors(domains, node.domain) for node in snapshot.nodes}
    less: Counter[str] = Counter()
    for node, watts in drawn:
        for name in above[node]:
            less[name] += watts
    return _drawing_less(snapshot, less)


def _drawing_less(snapshot: Snapshot, less: Mapping[str, int]) -> Snapshot:
    if not any(less.values()):
        return snapshot
    changed = tuple(
        domain.model_copy(
            update={"used_watts": max(0, domain.used_watts - less.get(domain.name, 0))}
        )
        for domain in snapshot.domains
    )
    return with_parts(snapshot, domains=changed)


def with_parts(snapshot: Snapshot, **parts: object) -> Snapshot:
    """With some lists replaced; built anew, so that references are checked."""
    same = {name: getattr(snapshot, name) for name in Snapshot.model_fields}
    return Snapshot.model_validate(same | parts)
