"""When waiting gangs may start: told with their cause, where running pods say when they end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from scheduler_plugin.app.waiting_pods import Cause
from scheduler_plugin.documents.plan_document import Pending, Plan
from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.gang_start import Forecast, expected_start
from scheduler_plugin.kube_objects.expected_ends import expected_ends
from scheduler_plugin.solve import plan as make_plan
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["ESTIMATING_SECONDS", "StartEstimates"]

#: What estimates may take of a cycle. Nobody waits for them: one that takes longer is not told.
ESTIMATING_SECONDS = 0.5
log = logging.getLogger(__name__)


class _LateError(Exception):
    """Time is over."""


class StartEstimates:
    """Expected starts, once for each gang and cause.

    Args:
        clock: For the time that estimates take, and that they tell.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], str] = {}

    def told(
        self,
        causes: Mapping[str, Cause],
        pending: Iterable[Pending],
        snapshot: Snapshot,
        pods: Iterable[JsonObject],
    ) -> dict[str, Cause]:
        """The same causes; those of gangs' members say when the gang may start, if that is known.

        Args:
            causes: By uid.
            pending: Of the plan.
            snapshot: That it was made for.
            pods: All pods.
        """
        gangs = {p.uid: p.gang for p in pending if p.gang and p.uid in causes}
        asked = {(gang, causes[uid][0]) for uid, gang in gangs.items()}
        self._known = {key: text for key, text in self._known.items() if key in asked}
        wanted = sorted(asked - self._known.keys())
        if wanted:
            wall_ns = self._clock.wall_time_ns()
            ends = expected_ends(pods, wall_ns / NS_PER_SECOND)
            running = {pod.uid for pod in snapshot.pods if pod.state is PodState.BOUND}
            forecast = Forecast(ends={uid: end for uid, end in ends.items() if uid in running})
            self._estimate(wanted, snapshot, forecast, wall_ns)
        answer = dict(causes)
        for uid, gang in gangs.items():
            reason, message = causes[uid]
            if text := self._known.get((gang, reason), ""):
                answer[uid] = (reason, f"{message}; {text}")
        return answer

    def _estimate(
        self,
        wanted: list[tuple[str, str]],
        snapshot: Snapshot,
        forecast: Forecast,
        wall_ns: int,
    ) -> None:
        until_ns = self._clock.monotonic_ns() + seconds_to_ns(ESTIMATING_SECONDS)

        def planner(state: Snapshot) -> Plan:
            if self._clock.monotonic_ns() > until_ns:
                raise _LateError
            return make_plan(state, deadline_seconds=0.0)

        for gang, reason in wanted:
            if not forecast.ends:
                self._known[gang, reason] = ""
                continue
            try:
                found = expected_start(snapshot, gang, planner, forecast)
            except (InputError, _LateError) as error:
                log.debug("no estimate of %s: %r", gang, error)
                self._known[gang, reason] = ""
                continue
            start = found.start_seconds
            if start is None:
                text = "no expected end of running pods lets it start"
            else:
                when = rfc3339(wall_ns + seconds_to_ns(start))
                text = f"expected to start at {when}, when {len(found.ended)} pods have ended"
            self._known[gang, reason] = text
