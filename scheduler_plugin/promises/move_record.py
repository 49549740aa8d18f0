"""Open steps and spent disruptions in words that survive this process (``wattpack.io/moves/v1``).

They stand as an annotation on every PlacementPlan, so that the newest plan says all that is open.
Times are Unix seconds, because monotonic clocks end with their process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.documents.snapshot_amounts import GpuWatts
from scheduler_plugin.documents.snapshot_limits import MAX_PODS
from scheduler_plugin.documents.value import Id, Label, Value
from scheduler_plugin.documents.value_json import parse_value
from scheduler_plugin.promises.disruption_budget import Disruption, DisruptionBudget
from scheduler_plugin.promises.move_book import Coming, Leaving, Member, MoveBook, Step
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

__all__ = ["RECORD_ANNOTATION", "MoveRecord", "Now", "record_of", "restore"]

RECORD_ANNOTATION: Final = "wattpack.io/moves"
#: Annotations of one object take 262,144 bytes in all (Kubernetes, ``TotalAnnotationSizeLimitB``).
MAX_RECORD_BYTES: Final = 200_000
#: No step is kept for longer, whatever a stored time says: an hour of grace, and as long again.
LONGEST_NS: Final = 2 * 3600 * NS_PER_SECOND

Seconds = Annotated[float, Field(ge=0, le=2**40)]


class LeavingLine(Value):
    """A pod that leaves."""

    kind: Literal["leaving"]
    uid: Id
    key: Label
    owner: Label
    source: Label
    target: Label = ""
    template: Pod
    chain: int
    until: Seconds
    goes_first: bool = False
    has_left: bool = False
    since: Seconds = 0.0


class MemberLine(Value):
    """A pod that comes."""

    uid: Id
    key: Label
    node: Label
    template: Pod
    exists: bool = True
    gated: bool = True
    cap_watts: GpuWatts = 0


class ComingLine(Value):
    """Pods that come together."""

    kind: Literal["coming"]
    members: tuple[MemberLine, ...]
    chain: int
    until: Seconds


class DisruptionLine(Value):
    """A pod that lost its node, or may still do so."""

    uid: Id
    owner: Label
    at: Seconds


class MoveRecord(Value):
    """Everything that the next leader has to know."""

    api_version: Literal["wattpack.io/moves/v1"] = "wattpack.io/moves/v1"
    steps: Annotated[
        tuple[Annotated[LeavingLine | ComingLine, Field(discriminator="kind")], ...],
        Field(max_length=MAX_PODS),
    ] = ()
    disruptions: Annotated[tuple[DisruptionLine, ...], Field(max_length=MAX_PODS)] = ()


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks, nanoseconds."""

    monotonic_ns: int
    wall_ns: int

    def to_wall(self, monotonic_ns: int) -> float:
        """Unix seconds of a monotonic time."""
        return max(0, self.wall_ns + monotonic_ns - self.monotonic_ns) / NS_PER_SECOND

    def to_monotonic(self, seconds: float) -> int:
        """Monotonic time of Unix seconds, at most ``LONGEST_NS`` ahead."""
        ahead_ns = round(seconds * NS_PER_SECOND) - self.wall_ns
        return self.monotonic_ns + min(ahead_ns, LONGEST_NS)


def record_of(book: MoveBook, budget: DisruptionBudget, now: Now) -> str:
    """The record as JSON; empty where there is nothing to tell."""
    spent = budget.entries(now.monotonic_ns)
    if not book.steps and not spent:
        return ""
    record = MoveRecord(
        steps=tuple(_line(step, now) for step in book.steps),
        disruptions=tuple(
            DisruptionLine(uid=d.uid, owner=d.owner, at=now.to_wall(d.at_ns)) for d in spent
        ),
    )
    return record.model_dump_json(exclude_defaults=True)


def restore(text: str, book: MoveBook, budget: DisruptionBudget, now: Now) -> None:
    """Take up what a record says; steps whose time is over are left out.

    Raises:
        InputError: naming the field, for what is no record; nothing is taken up then.
    """
    record = parse_value(MoveRecord, text, "stored moves")
    _refuse_repeated(_step(line, 0, now) for line in record.steps)
    for line in record.steps:
        until_ns = now.to_monotonic(line.until)
        if until_ns > now.monotonic_ns:
            book.steps.append(_step(line, until_ns, now))
    for one in record.disruptions:
        budget.spend(Disruption(one.uid, one.owner, now.to_monotonic(one.at)))


def _refuse_repeated(steps: Iterable[Step]) -> None:
    """A place that is kept twice is in no snapshot, and so in no plan."""
    counts: Counter[str] = Counter()
    for step in steps:
        slots = [m.slot for m in step.members] if isinstance(step, Coming) else [step.slot]
        counts.update(slots)
    again = [slot for slot, count in counts.items() if count > 1]
    if again:
        raise InputError("steps.uid", "every pod once", again[0], "stored moves")


def _line(step: Step, now: Now) -> LeavingLine | ComingLine:
    if isinstance(step, Coming):
        members = (
            MemberLine(
                uid=m.uid,
                key=m.key,
                node=m.node,
                template=m.template,
                exists=m.exists,
                gated=m.gated,
                cap_watts=m.cap_watts,
            )
            for m in step.members
        )
        until = now.to_wall(step.until_ns)
        return ComingLine(kind="coming", members=tuple(members), chain=step.chain, until=until)
    return LeavingLine(
        kind="leaving",
        uid=step.uid,
        key=step.key,
        owner=step.owner,
        source=step.source,
        target=step.target,
        template=step.template,
        chain=step.chain,
        until=now.to_wall(step.until_ns),
        goes_first=step.goes_first,
        has_left=step.left_ns is not None,
        since=step.since_wall_ns / NS_PER_SECOND,
    )


def _step(line: LeavingLine | ComingLine, until_ns: int, now: Now) -> Step:
    if isinstance(line, ComingLine):
        members = (
            Member(m.uid, m.key, m.node, m.template, m.exists, m.gated, m.cap_watts)
            for m in line.members
        )
        return Coming(tuple(members), line.chain, until_ns)
    return Leaving(
        line.uid,
        line.key,
        line.owner,
        line.source,
        line.target,
        line.template,
        line.chain,
        until_ns,
        line.goes_first,
        now.monotonic_ns if line.has_left else None,
        round(line.since * NS_PER_SECOND),
    )
