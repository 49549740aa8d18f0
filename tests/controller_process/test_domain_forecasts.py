"""What a tick makes of forecasts, and where people can see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.app.domain_status import StatusThread
from controller.app.draw_history import DrawHistory
from controller.app.fleet import Fleet
from controller.app.forecast_reader import ForecastReader
from controller.app.tick_loop import TickOutcome
from controller.cap_reason import CapReason
from controller.day_maximum import HOUR_NS
from forecasting.series_source import SeriesId
from forecasting.sqlite import HistoryStore
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    make_cluster,
    make_domain,
    make_node,
)
from tests.controller_process.test_tick_attacks import Bench
from tests.forecasting.forecast_builders import make_forecast
from wattpack.api import DemandForecast
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND

FORECASTS = DemandForecast.meta.resource

# One server and its rest of the node fit, two do not.
TIGHT_WATTS = 4_000.0


class Row(Bench):
    """A row of one node whose forecasts and minutes are at hand."""

    def __init__(self) -> None:
        fleet = Fleet()
        fleet.hello(make_hello("node-1"))
        super().__init__(make_cluster(make_node("node-1")), fleet)

    def issue(self, p99: float, **changes: Any) -> JsonObject:
        body = make_forecast(self.clock.wall_time_ns() / 1e9, p99, **changes)
        self.cluster.put(FORECASTS, body)
        return body

    def pass_minutes(self, count: int) -> TickOutcome:
        outcome = None
        for _ in range(60 * count):
            outcome = self.tick("node-1")
        assert outcome is not None
        return outcome

    def live(self) -> Any:
        view = self.ticker.live()
        assert view is not None
        return view.domains[0]

    def kinds(self) -> list[str]:
        view = self.ticker.live()
        assert view is not None
        return [decision.kind for decision in view.decisions]


@pytest.fixture
def row() -> Row:
    return Row()


def test_a_trusted_forecast_is_seen_by_the_tick_and_in_the_live_view(row: Row) -> None:
    paths = [{"level": 0.5, "values": [1.0, 2.0]}, {"level": 0.99, "values": [3.0, 4.0]}]
    body = row.issue(30_000.0, quantiles=paths)
    outcome = row.tick("node-1")
    assert outcome is not None
    assert outcome.seen.forecast_p99_watts.tolist() == [30_000.0]
    live = row.live()
    assert (live.forecast_state, live.forecast_method) == ("Forecast", "ridge")
    assert live.forecast_window.p99_watts == [3.0, 4.0]
    assert live.forecast_window.step_seconds == 600
    assert live.forecast_window.start_seconds == pytest.approx(
        row.clock.wall_time_ns() / 1e9, abs=2
    )
    assert body["metadata"]["namespace"] == row.cluster.store.forecasts.authority


def test_no_figure_of_the_live_view_is_above_what_bounds_the_peak(row: Row) -> None:
    row.issue(30_000.0)
    row.tick("node-1")
    rating = row.live().rating_watts
    paths = [
        {"level": 0.5, "values": [100.0, 1.2 * rating]},
        {"level": 0.99, "values": [200.0, 1.5 * rating]},
    ]
    lead = {"workload": "chat", "seconds": 244.0, "kinds": 2, "p99": 1.4 * rating}
    row.issue(1.5 * rating, quantiles=paths, lead=lead)
    row.tick("node-1")
    live = row.live()
    assert live.forecast_p99_watts == rating
    assert live.forecast_window.p50_watts == [100.0, rating]
    assert live.forecast_window.p99_watts == [200.0, rating]
    assert live.forecast_lead.p99_watts == rating


def test_a_forecast_of_another_namespace_neither_counts_nor_replaces_ours(row: Row) -> None:
    row.issue(30_000.0)
    theirs = row.issue(10.0, namespace="team")
    outcome = row.tick("node-1")
    assert outcome is not None
    assert outcome.seen.forecast_p99_watts.tolist() == [30_000.0]
    row.cluster.remove(FORECASTS, theirs)
    outcome = row.tick("node-1")
    assert outcome is not None
    assert outcome.seen.forecast_p99_watts.tolist() == [30_000.0]


def test_the_live_view_carries_what_a_forecast_says_of_itself(row: Row) -> None:
    row.issue(
        30_000.0, coverageN=40, violations=1, liveWindows=3, liveViolations=1,
        liveViolationBound95=0.865, tiers=[{"name": "ridge/2", "weight": 1.0}],
        calibration={"liveWindows": 3, "rehearsedWindows": 37, "offsetP99": 50.0},
    )  # fmt: skip
    row.tick("node-1")
    account = row.live().forecast_account
    assert account is not None
    assert (account.windows, account.violations) == (40, 1)
    assert (account.live_windows, account.live_violations) == (3, 1)
    assert account.live_violation_bound == 0.865
    assert [(tier.name, tier.weight) for tier in account.tiers] == [("ridge/2", 1.0)]
    assert account.calibration is not None
    assert (account.calibration.live_windows, account.calibration.offset_p99_watts) == (3, 50.0)


def test_the_live_view_says_what_is_needed_until_a_new_replica_works(row: Row) -> None:
    row.issue(30_000.0, lead={"workload": "chat", "seconds": 244.0, "kinds": 2, "p99": 25_000.0})
    row.tick("node-1")
    lead = row.live().forecast_lead
    assert lead is not None
    assert (lead.workload, lead.seconds, lead.p99_watts) == ("chat", 244.0, 25_000.0)


@pytest.mark.parametrize(
    "lead",
    [{"workload": "", "seconds": 2.0}, {"workload": "chat", "seconds": "soon"}, "no mapping"],
)
def test_a_lead_time_without_sense_costs_no_forecast(row: Row, lead: object) -> None:
    row.issue(30_000.0, lead=lead)
    row.tick("node-1")
    live = row.live()
    assert (live.forecast_state, live.forecast_lead) == ("Forecast", None)


def test_without_a_day_of_draws_nothing_is_promised_and_the_reason_is_said(row: Row) -> None:
    row.issue(30_000.0, conditions=None)
    outcome = row.tick("node-1")
    assert outcome is not None
    assert outcome.seen.forecast_p99_watts.tolist() != [30_000.0]
    live = row.live()
    assert (live.forecast_p99_watts, live.forecast_method) == (None, "")
    assert live.forecast_state == "Fallback"
    assert "Ready=True" in live.forecast_reason


def test_a_contradicted_forecast_loses_its_authority_and_everybody_can_see_it(row: Row) -> None:
    first = row.pass_minutes(1)
    draw = float(first.decisions.draw_watts[0])
    row.issue(draw * 0.72)
    assert row.pass_minutes(6).outlooks["row"].state == "Forecast"
    outcome = row.pass_minutes(4)
    assert outcome.outlooks["row"].state == "Contradicted"
    assert outcome.seen.forecast_p99_watts.tolist() != [pytest.approx(draw * 0.72)]
    assert "draw above its p99" in row.live().forecast_reason
    assert row.kinds().count("ForecastContradicted") == 1
    text = row.ticker._metrics.text().decode()
    assert 'wattpack_domain_forecast_contradicted{domain="row"} 1.0' in text
    assert 'wattpack_domain_forecast_fallback{domain="row"} 1.0' in text
    row.issue(draw * 0.8)
    assert row.pass_minutes(1).outlooks["row"].state == "Contradicted"
    row.issue(draw * 1.2)
    assert row.pass_minutes(1).outlooks["row"].state == "Forecast"
    assert row.kinds()[0] == "ForecastInUse"


def test_a_silent_nodes_assumed_draw_is_no_evidence_against_a_forecast(row: Row) -> None:
    row.fleet.hello(make_hello("node-2"))
    row.cluster.put(DOMAINS, make_domain(members={"nodeNames": ["node-1", "node-2"]}))
    row.issue(100.0)
    outcome = row.pass_minutes(12)
    assert outcome.decisions.silent_nodes.any()
    assert outcome.outlooks["row"].state == "Forecast"


def test_the_history_keeps_measured_draws_only_and_gives_the_day_back_after_a_restart(
    row: Row, tmp_path: Path
) -> None:
    file = str(tmp_path / "history.sqlite")
    history = DrawHistory(file)
    outcome = row.tick("node-1")
    assert outcome is not None
    history.take(outcome)
    row.fleet.hello(make_hello("node-2"))
    row.cluster.put(DOMAINS, make_domain(members={"nodeNames": ["node-1", "node-2"]}))
    row.clock.advance_seconds(60)
    assumed = row.tick("node-1")
    assert assumed is not None
    assert assumed.decisions.draw_watts[0] > outcome.decisions.draw_watts[0]
    history.take(assumed)
    history.close()
    hour = outcome.wall_time_ns // HOUR_NS
    again = DrawHistory(file).hourly_maxima((hour + 1) * HOUR_NS)
    assert again == {"row": {hour: pytest.approx(outcome.decisions.draw_watts[0])}}


def test_the_history_keeps_what_share_of_gpus_caps_held(row: Row, tmp_path: Path) -> None:
    history = DrawHistory(str(tmp_path / "history.sqlite"))
    outcome = row.tick("node-1")
    assert outcome is not None
    reason = outcome.decisions.reason.copy()
    reason[:] = CapReason.DRY_RUN
    reason[0] = CapReason.DOMAIN_BAND
    history.take(replace(outcome, decisions=replace(outcome.decisions, reason=reason)))
    history.close()
    step = outcome.wall_time_ns // NS_PER_SECOND // 600 * 600
    store = HistoryStore(str(tmp_path / "history.sqlite"))
    ((share,),) = store.fetch([SeriesId("domain_held_share/row")], step, step + 600)
    assert share == pytest.approx(1 / len(reason))


def test_a_clock_that_is_set_back_does_not_stop_the_history(row: Row, tmp_path: Path) -> None:
    file = str(tmp_path / "history.sqlite")
    history = DrawHistory(file)
    outcome = row.tick("node-1")
    assert outcome is not None
    hour = outcome.wall_time_ns // HOUR_NS
    history.take(replace(outcome, wall_time_ns=outcome.wall_time_ns + 24 * HOUR_NS))
    history.take(outcome)
    history.close()
    assert [*DrawHistory(file).hourly_maxima((hour + 1) * HOUR_NS)["row"]] == [hour]


def test_a_start_takes_the_recorded_day_for_its_fallback(row: Row) -> None:
    hour = row.clock.wall_time_ns() // HOUR_NS
    reader = ForecastReader(row.cluster.store)
    reader.preload({"row": {hour - 24 + i: 20_000.0 for i in range(24)}})
    reader.saw({"row": 10_000.0}, row.clock.wall_time_ns())
    outlook = reader.outlooks({"row": 40_000.0}, row.clock.wall_time_ns()).by_domain["row"]
    assert (outlook.method, outlook.p99_watts) == ("last-24h-max", 24_000.0)


def test_an_assumed_draw_is_no_series_to_forecast(row: Row) -> None:
    row.tick("node-1")
    assert "wattpack_domain_measured_watts{" in row.ticker._metrics.text().decode()
    row.tick()
    row.clock.advance_seconds(60)
    row.tick()
    text = row.ticker._metrics.text().decode()
    assert "wattpack_domain_measured_watts{" not in text
    assert "wattpack_domain_draw_watts{" in text


def test_the_verdict_is_a_condition_of_the_domain_with_its_reason(row: Row) -> None:
    api = EmbeddedKube(row.clock)
    api.create(DOMAINS, make_domain())
    row.cluster.put(DOMAINS, api.get(DOMAINS, "row"))
    status = StatusThread(api, row.clock, row.cluster.desired, "test")
    row.issue(30_000.0, validUntil="1969-12-31T00:00:00Z")
    outcome = row.tick("node-1")
    assert outcome is not None
    status.take(outcome)
    status.run_once()
    written = api.get(DOMAINS, "row")["status"]
    (verdict,) = [c for c in written["conditions"] if c["type"] == "ForecastTrusted"]
    assert (verdict["status"], verdict["reason"]) == ("False", "Fallback")
    assert "validUntil" in verdict["message"]
    assert "forecastP99Watts" not in written


def nothing(row: Row) -> None:
    """The domain as it was declared."""


def a_forecast(row: Row) -> None:
    row.issue(30_000.0)


def a_refused_change(row: Row) -> None:
    row.cluster.put(DOMAINS, make_domain(loadDeclaredComplete=False) | {"status": {}})


def another_server(row: Row) -> None:
    """Its worst case no longer fits below the rating."""
    row.cluster.put(NODES, make_node("node-2"))
    row.fleet.hello(make_hello("node-2"))


@pytest.mark.parametrize(
    ("event", "degraded"),
    [(nothing, "False"), (a_forecast, "False"), (a_refused_change, "False"),
     (another_server, "True")],
)  # fmt: skip
def test_every_condition_of_a_domain_that_runs_has_words(
    event: Callable[[Row], None], degraded: str
) -> None:
    row = Row()
    api = EmbeddedKube(row.clock)
    tight = make_domain(ratingWatts=TIGHT_WATTS)
    row.cluster.put(DOMAINS, api.create(DOMAINS, tight))
    row.tick("node-1")
    event(row)
    status = StatusThread(api, row.clock, row.cluster.desired, "test")
    outcome = row.tick("node-1")
    assert outcome is not None
    status.take(outcome)
    status.run_once()
    said = {c["type"]: c for c in api.get(DOMAINS, "row")["status"]["conditions"]}
    judged = {"Accepted", "Ready", "Degraded", "MembersUnderstood", "ForecastTrusted"}
    assert said.keys() == judged
    assert all(c["message"] and c["reason"] for c in said.values())
    assert said["Degraded"]["status"] == degraded
