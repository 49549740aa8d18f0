"""Replicas by the minute: in time, steady, where HPA finds them, and never on no minutes at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from forecasting.app.forecast_loop import Beginning, ForecasterProcess
from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.forecast_verdicts import VerdictThread
from forecasting.app.forecaster_command import ForecasterSettings, replica_threads
from forecasting.app.replica_minutes import MinuteAnswers, Outlets, Pace, ReplicaMinutes
from forecasting.memory_source import MemorySource
from forecasting.prewarming.minute_needs import (
    LEAST_STEPS,
    MinuteNeeds,
    MinuteQuestion,
    cleaned,
    history,
)
from forecasting.prewarming.priced_replicas import risked_replicas, short_share
from forecasting.prewarming.replica_band import BandRule, ReplicaBand, wishes
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats, SeriesId
from simulation.kube import EmbeddedKube
from tests.examples import examples
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.errors import TransientError
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND

RESOURCE = DemandForecast.meta.resource
MINUTES = 3 * 1440
RATE = 7.0


def _demand(seed: int = 0, minutes: int = MINUTES + 600) -> Floats:
    rng = np.random.default_rng(seed)
    hours = np.repeat(rng.gamma(60, 1 / 60, minutes // 60 + 1), 60)[:minutes]
    values: Floats = 100.0 * hours * rng.gamma(300, 1 / 300, minutes)
    return values


class Source(MemorySource):
    """Minutes, and their means of ten for the rounds; can be cut off."""

    down = False
    asked = 0

    def __init__(self, values: dict[str, Floats]) -> None:
        super().__init__(values, 0, 60)

    def fetch(
        self, series: Sequence[SeriesId], start: int, end: int, step_seconds: int = 600
    ) -> Floats:
        if self.down:
            raise TransientError("history is away")
        self.asked += len(series)
        rows = super().fetch(series, start, end, 60)
        width = step_seconds // 60
        return rows.reshape(len(series), -1, width).mean(axis=2)


class Service:
    """One service, its objects, the thread and the rounds."""

    def __init__(self, values: Floats, events: Sequence[JsonObject] = (), **rule: Any) -> None:
        self.clock = ManualClock(wall_offset_ns=MINUTES * 60 * NS_PER_SECOND)
        self.kube = EmbeddedKube(self.clock)
        self.source = Source({"chat": values, "queue": np.zeros(len(values))})
        replicas = {"rate": RATE, "startSeconds": 180, "queueSeries": "queue"} | rule
        target = {"workload": "chat", "series": "chat", "unit": "requests"}
        body = {
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": "chat", "namespace": "team"},
            "spec": {"target": target, "replicas": replicas, "events": list(events)},
        }  # fmt: skip
        self.kube.create(RESOURCE, body, "team")
        self.metrics = ForecastMetrics()
        VerdictThread(self.clock, self.kube, self.objects, self.metrics).run_once()
        self.restart()

    def restart(self) -> None:
        answers = MinuteAnswers()
        outlets = Outlets(self.kube, answers, self.metrics)
        pace = Pace(rounds=12)
        self.thread = ReplicaMinutes(self.clock, self.objects, self.source, outlets, pace)
        begin = Beginning(ForecasterState(), minutes=answers)
        self.process = ForecasterProcess(
            self.clock, self.kube, self.source, metrics=self.metrics, begin=begin
        )

    def objects(self) -> Sequence[JsonObject]:
        return list(self.kube.list(RESOURCE).items)

    def said(self) -> dict[str, Any] | None:
        found = self.kube.get(RESOURCE, "chat", "team")["status"].get("replicas")
        return None if found is None else dict(found)

    def minute(self, after_seconds: float = 60.0) -> dict[str, Any]:
        self.clock.advance_seconds(after_seconds)
        self.thread.run_once()
        found = self.said()
        assert found is not None
        return found


def test_replicas_follow_the_minutes_and_cover_what_comes_before_orders_work() -> None:
    values = _demand()
    values[MINUTES + 30 :] *= 2.0
    service = Service(values, violationPrice=60.0, holdSeconds=0)
    counts = [service.minute()["count"] for _ in range(60)]
    needed = values[MINUTES : MINUTES + 70] / RATE
    calm = sum(counts[k] < needed[k + 1 : k + 4].max() / 1.17 for k in range(25))
    assert calm <= 4
    assert max(counts[:29]) < 1.6 * needed[:29].max()
    # The rise is known once its first minute is over.
    assert counts[31] > 1.4 * counts[28]
    assert service.said() is not None
    shown = generate_latest(service.metrics.registry).decode()
    assert f'wattpack_forecast_replicas{{name="chat",namespace="team"}} {counts[-1]:.1f}' in shown


def test_who_waits_is_worked_off_and_limits_hold() -> None:
    service = Service(_demand(), violationPrice=60.0, most=60)
    calm = service.minute()["count"]
    now = int(service.clock.wall_time_ns() / NS_PER_SECOND // 60)
    service.source.values["queue"][now] = 1200.0
    busy = service.minute()
    allowed = 5.0 * RATE * calm
    assert busy["count"] - calm == pytest.approx((1200 - allowed) / (60 * RATE), abs=3)
    assert "1200 requests wait" in busy["reason"]
    service.source.values["queue"][now + 1] = 1e9
    assert service.minute()["count"] == 60


def test_rounds_say_what_was_decided_between_them_while_it_is_fresh() -> None:
    service = Service(_demand(), violationPrice=60.0)
    before = service.minute()
    assert service.process.tick()
    assert service.said() == before
    shown = generate_latest(service.metrics.registry).decode()
    assert f'namespace="team"}} {before["count"]:.1f}' in shown
    service.clock.advance_seconds(600)
    assert service.process.tick()
    later = service.said()
    assert later is not None
    assert later["withinSeconds"] == 780  # of the round, not of the minute


def test_a_history_that_is_away_leaves_what_was_said_and_costs_one_question_an_hour() -> None:
    service = Service(_demand(), violationPrice=60.0)
    service.source.down = True
    service.clock.advance_seconds(60)
    service.thread.run_once()
    assert service.said() is None
    service.source.down = False
    service.clock.advance_seconds(60)
    service.thread.run_once()
    assert service.said() is None
    service.clock.advance_seconds(3600)
    service.thread.run_once()
    before = service.said()
    assert before is not None
    service.source.down = True
    for _ in range(3):
        assert service.minute() == before


def test_a_restart_drops_no_replica() -> None:
    values = _demand()
    values[MINUTES + 5 :] *= 0.5
    service = Service(values, violationPrice=60.0, holdSeconds=900)
    before = [service.minute()["count"] for _ in range(6)][-1]
    service.restart()
    counts = [service.minute()["count"] for _ in range(20)]
    assert min(counts[:14]) >= before
    assert counts[-1] < before


def test_too_few_minutes_are_no_history() -> None:
    row = _demand(minutes=LEAST_STEPS + 100)
    gone = row.copy()
    gone[50:60] = np.nan
    filled = cleaned(gone)
    assert filled is not None
    assert np.array_equal(filled[50:60], np.full(10, row[49]))
    assert history(np.concatenate([np.full(500, np.nan), row])) is not None
    assert history(np.concatenate([np.full(500, np.nan), row[: LEAST_STEPS - 1]])) is None
    late = row.copy()
    late[-3:] = np.nan
    assert cleaned(late) is not None
    late[-4:] = np.nan
    assert cleaned(late) is None
    wild = row.copy()
    wild[10:20] = [np.inf, -1.0, 1e300, -np.inf, np.nan, 5e15, -5.0, np.inf, np.nan, -0.1]
    usable = cleaned(wild)
    assert usable is not None
    assert usable.min() >= 0
    assert usable.max() < 1e15
    assert cleaned(np.where(np.arange(len(row)) % 5, row, np.nan)) is None


def test_forests_are_fitted_once_a_day_and_for_who_has_come() -> None:
    source = Source({"a": _demand(1, MINUTES + 1500), "b": _demand(2, MINUTES + 1500)})

    def read(names: Sequence[SeriesId], low: int, high: int) -> Floats:
        if source.down:
            return np.full((len(names), (high - low) // 60), np.nan)
        return source.fetch(names, low, high, 60)

    needs = MinuteNeeds(read, rounds=5)
    one, other = (MinuteQuestion(SeriesId(name), 4, 10.0) for name in "ab")
    begin = 60.0 * MINUTES
    told = needs.quantiles([one], begin)
    (quantiles, levels) = told[one]
    assert np.all(np.diff(quantiles) >= 0)
    assert len(levels) == len(quantiles)
    asked = source.asked
    assert one in needs.quantiles([one], begin + 60)
    assert source.asked == asked + 1
    assert other not in needs.quantiles([one, other], begin + 120)
    assert other in needs.quantiles([one, other], begin + 3660)
    source.down = True
    needs.quantiles([one, other], begin + 2 * 86_400)
    source.down = False
    assert {one, other} <= needs.quantiles([one, other], begin + 3720).keys()
    far = MinuteQuestion(SeriesId("a"), 31, 10.0)
    assert needs.quantiles([far], begin) == {}


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), min_size=1, max_size=30),
    st.sampled_from([0, 60, 240]),
)
def test_between_both_wishes_nothing_changes(pairs: list[tuple[int, int]], hold: int) -> None:
    rule = BandRule(1.0, 10.0, 0.05, 2.0, float(hold), 10.0, 60.0)
    band, position = ReplicaBand([rule], np.array([9.0])), 9.0
    for place, (order, more) in enumerate(pairs):
        (got,) = band.after(
            60.0 * place, np.array([float(order)]), np.array([float(order + more)]), np.zeros(1)
        )
        back = pairs[max(0, place - hold // 60) : place + 1]
        keep = max(o + m for o, m in back)
        position = min(max(position, order), keep)
        assert got == position


@examples(60)
@given(st.integers(0, 2**32 - 1), st.floats(0.002, 0.6))
def test_the_risk_is_kept_by_the_least_number_that_keeps_it(seed: int, risk: float) -> None:
    levels = (0.3, 0.5, 0.8, 0.95, 0.99)
    row = np.sort(np.random.default_rng(seed).gamma(4, 10, 5))
    (found,) = risked_replicas(row[None], levels, 2.5, risk)
    assert short_share(row, levels, 2.5, int(found)) <= risk
    assert found == 1 or short_share(row, levels, 2.5, int(found) - 1) > risk
    rules = [BandRule(2.5, None, risk, ratio, 0.0, 10.0, 60.0) for ratio in (1.0, 3.0)]
    (order,), (keep,) = wishes(rules, row[None], levels)
    assert order.tolist() == [found, found]
    assert keep[0] == order[0] <= keep[1]


def test_minutes_are_asked_of_prometheus_alone(tmp_path: Path) -> None:
    kube = EmbeddedKube(ManualClock())
    outlets = Outlets(kube, MinuteAnswers(), ForecastMetrics())
    by_file = ForecasterSettings(history_file=tmp_path / "history.db")
    assert replica_threads(by_file, ManualClock(), tuple, outlets) == ()
    by_url = ForecasterSettings(prometheus_url="http://127.0.0.1:9", replicas_interval_seconds=90)
    (thread,) = replica_threads(by_url, ManualClock(), tuple, outlets)
    assert thread.run_once() is None
