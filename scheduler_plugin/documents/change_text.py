"""A set of changes as one sentence for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from scheduler_plugin.documents.host_resources import amount_text
from scheduler_plugin.documents.link_groups import gigabits_text
from scheduler_plugin.documents.peer_rule import PeerKind
from scheduler_plugin.documents.plan_changes import (
    AcceptGpuModel,
    AcceptHostClass,
    AddNodes,
    AllowSlowDown,
    Change,
    DropAffinity,
    DropGangTopology,
    DropPeerRules,
    DropSelector,
    EvictPod,
    FreeOnNode,
    LiftQuarantine,
    LowerGuarantees,
    MovePod,
    RaiseLimit,
    RaiseQuota,
    ReturnNode,
    StatePower,
    TolerateTaint,
    WidenUplink,
    is_of_request,
)
from scheduler_plugin.documents.plan_document import Pending
from scheduler_plugin.documents.snapshot_domain import domain_words
from wattpack.gpu_resources import GpuKind, gpu_kind

__all__ = ["BYTES_PER_GIB", "quota_amount", "remedy_lines", "remedy_text", "told_by_uid"]

BYTES_PER_GIB: Final = 1024**3
_PEER_RULES: Final = {
    PeerKind.APART: "pod anti-affinity",
    PeerKind.TOGETHER: "pod affinity",
    PeerKind.SPREAD: "topology spread",
}

NAMED: Final = 5
"""Of many things of one kind so many are named, the others counted."""


def told_by_uid(pending: Iterable[Pending]) -> dict[str, Pending]:
    """The entry that says what each pending pod needs: for a gang's members that of the first."""
    entries = tuple(pending)
    told = (entry for entry in entries if entry.gang and (entry.changes or entry.against))
    of_gang = {entry.gang: entry for entry in told}
    return {entry.uid: of_gang.get(entry.gang, entry) for entry in entries}


def remedy_lines(entry: Pending, names: Mapping[str, str]) -> list[str]:
    """What would let the pod start, one line for each who can do it; [] where nothing is known.

    Args:
        entry: With the changes.
        names: What pods are called, by uid.
    """
    if entry.remedy == "late":
        return ["time was over before it was looked for what would let it start"]
    if entry.remedy == "next_plan":
        return ["nothing has to change: the next plan can place it"]
    if not entry.changes:
        return [f"nothing that we know lets it start: {entry.against}"] if entry.against else []
    lines = [_set_line(entry.changes, entry.pays_after_seconds, names)]
    if entry.operator_changes:
        pays = entry.operator_pays_after_seconds
        lines.append(_set_line(entry.operator_changes, pays, names))
    elif entry.against:
        lines.append(f"operator: nothing helps without that: {entry.against}")
    return lines


def remedy_text(entry: Pending, names: Mapping[str, str]) -> str:
    """The same as one line."""
    return "; ".join(remedy_lines(entry, names))


def _set_line(changes: Sequence[Change], pays: int, names: Mapping[str, str]) -> str:
    """Who has to do what, and what that costs."""
    clauses = [clause for say in _CLAUSES for clause in say(changes, names)]
    price = sum(c.gpu_seconds for c in changes if isinstance(c, MovePod | EvictPod))
    cost = f"; that costs {price:,} GPU seconds and pays where it waits for more than {pays:,} s"
    return f"{_who(changes)}would start if {_and(clauses)}{cost * (price > 0)}"


def _who(changes: Sequence[Change]) -> str:
    """Whose changes they are; nobody has to end a quarantine."""
    sides = {
        "owner" if is_of_request(change) else "operator"
        for change in changes
        if not isinstance(change, LiftQuarantine)
    }
    return f"{' and '.join(sorted(sides, reverse=True))}: " if sides else ""


def _request(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    models = [c.gpu_model for c in changes if isinstance(c, AcceptGpuModel)]
    classes = [f"{c.part} class {c.name}" for c in changes if isinstance(c, AcceptHostClass)]
    keys = [c.key for c in changes if isinstance(c, DropSelector)]
    taints = [
        f"{c.key}{'=' * bool(c.value)}{c.value}:{c.effect}"
        for c in changes
        if isinstance(c, TolerateTaint)
    ]
    banned = [c.node for c in changes if isinstance(c, LiftQuarantine)]
    found = [f"it took GPU type {_and(models)} too"] if models else []
    found += [f"it took {_and(classes)} too"] if classes else []
    found += [f"it gave up the node selector {_and(keys)}"] if keys else []
    if any(isinstance(c, DropAffinity) for c in changes):
        found.append("it gave up its required node affinity")
    dropped = [_PEER_RULES[c.rules] for c in changes if isinstance(c, DropPeerRules)]
    found += [f"it gave up its {_and(dropped)}"] if dropped else []
    if any(isinstance(c, DropGangTopology) for c in changes):
        found.append("it did not have to be in one topology domain")
    found += [f"it tolerated the taint {_and(taints)}"] if taints else []
    return found + ([f"its quarantine on {_and(banned)} ended"] if banned else [])


def _nodes(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    back = [c.node for c in changes if isinstance(c, ReturnNode)]
    slower = [c for c in changes if isinstance(c, AllowSlowDown)]
    silent = [c.node for c in changes if isinstance(c, StatePower)]
    found = [f"{_and(back)} were ready and not cordoned"] if back else []
    found += [
        f"pods that share {c.node} might take {c.slow_down_milli / 1000:.2f} times as long"
        for c in slower
    ]
    if silent:
        found.append(f"it were known what {_and(silent)} draws, below one power domain")
    return found


def _power(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    found = [
        f"the limit of {domain_words(c.domain)} were {c.watts:,} W higher"
        for c in changes
        if isinstance(c, RaiseLimit)
    ]
    return found + [
        f"guaranteed caps below {domain_words(c.domain)} were {c.watts:,} W lower"
        for c in changes
        if isinstance(c, LowerGuarantees)
    ]


def _quotas(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    return [
        f"quota {c.quota} let in {quota_amount(c.resource, c.amount)} more"
        for c in changes
        if isinstance(c, RaiseQuota)
    ]


def quota_amount(resource: str, amount: int) -> str:
    """Of a quota's resource, for people."""
    if resource == "gpu_milli" or _is_board(resource):
        gpus = amount / 1000 if resource == "gpu_milli" else amount
        return f"{gpus:g} GPU{'s' * (gpus != 1)}"
    if resource == "memory_bytes":
        return f"{amount / BYTES_PER_GIB:.1f} GiB of memory"
    if resource == "pods":
        return f"{amount:,} pod{'s' * (amount != 1)}"
    return f"{amount / 1000:g} CPUs" if resource == "milli_cpu" else f"{amount:,} of {resource}"


def _links(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    return [
        f"the uplink of {c.group} carried {gigabits_text(c.megabits)} more"
        for c in changes
        if isinstance(c, WidenUplink)
    ]


def _running(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    moves = [c for c in changes if isinstance(c, MovePod)]
    evictions = [c for c in changes if isinstance(c, EvictPod)]
    found: list[str] = []
    if moves:
        told = [f"{names.get(c.uid, c.uid)} to {c.target}" for c in moves]
        found.append(f"these moved from {_and(_once(c.source for c in moves))}: {_list(told)}")
    if evictions:
        told = [names.get(c.uid, c.uid) for c in evictions]
        highest = max(c.priority for c in evictions)
        where = _and(_once(c.node for c in evictions))
        found.append(f"these of priority {highest} or less left {where}: {_list(told)}")
    return found


def _capacity(changes: Sequence[Change], names: Mapping[str, str]) -> list[str]:
    found = [
        f"{_and(_amounts(c))} more were free on {c.node}"
        for c in changes
        if isinstance(c, FreeOnNode)
    ]
    if len(found) > NAMED:
        found = [*found[:NAMED], f"as much on {len(found) - NAMED} more nodes"]
    added = [c for c in changes if isinstance(c, AddNodes)]
    return found + [
        f"{c.count} more node{'s' * (c.count > 1)} like {c.like} {'were' if c.count > 1 else 'was'}"
        " there"
        for c in added
    ]


def _amounts(change: FreeOnNode) -> list[str]:
    found = [f"{change.gpus} GPU{'s' * (change.gpus > 1)}"] if change.gpus else []
    found += [f"{change.milli_cpu / 1000:g} CPUs"] if change.milli_cpu else []
    if change.memory_bytes:
        found.append(f"{change.memory_bytes / BYTES_PER_GIB:.1f} GiB of memory")
    found += [f"{change.pods} pod slots"] if change.pods else []
    others = {name: amount for name, amount in change.resources.items() if not _is_board(name)}
    return found + [amount_text(name, amount) for name, amount in others.items()]


def _is_board(name: str) -> bool:
    """Told as GPUs already."""
    return gpu_kind(name) is GpuKind.WHOLE


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _list(told: Sequence[str]) -> str:
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _and(parts: Sequence[str]) -> str:
    if len(parts) > NAMED + 1:
        parts = [*parts[:NAMED], f"{len(parts) - NAMED} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_CLAUSES: Final[tuple[Callable[[Sequence[Change], Mapping[str, str]], list[str]], ...]] = (
    _request,
    _nodes,
    _power,
    _links,
    _quotas,
    _running,
    _capacity,
)
