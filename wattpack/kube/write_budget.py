"""Status reports under a fleet-wide write budget.

Status is for summaries: it is written when a condition changes, otherwise at most every 10 s
(GpuNode: 10 min), never without a change, and never faster than 10 writes a second in all.
Between two writes only the newest report of an object is kept. What the API refused is left alone
for a minute: asked each second, ten such objects would use up the budget of all others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from wattpack.api.inventory import GpuNode
from wattpack.api.object_meta import ApiModel
from wattpack.clock import Clock
from wattpack.errors import TransientError
from wattpack.kube.port import JsonObject, KubeApi, KubeError, NotFoundError, Resource
from wattpack.kube.server_side import apply_status
from wattpack.units import NS_PER_SECOND, seconds_to_ns

log = logging.getLogger(__name__)

WRITES_PER_SECOND = 10.0
MIN_INTERVAL_SECONDS = 10.0
#: After an answer that asking again cannot change: a role without the kind, a status that is full.
REFUSED_SECONDS = 60.0
MIN_INTERVAL_SECONDS_BY_PLURAL: Mapping[str, float] = {GpuNode.meta.plural: 600.0}

Target = tuple[Resource, str, str]


class TokenBucket:
    """At most ``burst`` at once and ``rate_per_second`` in the long run. Thread-safe."""

    def __init__(self, rate_per_second: float, burst: float, now_ns: int) -> None:
        self._rate_per_second = rate_per_second
        self._burst = burst
        self._tokens = burst
        self._at_ns = now_ns
        self._lock = threading.Lock()

    def take(self, now_ns: int) -> bool:
        """Whether one more is allowed now; if so, it is counted."""
        with self._lock:
            # Two threads may have read their clocks in the other order.
            earned = max(0, now_ns - self._at_ns) / NS_PER_SECOND * self._rate_per_second
            self._tokens = min(self._burst, self._tokens + earned)
            self._at_ns = max(self._at_ns, now_ns)
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True


def write_budget(clock: Clock) -> TokenBucket:
    """What one process may write: 10 a second in all."""
    return TokenBucket(WRITES_PER_SECOND, WRITES_PER_SECOND, clock.monotonic_ns())


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What became of the reports.

    Attributes:
        written: Objects written now.
        waiting: Objects whose report waits for its time or for the budget.
        refused: Objects whose report the API will never take, with its reason; dropped, and their
            next ones wait a minute.
    """

    written: int
    waiting: int
    refused: tuple[tuple[Target, str], ...]


@dataclass(slots=True)
class _Written:
    status: JsonObject
    at_ns: int


class StatusWriter:
    """Coalesces status reports and writes those that are due.

    Args:
        api: Where they go.
        clock: For intervals and the budget.
        field_manager: Owner of the status fields.
        bucket: The budget, shared by all writers of a process; None for one of its own.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        field_manager: str,
        bucket: TokenBucket | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._field_manager = field_manager
        self._bucket = write_budget(clock) if bucket is None else bucket
        self._offered: dict[Target, JsonObject] = {}
        self._written: dict[Target, _Written] = {}
        self._refused_until_ns: dict[Target, int] = {}
        self._not_before_ns = clock.monotonic_ns()

    def offer(
        self, resource: Resource, name: str, status: ApiModel | JsonObject, namespace: str = ""
    ) -> None:
        """Report a status; it replaces an earlier report that was not written yet."""
        target = (resource, namespace, name)
        body = status.to_json() if isinstance(status, ApiModel) else status
        last = self._written.get(target)
        if last is not None and last.status == body:
            self._offered.pop(target, None)
        else:
            self._offered[target] = body

    def forget(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Drop what is known of an object that is gone or was written by somebody else."""
        target = (resource, namespace, name)
        self._offered.pop(target, None)
        self._written.pop(target, None)
        self._refused_until_ns.pop(target, None)

    def forget_all(self) -> None:
        """Drop what is known of every object: another process writes them now."""
        self._offered.clear()
        self._written.clear()
        self._refused_until_ns.clear()

    def flush(self) -> FlushReport:
        """Write what is due, changed conditions first, until the budget is spent."""
        now_ns = self._clock.monotonic_ns()
        written, refused = 0, []
        left_alone = self._refused_until_ns.items()
        self._refused_until_ns = {target: at for target, at in left_alone if now_ns < at}
        if now_ns >= self._not_before_ns:
            for target in self._due(now_ns):
                if not self._bucket.take(now_ns):
                    break
                try:
                    written += self._write(target, now_ns)
                except TransientError as error:
                    pause = error.retry_after_seconds or 1.0
                    self._not_before_ns = now_ns + seconds_to_ns(pause)
                    log.warning("status of %s waits %.1f s: %s", target[2], pause, error)
                    break
                except KubeError as error:
                    refused.append((target, str(error)))
                    self.forget(target[0], target[2], target[1])
                    self._refused_until_ns[target] = now_ns + seconds_to_ns(REFUSED_SECONDS)
        return FlushReport(written, len(self._offered), tuple(refused))

    def _write(self, target: Target, now_ns: int) -> int:
        resource, namespace, name = target
        status = self._offered[target]
        try:
            apply_status(
                self._api,
                resource,
                name,
                status,
                field_manager=self._field_manager,
                namespace=namespace or None,
            )
        except NotFoundError:
            self.forget(resource, name, namespace)
            return 0
        del self._offered[target]
        self._written[target] = _Written(status, now_ns)
        return 1

    def _due(self, now_ns: int) -> list[Target]:
        """Whose report may be written now: urgent ones first, then the longest unwritten."""
        ranked = []
        for order, (target, status) in enumerate(self._offered.items()):
            if target in self._refused_until_ns:
                continue
            last = self._written.get(target)
            is_urgent = last is None or _judgement(last.status) != _judgement(status)
            seconds = MIN_INTERVAL_SECONDS_BY_PLURAL.get(target[0].plural, MIN_INTERVAL_SECONDS)
            age_ns = now_ns - last.at_ns if last is not None else now_ns
            if is_urgent or age_ns >= seconds_to_ns(seconds):
                ranked.append((not is_urgent, -age_ns, order, target))
        return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def _judgement(status: JsonObject) -> frozenset[tuple[str, str, str]]:
    """What of the conditions is worth a write at once."""
    return frozenset(
        (entry["type"], entry["status"], entry["reason"]) for entry in status.get("conditions", ())
    )
