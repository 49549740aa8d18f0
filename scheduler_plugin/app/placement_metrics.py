"""``wattpack_placement_*``: what Prometheus learns about placement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scheduler_plugin.app.room_metrics import RoomMetrics
from scheduler_plugin.documents.plan_document import Plan
from wattpack.wire.certificates import expires_at_seconds

_Kind = TypeVar("_Kind", Counter, Gauge, Histogram)


class _Series(Generic[_Kind]):
    """A series that each ``PlacementMetrics`` has of its own.

    Args:
        kind: Makes it.
        name: As Prometheus sees it, a counter's without ``_total``.
        meaning: For its help and the metrics page.
        labels: Of the series.
    """

    def __init__(self, kind: Callable[..., _Kind], name: str, meaning: str, *labels: str) -> None:
        self._new: Callable[[CollectorRegistry], _Kind] = lambda registry: kind(
            name, meaning, labels, registry=registry
        )
        self._attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = f"_{attribute}"

    def __get__(self, metrics: PlacementMetrics, owner: type) -> _Kind:
        made: _Kind = metrics.__dict__[self._attribute]
        return made

    def register(self, metrics: PlacementMetrics) -> None:
        """Make it for some metrics."""
        metrics.__dict__[self._attribute] = self._new(metrics.registry)


class PlacementMetrics:
    """All series of one scheduler process.

    Args:
        registry: Where they are registered.
    """

    cycles = _Series(
        Counter,
        "wattpack_placement_cycles",
        "Planning cycles by outcome: planned, unchanged, idle, failed.",
        "outcome",
    )
    cycle_seconds = _Series(
        partial(Histogram, buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0)),
        "wattpack_placement_cycle_seconds",
        "Time of a planning cycle that made a plan.",
    )
    promises = _Series(
        Gauge,
        "wattpack_placement_promised_pods",
        "Released pods that are not bound yet.",
    )
    gap = _Series(
        Gauge,
        "wattpack_placement_gap_ratio",
        "Distance of the newest plan to its bound; 0 is proved optimal.",
    )
    released = _Series(
        Counter,
        "wattpack_placement_released_pods",
        "Pods pinned and released.",
    )
    conflicts = _Series(
        Counter,
        "wattpack_placement_conflicts",
        "Releases refused because the pod changed meanwhile.",
    )
    evicted = _Series(
        Counter,
        "wattpack_placement_evicted_pins",
        "Pinned pods evicted because they were not bound in time.",
    )
    refusals = _Series(
        Counter,
        "wattpack_placement_refused_plans",
        "Plans that the independent checker refused.",
    )
    solver_failures = _Series(
        Counter,
        "wattpack_placement_solver_failures",
        "Cycles whose solver process gave no final plan in time, by what became of it.",
        "cause",
    )
    released_unpinned = _Series(
        Counter,
        "wattpack_placement_released_unpinned_pods",
        "Pods let go without a node because no present node can serve them.",
    )
    provisioning_requests = _Series(
        Counter,
        "wattpack_placement_provisioning_requests",
        "ProvisioningRequests by what became of them: created, refused (not made), withdrawn "
        "(nobody waited any more), failed, expired, revoked, timed_out (pods were let go).",
        "outcome",
    )
    gangs_timed_out = _Series(
        Counter,
        "wattpack_placement_timed_out_gangs",
        "Gangs whose missing members did not take their kept places in time.",
    )
    leading = _Series(
        Gauge,
        "wattpack_placement_leading",
        "1 on the replica that plans, as long as its Lease holds, 0 on those that stand by.",
    )
    failing_seconds = _Series(
        Gauge,
        "wattpack_placement_failing_seconds",
        "Time since planning last worked, of the replica that leads; 0 where it stands by.",
    )
    given_up = _Series(
        Counter,
        "wattpack_placement_given_up_terms",
        "Times that this replica gave up leading because planning did not work.",
    )
    evictions = _Series(
        Counter,
        "wattpack_placement_evictions",
        "Running pods evicted by plans: cause move (a place elsewhere is kept) or make_room.",
        "cause",
    )
    evictions_refused = _Series(
        Counter,
        "wattpack_placement_refused_evictions",
        "Evictions not made: disruption_budget (429), not_allowed (owner or budget forbid it "
        "now), forbidden (the API), budget (of moves, whole chains).",
        "why",
    )
    moves = _Series(
        Counter,
        "wattpack_placement_moves",
        "Steps that ended: claimed (a successor took its place), arrived (where nominated), "
        "elsewhere, no_successor, given_up.",
        "outcome",
    )
    open_moves = _Series(
        Gauge,
        "wattpack_placement_open_moves",
        "Running pods that are to leave, or whose kept places wait for their successors.",
    )
    move_budget_left = _Series(
        Gauge,
        "wattpack_placement_move_budget_left_pods",
        "Running pods that may still be disturbed within this hour; 0 where moves are off.",
    )
    webhook_missing = _Series(
        Gauge,
        "wattpack_placement_webhook_missing",
        "1 while mode is Manage and the API server cannot ask the webhook.",
    )
    certificate_expires = _Series(
        Gauge,
        "wattpack_certificate_expires_timestamp_seconds",
        "When the certificate that is shown ends, Unix time.",
        "server",
    )

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.room = RoomMetrics(self.registry)
        for series in vars(type(self)).values():
            if isinstance(series, _Series):
                series.register(self)

    def watch_webhook_certificate(self, shown: Callable[[], bytes]) -> None:
        """Export at each scrape when the certificate that the webhook shows then, PEM, ends."""
        expires = self.certificate_expires.labels("webhook")
        expires.set_function(lambda: expires_at_seconds(shown()))

    def stands_by(self) -> None:
        """What only the replica that plans knows is told by another one."""
        self.failing_seconds.set(0.0)
        self.promises.set(0)
        self.room.stands_by()

    def planned(self, plan: Plan, seconds: float) -> None:
        """Record a cycle that made a plan."""
        self.cycles.labels("planned").inc()
        self.cycle_seconds.observe(seconds)
        self.gap.set(plan.gap)
        if plan.refusals:
            self.refusals.inc()
