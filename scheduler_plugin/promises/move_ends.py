"""Which steps of moves have ended, by what the pods show and what time it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.disruption_budget import DisruptionBudget
from scheduler_plugin.promises.move_book import Coming, Leaving, Member, MoveBook, Step
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND

__all__ = ["End", "MoveEnds"]


class End(NamedTuple):
    """A step that is no longer open.

    Attributes:
        outcome: ``arrived`` (by kube-scheduler, where our hint said), ``elsewhere`` (the successor
            came without us), ``no_successor``, ``given_up``; empty where nothing is to be counted.
        why: For people.
    """

    step: Step
    outcome: str = ""
    why: str = ""


class MoveEnds:
    """Closes steps.

    Args:
        book: The open steps.
        budget: Gets back what was not spent.
    """

    def __init__(self, book: MoveBook, budget: DisruptionBudget) -> None:
        self._book = book
        self._budget = budget

    def settle(self, bodies: Mapping[str, JsonObject], now_ns: int) -> list[End]:
        """All steps that ended since the last time; they are dropped, in order.

        Args:
            bodies: All pods by uid.
            now_ns: Monotonic time.
        """
        ends = list(self._comings(bodies, now_ns))
        for step in self._book.leaving():
            ends += self._leaving_ends(step, bodies, now_ns)
        self._book.drop(end.step for end in ends)
        return ends + self._useless()

    def give_up(self, chain: int, why: str, now_ns: int) -> list[End]:
        """End a chain where it stands: places of pods that have left stay kept for their time."""
        steps = [
            step
            for step in self._book.steps
            if step.chain == chain and not (isinstance(step, Leaving) and step.left_ns is not None)
        ]
        for step in steps:
            if isinstance(step, Leaving):
                self._budget.refund(step.uid)
                self._book.rest([step.owner], now_ns)
            else:
                self._book.rest([step.gang or step.members[0].uid], now_ns)
        self._book.drop(steps)
        return [End(step, "given_up", why) for step in steps if isinstance(step, Coming)]

    def hopeless(
        self, due: Sequence[Step], bodies: Mapping[str, JsonObject], why: str
    ) -> list[End]:
        """Pods that have no room although nobody is left who would make it; they are dropped.

        Args:
            due: Steps that have room now.
            bodies: All pods by uid.
            why: For people.
        """
        emptying = {step.source for step in self._book.leaving()} | {
            pod_facts.node_name(body)
            for body in bodies.values()
            if body["metadata"].get("deletionTimestamp")
        }
        lost: list[Coming] = []
        for step in self._book.coming():
            nodes = {member.node for member in step.members}
            waits = bool(nodes & emptying) or step.waits_for_successors(self._book.steps)
            if step not in due and not waits:
                lost.append(step)
            # Whoever comes after it waits for it, not for room.
            emptying |= nodes
        self._book.drop(lost)
        return [End(step, "given_up", why) for step in lost]

    # Inside

    def _comings(self, bodies: Mapping[str, JsonObject], now_ns: int) -> Iterator[End]:
        for step in self._book.coming():
            states = {_state(member, bodies) for member in step.members if member.exists}
            if states == {"bound"}:
                yield End(step, "arrived")
            elif states & {"gone", "bound", "let_go"}:
                yield End(step)
            elif now_ns >= step.until_ns:
                self._book.rest([step.gang or step.members[0].uid], now_ns)
                self._book.rest(self._still_here(step.chain), now_ns)
                yield End(step, "given_up", "it took too long")

    def _still_here(self, chain: int) -> list[str]:
        """Owners whose pods did not go in time."""
        return [s.owner for s in self._book.leaving() if s.chain == chain and s.left_ns is None]

    def _leaving_ends(
        self, step: Leaving, bodies: Mapping[str, JsonObject], now_ns: int
    ) -> Iterator[End]:
        body = bodies.get(step.uid)
        is_going = body is None or bool(body["metadata"].get("deletionTimestamp"))
        if step.left_ns is None:
            if body is not None and pod_facts.is_finished(body):
                self._budget.refund(step.uid)
                yield End(step)
            elif is_going:
                self._left_by_itself(step, now_ns)
            elif now_ns >= step.until_ns:
                self._budget.refund(step.uid)
                yield End(step)
        elif not step.target:
            if body is None or now_ns >= step.until_ns:
                yield End(step)
        elif self._came_elsewhere(step, bodies):
            yield End(step, "elsewhere")
        elif now_ns >= step.until_ns:
            yield End(step, "no_successor")

    def _left_by_itself(self, step: Leaving, now_ns: int) -> None:
        """Gone without our knowing why: its successor may still have the place, which is free.

        It stays paid for: an eviction of ours whose answer was lost looks the same.
        """
        self._book.swap(step, replace(step, left_ns=now_ns))

    def _came_elsewhere(self, step: Leaving, bodies: Mapping[str, JsonObject]) -> bool:
        """A new pod of the owner passed our gate by, or has the place: nobody else will come."""
        return any(
            pod_facts.owner_key(body) == step.owner
            and uid != step.uid
            and not pod_facts.is_gated(body)
            and pod_facts.pinned_node(body) in ("", step.target)
            and not body["metadata"].get("deletionTimestamp")
            and _created_ns(body) > step.since_wall_ns
            for uid, body in bodies.items()
        )

    def _useless(self) -> list[End]:
        """Pods need not leave any more if nobody of their chain waits."""
        awaited = {step.chain for step in self._book.coming()}
        spared = [
            step
            for step in self._book.leaving()
            if step.left_ns is None and step.chain not in awaited
        ]
        for step in spared:
            self._budget.refund(step.uid)
        self._book.drop(spared)
        return [End(step) for step in spared]


def _state(member: Member, bodies: Mapping[str, JsonObject]) -> str:
    """waits, bound, let_go (somebody took our gate away) or gone."""
    body = bodies.get(member.uid)
    leaving = body is not None and body["metadata"].get("deletionTimestamp")
    if body is None or leaving or pod_facts.is_finished(body):
        return "gone"
    if pod_facts.node_name(body):
        return "bound"
    return "let_go" if member.gated and not pod_facts.is_gated(body) else "waits"


def _created_ns(body: JsonObject) -> int:
    return round((pod_facts.created_seconds(body) or 0.0) * NS_PER_SECOND)
