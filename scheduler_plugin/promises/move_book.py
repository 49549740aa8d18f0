"""Steps of plans that are under way: who leaves, who comes, which places that takes. Pure.

    waiting pod W, running V           Leaving V  a ─▶ b     Coming W ─▶ a
                                            │                     │ waits until V is gone from a
    the place on b is kept for ─────────────┤
    V's successor: a new pod of             ▼ evicted
    the same owner and template        Coming V' ─▶ b        (as soon as V' is at our gate)

Every place counts from the moment at which its step is taken up, whatever still stands on it, so
that nothing else is planned there. Steps stay in the plan's order, which says who of two has the
room first. Each ends at a stated time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from scheduler_plugin.documents.snapshot import Pod, PodState
from scheduler_plugin.room.resource_columns import covers
from scheduler_plugin.rules.static_rules import are_alike
from wattpack.units import NS_PER_SECOND

__all__ = ["Coming", "Leaving", "Member", "MoveBook", "Step", "held_pod"]

#: Whose attempt failed is not tried again for so long (assumed).
REST_NS = 600 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Leaving:
    """A running pod that leaves its node.

    Attributes:
        key: ``namespace/name``.
        target: Where its successor goes; empty where it makes room for more important work and
            waits anew.
        template: What the successor will ask for.
        chain: Steps of one chain are of use only together.
        until_ns: When it is given up; once it has left, until when the place is kept. Monotonic.
        goes_first: It leaves although its successor has no room yet (pods in a circle).
        left_ns: Since when it is on its way out, on the monotonic clock; None: it still stays.
        since_wall_ns: Unix time from which a new pod of its owner may be its successor.
    """

    uid: str
    key: str
    owner: str
    source: str
    target: str
    template: Pod
    chain: int
    until_ns: int
    goes_first: bool = False
    left_ns: int | None = None
    since_wall_ns: int = 0

    @property
    def slot(self) -> str:
        """Its successor's place, as a uid in snapshots."""
        return f"{self.uid}>"


@dataclass(frozen=True, slots=True)
class Member:
    """A waiting pod, or a member of its gang that does not exist yet.

    Attributes:
        exists: False for a member that does not exist yet; its uid is then the gang's slot.
        gated: Whether it waits at our gate; otherwise kube-scheduler found no node for it.
        cap_watts: Of its boards, that the plan counted on; 0 for none.
    """

    uid: str
    key: str
    node: str
    template: Pod
    exists: bool = True
    gated: bool = True
    cap_watts: int = 0

    @property
    def slot(self) -> str:
        """Its uid in snapshots."""
        return self.uid if self.exists else f"{self.uid}>"


@dataclass(frozen=True, slots=True)
class Coming:
    """Pods that get their places together, once there is room for all of them."""

    members: tuple[Member, ...]
    chain: int
    until_ns: int

    @property
    def gang(self) -> str:
        """Its gang's id; empty for a single pod."""
        return self.members[0].template.gang

    def waits_for_successors(self, steps: Iterable[Step]) -> bool:
        """Whether pods that were disturbed in its chain are to get their places first.

        Once it is bound it counts without its cap until its draw is measured, and might take the
        watts of a place that is kept for a pod that has yet to be made anew.
        """
        return any(member.cap_watts for member in self.members) and any(
            step.chain == self.chain and step.target and step.left_ns is not None
            for step in steps
            if isinstance(step, Leaving)
        )


Step = Leaving | Coming


@dataclass(slots=True)
class MoveBook:
    """All steps that are not done, in order.

    Attributes:
        steps: In the order of their plans.
        resting: Until when an owner, or a pod or gang that waits, is left alone after a failure.
    """

    steps: list[Step] = field(default_factory=list)
    resting: dict[str, int] = field(default_factory=dict)

    def leaving(self) -> list[Leaving]:
        """Pods that leave, in order."""
        return [step for step in self.steps if isinstance(step, Leaving)]

    def coming(self) -> list[Coming]:
        """Pods that wait for the room, in order."""
        return [step for step in self.steps if isinstance(step, Coming)]

    def next_chain(self) -> int:
        """A number that no open chain has."""
        return 1 + max((step.chain for step in self.steps), default=0)

    def place_of(self, uid: str) -> str:
        """The node that is kept for a waiting pod; empty if none is."""
        member = self._member(uid)
        return "" if member is None else member.node

    def cap_watts_of(self, uid: str) -> int:
        """The cap that a waiting pod's kept place was counted at; 0 for none."""
        member = self._member(uid)
        return 0 if member is None else member.cap_watts

    def _member(self, uid: str) -> Member | None:
        members = (member for step in self.coming() for member in step.members)
        return next((m for m in members if m.exists and m.uid == uid), None)

    def held(self) -> list[Pod]:
        """Places of pods that do not exist yet, as pods of a snapshot."""
        found = [held_pod(s.slot, s.template, s.target) for s in self.leaving() if s.target]
        for step in self.coming():
            absent = (m for m in step.members if not m.exists)
            found += [held_pod(m.slot, m.template, m.node, m.cap_watts) for m in absent]
        return found

    def swap(self, old: Step, new: Step) -> None:
        """The new step stands where the old one was."""
        self.steps[self.steps.index(old)] = new

    def drop(self, steps: Iterable[Step]) -> None:
        """Forget steps that are done or given up."""
        gone = list(steps)
        self.steps = [step for step in self.steps if step not in gone]

    def rest(self, keys: Iterable[str], now_ns: int) -> None:
        """Leave these owners or waiting pods alone for a while."""
        self.resting |= dict.fromkeys(keys, now_ns + REST_NS)

    def resting_keys(self, now_ns: int) -> frozenset[str]:
        """Who is left alone now."""
        self.resting = {key: until for key, until in self.resting.items() if until > now_ns}
        return frozenset(self.resting)

    def claim(self, pod: Pod, key: str, owner: str, until_ns: int) -> Step | None:
        """Give a waiting pod the place that was kept for it; the step that now stands for it.

        Args:
            pod: It waits at our gate.
            key: ``namespace/name``.
            owner: Its controller's uid.
            until_ns: When its place is given up if it cannot go there.
        """
        for step in self.steps:
            new = self._as_successor(step, pod, key, owner, until_ns)
            new = new or self._as_member(step, pod, key)
            if new is not None:
                self.swap(step, new)
                return new
        return None

    def _as_successor(
        self, step: Step, pod: Pod, key: str, owner: str, until_ns: int
    ) -> Coming | None:
        if not isinstance(step, Leaving) or step.left_ns is None or not step.target:
            return None
        if step.owner != owner or pod.gang or step.target in pod.excluded_nodes:
            return None
        if not (covers(step.template, pod) and are_alike(step.template, pod)):
            return None
        member = Member(pod.uid, key, step.target, pod)
        return Coming((member,), step.chain, until_ns)

    def _as_member(self, step: Step, pod: Pod, key: str) -> Coming | None:
        if not isinstance(step, Coming) or not pod.gang or step.gang != pod.gang:
            return None
        for i, member in enumerate(step.members):
            alike = covers(member.template, pod) and are_alike(member.template, pod)
            if not member.exists and alike and member.node not in pod.excluded_nodes:
                # A level was judged by what policies keep for the pod that was expected.
                same = pod.least_cap_milli <= member.template.least_cap_milli
                cap = member.cap_watts if same else 0
                real = Member(pod.uid, key, member.node, pod, cap_watts=cap)
                return replace(step, members=(*step.members[:i], real, *step.members[i + 1 :]))
        return None


def held_pod(uid: str, template: Pod, node: str, cap_watts: int = 0) -> Pod:
    """A place that is kept, as a promised pod that belongs to nobody.

    Quotas count it while its pod is still there: the one that comes takes over what it held.
    """
    changes = {"uid": uid, "name": "", "gang": "", "move_seconds": None, "quotas": (), "beyond": ""}
    kept = {"state": PodState.PROMISED, "node": node, "cap_watts": cap_watts}
    return template.model_copy(update=changes | kept)
