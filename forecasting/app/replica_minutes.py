"""Says each minute how many replicas a service should have, from the minutes of its demand.

    objects (informer) ──┐
    minutes of demand ───┼─► quantiles of what is needed ─► band ─► status.replicas, metric
    requests that wait ──┘

A start takes minutes, bins of forecasts take ten: what came since is not in them. A service whose
history has no minutes (a history file, two days after its first sample) is decided for by the
ten-minute rounds (``replica_needs``). Replicas that are counted by tokens follow the minutes of the
requests, times the lengths that the last round told.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.forecast_statuses import ForecastStatuses
from forecasting.app.replica_steadiness import as_told, steadied_replicas, with_lowerings
from forecasting.decisions import Decision, SteadyState
from forecasting.prewarming.minute_needs import (
    STEP_SECONDS,
    MinuteNeeds,
    MinuteQuestion,
)
from forecasting.prewarming.needed_quantiles import ROUNDS
from forecasting.prewarming.planned_minutes import Events, names_within, with_known_effects
from forecasting.prewarming.priced_replicas import short_share
from forecasting.prewarming.replica_band import BandRule, ReplicaBand, wishes
from forecasting.prewarming.replica_need import DEFAULT_RISK, LONGEST_START_SECONDS
from forecasting.prewarming.start_times import StartTimes
from forecasting.prewarming.token_needs import needed_tokens
from forecasting.series_source import Floats, SeriesId, SeriesSource
from forecasting.targets import TargetKey, target_of
from forecasting.told_lengths import LastLengths, ToldLengths
from wattpack.api.forecast_replicas import ReplicaNeed, ReplicaRule
from wattpack.clock import Clock
from wattpack.errors import InputError, WattpackError
from wattpack.kube.port import JsonObject, KubeApi
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

HOLD_SECONDS: Final = 480.0
"""Where a rule names none (chosen on days 1-10 of ServeGen's totals)."""

FRESH_SECONDS: Final = 300.0
"""For which a minute's answer counts before a round's."""

QUEUE_STEPS: Final = 3
"""Newest minutes of which the last known one tells the queue."""

SAID_AGAIN_SECONDS: Final = 600.0
"""After which a reason is written anew though the count is the same."""

log = logging.getLogger(__name__)


class MinuteAnswers:
    """What was said last, for the rounds: they write whole statuses; and what these have learned.

    A round has ten days of history at hand, from which it learns what earlier events did.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[TargetKey, tuple[float, ReplicaNeed]] = {}
        self._known: dict[TargetKey, Events] = {}

    def put(self, key: TargetKey, need: ReplicaNeed, now_seconds: float) -> None:
        """Remember an answer."""
        with self._lock:
            self._said[key] = now_seconds, need

    def keep(self, keys: Iterable[TargetKey]) -> None:
        """Forget all others."""
        with self._lock:
            wanted = set(keys)
            self._said = {key: said for key, said in self._said.items() if key in wanted}
            self._known = {key: known for key, known in self._known.items() if key in wanted}

    def learned(self, known: Mapping[TargetKey, Events]) -> None:
        """Of a round: events of known effect, by object. Others keep what an earlier one told."""
        with self._lock:
            self._known |= known

    def known(self, key: TargetKey) -> Events:
        """The newest round's events of an object, learned effects included."""
        with self._lock:
            return self._known.get(key, ())

    def fresh(self, key: TargetKey, now_seconds: float) -> ReplicaNeed | None:
        """The newest answer; None where there is none of the last minutes."""
        with self._lock:
            at_seconds, need = self._said.get(key, (-math.inf, None))
        return need if now_seconds - at_seconds <= FRESH_SECONDS else None


@dataclass(slots=True)
class _Asked:
    """One object of this minute, with the lengths that a rule in tokens needs."""

    key: TargetKey
    body: JsonObject
    rule: ReplicaRule
    question: MinuteQuestion
    lengths: ToldLengths | None

    @property
    def can_be_told(self) -> bool:
        """Whether its unit is known; where lengths are not yet, the next round tells them."""
        return self.rule.token_rate is None or self.lengths is not None


@dataclass(slots=True)
class _Asker:
    """What was asked for lately by one object's rule."""

    rule: ReplicaRule
    band: ReplicaBand
    steady: SteadyState


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where decisions go.

    Attributes:
        kube: Statuses.
        answers: Read by the rounds.
        metrics: Show the counts.
    """

    kube: KubeApi
    answers: MinuteAnswers
    metrics: ForecastMetrics


@dataclass(frozen=True, slots=True)
class Pace:
    """How often, and with how much effort.

    Attributes:
        interval_seconds: Between two decisions.
        rounds: Trees of each level.
    """

    interval_seconds: float = STEP_SECONDS
    rounds: int = ROUNDS


DEFAULT_PACE: Final = Pace()


class ReplicaMinutes(PeriodicThread):
    """Decides each minute for every object that asks for replicas.

    Args:
        clock: Time.
        objects: The newest DemandForecasts, shared and not changed here.
        source: The history; for this thread alone.
        outlets: Where decisions go.
        pace: How often.
    """

    def __init__(
        self,
        clock: Clock,
        objects: Callable[[], Iterable[JsonObject]],
        source: SeriesSource,
        outlets: Outlets,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        super().__init__(clock, "replica-minutes", seconds_to_ns(pace.interval_seconds))
        self._clock, self._objects, self._source = clock, objects, source
        self._answers, self._metrics = outlets.answers, outlets.metrics
        self._interval_seconds = pace.interval_seconds
        self._statuses = ForecastStatuses(outlets.kube, outlets.metrics)
        self._needs = MinuteNeeds(self._minutes, pace.rounds)
        self._askers: dict[TargetKey, _Asker] = {}
        self._written: dict[TargetKey, float] = {}
        self._lengths = LastLengths()

    def run_once(self) -> None:
        """Decide for all; a service whose history fails keeps what was said of it."""
        now_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        asked = [one for body in self._objects() if (one := self._asked(body)) is not None]
        keys = {one.key for one in asked}
        self._answers.keep(keys)
        self._lengths.keep(keys)
        self._askers = {key: asker for key, asker in self._askers.items() if key in keys}
        self._written = {key: at for key, at in self._written.items() if key in keys}
        questions = [one.question for one in asked if one.can_be_told]
        told = self._needs.quantiles(questions, now_seconds)
        decided = [one for one in asked if one.can_be_told and one.question in told]
        queues = self._queues(decided, now_seconds)
        counts: dict[TargetKey, float] = {}
        for one in decided:
            quantiles, levels = told[one.question]
            if one.lengths is not None:
                quantiles = _in_tokens(one.question, one.lengths, quantiles, levels)
            planned = names_within(one.question.window(now_seconds), one.question.events)
            need = self._need(one, quantiles, levels, queues.get(one.key, 0.0))
            if one.lengths is not None:
                need = _because(need, str(one.lengths))
            if planned:
                need = _because(need, f"planned: {', '.join(planned)}")
            self._answers.put(one.key, need, now_seconds)
            counts[one.key] = float(need.count)
            self._write(one, need, now_seconds)
        if counts:
            self._metrics.show_replicas(counts, now_seconds + FRESH_SECONDS)

    def _asked(self, body: JsonObject) -> _Asked | None:
        spec = body.get("spec") or {}
        if spec.get("replicas") is None:
            return None
        try:
            target = target_of(body)
            rule = ReplicaRule.model_validate(spec["replicas"])
        except (InputError, ValueError):
            return None  # the verdicts say so
        lengths = None if rule.token_rate is None else self._lengths.of(target, body)
        told = ((body.get("status") or {}).get("lead") or {}).get("seconds")
        start_seconds = LONGEST_START_SECONDS if told is None else float(told)
        if rule.start_seconds is not None:
            start_seconds = rule.start_seconds
        steps = StartTimes(start_seconds, self._interval_seconds).steps(STEP_SECONDS)
        events = with_known_effects(target.events, self._answers.known(target.key))
        question = MinuteQuestion(target.series, steps, rule.wait_seconds, events)
        return _Asked(target.key, body, rule, question, lengths)

    def _minutes(self, series: Sequence[SeriesId], start: int, end: int) -> Floats:
        """Each series alone: one that its source refuses costs only itself."""
        rows = np.full((len(series), (end - start) // STEP_SECONDS), np.nan)
        for place, name in enumerate(series):
            try:
                rows[place] = self._source.fetch([name], start, end, STEP_SECONDS)[0]
            except WattpackError as error:
                log.debug("no minutes of %s: %s", name, error)
        return rows

    def _queues(self, asked: Sequence[_Asked], now_seconds: float) -> Mapping[TargetKey, float]:
        until = int(now_seconds // STEP_SECONDS) * STEP_SECONDS
        found = {}
        for one in asked:
            if one.rule.queue_series is None:
                continue
            names = [SeriesId(one.rule.queue_series)]
            row = self._minutes(names, until - QUEUE_STEPS * STEP_SECONDS, until)[0]
            known = row[np.isfinite(row) & (row >= 0)]
            found[one.key] = float(known[-1]) if len(known) else 0.0
        return found

    def _need(
        self, one: _Asked, quantiles: Floats, levels: tuple[float, ...], queued: float
    ) -> ReplicaNeed:
        rule, now_seconds = one.rule, ns_to_seconds(self._clock.monotonic_ns())
        banded = band_rule(rule)
        (order,), (keep,) = wishes([banded], quantiles[None], levels)
        asker = self._asker(one, banded, order, now_seconds)
        waits = queued if one.lengths is None else queued * one.lengths.of.mean
        (banded_count,) = asker.band.after(now_seconds, order, keep, np.array([waits]))
        bounded = min(max(float(banded_count), rule.least), rule.most)
        wish = Decision(bounded, math.nan, "cost", "by the last minutes")
        made, asker.steady = steadied_replicas(wish, now_seconds, asker.steady, rule, 0.0)
        count = int(made.amount)
        asker.band.position = np.array([made.amount])
        within = one.question.steps * STEP_SECONDS
        short = short_share(quantiles, levels, rule.served, count)
        reason = (
            f"{count} are short in {short:.2%} of the next {within:g} s, {made.reason}; "
            f"{order[0]:g} would be ordered, {keep[0]:g} kept"
        )
        if queued:
            reason += f"; {queued:.6g} requests wait"
        need = ReplicaNeed(
            count=count, within_seconds=float(within), short_risk=short, reason=reason[:512]
        )
        return with_lowerings(need, asker.steady, self._clock.wall_time_ns() / NS_PER_SECOND)

    def _asker(self, one: _Asked, rule: BandRule, order: Floats, now_seconds: float) -> _Asker:
        """Of this rule; a new one begins with what the status says."""
        known = self._askers.get(one.key)
        if known is not None and known.rule == one.rule:
            return known
        told = (one.body.get("status") or {}).get("replicas")
        steady = as_told(told, self._clock.wall_time_ns() / NS_PER_SECOND, now_seconds)
        first = order if steady.amount is None else np.array([steady.amount])
        band = ReplicaBand([rule], first)
        if steady.amount is not None:
            band.hold_at(now_seconds, first)
        self._askers[one.key] = _Asker(one.rule, band, steady)
        return self._askers[one.key]

    def _write(self, one: _Asked, need: ReplicaNeed, now_seconds: float) -> None:
        status = dict(one.body.get("status") or {})
        said = (status.get("replicas") or {}).get("count")
        if not status.get("conditions"):
            return  # the verdict comes first
        late = now_seconds - self._written.get(one.key, -math.inf) >= SAID_AGAIN_SECONDS
        if said == need.count and not late:
            return
        status["replicas"] = need.to_json()
        version = str(one.body["metadata"].get("resourceVersion", ""))
        if self._statuses.put(one.body, status, now_seconds, version=version):
            self._written[one.key] = now_seconds


def _because(need: ReplicaNeed, why: str) -> ReplicaNeed:
    return need.model_copy(update={"reason": f"{need.reason}; {why}"[:512]})


def _in_tokens(
    question: MinuteQuestion, lengths: ToldLengths, needed: Floats, levels: Sequence[float]
) -> Floats:
    """Quantiles of the needed tokens a second, of those of the needed requests."""
    wait_seconds = question.wait_seconds
    return needed_tokens(needed, levels, lengths.of, question.steps, STEP_SECONDS, wait_seconds)


def band_rule(rule: ReplicaRule) -> BandRule:
    """What the band goes by, of what the object says."""
    return BandRule(
        rate=rule.served,
        price=rule.violation_price,
        risk=DEFAULT_RISK if rule.risk is None else rule.risk,
        keep_ratio=rule.keep_ratio,
        hold_seconds=HOLD_SECONDS if rule.hold_seconds is None else rule.hold_seconds,
        wait_seconds=rule.wait_seconds,
        clear_seconds=rule.clear_seconds,
    )
