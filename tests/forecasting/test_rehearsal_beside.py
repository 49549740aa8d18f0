"""Rehearsals beside the rounds: the first forecast waits for nothing, its record comes later."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.app import rehearsal_child
from forecasting.app.forecast_loop import RETRY_SECONDS, Beginning, ForecasterProcess
from forecasting.app.memory_file import write_state
from forecasting.app.rehearsal_child import learned_of
from forecasting.app.rehearsal_process import RehearsalProcess
from forecasting.calibration.pooled import PooledCalibration
from forecasting.calibration.stored_calibration import calibration_to_json
from forecasting.engine_memory import EngineMemory
from forecasting.engine_question import Shape
from forecasting.engine_rehearsal import gone_through
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.rehearsal_desk import Rehearsal, RehearsalOrder
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import REHEARSING, TargetForecast
from forecasting.series_source import Floats, History, SeriesId
from forecasting.targets import Target
from forecasting.tiers.tier_sets import RIDGE_ALONE
from simulation.kube import EmbeddedKube
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.kube.port import UnavailableError
from wattpack.units import NS_PER_SECOND

DAY = 144
LEVELS = (0.5, 0.9, 0.99)
PAUSE = threading.Event()


class Desk:
    """In memory; over when the test says so, or at its time."""

    def __init__(self, works: bool = True, due: Callable[[], bool] = lambda: False) -> None:
        self.order: RehearsalOrder | None = None
        self.is_told_over = False
        self._works, self._due = works, due
        self.seen: list[RehearsalOrder] = []

    @property
    def is_over(self) -> bool:
        return self.order is not None and (self.is_told_over or self._due())

    def submit(self, order: RehearsalOrder) -> bool:
        if self.order is not None:
            return False
        self.order = order
        self.seen.append(order)
        return True

    def take(self) -> Rehearsal | None:
        order = self.order
        if order is None or not self.is_over:
            return None
        self.order, self.is_told_over = None, False
        return Rehearsal(order, learned_of(order, RIDGE_ALONE) if self._works else None)


def diurnal(seed: int, days: float = 12) -> Floats:
    t = np.arange(round(days * DAY))
    noise = np.random.default_rng(seed).normal(0, 4, len(t))
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + noise


def targets(*names: str) -> list[Target]:
    return [Target("ns", n, SeriesId(n), "workload", 36, 600, LEVELS, None, 1) for n in names]


def identities(*names: str) -> list[SeriesId]:
    return [target.identity for target in targets(*names)]


def windows(answers: Sequence[TargetForecast]) -> list[int]:
    return [answer.record.rehearsed.windows for answer in answers]


SOURCE = MemorySource({name: diurnal(seed) for seed, name in enumerate("abc")})
LONG = MemorySource({name: diurnal(seed, 15) for seed, name in enumerate("ab")})
TEN_DAYS = 10 * 86400.0


def test_the_first_round_answers_without_waiting_and_says_that_nothing_is_known() -> None:
    desk = Desk()
    _, answers = step(ForecasterState(desk=desk), TEN_DAYS, SOURCE, targets("a", "b"))
    for answer in answers:
        assert answer.made is not None
        assert answer.made.methods[answer.row] == "ridge"
        assert {"uncalibrated", REHEARSING} <= set(answer.flags)
        assert np.all(answer.peaks > 100)
    assert windows(answers) == [0, 0]


def test_what_comes_from_the_desk_is_what_the_round_would_have_learned(tmp_path: Path) -> None:
    desk = Desk()
    state, _ = step(ForecasterState(desk=desk), TEN_DAYS, SOURCE, targets("a", "b"))
    desk.is_told_over = True
    state, beside = step(state, TEN_DAYS + 60, SOURCE, targets("a", "b"))
    _, within = step(ForecasterState(), TEN_DAYS + 60, SOURCE, targets("a", "b"))
    for mine, theirs in zip(beside, within, strict=True):
        assert mine.record == theirs.record
        assert mine.peaks.tobytes() == theirs.peaks.tobytes()
        assert not {"uncalibrated", REHEARSING} & set(mine.flags)
    # What is kept knows who was gone through: a restart does not do it again.
    write_state(tmp_path / "state.npz", state)
    assert state.rehearsed == {target.identity for target in targets("a", "b")}


def test_a_series_that_comes_later_is_gone_through_alone_and_disturbs_nobody() -> None:
    desk = Desk()
    state, _ = step(ForecasterState(desk=desk), TEN_DAYS, SOURCE, targets("a"))
    desk.is_told_over = True
    state, _ = step(state, TEN_DAYS + 600, SOURCE, targets("a", "b"))
    assert [order.history.series for order in desk.seen] == [identities("a"), identities("b")]
    state, (a, b) = step(state, TEN_DAYS + 1200, SOURCE, targets("a", "b"))
    assert (a.awaits_record, b.awaits_record) == (False, True)
    desk.is_told_over = True
    _, answers = step(state, TEN_DAYS + 1800, SOURCE, targets("a", "b"))
    assert windows(answers) == [24, 24]


def test_a_pool_goes_on_from_what_rests_on_more_windows() -> None:
    pool = ("ns", "workload")

    def after_windows(count: int) -> tuple[PooledCalibration, PooledCalibration, int]:
        """Of the pool before and after b was gone through, and live windows of a."""
        desk = Desk()
        state, _ = step(ForecasterState(desk=desk), TEN_DAYS, LONG, targets("a"))
        desk.is_told_over = True
        state, _ = step(state, TEN_DAYS + 600, LONG, targets("a", "b"))
        now = TEN_DAYS + 600
        for _ in range(count):
            now += 6 * 3600
            state, _ = step(state, now, LONG, targets("a", "b"))
        (engine,) = state.engines.values()
        live = engine.memory.peaks[pool]
        desk.is_told_over = True
        _, answers = step(state, now, LONG, targets("a", "b"))
        assert windows(answers)[1] == 24
        return live, engine.memory.peaks[pool], answers[0].record.live.windows

    live, after, _ = after_windows(0)
    assert after.windows > live.windows
    live, after, counted = after_windows(14)
    assert after is live
    assert counted >= 13


def test_a_promise_that_broke_meanwhile_stays_counted() -> None:
    values = diurnal(0)
    values[10 * DAY + 2 :] *= 4
    source, desk = MemorySource({"a": values}), Desk()
    state, _ = step(ForecasterState(desk=desk), TEN_DAYS, source, targets("a"))
    state, (broken,) = step(state, TEN_DAYS + 3600, source, targets("a"))
    assert broken.record.live.violations[0] == 1
    desk.is_told_over = True
    _, (answer,) = step(state, TEN_DAYS + 3600, source, targets("a"))
    assert answer.record.live.violations[0] == 1
    assert answer.record.rehearsed.windows == 24


def test_a_rehearsal_that_fails_is_not_repeated_and_leaves_the_series_to_its_promises() -> None:
    desk = Desk(works=False)
    state, _ = step(ForecasterState(desk=desk), TEN_DAYS, SOURCE, targets("a"))
    desk.is_told_over = True
    state, (answer,) = step(state, TEN_DAYS + 600, SOURCE, targets("a"))
    assert desk.order is None
    assert not answer.awaits_record
    assert "uncalibrated" in answer.flags
    _, (later,) = step(state, TEN_DAYS + 7 * 3600, SOURCE, targets("a"))
    assert later.record.live.windows == 1


def test_where_no_process_can_be_started_promises_are_the_record() -> None:
    desk = RehearsalProcess(ManualClock(), "ridge", command=("/no/such/program",))
    t = np.arange(11 * DAY)
    source = MemorySource({"a": 100 + 40 * np.sin(2 * np.pi * t / DAY)})
    target = Target("ns", "a", SeriesId("a"), "workload", 36, 600, LEVELS, None, 1)
    state, (answer,) = step(ForecasterState(desk=desk), 10 * 86400, source, [target])
    assert target.identity in state.rehearsed
    assert REHEARSING not in answer.flags
    assert "uncalibrated" in answer.flags


def test_one_history_that_cannot_be_computed_with_costs_only_its_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(shape: Shape, tiers: object, history: History, *rest: Any) -> EngineMemory:
        if identities("b")[0] in history.series:
            raise ArithmeticError("overflow")
        return gone_through(shape, RIDGE_ALONE.rehearsing(36), history, *rest)

    monkeypatch.setattr(rehearsal_child, "gone_through", failing)
    learned = learned_of(order_of("a", "b", "c"), RIDGE_ALONE)
    assert learned.records.keys() == set(identities("a", "c"))


def awaited(process: RehearsalProcess) -> Rehearsal:
    """What comes within a minute."""
    for _ in range(600):
        if process.is_over:
            over = process.take()
            assert over is not None
            return over
        PAUSE.wait(0.1)
    raise AssertionError("nothing came")


def order_of(*names: str) -> RehearsalOrder:
    desk = Desk()
    step(ForecasterState(desk=desk), TEN_DAYS, SOURCE, targets(*names))
    assert desk.order is not None
    return desk.order


def test_a_process_learns_what_is_learned_here() -> None:
    process, order = RehearsalProcess(ManualClock(), "ridge"), order_of("a", "b")
    assert process.submit(order)
    assert not process.submit(order)
    over = awaited(process)
    here = learned_of(order, RIDGE_ALONE)
    assert over.order is order
    assert over.learned is not None
    assert over.learned.records == here.records
    assert over.learned.losses.sums.tobytes() == here.losses.sums.tobytes()
    for mine, theirs in ((over.learned.peaks, here.peaks), (over.learned.points, here.points)):
        assert {pool: calibration_to_json(kept) for pool, kept in mine.items()} == {
            pool: calibration_to_json(kept) for pool, kept in theirs.items()
        }
    assert process.order is None
    assert process.take() is None


@pytest.mark.parametrize(
    "code", ["raise SystemExit('no memory left')", "pass", "import time; time.sleep(60)"]
)
def test_a_process_that_dies_leaves_nothing_or_hangs_is_a_failed_rehearsal(code: str) -> None:
    clock = ManualClock()
    command = (sys.executable, "-c", code)
    process = RehearsalProcess(clock, "ridge", deadline_seconds=5, command=command)
    assert process.submit(order_of("a"))
    if "sleep" in code:
        assert process.take() is None
        clock.advance_seconds(6)
    assert awaited(process).learned is None
    assert process.order is None
    process.close()


def test_the_loop_comes_back_as_soon_as_a_rehearsal_is_over() -> None:
    clock = ManualClock(wall_offset_ns=round(TEN_DAYS) * NS_PER_SECOND)
    kube = EmbeddedKube(clock)
    desk = Desk(due=lambda: clock.monotonic_ns() >= 95 * NS_PER_SECOND)
    resource = DemandForecast.meta.resource
    body = {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"target": {"workload": "a", "series": "a"}},
    }  # fmt: skip
    kube.create(resource, body, "ns")
    begin = Beginning(ForecasterState(desk=desk))
    process = ForecasterProcess(clock, kube, SOURCE, begin=begin)
    moments: list[float] = []

    def stopped() -> bool:
        moments.append(clock.monotonic_ns() / NS_PER_SECOND)
        return len(moments) == 4

    process.run(stopped)
    assert moments == [0, 100, 700, 1300]
    status = kube.get(resource, "a", "ns")["status"]
    assert status["coverageN"] >= 24


class NobodyThere(EmbeddedKube):
    """An API server that answers no list."""

    def list(self, *_: Any, **__: Any) -> Any:
        raise UnavailableError("away")


def test_a_rehearsal_that_waits_for_the_api_server_hurries_nobody() -> None:
    clock = ManualClock(wall_offset_ns=round(TEN_DAYS) * NS_PER_SECOND)
    desk = Desk()
    desk.submit(order_of("a"))
    desk.is_told_over = True
    begin = Beginning(ForecasterState(desk=desk))
    process = ForecasterProcess(clock, NobodyThere(clock), SOURCE, begin=begin)
    moments: list[float] = []

    def stopped() -> bool:
        moments.append(clock.monotonic_ns() / NS_PER_SECOND)
        return len(moments) == 4

    process.run(stopped)
    assert moments == [0, RETRY_SECONDS, 2 * RETRY_SECONDS, 3 * RETRY_SECONDS]
    assert desk.order is not None
