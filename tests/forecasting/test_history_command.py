"""``wattpack history``: histories of others in, and a forecast from them out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from forecasting.app.forecast_command import main as forecast
from forecasting.app.history_command import main
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.targets import Target
from wattpack.clock import SystemClock
from wattpack.units import NS_PER_SECOND

DAY = 86_400
TOTAL = SeriesId("requests_per_second/chat")


def now() -> float:
    return SystemClock().wall_time_ns() / NS_PER_SECOND


def trace(folder: Path, days: int) -> Path:
    """A conversation trace whose rate follows the hour of day."""
    rng = np.random.default_rng(0)
    at = np.sort(rng.uniform(0, days * DAY, 600 * days))
    kept = at[rng.random(len(at)) < 0.6 + 0.4 * np.sin(2 * np.pi * at / DAY)]
    file = folder / "chat.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"timestamp": t * 1000, "input_length": 100, "output_length": 10})
            for t in kept
        )
    )
    return file


def test_a_forecaster_starts_warm_from_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_file, lengths = tmp_path / "h.db", tmp_path / "lengths.json"
    line = [str(trace(tmp_path, 12)), "--format", "mooncake", "--history-file", str(store_file)]
    assert main(["import", *line, "--lengths", str(lengths)]) == 0
    assert capsys.readouterr().out.startswith("7 series, ")
    statistics = json.loads(lengths.read_text())
    assert {one["direction"] for one in statistics} == {"input", "output"}
    assert {one["p99"] for one in statistics} == {100.0, 10.0}
    with HistoryStore(store_file, read_only=True) as store:
        target = Target("", "chat", TOTAL, "series", 36, 600, (0.5, 0.99), None, 1)
        _, (answer,) = step(ForecasterState(), now(), store, [target])
        until = max(one.until_seconds for one in store.overview())
    assert answer.error is None
    assert answer.made is not None
    assert answer.made.methods[answer.row] not in ("limit", "last-24h-max")
    assert "stale" not in answer.flags
    assert now() - 1200 < until <= now()
    assert main(["import", *line]) == 0, "the same again changes nothing"
    with HistoryStore(store_file, read_only=True) as store:
        assert [one.name for one in store.overview()][-1] == TOTAL


def lengths_trace(folder: Path, days: int) -> tuple[Path, dict[str, np.ndarray]]:
    """Two clients, one of short and one of long answers that stray far; and all answers of each."""
    rng = np.random.default_rng(1)
    lines = ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"]
    answers = {}
    for model, mean, sigma in (("short", 50.0, 0.3), ("long", 400.0, 0.8)):
        at = np.sort(rng.uniform(0, days * DAY, 2500 * days))
        drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, len(at)).astype(int)
        answers[model] = drawn.astype(float)
        lines += [
            f"{t:.1f},{model},100,{n},{100 + n},API log" for t, n in zip(at, drawn, strict=True)
        ]
    file = folder / "trace.csv"
    file.write_text("\n".join(lines))
    return file, answers


@pytest.mark.parametrize("hour", [0, 9])
def test_a_warm_start_keeps_mean_second_moment_and_p99_of_every_client(
    hour: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what is told is of the last six hours, so the time of day picks the lengths."""
    fixed_ns = (1_795_900_000 + hour * 3600) * NS_PER_SECOND
    monkeypatch.setattr(SystemClock, "wall_time_ns", lambda self: fixed_ns)
    file, answers = lengths_trace(tmp_path, 11)
    store_file = str(tmp_path / "h.db")
    line = [str(file), "--format", "burstgpt", "--name", "chat", "--history-file", store_file]
    assert main(["import", *line]) == 0
    answers["all"] = np.concatenate(list(answers.values()))
    for model, drawn in answers.items():
        client = "chat" if model == "all" else f"chat/{model}/api"
        asked = [
            f"requests_per_second/{client}", "--history-file", store_file, "--json",
            "--tokens", f"output_tokens_per_second/{client}",
            "--token-p99", f"output_tokens_p99/{client}",
            "--token-second-moment", f"output_tokens_second_moment/{client}",
        ]  # fmt: skip
        capsys.readouterr()
        assert forecast(asked) == 0
        (told,) = json.loads(capsys.readouterr().out)["forecasts"]
        tokens = told["status"]["tokens"]
        assert tokens["mean"] == pytest.approx(drawn.mean(), rel=0.1)
        assert tokens["secondMoment"] == pytest.approx((drawn**2).mean(), rel=0.3)
        assert tokens["requestP99"] == pytest.approx(np.quantile(drawn, 0.99), rel=0.15)
    assert forecast(["--all", "--history-file", store_file, "--json"]) == 0
    shown = {one["series"] for one in json.loads(capsys.readouterr().out)["forecasts"]}
    assert len(shown) == 9, "rates of requests and tokens, in all and by client; no lengths"


def test_a_table_is_stored_as_it_says_without_its_bad_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, store_file = tmp_path / "t.csv", tmp_path / "h.db"
    start = datetime(2026, 10, 25, tzinfo=UTC).timestamp()
    local = ["01:50", "02:00", "02:30", "02:00", "02:30", "03:00"]
    rows = [f"2026-10-25 {at}:00,{i},{'x' if i == 2 else i},inf" for i, at in enumerate(local)]
    file.write_text("\n".join(["time,a,b,c", *rows]))
    line = ["import", str(file), "--history-file", str(store_file)]
    assert main(line) == 2
    assert "zone" in capsys.readouterr().err
    assert not store_file.exists(), "a refused table makes no file"
    assert main([*line, "--time-zone", "Europe/Berlin"]) == 1
    told = capsys.readouterr()
    assert "1 series, 2026-10-24T23:50:00Z" in told.out
    assert "(clock-change, coarse-rows)" in told.out
    assert "left out: line 4.b" in told.err
    assert "c: expected finite values" in told.err
    with HistoryStore(store_file, read_only=True) as store:
        assert store.names() == ["a"]
        found = store.fetch([SeriesId("a")], int(start) - 600, int(start) + 3 * 3600)[0]
    # Two o'clock came twice: at 0 and at 1 UTC.
    # A row is half an hour, as most are.
    expected = {-1: 0} | {i: 1 + i // 3 for i in range(15)}
    assert {i - 1: v for i, v in enumerate(found) if np.isfinite(v)} == expected
    assert main([*line, "--time-zone", "Europe/Berlin", "--ends", "2026-11-01T00:00:00Z"]) == 1
    assert "to 2026-11-01T00:00:00Z" in capsys.readouterr().out


def test_a_trace_of_relative_times_has_no_place_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["import", str(trace(tmp_path, 1)), "--history-file", str(tmp_path / "h.db"),
            "--format", "mooncake", "--ends", "own"]  # fmt: skip
    assert main(line) == 2
    assert "ends" in capsys.readouterr().err


def test_a_table_is_forecast_from_its_end_and_refused_like_any_other_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.csv"
    values = 100 + 40 * np.sin(2 * np.pi * np.arange(11 * 144) / 144)
    rows = [f"{600 * i},{value},1e400" for i, value in enumerate(values)]
    file.write_text("\n".join(["t_s,a,b", *rows]))
    line = ["--data-file", str(file), "--json"]
    assert forecast(["a", *line]) == 0
    (told,) = json.loads(capsys.readouterr().out)["forecasts"]
    assert told["status"]["dataUntil"] == "1970-01-12T00:00:00Z"
    assert 130 < told["status"]["p99"] < 200
    assert forecast(["--all", *line]) == 0
    both = json.loads(capsys.readouterr().out)["forecasts"]
    assert [one["series"] for one in both] == ["a", "b"]
    assert "p99" not in both[1]["status"], "infinite readings are no history"
    for more in (["--history-file", str(file)], ["--time-zone", "Mars"]):
        assert forecast(["a", *line, *more]) == 2


def test_what_is_old_is_stored_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, store_file = tmp_path / "t.csv", tmp_path / "h.db"
    file.write_text("t_s,a\n" + "".join(f"{600 * i},{i}\n" for i in range(300)))
    assert main(["import", str(file), "--history-file", str(store_file)]) == 0
    assert "--ends now" in capsys.readouterr().err
    assert main(["list", "--history-file", str(store_file)]) == 0
    assert "1970-01-01T00:00:00Z" in capsys.readouterr().out
    assert main(["list", "--history-file", str(store_file), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["fine_bins"], one["hours"]) == ("a", 300, 0)
    assert one["until_seconds"] == 300 * 600
    assert main(["compact", "--history-file", str(store_file), "--days", "1e6"]) == 0
    with HistoryStore(store_file) as store:
        assert [(one.fine_bins, one.hours) for one in store.overview()] == [(0, 50)]
    assert main(["compact", "--history-file", str(store_file)]) == 0
    with HistoryStore(store_file) as store:
        assert store.overview() == []
