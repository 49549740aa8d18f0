"""Planned events: how they are written, what they do to forecasts, what history is without them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forecasting.app.forecast_command import main as forecast_command
from forecasting.events import (
    EventGrid,
    PlannedEvent,
    apply_to_paths,
    apply_to_peaks,
    apply_to_quantiles,
    events_from_csv,
    history_without,
    planned_event,
    with_learned_effects,
)
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats, SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.targets import Target, target_of
from tests.forecasting.forecast_builders import make_forecast
from wattpack.api.demand_forecast import ForecastEvent
from wattpack.errors import InputError

DAY = 144
CHAT = SeriesId("requests/chat")
HEADER = "name,start,end,timeZone,series,factor,added,atLeast,atMost\n"


def written(**changes: Any) -> ForecastEvent:
    fields = {
        "name": "launch",
        "start": "2026-11-27T09:00",
        "end": "2026-11-27T12:00",
        "factor": 2.0,
    }
    return ForecastEvent.model_validate({**fields, "timeZone": "Europe/Berlin", **changes})


def at_step(first: float, last: float, **changes: Any) -> PlannedEvent:
    """An event from one place on a grid of ten minutes to another."""
    return PlannedEvent("launch", 600.0 * first, 600.0 * last, **changes)


# -- reading ---------------------------------------------------------------------------------------


def test_a_local_time_and_its_offset_are_one_moment() -> None:
    local, utc = (
        planned_event(written()),
        planned_event(
            written(start="2026-11-27T08:00Z", end="2026-11-27T12:00:00+01:00", timeZone=None)
        ),
    )
    assert (local.start_seconds, local.end_seconds) == (utc.start_seconds, utc.end_seconds)
    assert local.end_seconds - local.start_seconds == 3 * 3600


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"start": "2026-03-29T02:30", "end": "2026-03-29T05:00"}, "event.start", "leaves out"),
        ({"start": "2026-10-25T02:30", "end": "2026-10-25T05:00"}, "event.start", "shows twice"),
        ({"timeZone": None}, "event.start", "an offset"),
        ({"timeZone": "Mars/Olympus"}, "event.timeZone", "IANA"),
        ({"timeZone": "../etc/passwd"}, "event.timeZone", "IANA"),
        ({"end": "2026-11-27T09:00"}, "event.end", "after the start"),
        ({"end": "2027-11-27T09:00"}, "event.end", "31 days"),
        ({"start": "2026-02-30T09:00"}, "event.start", "a time such as"),
    ],
)  # fmt: skip
def test_what_is_no_clear_span_is_refused_by_name(
    changes: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(InputError, match=told) as refused:
        planned_event(written(**changes))
    assert refused.value.field == field


def test_a_night_with_two_clocks_lasts_as_long_as_it_does() -> None:
    night = planned_event(written(start="2026-10-25T00:00", end="2026-10-25T06:00"))
    assert night.end_seconds - night.start_seconds == 7 * 3600


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    good = "launch,2026-11-27T09:00Z,2026-11-27T12:00Z,,requests/* tokens,1.8,,,\n"
    file.write_text(HEADER + good + "\nsale,2026-12-01T00:00,2026-12-02T00:00,Asia/Tokyo,,,,40,\n")
    launch, sale = events_from_csv(file)
    assert launch.factors == (1.8,)
    assert launch.concerns(CHAT)
    assert not launch.concerns("requests")
    assert sale.at_least == 40
    assert sale.concerns("anything")
    for line, field in [
        ("sale,2026-12-01T00:00,2026-12-02T00:00,Asia/Tokyo,,nan,,,\n", "line 3.factor"),
        ("sale,2026-12-01T00:00,2026-12-02T00:00,Asia/Tokyo,,x,,,\n", "line 3.factor"),
        ("sale,2026-12-01T00:00,2026-12-02T00:00,Asia/Tokyo,,,,1,0\n", "line 3.atLeast"),
        ("sale,2026-12-01T00:00\n", "line 3"),
        (",2026-12-01T00:00Z,2026-12-02T00:00Z,,,,,,\n", "line 3.name"),
    ]:
        file.write_text(HEADER + good + line)
        with pytest.raises(InputError) as refused:
            events_from_csv(file)
        assert refused.value.field == field
        assert str(file) in str(refused.value)
    file.write_text(HEADER + good.replace("1.8", "180"))
    with pytest.raises(InputError, match=r"line 2\.factor: expected less than or equal to 20, got"):
        events_from_csv(file)
    file.write_text(HEADER + good.replace("requests/* tokens", "requests?to?chat"))
    assert events_from_csv(file)[0].concerns("requests to chat")
    file.write_text("name,start,end,factr\n")
    with pytest.raises(InputError, match="factr"):
        events_from_csv(file)
    with pytest.raises(InputError, match="readable"):
        events_from_csv(tmp_path / "none.csv")


def test_an_object_names_the_event_that_cannot_be_used() -> None:
    event = {"name": "a", "start": "2026-11-27T09:00", "end": "2026-11-27T12:00Z"}
    fine = {**event, "start": "2026-11-27T09:00:00Z"}
    assert target_of(make_forecast(spec={"events": [fine]})).events[0].is_to_be_learned
    with pytest.raises(InputError, match=r"spec\.events\[1\]\.start"):
        target_of(make_forecast(spec={"events": [fine, event]}))
    with pytest.raises(ValidationError):
        ForecastEvent.model_validate({**fine, "atLeast": 2, "atMost": 1})


# -- effects ---------------------------------------------------------------------------------------

spans = st.tuples(st.integers(-6, 12), st.integers(1, 18))
events = st.builds(
    lambda span, factor, added, least, most: at_step(
        span[0] / 2, (span[0] + span[1]) / 2, factors=() if factor is None else (factor,),
        added=added, at_least=least, at_most=max(least, most),
    ),
    spans, st.none() | st.floats(0, 20), st.floats(-50, 50), st.floats(0, 40), st.floats(0, 200),
)  # fmt: skip


def slow_effect(value: float, place: int, planned: list[PlannedEvent]) -> float:
    """One step by the rule's words."""
    begin, end = 600.0 * place, 600.0 * (place + 1)
    factor, added, least, most = 1.0, 0.0, 0.0, float("inf")
    for event in planned:
        share = max(0.0, min(end, event.end_seconds) - max(begin, event.start_seconds)) / 600
        if event.factors:
            factor *= 1 - share + event.factors[0] * share
        added += event.added * share
        if share > 0:
            least = max(least, event.at_least)
        if share == 1:
            most = min(most, event.at_most)
    return min(max(value * factor + added, 0.0, least), most)


@given(st.lists(events, max_size=4), st.lists(st.floats(0, 100), min_size=8, max_size=8))
def test_each_step_feels_what_covers_it(planned: list[PlannedEvent], values: list[float]) -> None:
    grid = EventGrid(0, 600, 8)
    applied = apply_to_quantiles(np.array(values)[None, :, None], [0.5], [CHAT], grid, planned)
    expected = [slow_effect(value, k, planned) for k, value in enumerate(values)]
    assert applied.values[0, :, 0] == pytest.approx(expected, abs=1e-6)
    assert bool(applied.names[0]) == any(
        e.start_seconds < 4800 and e.end_seconds > 0 for e in planned
    )


@given(st.lists(events, max_size=3), st.integers(0, 2**32 - 1))
def test_peaks_are_never_below_those_of_the_paths(planned: list[PlannedEvent], seed: int) -> None:
    grid, levels = EventGrid(0, 600, 8), [0.1, 0.5, 0.9]
    paths = np.random.default_rng(seed).gamma(2.0, 20.0, (1, 40, 8))
    peaks = np.quantile(paths.max(axis=2), levels, axis=1, method="inverted_cdf").T
    bounded = apply_to_peaks(peaks, levels, [CHAT], grid, planned).values
    changed = apply_to_paths(paths, [CHAT], grid, planned).values.max(axis=2)
    true = np.quantile(changed, levels, axis=1, method="inverted_cdf").T
    assert np.all(bounded >= true - 1e-6)


def test_paths_share_the_turn_of_what_was_learned_and_levels_take_its_quantile() -> None:
    event = at_step(0, 2, factors=(1.0, 3.0))
    grid, names = EventGrid(0, 600, 2), [SeriesId("a"), SeriesId("b")]
    paths = apply_to_paths(np.ones((2, 4, 2)), names, grid, [event]).values
    assert np.array_equal(paths[0], paths[1])
    assert paths[0, :, 0].tolist() == [1, 3, 1, 3]
    steps = apply_to_quantiles(np.ones((2, 2, 3)), [0.01, 0.5, 0.99], names, grid, [event]).values
    assert steps[0, 0] == pytest.approx([1.02, 2.0, 2.98])


def test_a_part_of_the_window_does_not_lower_its_peak() -> None:
    half = at_step(0, 4, factors=(0.1,))
    peaks = apply_to_peaks(np.array([[50.0]]), [0.99], [CHAT], EventGrid(0, 600, 8), [half])
    assert peaks.values[0, 0] == 50
    assert peaks.names == (("launch",),)


# -- history ---------------------------------------------------------------------------------------


def usual_days(days: int = 10) -> np.ndarray:
    hours = np.arange(days * DAY) / DAY * 2 * np.pi
    wave: np.ndarray = 100 + 40 * np.sin(hours) + np.random.default_rng(3).normal(0, 2, days * DAY)
    return wave


def test_a_factor_is_learned_and_taken_out_again() -> None:
    usual, grid = usual_days(), EventGrid(0, 600, 10 * DAY)
    past = [at_step(d * DAY + 60, d * DAY + 78) for d in (3, 6)]
    coming = at_step(10 * DAY + 60, 10 * DAY + 78)
    happened = usual.copy()
    for event, factor in zip(past, (1.5, 2.5), strict=True):
        happened[grid.shares(event) >= 1] *= factor
    known, unknown = with_learned_effects([*past, coming], happened, CHAT, grid)
    assert not unknown
    assert known[-1].factors == pytest.approx((1.5, 2.5), rel=0.05)
    stated = [replace(e, factors=(f,)) for e, f in zip(past, (1.5, 2.5), strict=True)]
    freed = history_without(happened[None], [CHAT], grid, stated)[0]
    assert freed == pytest.approx(usual)


def test_of_an_event_without_a_past_nothing_is_invented() -> None:
    usual, grid = usual_days(3), EventGrid(0, 600, 3 * DAY)
    known, unknown = with_learned_effects([at_step(3 * DAY, 3 * DAY + 6)], usual, CHAT, grid)
    assert known == ()
    assert unknown == ("launch",)
    bounded = at_step(DAY, DAY + 6, at_least=500.0)
    freed = history_without(usual[None], [CHAT], grid, [bounded])[0]
    assert np.isnan(freed[DAY : DAY + 6]).all()
    assert np.isfinite(freed[: DAY - 1]).all()


def target(**changes: Any) -> Target:
    return Target("ns", "chat", CHAT, "series", 36, 600, (0.5, 0.99), None, 1, **changes)


def test_the_process_forecasts_a_launch_before_it_happens_and_no_echo_of_it() -> None:
    usual, end = usual_days(), 10 * DAY
    coming = at_step(end + 12, end + 18, factors=(3.0,))
    source = MemorySource({CHAT: usual})
    now = 600.0 * end
    _, (plain,) = step(ForecasterState(), now, source, [target()])
    _, (told,) = step(ForecasterState(), now, source, [target(events=(coming,))])
    assert plain.made is not None
    assert told.made is not None
    ratio = told.made.quantiles[0] / plain.made.quantiles[0]
    assert ratio[12:18] == pytest.approx(3.0)
    assert ratio[:12] == pytest.approx(1.0)
    assert told.flags == ("planned-event",)
    assert plain.flags == ()
    assert told.peaks[-1] > 2 * plain.peaks[-1]
    # A day later: what was told is no habit.
    happened = np.concatenate([usual, usual[-DAY:]])
    happened[end + 12 : end + 18] *= 3
    later, day_later = MemorySource({CHAT: happened}), now + 86400
    _, (echo,) = step(ForecasterState(), day_later, later, [target()])
    _, (clear,) = step(ForecasterState(), day_later, later, [target(events=(coming,))])
    assert echo.made is not None
    assert clear.made is not None
    at_launch = clear.made.quantiles[0, 12:18, 0]
    assert at_launch == pytest.approx(usual[-DAY:][12:18], rel=0.15)
    assert echo.peaks[-1] > 1.5 * clear.peaks[-1]


@pytest.mark.parametrize("change", [{"factors": (0.5,)}, {"at_most": 40.0}, {"added": -500.0}])
def test_what_lowers_a_part_of_a_window_lifts_no_peak_and_nobody_elses(
    change: dict[str, Any],
) -> None:
    """Any event lifted the peak, of every series of its round, to the highest step of the window:
    a quota for an hour made the p99 of six hours 7 % higher."""
    t = np.arange(11 * DAY)
    rng = np.random.default_rng(7)
    rows = {
        name: 100 * (1 + 0.4 * np.sin(2 * np.pi * t / DAY)) * np.exp(0.1 * rng.normal(size=len(t)))
        for name in ("chat", "mail")
    }
    now, source = 600 * len(t), MemorySource(rows)

    def peaks(*events: PlannedEvent) -> dict[str, Floats]:
        targets = [
            Target(
                namespace="n", name=name, series=SeriesId(name), kind="series", horizon=36,
                step_seconds=600, asked_levels=(0.5, 0.99), ceiling=None, generation=1,
                events=events if name == "chat" else (),
            )
            for name in rows
        ]  # fmt: skip
        _, answers = step(ForecasterState(), now, source, targets)
        return {answer.target.name: answer.peaks for answer in answers}

    plain = peaks()
    lowered = peaks(PlannedEvent("quota", now + 3600.0, now + 7200.0, **change))
    np.testing.assert_array_equal(lowered["mail"], plain["mail"])
    np.testing.assert_array_equal(lowered["chat"], plain["chat"])
    raised = peaks(PlannedEvent("launch", now + 3600.0, now + 7200.0, at_least=900.0))
    np.testing.assert_array_equal(raised["mail"], plain["mail"])
    assert (raised["chat"] >= 900.0).all()


def test_a_window_with_an_event_of_unknown_effect_says_so() -> None:
    event = at_step(10 * DAY + 3, 10 * DAY + 6)
    source = MemorySource({CHAT: usual_days()})
    _, (told,) = step(ForecasterState(), 6000.0 * DAY, source, [target(events=(event,))])
    assert told.flags == ("unknown-event",)
    assert told.error is None


def test_the_command_takes_a_file_of_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, file, now = tmp_path / "history.db", tmp_path / "events.csv", 10 * 86400
    with HistoryStore(history) as store:
        for name in ("chat", "code"):
            store.append_bins(name, 0, usual_days(), usual_days())
    file.write_text(HEADER + "launch,1970-01-11T01:00Z,1970-01-11T03:00Z,,chat,3,,,\n")
    asked = ["chat", "code", "--json", "--history-file", str(history), "--at", str(now)]
    assert forecast_command([*asked, "--events", str(file)]) == 0
    chat, code = (f["status"] for f in json.loads(capsys.readouterr().out)["forecasts"])
    assert chat["p50"] > 2.5 * code["p50"]
    assert ("planned-event" in json.dumps(chat), "planned-event" in json.dumps(code)) == (
        True,
        False,
    )
    file.write_text(HEADER + "launch,1970-01-11T01:00Z,1970-01-11,,chat,3,,,\n")
    assert forecast_command([*asked, "--events", str(file)]) == 2
    assert "line 2.end" in capsys.readouterr().err
