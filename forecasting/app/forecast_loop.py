"""The forecaster's loop: read DemandForecast objects, forecast, write their status.

When the history or the API fails, the last state is kept, the objects say so (Ready=False,
HistoryUnavailable) and the next round tries again: users see the age grow and fall back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.forecast_round import ForecasterState, TargetForecast, step
from forecasting.forecast_status import conditions, status_of
from forecasting.series_source import SeriesSource
from forecasting.targets import Target, TargetKey, target_of
from wattpack.api.planning import DemandForecast
from wattpack.api.times import rfc3339
from wattpack.clock import Clock, Wake
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import JsonObject, KubeApi, KubeError, NotFoundError
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

FIELD_MANAGER: Final = "wattpack-forecaster"
RETRY_SECONDS: Final = 30.0

log = logging.getLogger(__name__)


class ForecasterProcess:
    """One forecaster.

    Args:
        clock: Time.
        kube: Where the objects live.
        source: The history.
        interval_seconds: Between rounds.
        metrics: Exported after each round.
    """

    def __init__(
        self,
        clock: Clock,
        kube: KubeApi,
        source: SeriesSource,
        interval_seconds: float = 600.0,
        metrics: ForecastMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._kube = kube
        self._source = source
        self._interval_seconds = interval_seconds
        self._state = ForecasterState()
        self.metrics = metrics or ForecastMetrics()

    @property
    def state(self) -> ForecasterState:
        """Calibration and records as of the last good round."""
        return self._state

    def run(self, stopped: Callable[[], bool], wake: Wake | None = None) -> None:
        """Rounds until ``stopped``; set the wake to end a wait early."""
        while not stopped():
            good = self.tick()
            pause = self._interval_seconds if good else min(RETRY_SECONDS, self._interval_seconds)
            self._clock.wait_until(self._clock.monotonic_ns() + seconds_to_ns(pause), wake)

    def tick(self) -> bool:
        """One round; False if it could not be finished. A bug in it does not end the process."""
        try:
            return self._round()
        except Exception as error:
            log.exception("the round failed")
            self.metrics.failed(error)
            return False

    def _round(self) -> bool:
        began_ns = self._clock.monotonic_ns()
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        try:
            bodies = self._kube.list(DemandForecast.meta.resource).items
        except KubeError as error:
            log.warning("cannot list forecasts: %s", error)
            self.metrics.failed(error)
            return False
        targets = self._targets(bodies, now_seconds)
        try:
            self._state, answers = step(
                self._state, now_seconds, self._source, list(targets.values())
            )
        except WattpackError as error:
            log.warning("no forecast this round: %s", error)
            self.metrics.failed(error)
            for body in bodies:
                if _key(body) in targets:
                    self._say(body, "HistoryUnavailable", str(error), now_seconds)
            return False
        by_key = {_key(body): body for body in bodies}
        written = [self._tell(by_key[a.target.key], a, now_seconds) for a in answers]
        duration = ns_to_seconds(self._clock.monotonic_ns() - began_ns)
        self.metrics.show(answers, duration, now_seconds)
        log.info("forecast %d series in %.2f s", len(answers), duration)
        return all(written)

    def _tell(self, body: JsonObject, answer: TargetForecast, now_seconds: float) -> bool:
        """Write one answer; the last figures stay where the history failed this series alone."""
        if answer.error is not None:
            self.metrics.failed(answer.error)
            if not isinstance(answer.error, InputError):
                return self._say(body, "HistoryUnavailable", str(answer.error), now_seconds)
        status = status_of(answer, now_seconds, self._interval_seconds)
        return self._put(body, status, now_seconds)

    def _targets(
        self, bodies: tuple[JsonObject, ...], now_seconds: float
    ) -> dict[TargetKey, Target]:
        """The usable targets; the others are told what is wrong with them."""
        targets = {}
        for body in bodies:
            try:
                target = target_of(body)
            except InputError as error:
                self.metrics.failed(error)
                self._say(body, "SpecRefused", str(error), now_seconds, accepted=False)
            else:
                targets[target.key] = target
        return targets

    def _say(
        self,
        body: JsonObject,
        reason: str,
        message: str,
        now_seconds: float,
        *,
        accepted: bool = True,
    ) -> bool:
        """Keep the last status but mark it not ready."""
        status = dict(body.get("status") or {})
        generation = int(body.get("metadata", {}).get("generation", 0))
        status["observedGeneration"] = generation
        judged = conditions(generation, reason, message, accepted=accepted)
        status["conditions"] = [condition.to_json() for condition in judged]
        return self._put(body, status, now_seconds)

    def _put(self, body: JsonObject, status: dict[str, Any], now_seconds: float) -> bool:
        """Write a status, with the time at which each condition last changed."""
        before = {c.get("type"): c for c in (body.get("status") or {}).get("conditions", ())}
        for condition in status.get("conditions", ()):
            old = before.get(condition["type"], {})
            same = old.get("status") == condition["status"] and old.get("lastTransitionTime")
            condition["lastTransitionTime"] = (
                old["lastTransitionTime"] if same else rfc3339(seconds_to_ns(now_seconds))
            )
        namespace, name = _key(body)
        resource = DemandForecast.meta.resource
        request = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace},
            "status": status,
        }
        try:
            self._kube.apply(
                resource, request, field_manager=FIELD_MANAGER, namespace=namespace,
                subresource="status",
            )  # fmt: skip
        except NotFoundError:
            return True
        except KubeError as error:
            log.warning("cannot write %s/%s: %s", namespace, name, error)
            self.metrics.failed(error)
            return False
        return True


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object."""
    metadata = body.get("metadata", {})
    return (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
