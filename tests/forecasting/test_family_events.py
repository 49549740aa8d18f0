"""What is planned for a part is planned for its whole; paths add up with it, histories without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.events import EventGrid, PlannedEvent
from forecasting.events.family_events import FamilyEvents
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import Floats
from forecasting.targets import Target
from tests.forecasting.test_round_tree import ABOVE, DAY, NOW, off, targets, world

PARENTS = np.array([-1, 0, 0, 1, 1, 2, 0])
"""A row, two units, their racks (two and one), and what the row draws beyond its units."""

LEAVES = (3, 4, 5, 6)
WINDOW = EventGrid(0.0, 600.0, 6)


def launch(first: float, last: float, name: str = "launch", **effect: object) -> PlannedEvent:
    return PlannedEvent(name, 600.0 * first, 600.0 * last, **effect)  # type: ignore[arg-type]


def paths(seed: int) -> Floats:
    """Four futures of which parents are sums."""
    made = np.zeros((len(PARENTS), 4, 6))
    made[list(LEAVES)] = np.random.default_rng(seed).gamma(2, 100, (len(LEAVES), 4, 6))
    for node in (1, 2, 0):
        made[node] = made[np.flatnonzero(node == PARENTS)].sum(axis=0)
    return made


effects = st.sampled_from(
    [
        {"factors": (2.0,)},
        {"factors": (0.0,)},
        {"factors": (0.5, 3.0)},
        {"added": 300.0},
        {"added": -300.0},
        {"at_least": 900.0},
        {"at_most": 100.0},
    ]
)
planned = st.builds(
    lambda first, width, name, effect: launch(first, first + width, name, **effect),
    st.floats(-2, 5), st.floats(0.5, 4), st.sampled_from(["launch", "sale"]), effects,
)  # fmt: skip


@given(
    st.integers(0, 10**6),
    st.lists(
        st.lists(planned, max_size=2).map(tuple), min_size=len(PARENTS), max_size=len(PARENTS)
    ),
)
def test_paths_with_events_of_any_node_add_up(
    seed: int, events: list[tuple[PlannedEvent, ...]]
) -> None:
    base = paths(seed)
    made = FamilyEvents.of(PARENTS.tolist(), events).coherent(base, WINDOW)
    assert off(made, PARENTS) < 1e-6
    assert made.min() >= 0
    if not any(WINDOW.shares(one).any() for own in events for one in own):
        assert made.tobytes() == base.tobytes()


@given(st.integers(0, 10**6), st.lists(st.floats(1, 500), min_size=4, max_size=4))
def test_what_is_added_to_leaves_is_added_to_all_that_they_are_parts_of(
    seed: int, watts: list[float]
) -> None:
    base, events = paths(seed), [()] * len(PARENTS)
    added = np.zeros(len(PARENTS))
    for leaf, more in zip(LEAVES, watts, strict=True):
        events[leaf] = (launch(2, 4, added=more),)
        node = leaf
        while node >= 0:
            added[node] += more
            node = int(PARENTS[node])
    family = FamilyEvents.of(PARENTS.tolist(), events)
    made = family.coherent(base, WINDOW)
    here = np.isin(np.arange(6), (2, 3))
    assert made == pytest.approx(base + added[:, None, None] * here, rel=1e-9)
    below = family.below(0, base, WINDOW)
    assert below == pytest.approx(made[0], rel=1e-9)


def test_one_launch_that_a_whole_and_its_part_both_state_is_one_launch() -> None:
    base, events = paths(1), [()] * len(PARENTS)
    events[3], events[0] = (launch(0, 6, added=100.0),), (launch(0, 6, added=130.0),)
    family = FamilyEvents.of(PARENTS.tolist(), events)
    made = family.coherent(base, WINDOW)
    assert made[0] == pytest.approx(base[0] + 130)
    assert family.below(0, base, WINDOW) is None
    # The unit between them states nothing: it feels its rack's.
    assert family.below(1, base, WINDOW) == pytest.approx(base[1] + 100)
    other = replace(events[0][0], name="sale")
    both = FamilyEvents.of(PARENTS.tolist(), [(other,), *events[1:]])
    assert both.coherent(base, WINDOW)[0] == pytest.approx(base[0] + 230)


def test_a_history_is_freed_of_what_happened_in_its_parts() -> None:
    base, events = paths(2)[:, 0], [()] * len(PARENTS)
    events[3] = (launch(1, 3, factors=(3.0,)),)
    events[5] = (launch(4, 6, "quota", at_most=10.0),)
    seen = base.copy()
    for node in (3, 1, 0):
        seen[node, 1:3] += 2 * base[3, 1:3]
    alone = seen.copy()
    alone[3, 1:3] /= 3
    alone[5, 4:6] = np.nan
    freed = FamilyEvents.of(PARENTS.tolist(), events).freed(seen, alone, WINDOW)
    # What a quota kept away nobody knows: the rack has a gap, the row keeps what it drew.
    assert freed[[0, 1, 2, 3, 4, 6]] == pytest.approx(base[[0, 1, 2, 3, 4, 6]])
    assert np.isnan(freed[5, 4:6]).all()


# -- the process -----------------------------------------------------------------------------------


def asked(**events: tuple[PlannedEvent, ...]) -> list[Target]:
    made = targets(*ABOVE)
    return [replace(t, events=events.get(t.subject.replace("-", "_"), ())) for t in made]


def answered(values: dict[str, Floats], these: list[Target], now: float = NOW) -> dict[
    str, TargetForecast
]:  # fmt: skip
    _, made = step(ForecasterState(), now, MemorySource(values), these)
    return {answer.target.subject: answer for answer in made}


def middles(answer: TargetForecast) -> Floats:
    assert answer.made is not None
    return np.asarray(answer.made.quantiles[answer.row, :, 0])


def test_a_racks_launch_raises_its_row_and_nobody_beside_it() -> None:
    values, end = world(4), int(NOW / 600)
    coming = launch(end + 12, end + 18, factors=(3.0,))
    plain, told = answered(values, asked()), answered(values, asked(rack_1=(coming,)))
    rise = 2 * middles(plain["rack-1"])
    for name in ("pdu-a", "row"):
        more = middles(told[name]) - middles(plain[name])
        assert more[12:18] == pytest.approx(rise[12:18], rel=0.15)
        assert more[:12] == pytest.approx(0, abs=1e-6)
        assert more[18:] == pytest.approx(0, abs=1e-6)
        assert told[name].flags == ("planned-event",)
        assert np.all(np.diff(told[name].peaks) >= 0)
        assert told[name].peaks[-1] > plain[name].peaks[-1] + 0.7 * rise[12:18].min()
    for name in ("rack-2", "rack-3", "pdu-b"):
        assert middles(told[name]).tobytes() == middles(plain[name]).tobytes()
        assert told[name].flags == plain[name].flags == ()
    forecast = told["row"].made
    assert forecast is not None
    assert forecast.coherent is not None
    assert off(forecast.coherent.values, forecast.coherent.tree.parents) < 1e-6
    row = int(np.flatnonzero(forecast.coherent.tree.parents < 0)[0])
    without = plain["row"].made
    assert without is not None
    assert without.coherent is not None
    more = forecast.coherent.values[row] - without.coherent.values[row]
    assert more[:, 12:18].min() > 0


def test_a_racks_launch_of_yesterday_is_no_habit_of_its_row() -> None:
    values, end = world(4, days=7), 6 * DAY
    happened = {name: row.copy() for name, row in values.items()}
    more = 2 * values["rack-1"][end + 12 : end + 18]
    for name in ("rack-1", "pdu-a", "row"):
        happened[name][end + 12 : end + 18] += more
    event, now = launch(end + 12, end + 18, factors=(3.0,)), NOW + 86400
    calm = answered(values, asked(), now)["row"]
    clear = answered(happened, asked(rack_1=(event,)), now)["row"]
    echo = answered(happened, asked(), now)["row"]
    assert middles(clear) == pytest.approx(middles(calm), rel=1e-6)
    assert echo.peaks[-1] > calm.peaks[-1] + 0.3 * more.mean()
