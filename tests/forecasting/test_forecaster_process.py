"""The process on the embedded object store: statuses, conditions, metrics, failures, CLI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from forecasting.app.forecast_loop import PATIENCE_SECONDS, ForecasterProcess
from forecasting.app.forecaster_command import main
from forecasting.forecast_book import ForecastBook, Question
from forecasting.memory_source import MemorySource
from forecasting.series_source import Floats, SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.targets import target_of
from simulation.kube import EmbeddedKube
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.errors import TransientError
from wattpack.kube.port import ObjectList, Resource, UnavailableError
from wattpack.units import NS_PER_SECOND

DAY = 144
RESOURCE = DemandForecast.meta.resource
START_SECONDS = 10 * 86400


def _diurnal(days: int = 12) -> Floats:
    t = np.arange(days * DAY)
    rng = np.random.default_rng(0)
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 5, len(t))


class _Source(MemorySource):
    """Can be cut off, or fail on some series."""

    down = False
    failing: frozenset[str] | set[str] = frozenset()
    doubted: frozenset[str] | set[str] = frozenset()

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        """A store behind the history did not answer about what is doubted."""
        return ("partial",) if series in self.doubted else ()

    def fetch(
        self, series: Sequence[SeriesId], start: int, end: int, step_seconds: int = 600
    ) -> Floats:
        if self.down or self.failing & set(series):
            raise TransientError("history is away")
        return super().fetch(series, start, end, step_seconds)


class _Kube(EmbeddedKube):
    """Can be cut off."""

    down = False

    def list(self, resource: Resource, *args: Any, **kwargs: Any) -> ObjectList:
        if self.down:
            raise UnavailableError("no answer")
        return super().list(resource, *args, **kwargs)


NOWHERE = {
    "name": "sale", "start": "2026-11-20T00:00:00", "end": "2026-11-21T00:00:00",
    "timeZone": "No/Where", "factor": 2.0,
}  # fmt: skip
"""An event that the schema lets pass and no reader understands."""


class World:
    """One forecaster with everything around it in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_offset_ns=START_SECONDS * NS_PER_SECOND)
        self.kube = _Kube(self.clock)
        self.source = _Source({"domain:row": _diurnal()})
        self.process = ForecasterProcess(self.clock, self.kube, self.source)

    def add(self, name: str, **spec: Any) -> None:
        target = {"powerDomain": "row", "series": "domain:row"}
        body = {
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": name, "namespace": "power"}, "spec": {"target": target, **spec},
        }  # fmt: skip
        self.kube.create(RESOURCE, body, "power")

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.kube.get(RESOURCE, name, "power").get("status") or {})

    def condition(self, name: str, type: str) -> dict[str, Any]:
        (found,) = [c for c in self.status(name)["conditions"] if c["type"] == type]
        assert found["message"]
        return dict(found)

    def ready(self, name: str) -> dict[str, Any]:
        return self.condition(name, "Ready")


@pytest.fixture
def world() -> World:
    return World()


def test_a_round_writes_a_status_that_users_can_use(world: World) -> None:
    world.add("row", ceilingWatts=1000)
    assert world.process.tick()
    status = world.status("row")
    book = ForecastBook.of("power", world.kube.list(RESOURCE).items)
    used = book.of_domain("row", Question(START_SECONDS + 60, 1000))
    assert not used.is_fallback, used.reason
    assert 100 < used.p50_watts < used.p99_watts < 200
    assert (status["coverageN"], status["liveWindows"], status["liveViolations"]) == (24, 0, 0)
    assert "liveViolationBound95" not in status
    assert world.ready("row")["message"].endswith(
        "p99: no live window yet, 24 of 24 kept in rehearsal; at most spec.ceilingWatts of 1000"
    )
    assert world.ready("row")["status"] == "True"
    assert DemandForecast.from_json(world.kube.get(RESOURCE, "row", "power"))


def test_domains_that_somebody_wants_forecast_are_named(world: World) -> None:
    def named() -> set[str]:
        lines = generate_latest(world.process.metrics.registry).decode().splitlines()
        return {line for line in lines if line.startswith("wattpack_forecast_domain_objects{")}

    world.add("row")
    world.add("again")
    world.add("nowhere", target={"powerDomain": "rack", "series": "domain:rack"})
    world.add("chat", target={"workload": "chat", "series": "domain:row"})
    world.source.failing = {"domain:rack"}
    assert world.process.tick()
    both = {
        'wattpack_forecast_domain_objects{domain="row",shard="1/1"} 2.0',
        'wattpack_forecast_domain_objects{domain="rack",shard="1/1"} 1.0',
    }
    assert named() == both
    world.kube.delete(RESOURCE, "nowhere", "power")
    assert world.process.tick()
    assert len(named()) == 1


def test_one_minute_steps_are_forecast_from_end_to_end(world: World) -> None:
    minutes = np.arange(12 * 1440)
    noise = np.random.default_rng(0).normal(0, 5, len(minutes))
    wave = 100 + 40 * np.sin(2 * np.pi * minutes / 1440) + noise
    wave[10 * 1440 + 3 :] = 400.0
    world.source = _Source({"domain:row": wave}, step_seconds=60)
    world.process = ForecasterProcess(world.clock, world.kube, world.source, 60.0)
    world.add("row", stepSeconds=60, horizonSeconds=3600, levels=[0.5, 0.99])
    assert world.process.tick()
    status = world.status("row")
    assert world.ready("row")["status"] == "True"
    assert [len(path["values"]) for path in status["quantiles"]] == [60, 60]
    assert status["method"] == "ridge"
    assert status["coverageN"] == 144  # hours after the first four days
    assert wave[10 * 1440 : 10 * 1440 + 3].max() < status["p99"] < 200
    # The fourth minute breaks the promise: it counts in the next round, not after an hour.
    world.clock.advance_seconds(240)
    assert world.process.tick()
    assert world.status("row")["dataUntil"] == "1970-01-11T00:04:00Z"
    broken = world.status("row")
    assert broken["violations"] == status["violations"] + 1
    assert (broken["liveWindows"], broken["liveViolations"]) == (1, 1)
    assert broken["liveViolationBound95"] == 1.0
    # What came is known when the window is over; what was rehearsed says nothing of it.
    assert "liveReserveRatio" not in broken
    assert "0 of 1 kept live, 144 of 144 in rehearsal" in world.ready("row")["message"]


def test_the_metrics_say_what_the_status_says(world: World) -> None:
    world.add("row")
    world.process.tick()
    text = generate_latest(world.process.metrics.registry).decode()
    line = next(x for x in text.splitlines() if 'level="0.99"' in x)
    assert float(line.split()[-1]) == pytest.approx(world.status("row")["p99"], rel=1e-5)
    assert 'wattpack_forecast_fallback{name="row",namespace="power"} 0.0' in text
    assert 'wattpack_forecast_judged_windows{name="row",namespace="power"} 24.0' in text
    # Those are rehearsed ones: no promise was made, and no budget is spent by them.
    assert 'wattpack_forecast_live_judged_windows{name="row",namespace="power"} 0.0' in text
    assert 'wattpack_forecast_live_coverage_ratio{name="row"' not in text
    assert 'wattpack_forecast_windows_total{name="row",namespace="power"} 0.0' in text


def test_each_flag_of_a_status_is_a_metric_for_as_long_as_it_stands(world: World) -> None:
    def shown() -> set[str]:
        found = world.process.metrics.registry.collect()
        (family,) = [one for one in found if one.name == "wattpack_forecast_flags"]
        assert all(one.value == 1 for one in family.samples)
        return {one.labels["flag"] for one in family.samples}

    values = _diurnal()
    values[10 * DAY - 4 : 10 * DAY] = np.nan
    world.source = _Source({"domain:row": values})
    world.process = ForecasterProcess(world.clock, world.kube, world.source)
    world.add("row")
    assert world.process.tick()
    assert "stale" in shown()
    assert shown() == set(world.status("row")["flags"])
    world.clock.advance_seconds(3600)
    assert world.process.tick()
    assert "stale" not in shown()
    assert shown() == set(world.status("row").get("flags", ()))


def test_when_the_history_is_away_the_last_forecast_stays_and_says_so(world: World) -> None:
    world.add("row")
    world.process.tick()
    before = world.status("row")
    world.source.down = True
    world.clock.advance_seconds(600)
    assert not world.process.tick()
    after = world.status("row")
    assert after["p99"] == before["p99"]
    assert (world.ready("row")["status"], world.ready("row")["reason"]) == (
        "False",
        "HistoryUnavailable",
    )
    world.source.down = False
    world.clock.advance_seconds(600)
    assert world.process.tick()
    assert world.ready("row")["status"] == "True"
    assert world.ready("row")["lastTransitionTime"] == "1970-01-11T00:20:00Z"


def test_the_transition_time_moves_only_with_the_status(world: World) -> None:
    world.add("row")
    world.process.tick()
    first = world.ready("row")["lastTransitionTime"]
    world.clock.advance_seconds(600)
    world.process.tick()
    assert world.ready("row")["lastTransitionTime"] == first


def test_an_api_that_is_away_is_a_failed_round_and_no_crash(world: World) -> None:
    world.add("row")
    world.kube.down = True
    assert not world.process.tick()
    text = generate_latest(world.process.metrics.registry).decode()
    assert 'wattpack_forecast_errors_total{kind="UnavailableError"} 1.0' in text
    world.kube.down = False
    assert world.process.tick()


def test_the_loop_waits_its_interval_and_retries_sooner_after_a_failure(world: World) -> None:
    world.add("row")
    moments: list[float] = []

    def stopped() -> bool:
        moments.append(world.clock.monotonic_ns() / NS_PER_SECOND)
        world.source.down = len(moments) == 2
        return len(moments) == 4

    world.process.run(stopped)
    assert moments == [0, 600, 630, 1230]


@pytest.mark.parametrize("is_down", [False, True])
def test_rounds_that_come_are_healthy_even_where_they_fail_and_a_hang_is_not(
    world: World, is_down: bool
) -> None:
    world.source.down = is_down
    ends = iter([False] * 3)
    world.process.run(lambda: next(ends, True))
    for _ in range(2):
        world.clock.advance_seconds(PATIENCE_SECONDS)
        assert world.process.failure() == ""
        world.process.run(iter([False, True]).__next__)
    world.clock.advance_seconds(PATIENCE_SECONDS + 601)
    assert "no round" in world.process.failure()


def test_a_workload_without_history_is_told_so(world: World) -> None:
    world.add("new", target={"workload": "w", "series": "workload:new"})
    assert world.process.tick()
    status = world.status("new")
    assert (status["method"], status["fallback"]) == ("limit", True)
    assert world.ready("new")["reason"] == "NoHistory"


def test_no_history_and_no_ceiling_publish_no_figure_at_all(world: World) -> None:
    """It was published as 0 W, and 0 W was believed."""
    world.add("new", target={"powerDomain": "row", "series": "domain:new"})
    world.process.tick()
    status = world.status("new")
    assert not status.keys() & {"now", "p50", "p95", "p99", "dataUntil", "validUntil"}
    assert not status["quantiles"]
    assert world.ready("new")["status"] == "False"
    assert "'domain:new', no spec.ceilingWatts" in world.ready("new")["message"]
    assert 'name="new"' not in "".join(
        line for line in _metrics(world).splitlines() if "_peak" in line or "_observed" in line
    )


def test_no_history_with_a_ceiling_publishes_the_ceiling_and_is_not_ready(world: World) -> None:
    world.add("new", target={"powerDomain": "row", "series": "domain:new"}, ceilingWatts=5000)
    world.process.tick()
    assert world.status("new")["p99"] == 5000
    assert world.ready("new")["status"] == "False"
    assert "5000 stands in" in world.ready("new")["message"]


def test_a_domain_that_never_draws_anything_is_not_ready(world: World) -> None:
    world.source.values["domain:dead"] = np.zeros(12 * DAY)
    world.add("dead", target={"powerDomain": "row", "series": "domain:dead"})
    world.process.tick()
    assert (world.ready("dead")["status"], world.ready("dead")["reason"]) == ("False", "NoPower")


def test_a_meter_that_fell_silent_is_said_and_makes_no_fresh_forecast(world: World) -> None:
    silent = _diurnal()
    silent[10 * DAY - 6 :] = np.nan
    world.source.values["domain:silent"] = silent
    world.add("silent", target={"powerDomain": "row", "series": "domain:silent"})
    world.process.tick()
    assert world.ready("silent")["reason"] == "HistoryStale"
    assert world.status("silent")["dataUntil"] == "1970-01-10T23:00:00Z"


def test_a_refused_spec_says_so_in_accepted_and_ready(world: World) -> None:
    world.add("sure", events=[NOWHERE])
    assert world.process.tick()
    for type in ("Accepted", "Ready"):
        condition = world.condition("sure", type)
        assert (condition["status"], condition["reason"]) == ("False", "SpecRefused")
        assert "spec.events[0].timeZone: expected" in condition["message"]


def test_a_status_that_nobody_could_have_written_does_not_keep_the_target_away(
    world: World,
) -> None:
    world.add("row")
    body = world.kube.get(RESOURCE, "row", "power") | {"status": {"coverageP99": 7, "p99": "x"}}
    assert target_of(body).series == "domain:row"


def test_a_forecast_states_how_long_it_is_valid(world: World) -> None:
    world.process = ForecasterProcess(world.clock, world.kube, world.source, 1200.0)
    world.add("row")
    world.process.tick()
    status = world.status("row")
    assert status["dataUntil"] == status["windowStart"] == "1970-01-11T00:00:00Z"
    assert status["validUntil"] == "1970-01-11T00:50:00Z"


def test_a_series_that_the_history_fails_on_fails_alone_and_keeps_its_figures(
    world: World,
) -> None:
    world.source.values["domain:slow"] = _diurnal()
    world.add("slow", target={"powerDomain": "row", "series": "domain:slow"})
    world.add("row")
    world.process.tick()
    before = world.status("slow")["p99"]
    world.source.failing = {"domain:slow"}
    world.clock.advance_seconds(600)
    assert world.process.tick()
    assert world.status("slow")["p99"] == before
    assert world.ready("slow")["reason"] == "HistoryUnavailable"
    assert world.condition("slow", "Accepted")["status"] == "True"
    assert world.ready("row")["status"] == "True"
    assert 'errors_total{kind="TransientError"} 1.0' in _metrics(world)


def test_a_few_failing_series_do_not_end_the_round_of_the_others(world: World) -> None:
    names = [f"bad-{i:02}" for i in range(19)]
    world.source.failing = {f"domain:{name}" for name in names}
    world.add("a-first")
    for name in names:
        world.add(name, target={"workload": name, "series": f"domain:{name}"})
    world.add("zz-last")
    assert world.process.tick()
    assert world.ready("a-first")["status"] == world.ready("zz-last")["status"] == "True"


def test_a_bug_in_a_round_is_counted_and_the_next_round_comes(world: World) -> None:
    world.add("row")
    fetch, world.source.fetch = world.source.fetch, None  # type: ignore[assignment]
    assert not world.process.tick()
    assert 'errors_total{kind="TypeError"} 1.0' in _metrics(world)
    world.source.fetch = fetch  # type: ignore[method-assign]
    assert world.process.tick()


def _metrics(world: World) -> str:
    return generate_latest(world.process.metrics.registry).decode()


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--history-file", "/does/not/exist.db"],
        ["--prometheus-url", "prometheus:9090"],
        ["--history-file", "a.db", "--prometheus-url", "http://p"],
        ["--interval-seconds", "nan", "--prometheus-url", "http://p"],
        ["--config", "/does/not/exist.yaml"],
    ],
)
def test_wrong_usage_exits_with_two_and_says_why(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert "expected" in capsys.readouterr().err


def test_a_typo_in_the_settings_file_names_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("intervall_seconds: 5\n", encoding="utf-8")
    assert main(["--config", str(file)]) == 2
    assert "interval_seconds" in capsys.readouterr().err


def test_lines_of_the_plans_solver_do_not_reach_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatty(*_: object) -> int:
        os.write(1, b"HighsMipAnalysis::checkSubSolverCallTime\n")
        return 0

    monkeypatch.setattr("forecasting.app.forecaster_command.serve", chatty)
    HistoryStore(tmp_path / "history.db").close()
    assert main(["--history-file", str(tmp_path / "history.db")]) == 0
    assert capfd.readouterr().out == ""
