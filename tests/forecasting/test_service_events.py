"""A launch that is told of a service raises the draw of the domain that serves it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forecasting.events import EventGrid, PlannedEvent
from forecasting.events.service_events import watts_of_events
from forecasting.memory_source import MemorySource
from forecasting.power_forecast.work_watts import LoadLine
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import Floats, SeriesId
from forecasting.targets import LoadSource, Target

DAY, END = 144, 10 * 144
CHAT = SeriesId("requests/chat")
LINE = LoadLine(idle_watts=500.0, watts_per_load=40.0, full_load=300.0)
LEVELS = (0.5, 0.99)


def days(count: int) -> tuple[Floats, Floats]:
    """Requests a second of a service, and the draw of the domain that it is most of."""
    rng, t = np.random.default_rng(1), np.arange(count * DAY)
    load = 60 + 20 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 1, len(t))
    return load, 2000 + LINE.watts(load) + rng.normal(0, 20, len(t))


def targets(*events: PlannedEvent, space: str = "power") -> list[Target]:
    row = Target(
        "power", "row", SeriesId("row"), "domain", 36, 600, LEVELS, None, 1, subject="row",
        load=(LoadSource(CHAT, "chat", 3.0, LINE),),
    )  # fmt: skip
    chat = Target(space, "chat", CHAT, "workload", 36, 600, LEVELS, None, 1, subject="chat")
    return [row, replace(chat, events=events)]


def row_of(load: Floats, draw: Floats, asked: list[Target], end: int = END) -> TargetForecast:
    source = MemorySource({CHAT: load[:end], SeriesId("row"): draw[:end]})
    _, made = step(ForecasterState(), 600.0 * end, source, asked)
    return made[0]


def middles(answer: TargetForecast) -> Floats:
    assert answer.made is not None
    return np.asarray(answer.made.quantiles[answer.row, :, 0])


def launch(first: int, last: int, **effect: object) -> PlannedEvent:
    return PlannedEvent("launch", 600.0 * first, 600.0 * last, **effect)  # type: ignore[arg-type]


def test_a_services_launch_raises_its_domain_by_what_its_boards_draw_for_it() -> None:
    load, draw = days(11)
    told = targets(launch(END + 12, END + 18, factors=(2.0,)))
    plain, more = row_of(load, draw, targets()), row_of(load, draw, told)
    rise = middles(more) - middles(plain)
    assert rise[12:18] == pytest.approx(40.0 * load[END + 12 : END + 18], rel=0.1)
    assert rise[:12] == pytest.approx(0, abs=1e-6)
    assert rise[18:] == pytest.approx(0, abs=1e-6)
    assert "planned-event" in more.flags
    assert "planned-event" not in plain.flags
    assert more.peaks[-1] > plain.peaks[-1] + 0.8 * rise.max()


def test_a_launch_of_yesterday_is_no_habit_of_the_domain() -> None:
    load, draw = days(11)
    at = slice(END + 12, END + 18)
    busy, hot = load.copy(), draw.copy()
    busy[at] *= 2
    hot[at] += 40.0 * load[at]
    end = END + DAY
    calm = row_of(load, draw, targets(), end)
    clear = row_of(busy, hot, targets(launch(END + 12, END + 18, factors=(2.0,))), end)
    echo = row_of(busy, hot, targets(), end)
    assert middles(clear) == pytest.approx(middles(calm), rel=0.002)
    # A load with the launch beside a draw without it would tell nothing any more.
    assert clear.flags == calm.flags == ("by-load",)
    assert echo.peaks[-1] > calm.peaks[-1] + 0.3 * 40.0 * load[at].min()


def test_full_boards_draw_no_more_by_any_launch_and_a_quota_takes_watts_away() -> None:
    load, past = np.full(3 * DAY, 250.0), EventGrid(0.0, 600.0, 3 * DAY)

    def added(**effect: object) -> list[float]:
        event = launch(3 * DAY + 1, 3 * DAY + 3, **effect)
        made = watts_of_events([event], CHAT, load, LINE, past, 6)
        assert made.freed_watts == pytest.approx(LINE.watts(load))
        assert [one.start_seconds for one in made.events] == [600.0 * (3 * DAY + k) for k in (1, 2)]
        return [one.added for one in made.events]

    assert added(factors=(3.0,)) == pytest.approx([50 * 40.0] * 2)
    assert added(added=20.0) == pytest.approx([20 * 40.0] * 2)
    assert added(at_most=100.0) == pytest.approx([-150 * 40.0] * 2)


def test_what_a_domain_says_itself_or_another_namespace_says_of_the_load_is_not_added() -> None:
    load, draw = days(10)
    event = launch(END + 12, END + 18, factors=(2.0,))
    plain = middles(row_of(load, draw, targets()))
    elsewhere = middles(row_of(load, draw, targets(event, space="team")))
    assert elsewhere.tobytes() == plain.tobytes()
    row, chat = targets(event)
    own = replace(event, factors=(), added=700.0)
    both = middles(row_of(load, draw, [replace(row, events=(own,)), chat]))
    assert (both - plain)[12:18] == pytest.approx(700.0, rel=0.02)
