"""Writes down what is placed now and everything that is still open from before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_plugin.app.plan_archive import OpenMoves, PlanArchive
from scheduler_plugin.app.plan_lines import absent_uid, pending_line, promise_line
from scheduler_plugin.documents.change_text import told_by_uid
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.domain_rooms import domain_rooms
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.promises.move_record import Now, record_of
from wattpack.clock import Clock
from wattpack.kube.port import JsonObject
from wattpack.times import rfc3339

__all__ = ["PlanWriter"]


class PlanWriter:
    """Turns a plan and the ledger into PlacementPlan objects.

    Args:
        clock: For the ends of kept places.
        ledger: What is open.
        archive: Where plans are stored.
        gang_timeout_ns: How long places of missing gang members are kept.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, archive: PlanArchive, gang_timeout_ns: int
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._archive = archive
        self._gang_timeout_ns = gang_timeout_ns

    def write(
        self,
        plan: Plan,
        snapshot: Snapshot,
        chosen: Sequence[Placement],
        bodies: Mapping[str, JsonObject],
    ) -> None:
        """Store what is placed now and everything that is still open from before.

        Args:
            plan: What was planned.
            snapshot: What it was made for.
            chosen: What is placed now.
            bodies: Pods that exist, by uid.

        Raises:
            KubeError: if the plan was not stored; it then counts as none.
        """
        pods = {pod.uid: pod for pod in snapshot.pods}
        now = Now(self._clock.monotonic_ns(), self._clock.wall_time_ns())
        kept_until = rfc3339(now.wall_ns + self._gang_timeout_ns)
        promises = [
            promise_line(
                absent_uid(p.uid),
                (pods[p.uid].namespace, pods[p.uid].name),
                p.node,
                p.gang,
                "" if p.uid in bodies else kept_until,
                p.cap_watts,
            )
            for p in chosen
        ]
        promises += self._open_before({p.uid for p in chosen}, now)
        told = told_by_uid(plan.pending)
        pending = [pending_line(p, told[p.uid], pods) for p in plan.pending if "#" not in p.uid]
        book, spent = self._ledger.moves, self._ledger.disruptions
        moves = OpenMoves(len(book.leaving()), record_of(book, spent, now))
        self._archive.write(plan, promises, pending, domain_rooms(snapshot, list(chosen)), moves)

    def _open_before(self, new: set[str], now: Now) -> list[JsonObject]:
        """Lines of earlier promises and places that are not kept yet."""
        lines = []
        for old in self._ledger.unsettled():
            if old.uid not in new:
                space, _, name = old.key.partition("/")
                lines.append(
                    promise_line(old.uid, (space, name), old.node, old.gang, "", old.cap_watts)
                )
        for slot, place in sorted(self._ledger.reservations.items()):
            if slot not in new:
                until = rfc3339(now.wall_ns + place.until_ns - now.monotonic_ns)
                space = place.gang.partition("/")[0]
                lines.append(
                    promise_line(absent_uid(slot), (space, ""), place.node, place.gang, until)
                )
        return lines
