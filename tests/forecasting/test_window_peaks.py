"""``wattpack forecast --window``: the peak of a shorter window at a stated risk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.app.forecast_command import main
from forecasting.sqlite import HistoryStore

DAY = 144
NOW = 6 * 86400


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two services whose daily peak is nine hours away, noise, and one that has just begun."""
    found = tmp_path_factory.mktemp("windows") / "history.db"
    t, random = np.arange(6 * DAY), np.random.default_rng(2)
    with HistoryStore(found) as store:
        for name, level in (("small", 50.0), ("large", 200.0)):
            daily = 1 + 0.5 * np.sin(2 * np.pi * (t - 18) / DAY)
            values = level * daily + random.normal(0, level / 30, len(t))
            store.append_bins(name, 0, values, values)
        for name in ("flat-1", "flat-2", "flat-3"):
            values = random.gamma(3.0, 10.0, len(t))
            store.append_bins(name, 0, values, values)
        store.append_bins("new", NOW - 3600, np.full(6, 50.0), np.full(6, 50.0))
    return found


@pytest.fixture
def asked(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str) -> tuple[int, str, str]:
        status = main(["--history-file", str(file), "--at", str(NOW), *argv])
        return status, *capsys.readouterr()

    return ask


def test_a_shorter_window_has_the_peak_that_a_forecast_of_its_length_has(asked: Any) -> None:
    """What the process publishes for a DemandForecast with that horizon and these levels."""
    line = ["large", "small", "--json"]
    _, out, _ = asked(*line, "--window", "2", "--window-levels", "0.5,0.95,0.99")
    _, of_two, _ = asked(*line, "--hours", "2", "--levels", "0.5,0.95,0.99")
    for one, alone in zip(*(json.loads(o)["forecasts"] for o in (out, of_two)), strict=True):
        (window,), status = one["windows"], alone["status"]
        peaks = {peak["level"]: peak["value"] for peak in window["peaks"]}
        for name, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert peaks[level] == min(status[name], one["status"][name])
        assert peaks[0.99] < one["status"]["p99"]
        for field in ("calibration", "coverageN", "dataUntil", "modelVersion", "fittedUntil"):
            assert window[field] == status[field], field
        assert (window["hours"], window["calibrated"]) == (2.0, True)


def test_each_window_and_risk_is_a_row_and_its_record_is_told(asked: Any) -> None:
    levels = ["--window", "2", "--window", "4", "--window-levels", "0.9,0.97"]
    status, table, _ = asked("large", *levels)
    assert status == 0
    words = " ".join(table.split())
    assert "series next p90 p97 calibrated by p99 held" in words
    assert table.count(" 2 h ") == table.count(" 4 h ") == 1
    assert "windows" in words
    assert "rehearsed (missed <" in words
    _, out, _ = asked("large", "--json", *levels)
    short, long = json.loads(out)["forecasts"][0]["windows"]
    values = [[peak["value"] for peak in one["peaks"]] for one in (short, long)]
    assert [one["hours"] for one in (short, long)] == [2.0, 4.0]
    assert all(low <= high for low, high in values)
    # The load rises: four hours reach higher than two.
    assert all(a < b for a, b in zip(*values, strict=True))


def test_no_part_of_a_window_peaks_above_the_whole(asked: Any) -> None:
    """Each is corrected by windows of its own, so that a part could be promised more than it."""
    argv = ["flat-1", "flat-2", "flat-3", "--json", "--hours", "2", "--window", "1.8"]
    cut = 0
    for one in json.loads(asked(*argv, "--window-levels", "0.5,0.95,0.99")[1])["forecasts"]:
        found = [peak["value"] for peak in one["windows"][0]["peaks"]]
        whole = [one["status"][name] for name in ("p50", "p95", "p99")]
        assert all(part <= peak for part, peak in zip(found, whole, strict=True))
        cut += sum(part == peak for part, peak in zip(found, whole, strict=True))
    assert cut > 0


def test_the_whole_window_may_be_asked_for_at_other_risks(asked: Any) -> None:
    _, out, _ = asked("large", "--json", "--window", "6", "--levels", "0.1,0.97",
                      "--window-levels", "0.1,0.97")  # fmt: skip
    one = json.loads(out)["forecasts"][0]
    low, high = (peak["value"] for peak in one["windows"][0]["peaks"])
    assert low < one["status"]["p50"] < one["status"]["p95"] <= high <= one["status"]["p99"]
    assert one["windows"][0]["coverageN"] == one["status"]["coverageN"]


def test_a_window_without_enough_of_its_kind_says_that_nothing_corrects_it(asked: Any) -> None:
    _, out, _ = asked("small", "--json", "--hours", "36", "--window", "24")
    (window,) = json.loads(out)["forecasts"][0]["windows"]
    assert window["calibrated"] is False
    assert "uncalibrated" in window["flags"]
    _, table, _ = asked("small", "--hours", "36", "--window", "24")
    assert "nothing yet" in table


def test_who_has_no_history_has_no_peak_and_says_so(asked: Any) -> None:
    status, out, _ = asked("new", "small", "--json", "--window", "1")
    assert status == 0
    new, small = (one["windows"][0] for one in json.loads(out)["forecasts"])
    assert new["peaks"] == []
    assert new["calibrated"] is False
    assert len(small["peaks"]) == 3


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--window", "7"], "window: expected a finite number >= 0.166667 and <= 6, got 7"),
        (["--window", "0"], "window: expected"),
        (["--window", "-1"], "window: expected"),
        (["--window", "nan"], "window: expected"),
        (["--window", "2", "--window-levels", "0.9995"], "window-levels: expected"),
        (["--window", "2", "--window-levels", "0.005"], "window-levels: expected"),
        (["--window", "2", "--window-levels", "0.9,0.5"], "window-levels: expected"),
        (["--window", "2", "--window-levels", "p99"], "window-levels: expected"),
        (["--window", "2", "--window-levels", ""], "window-levels: expected"),
        (["--window-levels", "0.9"], "window-levels: expected --window beside it"),
        ([part for i in range(9) for part in ("--window", f"{i + 1}")] + ["--hours", "24"],
         "window: expected at most 8 windows"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_its_flag(
    asked: Any, argv: list[str], words: str
) -> None:
    status, out, err = asked("small", *argv)
    assert (status, out) == (2, "")
    assert words in " ".join(err.split())
