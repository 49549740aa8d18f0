"""What a what-if found, as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from scheduler_plugin.app.plan_text import pod_names, waiting_blocks
from scheduler_plugin.documents.change_text import remedy_lines, told_by_uid
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.documents.snapshot_domain import domain_words
from scheduler_plugin.gang_start import GangStart
from scheduler_plugin.what_if import Comparison, DomainWatts, Relocation

__all__ = ["comparison_lines", "start_lines"]


def comparison_lines(snapshot: Snapshot, comparison: Comparison) -> list[str]:
    """The new plan against the old one.

    Args:
        snapshot: As the question has it.
        comparison: Of both plans.
    """
    names, waiting = pod_names(snapshot), {entry.uid for entry in comparison.pending}
    before = f"{_gpus(comparison.held_before)} of {_gpus(comparison.gpu_milli_before)}"
    lines = [
        f"{before} GPUs held before, "
        f"{_gpus(comparison.held_after)} of {_gpus(comparison.gpu_milli_after)} after; "
        f"{comparison.waiting_before} pods waiting before, {comparison.waiting_after} after"
    ]
    if comparison.removed:
        lines.append(f"removed: {', '.join(comparison.removed)}")
    for kind, those in _kinds(comparison.relocations).items():
        lines.append(f"{len(those)} {kind}")
        lines += [f"  {names[one.uid]}{_from_to(one)}{_evicted(one, waiting)}" for one in those]
        lines += _why(comparison, [one for one in those if not one.after], names)
    return lines + [_watts(domain) for domain in comparison.domains if _differs(domain)]


def _why(comparison: Comparison, lost: Sequence[Relocation], names: Mapping[str, str]) -> list[str]:
    """Of those who have no place any more, a gang's members together."""
    uids = {one.uid for one in lost}
    waiting = [entry for entry in comparison.pending if entry.uid in uids]
    told = told_by_uid(comparison.pending)
    return [line for block in waiting_blocks(waiting, told, names) for line in block]


def start_lines(snapshot: Snapshot, start: GangStart) -> list[str]:
    """When a gang would start, and why not now."""
    names, cause = pod_names(snapshot), start.cause
    why = []
    if cause is not None:
        why = [f"  {cause.reason}: {cause.message}"]
        why += [f"    {line}" for line in remedy_lines(cause, names)]
    if start.start_seconds is None:
        until = f"looked {start.looked_until_seconds:,} s ahead"
        return [f"{start.waiting}: nothing that is expected lets it start ({until})", *why]
    if not start.start_seconds:
        return [f"{start.waiting} would start at once", *_places(start, names)]
    ended = ", ".join(names[uid] for uid in start.ended[-5:])
    lines = [f"{start.waiting} would start in {start.start_seconds:,} s; now it waits:", *why]
    if ended:
        lines.append(f"  {len(start.ended)} running pods end before, the last of them {ended}")
    return lines + _places(start, names)


def _places(start: GangStart, names: Mapping[str, str]) -> list[str]:
    return [f"  {names[uid]} -> {node}" for uid, node in sorted(start.nodes.items())]


def _kinds(relocations: tuple[Relocation, ...]) -> dict[str, list[Relocation]]:
    found: dict[str, list[Relocation]] = {}
    for one in relocations:
        if one.before and one.after:
            kind = "run elsewhere" if one.runs else "wait and go elsewhere"
        elif one.after:
            kind = "come in"
        else:
            kind = "lose their place and wait" if one.runs else "no longer come in"
        found.setdefault(kind, []).append(one)
    return found


def _evicted(one: Relocation, waiting: Set[str]) -> str:
    """Of who waits and is in no list of causes."""
    evicted = one.runs and not one.after and one.uid not in waiting
    return " (evicted: its place goes to work that counts more)" if evicted else ""


def _from_to(one: Relocation) -> str:
    if one.before and one.after:
        return f": {one.before} -> {one.after}"
    return f" -> {one.after}" if one.after else f": {one.before} -> waits"


def _gpus(milli: int) -> str:
    return f"{milli / MILLI_PER_GPU:,g}"


def _differs(domain: DomainWatts) -> bool:
    same_limit = domain.limit_before == domain.limit_after
    return not (same_limit and domain.counted_before == domain.counted_after)


def _watts(domain: DomainWatts) -> str:
    before = f"{domain.counted_before:,} of {domain.limit_before:,} W"
    after = f"{domain.counted_after:,} of {domain.limit_after:,} W"
    return f"{domain_words(domain.name)}: {before} before, {after} after"
