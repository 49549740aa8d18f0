"""The planning loop's side of moves: who may move now, whether to plan moves, what is under way."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_plugin.app.applier import Applied
from scheduler_plugin.app.cluster_view import ClusterReader
from scheduler_plugin.app.mover import Mover
from scheduler_plugin.app.waiting_pods import Cause
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.move_permits import Permits, may_be_moved
from scheduler_plugin.promises.move_settings import MoveSettings
from scheduler_plugin.promises.move_wish import MoveWish, room_is_awaited, unserved
from scheduler_plugin.snapshot_builder import BuiltSnapshot, ClusterObjects
from wattpack.clock import Clock
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["MoveCycle"]

#: Moves that were asked for in vain are asked for again after this time, then after twice as long
#: and so on, as long as nothing changes (assumed).
AGAIN_NS = 30 * NS_PER_SECOND
LONGEST_AGAIN_NS = 600 * NS_PER_SECOND


class MoveCycle:
    """What a cycle asks about moves; with moves off, nothing moves and nothing more is read.

    Args:
        reader: What the planner sees of the cluster.
        mover: Carries steps out.
        clock: For how long pods have waited.
        settings: Limits.
        enabled: Mode is Manage and moves are on.
    """

    def __init__(
        self,
        reader: ClusterReader,
        mover: Mover,
        clock: Clock,
        settings: MoveSettings,
        *,
        enabled: bool,
    ) -> None:
        self._reader = reader
        self._mover = mover
        self._clock = clock
        self._settings = settings
        self._enabled = enabled
        self._wish = MoveWish(seconds_to_ns(settings.after_seconds))
        self._unserved: frozenset[str] = frozenset()
        self._in_vain = ("", AGAIN_NS)
        self.wanted = False

    def reconcile(
        self,
        pods: tuple[JsonObject, ...],
        bodies: Mapping[str, JsonObject],
        causes: Mapping[str, Cause],
    ) -> None:
        """Close what has ended, and find out whether somebody has waited for room long enough.

        Args:
            pods: All of them.
            bodies: The same by uid.
            causes: Why pods waited when they were planned last, by uid.
        """
        self._mover.reconcile(bodies)
        if not self._enabled:
            return
        now_ns = self._clock.monotonic_ns()
        self._unserved = unserved(pods, self._reader.opted_in())
        gated = (
            u for u in room_is_awaited(causes) if u in bodies and pod_facts.is_gated(bodies[u])
        )
        self._wish.see({*gated, *self._unserved}, now_ns)
        is_due = self._wish.is_due(self._mover.resting(), now_ns)
        self.wanted = is_due and self._mover.can_pay()

    @property
    def is_busy(self) -> bool:
        """Steps are under way, or a pod without our gate needs them."""
        return self._mover.is_busy or bool(self._unserved)

    def again_ns(self) -> int | None:
        """When somebody will have waited long enough."""
        return self._wish.next_ns(self._clock.monotonic_ns())

    def seen(self, objects: ClusterObjects, bodies: Mapping[str, JsonObject]) -> ClusterObjects:
        """The objects with who may move, and who is planned although it lacks our gate."""
        if not self._enabled:
            return objects
        grace_seconds = self._settings.timeout_seconds
        permits = Permits(self._reader.namespaces(), self._reader.budgets(), grace_seconds)
        allowed = may_be_moved(bodies.values(), permits)
        rescued = self._unserved if self.wanted else frozenset()
        return objects.with_moves(self._mover.allow(allowed, bodies), rescued)

    def carry_on(
        self, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> tuple[Applied, dict[str, str]]:
        """As ``Mover.carry_on``."""
        return self._mover.carry_on(built, bodies)

    def begin(
        self, plan: Plan, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> tuple[Applied, dict[str, str]]:
        """As ``Mover.begin``."""
        return self._mover.begin(plan, built, bodies)

    def ask_again_ns(self, plan: Plan, snapshot: Snapshot) -> int | None:
        """When to ask the same once more although nothing changed; None for never.

        A solver that had no CPU answers with its first plan, in which nobody moves; where nobody
        may move, nothing comes of asking again.
        """
        hopeless = all(pod.move_seconds is None for pod in snapshot.pods)
        if not self.wanted or not plan.pending or plan.steps or hopeless:
            return None
        asked, pause_ns = self._in_vain
        same = asked == plan.snapshot_digest
        pause_ns = min(2 * pause_ns, LONGEST_AGAIN_NS) if same else AGAIN_NS
        self._in_vain = (plan.snapshot_digest, pause_ns)
        return self._clock.monotonic_ns() + pause_ns

    def plain(self, plan: Plan) -> Plan:
        """A plan without moves places nobody who is not at our gate: kube-scheduler does that."""
        placements = tuple(p for p in plan.placements if p.uid not in self._unserved)
        return plan.model_copy(update={"placements": placements})
