"""Tells each new or changed DemandForecast within seconds whether it can be forecast.

    objects (informer) ──> not judged in this generation ──> Accepted; Ready=False until a round

A round comes every ten minutes and may take one; who wrote a bad level need not wait for it. The
figures of an older spec stay in the status, but say by ``observedGeneration`` and Ready that they
are not of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.forecast_statuses import ForecastStatuses
from forecasting.targets import target_of
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject, KubeApi
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND

LOOK_SECONDS: Final = 2


class VerdictThread(PeriodicThread):
    """Looks at what the informer knows and judges what nobody has judged yet.

    Args:
        clock: Time.
        kube: Where statuses go.
        objects: The newest DemandForecasts, shared and not changed here.
        metrics: Count what could not be written.
    """

    def __init__(
        self,
        clock: Clock,
        kube: KubeApi,
        objects: Callable[[], Iterable[JsonObject]],
        metrics: ForecastMetrics,
    ) -> None:
        super().__init__(clock, "forecast-verdicts", LOOK_SECONDS * NS_PER_SECOND)
        self._clock, self._objects = clock, objects
        self._statuses = ForecastStatuses(kube, metrics)

    def run_once(self) -> None:
        """Write the verdicts that are missing; one that could not be written is due again."""
        for body in self._objects():
            if not _is_judged(body):
                self._tell(body)

    def _tell(self, body: JsonObject) -> None:
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        # A copy that is behind must not write over the figures of a round.
        version = str(body["metadata"].get("resourceVersion", ""))
        say = partial(self._statuses.say, body, now_seconds=now_seconds, version=version)
        try:
            target_of(body)
        except InputError as error:
            say("SpecRefused", str(error), accepted=False)
        else:
            say("AwaitingRound", "this spec was not forecast yet: the next round does")


def _is_judged(body: JsonObject) -> bool:
    """Whether the status speaks of the newest spec, in words."""
    generation = body["metadata"].get("generation", 0)
    said = (body.get("status") or {}).get("conditions") or ()
    return any(
        c.get("type") == "Accepted"
        and c.get("observedGeneration") == generation
        and c.get("message")
        for c in said
    )
