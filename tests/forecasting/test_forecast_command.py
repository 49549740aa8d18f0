"""``wattpack forecast``: table, JSON, pictures and refusals, on a history file."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.app.forecast_command import main, parse_levels
from forecasting.app.forecast_tables import data_age, held, made_by, peak_line
from forecasting.app.history_command import main as history_main
from forecasting.fan import Fan, fan_of, readable
from forecasting.sqlite import HistoryStore
from forecasting.terminal_fan import terminal_fan
from wattpack.errors import InputError

DAY = 144
NOW = 12 * 86400
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("history") / "history.db"
    t = np.arange(12 * DAY)
    noise = np.random.default_rng(0).normal(0, 5, len(t))
    with HistoryStore(file) as store:
        for name, level in (("row", 100.0), ("rack", 50.0)):
            values = level * (1 + 0.4 * np.sin(2 * np.pi * t / DAY)) + noise
            store.append_bins(f"domain:{name}", 0, values, values)
    return file


@pytest.fixture
def asked(history: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str) -> tuple[int, str, str]:
        status = main([*argv, "--history-file", str(history), "--at", str(NOW)])
        return status, *capsys.readouterr()

    return ask


def test_one_series_has_its_peak_and_its_steps(asked: Any) -> None:
    status, out, _ = asked("domain:row", "--hours", "6", "--levels", "0.5,0.99")
    assert status == 0
    assert "ridge" in out
    assert "/24" in out  # windows that were gone through
    assert [line.split()[0] for line in out.splitlines() if " h " in line and "." in line] == list(
        "123456"
    )


STRANGE = (
    'up{i=~"row[ab]-.*"}',
    "foo[/]bar",
    "[red]q",
    "\x1b[31mred",
    "a\nb",
    "c$\\frac$" + "x" * 200,
)


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that mean something to a terminal, to marked-up text or to a typesetter."""
    file = tmp_path_factory.mktemp("strange") / "[red]history.db"
    values = 100 + np.random.default_rng(1).normal(0, 5, 3 * DAY)
    with HistoryStore(file) as store:
        for name in STRANGE:
            store.append_bins(name, 0, values, values)
    return file


def test_names_are_told_letter_by_letter(
    strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As marked-up text [ab] was left out, and [/] ended the command with a traceback."""
    monkeypatch.setenv("COLUMNS", "400")
    line = ["--all", "--history-file", str(strange), "--at", str(3 * 86400), "--plot"]
    assert main(line) == 0
    assert history_main(["list", "--history-file", str(strange)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for told in ('up{i=~"row[ab]-.*"}', "foo[/]bar", "[red]q", r"\x1b[31mred", r"a\nb"):
        assert out.count(told) == 3, told


def test_a_name_is_no_formula_and_leaves_room_for_the_picture(
    strange: Path, tmp_path: Path
) -> None:
    """A $ in two regular expressions was typeset, or refused with a traceback; a long expression
    took all of the picture's width."""
    pytest.importorskip("matplotlib")
    at = ["--history-file", str(strange), "--at", str(3 * 86400)]
    assert main(["--all", *at, "--png", str(tmp_path / "a.png")]) == 0
    pictures = importlib.import_module("forecasting.app.forecast_pictures")
    figure = pictures.new_figure(6.4, 3.3)
    axis = figure.subplots()
    quantiles = np.tile([[1.0, 2.0]], (36, 1))
    pictures.draw_fan(axis, Fan(STRANGE[-1], 0, 600, np.ones(DAY), (0.5, 0.99), quantiles, 2.0))
    figure.draw_without_rendering()
    assert axis.get_position().width > 0.7
    assert STRANGE[-1][:8] in axis.get_title(loc="left")


@pytest.mark.parametrize(("hours", "steps"), [("6.2", 38), ("6.25", 38), ("6", 36), ("0.2", 2)])
def test_a_window_covers_the_hours_that_are_asked_and_says_how_many_it_has(
    asked: Any, hours: str, steps: int
) -> None:
    """6.2 hours were answered by 37 steps of ten minutes, which end two minutes before."""
    _, out, _ = asked("domain:row", "--hours", hours, "--json")
    assert len(json.loads(out)["forecasts"][0]["status"]["quantiles"][0]["values"]) == steps
    _, table, _ = asked("domain:row", "--hours", hours)
    assert f"of the next {steps / 6:.3g} h" in table


def test_json_holds_a_status_a_series_within_its_ceiling(asked: Any) -> None:
    status, out, _ = asked("--all", "--json", "--ceiling", "120", "--levels", "0.1,0.5")
    assert status == 0
    found = {f["series"]: f["status"] for f in json.loads(out)["forecasts"]}
    assert list(found) == ["domain:rack", "domain:row"]
    assert found["domain:rack"]["p99"] < found["domain:row"]["p99"] <= 120
    assert [path["level"] for path in found["domain:row"]["quantiles"]] == [0.1, 0.5]


def test_a_ceiling_below_what_is_drawn_is_told(asked: Any) -> None:
    status, cut, _ = asked("domain:row", "--ceiling", "0.1")
    assert status == 0
    assert "all is cut at --ceiling of 0.1, below the newest value" in " ".join(cut.split())
    _, whole, _ = asked("domain:row", "--ceiling", "1e6")
    assert "all is cut" not in whole


def test_what_a_start_up_needs_is_told_beside_it(asked: Any) -> None:
    status, out, _ = asked("domain:row", "--lead-for", "decoder-decode")
    assert status == 0
    assert "until a new decoder-decode works" in out.splitlines()[-1]
    _, counted, _ = asked("domain:row", "--lead-for", "decoder-decode", "--replica-rate", "7")
    told = re.findall(r"p\d+ ([\d.]+) \((\d+) replicas\)", counted.splitlines()[-1])
    assert len(told) == 3
    assert all(int(count) == np.ceil(float(value) / 7) for value, count in told)
    assert asked("domain:row", "--lead-for", "no-such-work")[0] == 2
    assert asked("domain:row", "--lead-for", "decoder-decode", "--replica-rate", "0")[0] == 2
    # Without a lead time nobody knows until when replicas have to last.
    status, _, said = asked("domain:row", "--replica-rate", "7")
    assert (status, "replica-rate: expected --lead-for beside it" in said) == (2, True)


def test_a_series_that_is_not_there_costs_only_itself_and_is_named(asked: Any) -> None:
    status, out, err = asked("domain:rwo", "domain:row")
    assert status == 2
    assert "series: expected a series of the history (did you mean 'domain:row'?)" in err
    assert "got 'domain:rwo'" in err
    assert "ridge" in out
    assert "rwo" not in out
    status, out, err = asked("nobody", "no-one")
    assert (status, out) == (2, "")
    assert "got 'nobody'" in err
    assert "got 'no-one'" in err
    assert asked("domain:row", "--tokens", "tokens")[0] == 2


def test_an_event_of_a_series_that_is_not_there_is_refused(asked: Any, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    for series, wanted in (
        ("domain:rwo", 2),
        ("domain:row", 0),
        ("domain:r*", 0),
        ("x*", 0),
        ("", 0),
    ):
        event = f"launch,1970-01-13T01:00:00Z,1970-01-13T02:00:00Z,{series},1.5"
        file.write_text(f"name,start,end,series,factor\n{event}\n", encoding="utf-8")
        status, out, err = asked("domain:row", "--events", str(file))
        assert status == wanted
        if wanted:
            assert "events.launch.series: expected" in err
            assert "did you mean 'domain:row'?" in err
            assert not out


def test_a_series_with_too_little_history_is_told_of_the_flag_and_not_of_a_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.db"
    with HistoryStore(file) as store:
        store.append_bins("new", NOW - 6000, np.ones(10), np.ones(10))
    told = ["new", "--history-file", str(file), "--at", str(NOW)]
    assert main(told) == 0
    assert "less than a day of values of 'new', no --ceiling: nothing" in capsys.readouterr().out
    assert main([*told, "--ceiling", "9"]) == 0
    assert "--ceiling of 9 stands in" in " ".join(capsys.readouterr().out.split())
    assert main([*told, "--png", str(tmp_path / "never-drawn.png")]) == 2
    assert "png: expected" in capsys.readouterr().err


def test_without_a_history_every_flag_that_names_one_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--all"]) == 2
    err = capsys.readouterr().err
    assert "one of --data-file, --history-file or --prometheus-url, got None" in err


def test_a_date_is_a_time_too(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def data_until(*flags: str) -> str:
        assert main(["domain:row", "--history-file", str(history), "--json", *flags]) == 0
        (found,) = json.loads(capsys.readouterr().out)["forecasts"]
        return str(found["status"]["dataUntil"])

    plain = data_until("--at", "1970-01-12")
    assert plain == "1970-01-12T00:00:00Z" == data_until("--at", str(11 * 86400))
    assert data_until("--at", "1970-01-12T00:00:00+02:00") == "1970-01-11T22:00:00Z"
    berlin = ("--time-zone", "Europe/Berlin")
    assert data_until("--at", "1970-01-12", *berlin) == "1970-01-11T23:00:00Z"


def test_a_table_is_forecast_from_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.csv"
    times = 864_000 + 600 * np.arange(12 * DAY)
    rows = [f"{t},{100 + i % DAY}" for i, t in enumerate(times)]
    file.write_text("\n".join(["t_s,row", *rows]) + "\n", encoding="utf-8")
    assert main(["--all", "--data-file", str(file), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["forecasts"]
    assert found["status"]["dataUntil"] == "1970-01-23T00:00:00Z"
    assert found["status"]["p99"] >= 100
    assert main(["--all", "--data-file", str(file), "--history-file", "x.db"]) == 2
    assert "data_file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        ([], "series"),
        (["--all", "domain:row"], "series"),
        (["domain:row", "domain:row"], "series"),
        (["x", "--hours", "0"], "hours"),
        (["x", "--hours", "nan"], "hours"),
        (["x", "--ceiling", "0"], "ceiling"),
        (["x", "--ceiling", "inf"], "ceiling"),
        (["x", "--levels", "0.5,0.5"], "levels"),
        (["x", "--levels", "0,0.5"], "levels"),
        (["x", "--levels", "0.0001,0.5"], "levels"),
        (["x", "--levels", "0.5,0.9999"], "levels"),
        (["x", "--levels", "much"], "levels"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(
    asked: Any, argv: list[str], field: str
) -> None:
    status, _, err = asked(*argv)
    assert status == 2
    assert f"{field}: expected" in err


@pytest.mark.parametrize("at", ["nan", "1e300", "-5", "tomorrow", "2026-13-01"])
def test_a_time_that_means_nothing_is_refused(
    history: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    assert main(["x", "--history-file", str(history), f"--at={at}"]) == 2
    assert "--at: expected" in capsys.readouterr().err


def test_a_picture_is_the_same_twice_and_shows_every_series(asked: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    for file in (first, second):
        assert asked("--all", "--png", str(file))[0] == 0
    assert first.read_bytes().startswith(PNG)
    assert first.read_bytes() == second.read_bytes()


def test_without_the_library_the_extra_is_named(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, _, err = asked("domain:row", "--png", str(tmp_path / "a.png"))
    assert status == 2
    assert "wattpack[plot]" in err


def test_a_plot_in_the_terminal_shows_past_fan_and_peak(asked: Any) -> None:
    status, out, _ = asked("domain:row", "--plot")
    assert status == 0
    plot = out[out.rindex("domain:row") :]
    assert any(0x2800 < ord(c) <= 0x28FF for c in plot)
    assert all(mark in plot for mark in "━╌░▓┬")
    assert "-24 h" in plot
    assert "+6 h" in plot


LEVELS = (0.1, 0.5, 0.9, 0.99)
PATHS = st.lists(
    st.lists(st.floats(0, 1e6), min_size=4, max_size=4).map(sorted), min_size=1, max_size=40
)


@given(
    paths=PATHS,
    past=st.lists(st.one_of(st.floats(0, 1e6), st.just(np.nan)), max_size=150),
    width=st.integers(40, 120),
    height=st.integers(6, 30),
)
@settings(max_examples=60, deadline=None)
def test_every_column_shows_its_median_where_it_lies(
    paths: list[list[float]], past: list[float], width: int, height: int
) -> None:
    fan = Fan("x", 0, 600, np.array(past, dtype=float), LEVELS, np.array(paths), paths[0][-1])
    lines = terminal_fan(fan, width, height)
    assert max(map(len, lines[:-1])) <= width
    grid = [line.partition("┤")[2] for line in lines[1 : height + 1]]
    begins = lines[height + 1].partition("┼")[2].index("┬")
    room = len(grid[0]) - begins
    top = next(
        float(line.split("┤")[0].replace(",", ""))
        for line in lines[1:]
        if line.split("┤")[0].strip()
    )
    for column in range(room):
        median = paths[min(column * len(paths) // room, len(paths) - 1)][1]
        shown = [row for row in range(height) if grid[row][begins + column] == "━"]
        assert len(shown) == 1
        # The label has four digits.
        assert abs((height - shown[0] - 0.5) * top / height - median) <= 0.51 * top / height + (
            top * 1e-3
        )


def test_a_chart_too_small_to_read_is_refused() -> None:
    fan = Fan("x", 0, 600, np.zeros(3), (0.5,), np.ones((2, 1)), 1.0)
    with pytest.raises(InputError, match="size"):
        terminal_fan(fan, width=20)
    with pytest.raises(InputError, match="quantiles"):
        Fan("x", 0, 600, np.zeros(3), (0.5, 0.9), np.ones((2, 1)), 1.0)


def test_figures_are_written_as_people_read_them() -> None:
    shown = {0.0: "0", 0.123456: "0.12346", 9999.0: "9999", 353754.0: "353,750", 2e9: "2e+09"}
    assert {value: readable(value) for value in shown} == shown


def test_a_peak_far_above_the_steps_is_explained() -> None:
    steps = [{"level": 0.5, "values": [90.0] * 36}, {"level": 0.99, "values": [100.0] * 36}]
    assert peak_line({"p99": 109.0, "quantiles": steps}) == ""
    assert peak_line({"p99": 300.0, "quantiles": steps[:1]}) == ""
    assert "the highest of 36 steps" in peak_line({"p99": 111.0, "quantiles": steps})


def test_levels_are_read_as_they_are_written() -> None:
    assert parse_levels("0.01,0.5,0.999") == (0.01, 0.5, 0.999)


def test_a_status_says_who_made_it_how_well_it_held_and_how_old_it_is() -> None:
    status = {
        "method": "ridge", "coverageN": 40, "violations": 1, "violationBound95": 0.114,
        "tiers": [{"name": "lightgbm/1", "weight": 0.6}, {"name": "ridge/2", "weight": 0.4}],
        "dataUntil": "1970-01-01T01:00:00Z",
    }  # fmt: skip
    assert made_by(status) == "lightgbm/1 60%, ridge/2 40%"
    assert made_by({"method": "limit"}) == "limit"
    assert held(status) == "39/40 (missed < 11.4%)"
    assert held({}) == "no window yet"
    live = status | {"liveWindows": 3, "liveViolations": 1, "liveViolationBound95": 0.865}
    assert held(live) == "2/3 live (missed < 86.5%), 37/37 rehearsed"
    assert (
        held(status | {"liveWindows": 0, "liveViolations": 0}) == "39/40 rehearsed (missed < 11.4%)"
    )
    assert data_age(status, 5400.0) == "30 min"
    assert data_age(status, 7 * 86400.0) == "167 h"
    assert data_age({}, 0.0) == "none"


def test_a_picture_of_a_status_has_its_window() -> None:
    status = {
        "windowStart": "1970-01-01T01:00:00Z", "p99": 9.0,
        "quantiles": [{"level": 0.5, "values": [1.0, 2.0]}, {"level": 0.9, "values": [3.0, 4.0]}],
    }  # fmt: skip
    fan = fan_of("x", status, 600, np.zeros(4))
    assert (fan.start_seconds, fan.peak_p99, fan.highest()) == (3600, 9.0, 9.0)
    assert fan.quantiles.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert fan.middle().tolist() == [1.0, 2.0]
