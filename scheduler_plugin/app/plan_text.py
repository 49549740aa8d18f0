"""A plan for people: what is placed where, what waits, why, and what would let it start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from scheduler_plugin.documents.change_text import remedy_lines, told_by_uid
from scheduler_plugin.documents.plan_document import Pending, Placement, Plan, Step, Tier
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.packing.planned_levels import planned_levels
from scheduler_plugin.solver.steps import evicted_by

__all__ = ["describe", "pod_names", "waiting_blocks"]


def describe(snapshot: Snapshot, result: Plan) -> str:
    """The plan for people."""
    names = pod_names(snapshot)
    lines = [
        f"{len(result.placements)} placed, {len(result.pending)} pending, "
        f"gap {result.gap:.1%} ({result.method}, snapshot {result.snapshot_digest[:19]})"
    ]
    lines += [_tier_line(tier) for tier in result.tiers]
    lines += _step_lines(result, names) if result.steps else _placement_lines(result, names)
    lines += [
        f"counted at caps of {level.cap_watts:,} W: {gpus} GPUs "
        f"({level.gpu_model}, {level.kernel_class})"
        for level, gpus in planned_levels(result, snapshot).items()
    ]
    for block in waiting_blocks(result.pending, told_by_uid(result.pending), names):
        lines += block
    for reason, count in sorted(Counter(p.reason.value for p in result.pending).items()):
        lines.append(f"{count} x {reason}")
    return "\n".join(lines)


def pod_names(snapshot: Snapshot) -> dict[str, str]:
    """What each pod is called, by uid."""
    return {p.uid: f"{p.namespace}/{p.name}" if p.name else p.uid for p in snapshot.pods}


def waiting_blocks(
    pending: Sequence[Pending], told: Mapping[str, Pending], names: Mapping[str, str]
) -> Iterator[list[str]]:
    """Of each waiting pod, or gang whose members wait for the same, its lines.

    Args:
        pending: Of a plan, or some of it.
        told: By uid, the entry that says what it needs.
        names: By uid.
    """
    groups: dict[object, list[Pending]] = {}
    for entry in pending:
        same = (entry.gang, entry.reason, entry.message) if entry.gang else entry.uid
        groups.setdefault(same, []).append(entry)
    for entries in groups.values():
        first = entries[0]
        who, waits = names[first.uid], "waits"
        if len(entries) > 1:
            who, waits = f"{first.gang} ({len(entries)} members)", "wait"
        why = first.message.removeprefix(f"{first.gang}: ")
        lines = [f"  {who} {waits}: {first.reason}: {why}"]
        yield lines + [f"    {line}" for line in remedy_lines(told[first.uid], names)]


def _tier_line(tier: Tier) -> str:
    return (
        f"priority {tier.priority}: {_gpus(tier.placed_value)} of "
        f"{_gpus(tier.demanded_value)} GPUs placed; with those above "
        f"{_gpus(tier.cumulative_value)}, at most {_gpus(tier.bound_value)} possible"
        f"{_gpus_alone(tier)}"
    )


def _placement_lines(result: Plan, names: Mapping[str, str]) -> list[str]:
    return [
        f"  {names[placed.uid]} -> {placed.node}{_boards(placed)}{_watts(placed)}"
        for placed in result.placements
    ]


def _step_lines(result: Plan, names: Mapping[str, str]) -> list[str]:
    watts = {placement.uid: _watts(placement) for placement in result.placements}
    evicted = set(evicted_by(result.steps))
    lines = []
    for number, step in enumerate(result.steps):
        does = "->" if step.arrives else "evicted from" if step.uid in evicted else "leaves"
        added = watts.get(step.uid, "") if step.arrives else ""
        lines.append(f"  {number + 1}. {names[step.uid]} {does} {step.node}{_boards(step)}{added}")
    return lines


def _watts(placed: Placement) -> str:
    at_caps = f" at caps of {placed.cap_watts:,} W" if placed.cap_watts else ""
    return f" (+{placed.watts:,} W{at_caps})"


def _gpus(milli: int) -> str:
    return f"{milli / MILLI_PER_GPU:g}"


def _boards(placed: Placement | Step) -> str:
    cuts = [f"board {at.board} ({at.profile} from slice {at.start})" for at in placed.mig]
    whole = [f"board {', '.join(map(str, placed.boards))}"] if placed.boards else []
    return "".join(f" {each}" for each in whole + cuts)


def _gpus_alone(tier: Tier) -> str:
    """Of a tier that may lack GPUs: what the first of its bounds leaves open."""
    reached, bound = tier.cumulative_gpu_value, tier.bound_gpu_value
    if reached == bound or (reached, bound) == (tier.cumulative_value, tier.bound_value):
        return ""
    return f" (without pods that need no GPU {_gpus(reached)} of {_gpus(bound)})"
