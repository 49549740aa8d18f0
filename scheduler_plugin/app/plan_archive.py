"""PlacementPlan objects: what is promised, in words that survive this process.

The newest plan says everything that is open: what was just placed, patches without an answer, and
places kept for gang members that do not exist yet. So a new leader reads one plan, and no promise
is lost when old plans are removed. Plans are ordered by the epoch of the term that wrote them: a
plan that a replaced leader still managed to write is never the newest.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from scheduler_plugin.app.plan_lines import headroom_status
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.packing.domain_rooms import DomainRoom
from scheduler_plugin.promises.move_record import RECORD_ANNOTATION
from wattpack.api import PlacementPlan
from wattpack.api.planning import Promise
from wattpack.clock import Clock
from wattpack.errors import InputError, PermanentError
from wattpack.kube.port import ConflictError, JsonObject, KubeApi, KubeError, NotFoundError
from wattpack.times import rfc3339

log = logging.getLogger(__name__)
PLANS = PlacementPlan.meta.resource
#: Of one object; the schema takes 2,048, of about 200 bytes each where names are ordinary.
PROMISES_PER_PART = 2000
#: Of one object's promises where names are long: etcd takes 1.5 MiB in all.
PART_BYTES = 700_000
MAX_PENDING = 2048
_NAME = re.compile(r"plan-([0-9a-f]{8})-([0-9a-f]{16})-[0-9a-f]*(\.\d+)?")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan with all its parts, as another process left it.

    Attributes:
        is_settled: The outcome of each of its patches was known to its writer.
        moves: The record of open moves, as JSON; empty for none.
    """

    promises: tuple[Promise, ...]
    is_settled: bool
    moves: str = ""


class OpenMoves(NamedTuple):
    """How many running pods are being moved or evicted, and the record of it as JSON."""

    pods: int = 0
    record: str = ""


class _OpenPlan(NamedTuple):
    """A part that was stored, and what its status will say of power."""

    stored: JsonObject
    headroom: JsonObject


class PlanArchive:
    """Writes, reads and removes plans.

    Args:
        api: The cluster.
        clock: For names and times.
        epoch: Of the term that writes.
        kept_plans: How many plans stay for people to read.
    """

    def __init__(self, api: KubeApi, clock: Clock, epoch: int = 0, kept_plans: int = 20) -> None:
        self._api = api
        self._clock = clock
        self._epoch = epoch
        self._kept_plans = kept_plans
        self._names: list[list[str]] = []
        self._open: list[_OpenPlan] = []
        self._newest = 0

    def read(self) -> list[StoredPlan]:
        """Whole plans of all processes, oldest first; what cannot be read is left out and told."""
        found: list[tuple[tuple[int, int, str], PlacementPlan]] = []
        for item in self._api.list(PLANS).items:
            name = str(item["metadata"]["name"])
            try:
                found.append((_order(name), PlacementPlan.read(item)))
            except InputError as error:
                log.warning("a plan is left out: %s", error)
        found.sort(key=lambda entry: entry[0])
        self._names, whole = [], []
        for (_, number, _), group in groupby(found, key=lambda entry: entry[0]):
            parts = [plan for _, plan in group]
            self._newest = max(self._newest, number)
            self._names.append([plan.name for plan in parts])
            if len(parts) >= parts[0].spec.parts:
                promises = tuple(p for plan in parts for p in plan.spec.promises)
                settled = all(plan.status.state in ("Applied", "Expired") for plan in parts)
                marks = parts[0].metadata.get("annotations") or {}
                moves = str(marks.get(RECORD_ANNOTATION, ""))
                whole.append(StoredPlan(promises, settled, moves))
        return whole

    def write(
        self,
        plan: Plan,
        promises: Sequence[JsonObject],
        pending: Sequence[JsonObject],
        rooms: Sequence[DomainRoom],
        moves: OpenMoves | None = None,
    ) -> None:
        """Store a plan, all parts of it.

        Args:
            plan: What was planned.
            promises: Lines of everything that is open.
            pending: Lines of pods without a place.
            rooms: What domains may still take, the fewest free watts first.
            moves: What is open of moves.

        Raises:
            KubeError: if a part was not stored; the others then count as no plan.
        """
        wall_ns = self._clock.wall_time_ns()
        self._newest = max(wall_ns, self._newest + 1)
        name = f"plan-{self._epoch:08x}-{self._newest:016x}-{plan.snapshot_digest[7:13]}"
        chunks = _in_parts(promises)
        moves = moves or OpenMoves()
        written: list[_OpenPlan] = []
        for part, chunk in enumerate(chunks):
            spec = {
                "snapshotDigest": plan.snapshot_digest,
                "promises": chunk,
                "pending": [] if part else list(pending)[:MAX_PENDING],
                "part": part,
                "parts": len(chunks),
                "moves": moves.pods,
                "gap": plan.gap,
                "method": plan.method,
                "createdAt": rfc3339(wall_ns),
            }
            metadata: JsonObject = {"name": f"{name}.{part}" if part else name}
            if moves.record and not part:
                metadata["annotations"] = {RECORD_ANNOTATION: moves.record}
            body = {
                "apiVersion": PLANS.api_version,
                "kind": PLANS.kind,
                "metadata": metadata,
                "spec": spec,
            }
            headroom = {} if part else headroom_status(rooms)
            written.append(_OpenPlan(self._api.create(PLANS, body), headroom))
        self._names.append([str(entry.stored["metadata"]["name"]) for entry in written])
        self._open += written

    def close(self) -> None:
        """Say of each open plan that all outcomes are known; then remove what is too old.

        What fails here is tried again with the next call.
        """
        try:
            while self._open:
                self._close(self._open[0])
                self._open.pop(0)
            while len(self._names) > self._kept_plans:
                for name in self._names[0]:
                    self._remove(name)
                self._names.pop(0)
        except KubeError as error:
            log.warning("plans not closed or removed: %s", error)

    def _close(self, plan: _OpenPlan) -> None:
        stored = plan.stored
        promised = len(stored["spec"].get("promises", []))
        status: JsonObject = {
            "observedGeneration": int(stored["metadata"].get("generation", 0)),
            "state": "Applied" if promised else "Expired",
            "pods": promised,
        }
        if plan.headroom:
            status["headroom"] = plan.headroom
        try:
            self._api.replace(PLANS, {**stored, "status": status}, subresource="status")
        except (PermanentError, ConflictError) as error:
            log.warning("plan %s stays open: %s", stored["metadata"]["name"], error)

    def _remove(self, name: str) -> None:
        try:
            self._api.delete(PLANS, name)
        except NotFoundError:
            log.info("plan %s was removed by somebody else", name)


def _in_parts(promises: Sequence[JsonObject]) -> list[list[JsonObject]]:
    """At least one part; each within what an object may hold."""
    parts: list[list[JsonObject]] = [[]]
    held = 0
    for line in promises:
        size = len(json.dumps(line))
        if len(parts[-1]) == PROMISES_PER_PART or held + size > PART_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(line)
        held += size
    return parts


def _order(name: str) -> tuple[int, int, str]:
    """Epoch, number and name without the part; plans of an earlier version come first."""
    match = _NAME.fullmatch(name)
    if match is None:
        return (-1, 0, name)
    return (int(match[1], 16), int(match[2], 16), name.partition(".")[0])
