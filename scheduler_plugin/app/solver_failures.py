"""Who is told that a solver process failed: log, metric, and an Event on the planner's Lease."""

from __future__ import annotations

import logging
from collections.abc import Callable

from scheduler_plugin.app.leadership import lease_reference
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.solver_child import Failure
from wattpack.kube.event_reports import EventReason, EventRecorder

__all__ = ["failure_teller"]

log = logging.getLogger(__name__)

_WORDS = {
    Failure.NOT_READY: "did not start in time",
    Failure.LATE: "did not get enough CPU to answer in time, and goes on",
    Failure.HANG: "gave no plan half a second after its deadline",
    Failure.CRASH: "ended",
    Failure.OUT_OF_MEMORY: "had not enough memory (solver_memory_mib)",
    Failure.NONSENSE: "answered with what is no plan",
}


def failure_teller(
    recorder: EventRecorder, metrics: PlacementMetrics, namespace: str
) -> Callable[[Failure], None]:
    """What a ``ProcessPlanner`` calls for each failure.

    Args:
        recorder: Of the scheduler.
        metrics: Where failures are counted by cause.
        namespace: Of the Lease.
    """

    def tell(failure: Failure) -> None:
        metrics.solver_failures.labels(failure.value).inc()
        note = f"the solver process {_WORDS[failure]}; the first plan of the cycle counts"
        log.error("%s", note)
        recorder.emit(
            lease_reference(namespace),
            EventReason.SOLVER_FAILED,
            note,
            action="Waiting" if failure is Failure.LATE else "ReplacingSolver",
            warning=True,
        )
        recorder.flush()

    return tell
