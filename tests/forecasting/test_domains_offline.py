"""Commands forecast and judge the draw of a PowerDomain by the rules of the process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.app import draw_history
from forecasting.app.backtest_command import main as backtest
from forecasting.app.forecast_command import main as forecast
from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.backtest.plan import Asked, plan_of, targets_of
from forecasting.domain_series import DRAW_SERIES, domain_draws, domain_of
from forecasting.series_source import SeriesId
from forecasting.sqlite import HistoryStore
from simulation.kube import EmbeddedKube
from simulation.row_objects import domain_series
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

DAY = 144
NOW = 10 * 86400
ROW = "domain_draw_watts/row"
MEASURED = 'wattpack_domain_measured_watts{domain="row-a"}'


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row that fell from about 300 kW to about 200 kW three hours ago."""
    found = tmp_path_factory.mktemp("rows") / "history.db"
    t = np.arange(10 * DAY)
    noise = np.random.default_rng(3).normal(0, 2e3, len(t))
    draw = 300e3 + 15e3 * np.sin(2 * np.pi * t / DAY) + noise
    draw[-18:] = 200e3 + noise[-18:]
    held = np.where((t >= 8 * DAY) & (t % DAY < 20), 0.5, 0.0)
    with HistoryStore(found) as store:
        for name, values in (
            (ROW, draw),
            ("domain_held_share/row", held),
            ("row", draw),
            ("requests", draw / 1e3),
        ):
            store.append_bins(name, 0, values, values)
    return found


@pytest.fixture
def told(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str) -> dict[str, Any]:
        line = [*argv, "--history-file", str(file), "--at", str(NOW), "--json"]
        assert forecast(line) == 0
        (one,) = json.loads(capsys.readouterr().out)["forecasts"]
        status: dict[str, Any] = one["status"]
        return status

    return ask


def _published(file: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """What the process writes in its first round, without a cluster that knows of boards."""
    clock = ManualClock(wall_offset_ns=NOW * NS_PER_SECOND)
    kube, resource = EmbeddedKube(clock), DemandForecast.meta.resource
    body = {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "row", "namespace": "power"}, "spec": spec,
    }  # fmt: skip
    kube.create(resource, body, "power")
    with HistoryStore(file, read_only=True) as store:
        assert ForecasterProcess(clock, kube, store).tick()
    (one,) = kube.list(resource).items
    status: dict[str, Any] = one["status"]
    return status


@pytest.mark.parametrize("held", [False, True])
def test_the_command_says_of_a_domain_what_the_process_says(
    file: Path, told: Any, held: bool
) -> None:
    """After a fall of 100 kW the process promised half as much, and said why."""
    spec: dict[str, Any] = {"target": {"powerDomain": "row", "series": ROW}}
    flags = []
    if held:
        spec["heldSeries"] = "domain_held_share/row"
        flags = ["--held-series", "domain_held_share/{domain}"]
    published, made = _published(file, spec), told(ROW, *flags)
    for field in ("p50", "p95", "p99", "flags", "method", "coverageN", "violations"):
        assert made[field] == published[field], field
    assert "new-level" in made["flags"]
    assert made["p99"] < 250e3


def test_what_a_series_is_can_be_said(told: Any) -> None:
    plain, row = told(ROW, "--kind", "series"), told("row", "--kind", "domain")
    assert plain["p99"] == told("row")["p99"] > 300e3
    assert "new-level" not in plain["flags"]
    assert row["p99"] == told(ROW)["p99"]


@pytest.mark.parametrize(
    ("series", "domain"),
    [
        (ROW, "row"),
        ("domain_draw_watts/", None),
        ("domain_held_share/row", None),
        ("row", None),
        (MEASURED, "row-a"),
        (f"max by (domain) ({MEASURED})", "row-a"),
        ('wattpack_domain_draw_watts{instance="a", domain="r"}', "r"),
        (f"sum({MEASURED})", None),
        (f"{MEASURED} - 5", None),
        ("wattpack_domain_measured_watts", None),
        ('wattpack_domain_measured_watts{domain=~"row.*"}', None),
        ('wattpack_domain_limit_watts{domain="row"}', None),
    ],
)
def test_domains_are_told_by_the_name_of_their_draw(series: str, domain: str | None) -> None:
    assert domain_of(series) == domain


def test_the_names_are_those_that_are_written() -> None:
    assert DRAW_SERIES == draw_history.SERIES
    assert domain_of(domain_series("row")) == "row"
    draws = domain_draws([SeriesId(ROW)], held=draw_history.HELD_SERIES + "{domain}")
    assert draws[SeriesId(ROW)].held_series == "domain_held_share/row"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["requests", "--held-series", "domain_held_share/row"], "--kind"),
        ([ROW, "row", "--kind", "domain", "--held-series", "x"], "{domain}"),
        ([ROW, "--held-series", "domain_held_share/rwo"], "'domain_held_share/row'"),
    ],
)
def test_held_bins_of_nobody_are_refused(
    argv: list[str], words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forecast([*argv, "--history-file", str(file), "--at", str(NOW)]) == 2
    error = capsys.readouterr().err
    assert "held-series" in error
    assert words.strip("'") in error


def test_what_nobody_knows_here_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--history-file", str(file), "--at", str(NOW)]
    assert forecast([ROW, *asked]) == 0
    assert "PowerDomains: row; boards, pods, load" in capsys.readouterr().out
    assert forecast(["requests", *asked]) == 0
    assert "PowerDomain" not in capsys.readouterr().out


def test_a_backtest_judges_a_domain_by_the_rules_of_domains(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last origin is two hours after the fall: by the past it promised 300 kW and more."""
    promised = {}
    for kind in ("series", "auto"):
        out = tmp_path / kind
        asked = [
            ROW,
            "requests",
            "--history-file",
            str(file),
            "--until",
            str(NOW),
            "--days",
            "0.25",
        ]
        flags = ["--every", "1", "--horizon", "1", "--models", "ridge", "--kind", kind]
        assert backtest([*asked, *flags, "--out", str(out)]) == 0
        windows = json.loads((out / "backtest.json").read_text())["windows"]
        newest = max(one["origin_seconds"] for one in windows)
        last = {
            one["series"]: one["peaks"][-1] for one in windows if one["origin_seconds"] == newest
        }
        promised[kind] = last
        assert ("PowerDomains: row" in capsys.readouterr().out) is (kind == "auto")
        assert ("PowerDomains: row" in (out / "report.md").read_text()) is (kind == "auto")
    assert promised["auto"][ROW] < 0.9 * promised["series"][ROW]
    assert promised["auto"]["requests"] > 0


def test_a_part_of_a_plan_keeps_its_domains() -> None:
    plan = plan_of([ROW, "requests"], NOW, Asked())
    whole = replace(plan, domains=domain_draws(plan.series))
    first, second = targets_of(whole)
    assert (first.kind, first.subject, first.pool) == ("domain", "row", ("", "domain"))
    assert (second.kind, second.pool) == ("series", ("", "series"))
    assert targets_of(whole.of([SeriesId("requests")]))[0].kind == "series"
    assert targets_of(whole.of([SeriesId(ROW)]))[0].kind == "domain"


def test_a_backtest_knows_what_was_planned(file: Path, tmp_path: Path) -> None:
    """A window in which requests were announced to triple promises three times as much."""
    events = tmp_path / "events.csv"
    events.write_text(
        "name,start,end,series,factor\n"
        "launch,1970-01-10T18:00Z,1970-01-11T00:00Z,requests,3\n"
        "quota,1970-01-05T00:00Z,1970-01-05T01:00Z,requests,1\n",
        encoding="utf-8",
    )
    asked = ["requests", "--history-file", str(file), "--until", str(NOW), "--days", "0.5"]
    promised = []
    for flags in ([], ["--events", str(events)]):
        out = tmp_path / f"report{len(flags)}"
        assert backtest([*asked, *flags, "--models", "ridge", "--out", str(out)]) == 0
        told = json.loads((out / "backtest.json").read_text())
        promised.append([one["peaks"][-1] for one in told["windows"]])
    assert promised[1][0] == promised[0][0]
    assert promised[1][1] > 2.5 * promised[0][1]
    assert told["plan"]["events"][0]["at_least"] is None


def test_a_backtest_refuses_events_of_nobody(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.csv"
    events.write_text(
        "name,start,end,series,factor\na,1970-01-10T00:00Z,1970-01-11T00:00Z,reqests,3\n"
    )
    asked = ["requests", "--history-file", str(file), "--until", str(NOW)]
    assert backtest([*asked, "--events", str(events), "--out", str(tmp_path / "report")]) == 2
    assert "requests" in capsys.readouterr().err
