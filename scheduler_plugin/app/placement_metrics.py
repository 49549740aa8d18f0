"""``wattpack_placement_*``: what Prometheus learns about placement."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scheduler_plugin.documents.plan_document import Plan
from wattpack.wire.certificates import expires_at_seconds


class PlacementMetrics:
    """All series of one scheduler process.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.cycles = Counter(
            "wattpack_placement_cycles",
            "Planning cycles by outcome: planned, unchanged, idle, failed.",
            ["outcome"],
            registry=self.registry,
        )
        self.cycle_seconds = Histogram(
            "wattpack_placement_cycle_seconds",
            "Time of a planning cycle that made a plan.",
            buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0),
            registry=self.registry,
        )
        self.pending = Gauge(
            "wattpack_placement_pending_pods",
            "Managed pods without a place by dominant cause.",
            ["reason"],
            registry=self.registry,
        )
        self.promises = Gauge(
            "wattpack_placement_promised_pods",
            "Released pods that are not bound yet.",
            registry=self.registry,
        )
        self.gap = Gauge(
            "wattpack_placement_gap_ratio",
            "Distance of the newest plan to its bound; 0 is proved optimal.",
            registry=self.registry,
        )
        self.released = Counter(
            "wattpack_placement_released_pods",
            "Pods pinned and released.",
            registry=self.registry,
        )
        self.conflicts = Counter(
            "wattpack_placement_conflicts",
            "Releases refused because the pod changed meanwhile.",
            registry=self.registry,
        )
        self.evicted = Counter(
            "wattpack_placement_evicted_pins",
            "Pinned pods evicted because they were not bound in time.",
            registry=self.registry,
        )
        self.refusals = Counter(
            "wattpack_placement_refused_plans",
            "Plans that the independent checker refused.",
            registry=self.registry,
        )

        self.solver_failures = Counter(
            "wattpack_placement_solver_failures",
            "Cycles whose solver process gave no final plan in time, by what became of it.",
            ["cause"],
            registry=self.registry,
        )
        self.released_unpinned = Counter(
            "wattpack_placement_released_unpinned_pods",
            "Pods let go without a node because no present node can serve them.",
            registry=self.registry,
        )
        self.gangs_timed_out = Counter(
            "wattpack_placement_timed_out_gangs",
            "Gangs whose missing members did not take their kept places in time.",
            registry=self.registry,
        )
        self.failing_seconds = Gauge(
            "wattpack_placement_failing_seconds",
            "Time since planning last worked, of the replica that leads; 0 where it stands by.",
            registry=self.registry,
        )
        self.given_up = Counter(
            "wattpack_placement_given_up_terms",
            "Times that this replica gave up leading because planning did not work.",
            registry=self.registry,
        )

        self.evictions = Counter(
            "wattpack_placement_evictions",
            "Running pods evicted by plans: cause move (a place elsewhere is kept) or make_room.",
            ["cause"],
            registry=self.registry,
        )
        self.evictions_refused = Counter(
            "wattpack_placement_refused_evictions",
            "Evictions not made: disruption_budget (429), not_allowed (owner or budget forbid it "
            "now), forbidden (the API), budget (of moves, whole chains).",
            ["why"],
            registry=self.registry,
        )
        self.moves = Counter(
            "wattpack_placement_moves",
            "Steps that ended: claimed (a successor took its place), arrived (where nominated), "
            "elsewhere, no_successor, given_up.",
            ["outcome"],
            registry=self.registry,
        )
        self.open_moves = Gauge(
            "wattpack_placement_open_moves",
            "Running pods that are to leave, or whose kept places wait for their successors.",
            registry=self.registry,
        )
        self.move_budget_left = Gauge(
            "wattpack_placement_move_budget_left_pods",
            "Running pods that may still be disturbed within this hour; 0 where moves are off.",
            registry=self.registry,
        )

        self.webhook_missing = Gauge(
            "wattpack_placement_webhook_missing",
            "1 while mode is Manage and the API server cannot ask the webhook.",
            registry=self.registry,
        )
        self.certificate_expires = Gauge(
            "wattpack_certificate_expires_timestamp_seconds",
            "When the certificate that is shown ends, Unix time.",
            ["server"],
            registry=self.registry,
        )

    def watch_webhook_certificate(self, shown: Callable[[], bytes]) -> None:
        """Export at each scrape when the certificate that the webhook shows then, PEM, ends."""
        expires = self.certificate_expires.labels("webhook")
        expires.set_function(lambda: expires_at_seconds(shown()))

    def planned(self, plan: Plan, refused: Iterable[str], seconds: float) -> None:
        """Record a cycle that made a plan."""
        self.cycles.labels("planned").inc()
        self.cycle_seconds.observe(seconds)
        self.gap.set(plan.gap)
        if plan.refusals:
            self.refusals.inc()
        self.pending.clear()
        for reason, count in Count(p.reason.value for p in plan.pending).items():
            self.pending.labels(reason).set(count)
        if invalid := len(list(refused)):
            self.pending.labels("InvalidRequest").set(invalid)
