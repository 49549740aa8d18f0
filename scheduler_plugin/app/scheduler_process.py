"""Leads or stands by, and plans while it leads and planning works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from scheduler_plugin.app.leadership import (
    FencedKube,
    LeadershipLostError,
    Term,
    report_failing,
)
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.planning_cycle import CycleResult
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.batching import Batcher
from wattpack.clock import Clock
from wattpack.heartbeat import Heartbeat
from wattpack.kube.election import PLANNER_ELECTION, Bid, ElectionSettings, LeaderElector
from wattpack.kube.event_reports import EventRecorder
from wattpack.kube.port import KubeApi
from wattpack.object_names import LEASE_NAME, SUCCESSES_ANNOTATION
from wattpack.units import seconds_to_ns

log = logging.getLogger(__name__)
#: After a cycle that could not read the cluster, for example before informers have synced.
RETRY_SECONDS = 1.0
# A new term's informers may take this long to read everything once; then cycles fail and say why.
FIRST_READ_SECONDS = 10.0
#: A step waits at most for the API's deadlines and for its informers to end; more is a hang.
PATIENCE_SECONDS = 60.0


def planner_elector(
    api: KubeApi,
    clock: Clock,
    namespace: str,
    identity: str,
    seed: int = 0,
    settings: ElectionSettings = PLANNER_ELECTION,
) -> LeaderElector:
    """A candidate for the planner's Lease."""
    bid = Bid(LEASE_NAME, namespace, identity, settings, seed, {SUCCESSES_ANNOTATION: "0"})
    return LeaderElector(api, clock, bid)


class _Changes:
    """When the first and the latest change came that nobody has taken; noted from any thread.

    What changes during a cycle waits from then on, not from the cycle's end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_ns: tuple[int, ...] = ()

    def note(self, now_ns: int) -> None:
        with self._lock:
            self._times_ns = (*self._times_ns[:1], now_ns)

    def take(self) -> tuple[int, ...]:
        with self._lock:
            taken, self._times_ns = self._times_ns, ()
        return taken


Listener = Callable[[PlacementLoop | None, CycleResult | None], None]


class SchedulerProcess:
    """One replica.

    Args:
        api: The cluster.
        clock: Time.
        elector: Of the planner's Lease; attempted from this loop and nowhere else.
        batcher: Decides when to plan.
        new_loop: Makes the planning loop of a term over the fenced API; it starts from what the
            cluster holds. Its second argument is the term's epoch.
        metrics: Where terms are counted.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        elector: LeaderElector,
        batcher: Batcher,
        new_loop: Callable[[KubeApi, int], PlacementLoop],
        metrics: PlacementMetrics,
    ) -> None:
        self._listener: Listener = lambda loop, result: None
        self._api = api
        self._clock = clock
        self._namespace = elector.namespace
        self._elector = elector
        self._batcher = batcher
        self._new_loop = new_loop
        self._metrics = metrics
        self._recorder = EventRecorder(api, clock, "wattpack.io/scheduler", elector.identity)
        self._wake = clock.new_wake()
        self._term: Term | None = None
        self._loop: PlacementLoop | None = None
        self._campaign_at_ns = clock.monotonic_ns()
        self._reading_until_ns = self._campaign_at_ns
        self._missing = 0
        self._works = False
        self._changes = _Changes()
        self._stopping = False
        self._beat = Heartbeat(clock, PATIENCE_SECONDS)
        # Asked at each scrape: a loop that hangs cannot say that its Lease has ended.
        metrics.leading.set_function(lambda: float(self.leads()))

    def tell(self, listener: Listener) -> None:
        """Tell of each cycle by its loop and result, and of the end of a term by None twice."""
        self._listener = listener

    def stop(self) -> None:
        """End ``run`` soon; from any thread."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping:
            due_ns = self.step()
            self._clock.wait_until(due_ns, self._wake)
        if self._loop is not None:
            self._loop.close()
        self._elector.release()

    def leads(self) -> bool:
        """Whether this replica plans now."""
        return self._term is not None and self._elector.is_leader()

    def failure(self) -> str:
        """Why this replica hangs; empty while it leads or comes back in time to try.

        A long cycle is no hang: it renews the Lease in between, and only while planning works.
        """
        hangs = self._beat.is_late() and not self.leads()
        return f"the planning loop is late by {PATIENCE_SECONDS:.0f} s and more" if hangs else ""

    def step(self) -> int:
        """Renew and plan if due; when to come back, on the monotonic clock."""
        due_ns = self._advance()
        self._beat.next_at(due_ns)
        return due_ns

    def _advance(self) -> int:
        if self._term is None:
            self._campaign()
        if self._term is None or self._loop is None:
            return self._campaign_at_ns
        try:
            self._term.check()
            return self._plan(self._term, self._loop)
        except LeadershipLostError as error:
            self._end(self._term, self._loop, error)
            return self._campaign_at_ns

    def _campaign(self) -> None:
        """Try for the Lease if it is time; a term begins with a fresh view and fresh promises."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._campaign_at_ns:
            return
        self._campaign_at_ns = now_ns + seconds_to_ns(self._elector.settings.retry_seconds)
        try:
            leads = self._elector.attempt()
        except (ValueError, TypeError, AttributeError):
            log.exception("the Lease makes no sense")
            leads = False
        if not leads:
            return
        self._term = Term(self._clock, self._elector)
        self._loop = self._new_loop(FencedKube(self._api, self._term), self._term.epoch)
        self._loop.reader.start(self._cluster_changed)
        began_ns = self._clock.monotonic_ns()
        self._reading_until_ns = began_ns + seconds_to_ns(FIRST_READ_SECONDS)
        self._missing = len(self._loop.reader.missing())
        self._works = False
        self._batcher.begin()
        log.info("planning starts, epoch %d", self._term.epoch)

    def _plan(self, term: Term, loop: PlacementLoop) -> int:
        """A cycle if one is due; a loop that works and has nothing to do is a success, too."""
        now_ns = self._clock.monotonic_ns()
        for changed_ns in self._changes.take():
            self._batcher.changed(changed_ns)
        if now_ns < self._reading_until_ns and (missing := len(loop.reader.missing())):
            if missing < self._missing:
                term.progressed()
            self._missing = missing
            return min(term.renew_at_ns(), now_ns + seconds_to_ns(RETRY_SECONDS))
        if now_ns >= self._batcher.due_at(now_ns):
            result = loop.step()
            self._listener(loop, result)
            self._works = result.outcome != "failed"
            retry_ns = self._clock.monotonic_ns() + seconds_to_ns(RETRY_SECONDS)
            self._batcher.ran(now_ns, result.again_ns if self._works else retry_ns)
        if self._works:
            term.succeeded()
        self._metrics.failing_seconds.set(term.failing_seconds())
        return min(term.renew_at_ns(), self._batcher.due_at(now_ns))

    def _end(self, term: Term, loop: PlacementLoop, error: LeadershipLostError) -> None:
        """No more planning until the Lease is won anew; who failed lets another try first."""
        loop.reader.stop()
        self._listener(None, None)
        self._term = self._loop = None
        self._metrics.stands_by()
        pause = self._elector.settings.retry_seconds
        if term.has_failed():
            report_failing(self._recorder, self._namespace, term)
            self._metrics.given_up.inc()
            self._elector.release()
            # For a whole Lease, so that another replica can have it.
            pause = self._elector.settings.lease_seconds
        self._campaign_at_ns = self._clock.monotonic_ns() + seconds_to_ns(pause)
        log.info("planning ends: %s", error)

    def _cluster_changed(self) -> None:
        self._changes.note(self._clock.monotonic_ns())
        self._wake.set()
