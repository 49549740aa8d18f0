"""What somebody meets who follows the page of forecasts for the first time."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from forecasting.app.forecast_command import main as forecast
from forecasting.app.forecast_tables import peaks_table, print_whole
from forecasting.app.history_command import main as history
from forecasting.sqlite import HistoryStore

DAY = 144
FLAGS = ["stale", "uncalibrated"]
NAMES = ("domain_draw_watts/row", "requests_per_second/chat", "output_tokens_per_second/chat")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two days of three series."""
    made = tmp_path / "history.db"
    values = 100 + np.random.default_rng(2).normal(0, 5, 2 * DAY)
    with HistoryStore(made) as store:
        for name in NAMES:
            store.append_bins(name, 0, values, values)
    return made


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("row", "(did you mean 'domain_draw_watts/row'?)"),
        ("chat", "(did you mean 'output_tokens_per_second/chat' or 'requests_per_second/chat'?)"),
        ("domain_draw_watts/rwo", "(did you mean 'domain_draw_watts/row'?)"),
        ("zzz", "a series of the history, got"),
    ],
)
def test_a_name_without_its_kind_is_told_whole(
    file: Path, capsys: pytest.CaptureFixture[str], asked: str, told: str
) -> None:
    """A domain's name alone was refused without a hint."""
    assert forecast([asked, "--history-file", str(file)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", [forecast, history])
def test_a_history_file_that_is_not_there_says_who_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: object
) -> None:
    """SQLite's own words, "unable to open database file", name nothing to do."""
    line = ["--history-file", str(tmp_path / "none.db")]
    assert (forecast(["row", *line]) if command is forecast else history(["list", *line])) == 2
    err = capsys.readouterr().err
    assert "wattpack history import" in err
    assert not list(tmp_path.iterdir())


def test_a_list_that_goes_into_a_pipe_has_a_series_a_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and times were folded for a terminal of 80 columns that nobody looks at."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert history(["list", "--history-file", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in NAMES:
        (line,) = [one for one in lines if name in one]
        assert len(re.findall(r"1970-01-0\dT00:00:00Z", line)) == 2


def test_parts_of_series_that_are_no_domains_name_the_flag_and_its_word(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["requests_per_second/chat", "--history-file", str(file), "--parts", "row=rack-*"]
    assert forecast(line) == 2
    assert "--kind domain" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["row", "domain_draw_watts/row", 'wattpack_domain_watts{domain="row-a"}']
)
@pytest.mark.parametrize("columns", [40, 80, 88, 120])
@pytest.mark.parametrize("watts", [999.0, 150_520.0, 1_234_567.0])
def test_a_narrow_terminal_leaves_no_flag_out(columns: int, watts: float, name: str) -> None:
    """At 80 columns, the usual width, the flags of a row of 150 kW were not on the screen."""
    status = {
        "now": watts, "p50": watts, "p95": watts, "p99": watts, "flags": FLAGS,
        "dataUntil": "2026-11-28T14:00:00Z", "method": "ridge", "fallback": False,
        "tiers": [{"name": "ridge", "weight": 1.0}],
    }  # fmt: skip
    shown = Console(width=columns, file=io.StringIO())
    print_whole(peaks_table([(name, status)], 1_795_876_000.0, 6.0), shown)
    assert isinstance(shown.file, io.StringIO)
    lines = [line.rstrip() for line in shown.file.getvalue().splitlines()]
    assert lines[1].endswith("flags")
    flags = [line[lines[1].index("flags") :].replace(" ", "") for line in lines[2:]]
    assert "".join(flags) == ",".join(FLAGS)
    names = [line.split(" ")[0] for line in lines[2:]]
    assert "".join(names) == name
    assert columns < 88 or watts > 1e6 or max(map(len, lines)) <= columns


def test_a_table_of_local_times_is_refused_with_the_flag_that_states_their_zone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "draws.csv"
    table.write_text("time,row\n2026-11-14 14:00:00,1\n2026-11-14 14:10:00,2\n")
    assert forecast(["row", "--data-file", str(table)]) == 2
    assert "--time-zone" in capsys.readouterr().err
