"""Backtests: windows against plain loops, no look ahead, figures against their definitions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from forecasting.app.backtest_command import main
from forecasting.app.backtest_report import as_html, as_markdown, page, telling
from forecasting.app.backtest_runs import Runs, dealt, run_backtest
from forecasting.app.history_choice import FileHistorySettings
from forecasting.backtest.backtest_verdicts import grouped, is_missed, reserve_ratio, verdict_of
from forecasting.backtest.plan import Asked, plan_of
from forecasting.backtest.references import day_change, day_maxima, last_value, seasonal_naive
from forecasting.backtest.rolling import PastOnly, rolling
from forecasting.backtest.window import LEVELS, MODELS, Window
from forecasting.binomial import share_at_most, share_bounds
from forecasting.memory_source import MemorySource
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats, SeriesId
from forecasting.sqlite import HistoryStore
from wattpack.errors import InputError

DAY = 144
END = 10 * 86400


def _values(seed: int = 0, days: int = 10) -> Floats:
    t = np.arange(days * DAY)
    noise = np.random.default_rng(seed).gamma(2.0, 4.0, len(t))
    return 100 + 40 * np.sin(2 * np.pi * t / DAY + seed) + noise


@pytest.fixture(scope="module")
def source() -> MemorySource:
    values = {f"s{i}": _values(i) for i in range(3)}
    values["gaps"] = np.where(np.arange(10 * DAY) % 7 < 2, np.nan, values["s0"])
    values["quiet"] = np.zeros(10 * DAY)
    return MemorySource(values)


NAMES = ("s0", "s1", "s2", "gaps", "quiet")


@pytest.fixture(scope="module")
def windows(source: MemorySource) -> list[Window]:
    plan = plan_of(NAMES, END, Asked(days=2))
    return [window for _, origin in rolling(plan, source, ForecasterState()) for window in origin]


def test_origins_are_a_stride_apart_and_the_last_window_ends_with_the_history() -> None:
    plan = plan_of(["a"], END + 123.0, Asked(days=1, every_hours=4, horizon_hours=3))
    assert list(plan.origins) == [END - 3 * 3600 - k * 4 * 3600 for k in range(5, -1, -1)]
    assert plan.horizon == 18


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Asked(days=0), "days"), (Asked(days=math.nan), "days"), (Asked(days=300), "days"),
        (Asked(every_hours=0.01), "every"), (Asked(horizon_hours=1000), "horizon"),
    ],
)  # fmt: skip
def test_what_cannot_be_gone_through_is_refused_by_its_name(asked: Asked, field: str) -> None:
    with pytest.raises(InputError) as told:
        plan_of(["a"], END, asked)
    assert told.value.field == field


def test_no_round_sees_what_comes_after_its_origin(source: MemorySource) -> None:
    plan = plan_of(NAMES, END, Asked(days=1))
    honest = [window for _, origin in rolling(plan, source, ForecasterState()) for window in origin]
    cut = plan.origins[2] // 600
    changed = {name: row.copy() for name, row in source.values.items()}
    for row in changed.values():
        row[cut:] = 5000.0
    other = [w for _, of in rolling(plan, MemorySource(changed), ForecasterState()) for w in of]
    for a, b in zip(honest, other, strict=True):
        if a.origin_seconds <= plan.origins[2]:
            assert (a.peaks, a.fan, a.maxima, a.scale) == (b.peaks, b.fan, b.maxima, b.scale)
    with pytest.raises(InputError, match="endSeconds"):
        PastOnly(source).fetch([SeriesId("s0")], 0, 600)


def test_windows_say_what_came(windows: list[Window], source: MemorySource) -> None:
    assert len(windows) == 8 * len(NAMES)
    for window in windows:
        first = window.origin_seconds // 600
        came = source.values[window.series][first : first + 36]
        known = came[np.isfinite(came)]
        assert window.bins == len(known)
        assert window.total == pytest.approx(known.sum())
        assert window.peak == pytest.approx(known.max())
        for i, level in enumerate((0.1, 0.5, 0.9, 0.99)):
            inside = int((known <= np.array(window.fan[i])[np.isfinite(came)] + 1e-3).sum())
            assert abs(inside - window.below[LEVELS.index(level)]) <= (18 if level <= 0.5 else 1)


def test_a_window_survives_json(windows: list[Window]) -> None:
    assert Window.read(json.loads(json.dumps(windows[3].to_json()))) == windows[3]
    for bad in ({}, {"series": "a"}, windows[0].to_json() | {"fan": 3}):
        with pytest.raises(InputError, match="window"):
            Window.read(bad)


ROWS = st.integers(0, 2**31).map(lambda seed: np.random.default_rng(seed).gamma(1, 3, (2, 300)))


@given(past=ROWS, horizon=st.integers(1, 40), data=st.data())
@settings(max_examples=20, deadline=None)
def test_references_are_past_values_with_past_errors(
    past: Floats, horizon: int, data: st.DataObject
) -> None:
    levels = (0.1, 0.5, 0.9)
    row = data.draw(st.integers(0, 1))
    k = data.draw(st.integers(0, horizon - 1))
    daily = [past[row, t] - past[row, t - DAY] for t in range(DAY, 300)]
    expected = [max(0.0, past[row, 300 - DAY + k] + float(np.quantile(daily, q))) for q in levels]
    assert seasonal_naive(past, horizon, levels, DAY)[row, k] == pytest.approx(expected)
    steps = [past[row, t + k + 1] - past[row, t] for t in range(300 - k - 1)]
    expected = [max(0.0, past[row, -1] + float(np.quantile(steps, q))) for q in levels]
    assert last_value(past, horizon, levels)[row, k] == pytest.approx(expected)
    assert day_change(past, DAY)[row] == pytest.approx(np.mean(np.abs(daily)))
    assert day_maxima(past, DAY)[row].tolist() == [
        max(past[row, -days * DAY :]) for days in (1, 3, 7, 10)
    ]


def test_gaps_count_nowhere_in_the_references() -> None:
    past = np.full((1, 400), np.nan)
    assert np.isnan(day_maxima(past, DAY)).all()
    assert np.isnan(day_change(past, DAY)).all()
    assert np.isnan(seasonal_naive(past, 3, (0.5,), DAY)).all()
    assert np.isnan(last_value(past[:, :2], 3, (0.5,))).all()
    past[0, ::2] = 4.0
    assert day_maxima(past, DAY)[0, 0] == 4.0
    assert day_change(past, DAY)[0] == 0.0


@given(hits=st.integers(0, 60), more=st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_bounds_are_where_the_count_becomes_unlikely(hits: int, more: int) -> None:
    of = hits + more
    low, high = share_bounds(hits, of)
    if of == 0:
        assert (low, high) == (0.0, 1.0)
        return
    if hits > 0:
        assert binom.sf(hits - 1, of, low) == pytest.approx(0.025, abs=1e-6)
    if more > 0:
        assert binom.cdf(hits, of, high) == pytest.approx(0.025, abs=1e-6)
        assert binom.cdf(hits, of, share_at_most(hits, of)) == pytest.approx(0.05, abs=1e-6)
    assert 0 <= low <= hits / of <= high <= 1


def test_a_verdict_counts_what_its_words_say(windows: list[Window]) -> None:
    verdict = verdict_of(windows)
    assert verdict.windows + verdict.unanswered == len(windows)
    assert verdict.missed == sum(map(is_missed, windows)) == sum(s.missed for s in verdict.series)
    assert [loss.model for loss in verdict.losses] == list(MODELS)
    naive = MODELS.index("seasonal naive")
    for i, loss in enumerate(verdict.losses):
        usable = [w for w in windows if w.bins and None not in w.losses]
        expected = sum(w.losses[i] or 0 for w in usable) / sum(w.losses[naive] or 0 for w in usable)
        assert loss.pooled_ratio == pytest.approx(expected)
        per_series = [
            np.mean([(w.losses[i] or 0) / w.bins / w.scale for w in of if w.scale])
            for of in grouped(usable).values()
            if any(w.scale for w in of)
        ]
        assert loss.scaled == pytest.approx(np.mean(per_series))
    for level in verdict.reliability:
        assert level.low <= level.observed <= level.high
    shares = [level.observed for level in verdict.reliability]
    assert shares == sorted(shares)


def test_promises_twice_as_high_cost_twice_and_are_missed_by_nobody(windows: list[Window]) -> None:
    judged = [window for window in windows if window.counts]
    wide = [replace(w, peaks=tuple(1e6 + p for p in w.peaks)) for w in judged]
    assert verdict_of(wide).missed == 0
    none = [replace(w, peaks=tuple(0.0 for _ in w.peaks)) for w in judged if w.peak]
    verdict = verdict_of(none)
    assert verdict.missed == len(none)
    assert verdict.missed_high == 1.0
    twice = reserve_ratio(["a", "a", "b"], np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert twice == pytest.approx(2.0)
    assert reserve_ratio(["a"], np.array([2.0]), np.array([0.0])) is None


def test_at_equal_risk_a_shifted_policy_costs_the_same(windows: list[Window]) -> None:
    judged = [w for w in windows if w.counts and w.scale]
    lifted = [replace(w, peaks=tuple(p + 2.0 * (w.scale or 0) for p in w.peaks)) for w in judged]
    before, after = verdict_of(judged).reserves[0], verdict_of(lifted).reserves[0]
    assert after.equal_risk == pytest.approx(before.equal_risk)
    assert (after.reserve or 0) > (before.reserve or 0)


def test_nothing_to_judge_is_told_and_no_error() -> None:
    verdict = verdict_of([])
    assert (verdict.windows, verdict.missed, verdict.missed_high) == (0, 0, 1.0)
    assert verdict.losses[0].ratio is None


def test_pools_are_dealt_evenly_and_lose_nobody() -> None:
    names = [SeriesId(str(i)) for i in range(7)]
    hands = dealt(names, 3)
    assert sorted(name for hand in hands for name in hand) == sorted(names)
    assert {len(hand) for hand in hands} == {2, 3}
    assert len(dealt(names, 20)) == 7


# -- the command and its folder --------------------------------------------------------------------


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("history") / "history.db"
    with HistoryStore(file) as store:
        for name, seed in (("row", 0), ("<b>rack</b>|1", 1)):
            store.append_bins(name, 0, _values(seed), _values(seed))
    return file


@pytest.fixture
def ask(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*argv: str, out: str = "out") -> tuple[int, str, str]:
        given = ["--until", str(END), *argv, "--history-file", str(history), "--days", "1"]
        given += ["--models", "ridge"]
        status = main([*given, "--out", str(tmp_path / out)])
        return status, *capsys.readouterr()

    return run


def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("")

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("forecasting.app.backtest_command.run_backtest", never)
    for out in ("taken", "taken/below"):
        status, told, error = ask("row", out=out)
        assert (status, told) == (2, "")
        assert "--out: expected a folder" in error


def test_windows_without_values_say_what_is_missing(ask: Any) -> None:
    status, told, _ = ask("row", "--until", "9e8")
    assert status == 0
    assert told.startswith("0 windows judged, 4 not")
    assert "a window needs a day of values before it" in told


def test_the_folder_has_figures_page_and_pictures(ask: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    status, out, _ = ask("--all")
    assert status == 0
    assert out.startswith("8 windows judged, 0 not")
    told = json.loads((tmp_path / "out" / "backtest.json").read_text())
    assert told["format"] == "wattpack.io/backtest/v1"
    assert len(told["windows"]) == told["verdict"]["windows"] == 8
    page_text = (tmp_path / "out" / "index.html").read_text()
    for picture in ("fans.png", "reliability.png", "timeline.png"):
        assert f'src="{picture}"' in page_text
        assert f"({picture})" in (tmp_path / "out" / "report.md").read_text()
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    assert "<b>rack" not in page_text
    assert "&lt;b&gt;rack" in page_text
    assert "<b>rack</b>\\|1" in (tmp_path / "out" / "report.md").read_text()


def test_a_series_that_is_not_there_is_told_before_anything_runs(
    ask: Any, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = ask("row", "rwo")
    assert (status, out) == (2, "")
    assert "series: expected a series of the history (did you mean 'row'?), got 'rwo'" in err
    assert not (tmp_path / "out").exists()
    assert main(["row", "--history-file", str(history), "--until", "lately"]) == 2
    assert "--until: expected" in capsys.readouterr().err


def test_what_is_kept_is_not_run_again_and_what_is_not_goes_on(ask: Any, tmp_path: Path) -> None:
    keep = ("--resume", str(tmp_path / "kept"))
    assert ask("--all", out="whole")[0] == 0
    assert ask("--all", *keep, out="a")[0] == 0
    state, lines = sorted((tmp_path / "kept").iterdir())
    assert state.name.endswith("-4.npz")
    whole = lines.read_text()
    told = [json.loads(line) for line in whole.splitlines()]
    told[0][0]["peak"] = 123456.0
    lines.write_text("".join(json.dumps(line) + "\n" for line in told))
    assert ask("--all", *keep, out="b")[0] == 0
    again = json.loads((tmp_path / "b" / "backtest.json").read_text())
    assert again["windows"][0]["peak"] == 123456.0
    lines.write_text("[]\n")
    status, _, err = ask("--all", *keep)
    assert status == 2
    assert "resume" in err


def test_a_backtest_that_was_cut_off_ends_as_one_that_was_not(
    history: Path, tmp_path: Path
) -> None:
    plan = plan_of(["row"], END, Asked(days=1.5))
    runs = Runs(FileHistorySettings(history_file=history), "ridge", kept=tmp_path / "kept")

    class Cut(Exception):
        pass

    def cut(done: int, _: int) -> None:
        if done == 3:
            raise Cut

    with pytest.raises(Cut):
        run_backtest(plan, runs, cut)
    (lines,) = (tmp_path / "kept").glob("*.jsonl")
    with lines.open("a", encoding="utf-8") as half:
        half.write('[{"series": "ro')
    seen: list[int] = []
    windows = run_backtest(plan, runs, lambda done, _: seen.append(done))
    assert seen == [0, 1, 2, 3, 4, 5, 6]
    whole = Runs(FileHistorySettings(history_file=history), "ridge")
    assert windows == run_backtest(plan, whole, lambda *_: None)


def test_two_processes_are_two_pools_with_all_windows(ask: Any, tmp_path: Path) -> None:
    assert ask("--all", "--processes", "2", out="two")[0] == 0
    told = json.loads((tmp_path / "two" / "backtest.json").read_text())
    assert len(told["windows"]) == 8
    origins = [window["origin_seconds"] for window in told["windows"]]
    assert origins == sorted(origins)


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        ([], "series"), (["row", "--processes", "0"], "processes"),
        (["row", "--every", "nan"], "every"), (["row", "--ceiling", "-1"], "ceiling"),
        (["row", "--horizon", "0"], "horizon"),
    ],
)  # fmt: skip
def test_wrong_usage_names_its_flag(ask: Any, argv: list[str], field: str) -> None:
    status, _, err = ask(*argv)
    assert status == 2
    assert f"{field}: expected" in err


def test_the_page_shows_misses_and_says_when_bounds_are_too_narrow(windows: list[Window]) -> None:
    missed = [replace(windows[0], peak=1e6), *windows[1:]]
    verdict = verdict_of(missed)
    assert telling(grouped(missed), verdict)[0].peak == 1e6
    plan = plan_of(NAMES, END, Asked(days=2, every_hours=1))
    parts = page(plan, verdict, without_pictures=True)
    assert "Windows overlap" in as_markdown(parts)
    assert "<img" not in as_html(parts)
