"""The forecaster's loop: read DemandForecast objects, forecast, write their status.

When the history or the API fails, the last state is kept, the objects say so (Ready=False,
HistoryUnavailable) and the next round tries again: users see the age grow, and fall back once the
last forecast is too old.
What is new or changed between two rounds is told its verdict by ``forecast_verdicts``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.forecast_statuses import ForecastStatuses, key_of
from forecasting.app.replica_minutes import MinuteAnswers
from forecasting.app.replica_needs import BesideForecasts, ReplicaNeeds
from forecasting.app.running_work_reader import RunningWorkReader
from forecasting.forecast_status import needed_in_lead, status_of
from forecasting.issued_forecast import HISTORY_UNAVAILABLE
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import SeriesSource
from forecasting.shards import WHOLE, Shard
from forecasting.start_leads import RunningWork
from forecasting.targets import Target, TargetKey, target_of
from forecasting.token_statuses import add_tokens, flagged, token_outlooks
from forecasting.told_lengths import LastLengths
from wattpack.api.demand_forecast import DemandForecast, ForecastLead
from wattpack.clock import Clock, Wake
from wattpack.errors import InputError, WattpackError
from wattpack.heartbeat import Heartbeat
from wattpack.kube.port import JsonObject, KubeApi, KubeError
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

RETRY_SECONDS: Final = 30.0
LOOK_NS: Final = 10 * NS_PER_SECOND
"""Between two looks whether a rehearsal is over."""
# As long as the alert ForecasterStale waits: a slow history is no hang, but nobody waits for ever.
PATIENCE_SECONDS: Final = 1800.0

log = logging.getLogger(__name__)


def _forgotten(state: ForecasterState) -> None:
    """Nobody keeps it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a process begins with, and how it is kept for the next one.

    Attributes:
        state: The models, and what an earlier process has learned.
        keep: Told of the state after each good round.
        shard: Which of several forecasters it is.
        minutes: Replicas that are decided between rounds.
    """

    state: ForecasterState
    keep: Callable[[ForecasterState], None] = _forgotten
    shard: Shard = WHOLE
    minutes: MinuteAnswers = field(default_factory=MinuteAnswers)


class ForecasterProcess:
    """One forecaster.

    Args:
        clock: Time.
        kube: Where the objects live.
        source: The history.
        interval_seconds: Between rounds.
        metrics: Exported after each round.
        begin: The models and what an earlier process has learned; None begins with the ridge alone.
    """

    def __init__(
        self,
        clock: Clock,
        kube: KubeApi,
        source: SeriesSource,
        interval_seconds: float = 600.0,
        metrics: ForecastMetrics | None = None,
        begin: Beginning | None = None,
    ) -> None:
        self._clock = clock
        self._kube = kube
        self._source = source
        self._interval_seconds = interval_seconds
        self._begin = begin or Beginning(ForecasterState())
        self._state = self._begin.state
        self.metrics = metrics or ForecastMetrics(shard=self._begin.shard)
        self._statuses = ForecastStatuses(kube, self.metrics)
        self._replicas = ReplicaNeeds(interval_seconds, self._begin.minutes)
        self._running = RunningWorkReader(kube)
        self._lengths = LastLengths()
        self._beat = Heartbeat(clock, PATIENCE_SECONDS)

    @property
    def state(self) -> ForecasterState:
        """Calibration and records as of the last good round."""
        return self._state

    def failure(self) -> str:
        """Why no round comes any more; empty while they come, also where they fail."""
        late = self._beat.is_late()
        return f"no round has ended for {PATIENCE_SECONDS:.0f} s and more" if late else ""

    def run(self, stopped: Callable[[], bool], wake: Wake | None = None) -> None:
        """Rounds until ``stopped``; set the wake to end a wait early."""
        while not stopped():
            good = self.tick()
            pause = self._interval_seconds if good else min(RETRY_SECONDS, self._interval_seconds)
            due_ns = self._clock.monotonic_ns() + seconds_to_ns(pause)
            self._beat.next_at(due_ns)
            self._wait(due_ns, wake, looks=good)

    def _wait(self, due_ns: int, wake: Wake | None, *, looks: bool) -> None:
        """Until then; where it looks, sooner if there is more to say.

        That is when a rehearsal is over, as nobody waits for its record, and when domains that
        nobody had accepted in the first round have been. A round that failed may have left the
        rehearsal where it is: the next one takes its time.
        """
        while looks and self._may_know_more():
            now_ns = self._clock.monotonic_ns()
            if now_ns >= due_ns or self._knows_more():
                return
            if self._clock.wait_until(min(due_ns, now_ns + LOOK_NS), wake):
                return
        self._clock.wait_until(due_ns, wake)

    def _may_know_more(self) -> bool:
        desk = self._state.desk
        return self._running.may_find_more or (desk is not None and desk.order is not None)

    def _knows_more(self) -> bool:
        desk = self._state.desk
        if desk is not None and desk.order is not None and desk.is_over:
            return True
        return self._running.finds_more(self._clock.wall_time_ns() / NS_PER_SECOND)

    def tick(self) -> bool:
        """One round; False if it could not be finished. A bug in it does not end the process."""
        try:
            return self._round()
        except Exception as error:
            log.exception("the round failed")
            self.metrics.failed(error)
            self.metrics.expire(self._clock.wall_time_ns() / NS_PER_SECOND)
            return False

    def _round(self) -> bool:
        began_ns = self._clock.monotonic_ns()
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        try:
            listed = self._kube.list(DemandForecast.meta.resource).items
        except KubeError as error:
            log.warning("cannot list forecasts: %s", error)
            self.metrics.failed(error)
            self.metrics.expire(now_seconds)
            return False
        bodies = tuple(body for body in listed if self._begin.shard.owns(body))
        targets = self._targets(bodies, now_seconds)
        stored = {
            key: body.get("status") or {} for body in bodies if (key := key_of(body)) in targets
        }
        running = self._running.read(targets.values(), now_seconds)
        asked = [running.placed(target) for target in targets.values()]
        try:
            self._state, answers = step(self._state, now_seconds, self._source, asked)
        except WattpackError as error:
            log.warning("no forecast this round: %s", error)
            self.metrics.failed(error)
            for body in bodies:
                if key_of(body) in targets:
                    self._statuses.say(body, HISTORY_UNAVAILABLE, str(error), now_seconds)
            self.metrics.age(stored, now_seconds)
            return False
        by_key = {TargetKey(*key_of(body)): body for body in bodies}
        tokens = token_outlooks(answers, self._source, self._lengths, by_key)
        answers = flagged(answers, tokens)
        leads = _leads(answers, running, now_seconds)
        statuses = {
            a.target.key: status_of(a, now_seconds, self._interval_seconds, leads.get(a.target.key))
            for a in answers
            if a.error is None or isinstance(a.error, InputError)
        }
        add_tokens(statuses, answers, tokens)
        self._replicas.add_to(
            statuses, answers, by_key, BesideForecasts(leads, tokens),
            now_seconds, ns_to_seconds(began_ns),
        )  # fmt: skip
        written = [
            self._tell(by_key[a.target.key], a, statuses.get(a.target.key), now_seconds)
            for a in answers
        ]
        self._begin.keep(self._state)
        duration = ns_to_seconds(self._clock.monotonic_ns() - began_ns)
        answered = {a.target.key: statuses[a.target.key] for a in answers if a.error is None}
        self.metrics.show(answers, duration, now_seconds, answered, leads, stored)
        log.info("forecast %d series in %.2f s", len(answers), duration)
        return all(written)

    def _tell(
        self,
        body: JsonObject,
        answer: TargetForecast,
        status: dict[str, Any] | None,
        now_seconds: float,
    ) -> bool:
        """Write one answer; the last figures stay where the history failed this series alone."""
        if answer.error is not None:
            self.metrics.failed(answer.error)
        if status is None:
            why = str(answer.error)
            return self._statuses.say(body, HISTORY_UNAVAILABLE, why, now_seconds)
        return self._statuses.put(body, status, now_seconds)

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
                self._statuses.say(body, "SpecRefused", str(error), now_seconds, accepted=False)
            else:
                targets[target.key] = target
        return targets


def _leads(
    answers: Sequence[TargetForecast], running: RunningWork, now_seconds: float
) -> dict[TargetKey, ForecastLead]:
    """What each target may need until a new replica of what runs there works."""
    found = {}
    for answer in answers:
        lead = needed_in_lead(answer, running.lead(answer.target), now_seconds)
        if lead is not None:
            found[answer.target.key] = lead
    return found
