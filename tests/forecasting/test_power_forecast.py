"""Power from load, and a history made to fit the present."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.profile_library import shipped_library
from capacity.work_mix import cap_curve, mix_of_classes
from forecasting.memory_source import MemorySource
from forecasting.power_forecast.held_bins import demand_of, held_bins
from forecasting.power_forecast.load_power import (
    LoadFit,
    load_fit,
    power_paths,
    residual_watts,
)
from forecasting.power_forecast.present_floor import with_present
from forecasting.power_forecast.present_level import at_present_level, present_since
from forecasting.power_forecast.present_peaks import PresentDraw, present_peak_quantiles
from forecasting.power_forecast.present_rows import NEW_LEVEL
from forecasting.power_forecast.present_work import WorkChange, history_of_present
from forecasting.power_forecast.work_watts import (
    AC_OVER_BOARD,
    Boards,
    LoadLine,
    busy_watts,
    startable_watts,
)
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import History, SeriesId
from forecasting.targets import Target
from wattpack.errors import InputError

DAY = 144
LEVELS = (0.5, 0.9, 0.99)
SIX_HOURS = 6 * 3600


def profile():  # noqa: ANN201 - the type is the library's
    return shipped_library().profiles["A100-SXM"]


def days(count: int, level: float, spread: float, seed: int = 1) -> np.ndarray:
    """A daily wave with noise, ten-minute bins."""
    time = np.arange(count * DAY) / DAY
    noise = np.random.default_rng(seed).normal(0, 0.01 * level, len(time))
    return level + spread * np.sin(2 * np.pi * time) + noise


def present(values: np.ndarray, boards: float = np.nan, ceiling: float = np.nan) -> PresentDraw:
    rows = np.atleast_2d(values)
    one = np.ones(len(rows))
    return PresentDraw(rows, 600, boards * one, 4 * boards * one, ceiling * one)


# -- watts of work ---------------------------------------------------------------------------------


def test_boards_draw_what_the_capacity_model_says_at_their_cap() -> None:
    mix = mix_of_classes({"decode": 0.6, "prefill": 0.4})
    curve = cap_curve(profile(), mix)
    assert curve is not None
    for cap in (None, 250.0, 320.0, 1000.0):
        limit = min(cap or 400.0, 400.0)
        boards = Boards(profile(), mix, 3, cap)
        assert boards.busy_watts == pytest.approx(
            3 * np.interp(limit, curve.cap_watts, curve.draw_watts)
        )
        assert boards.speed == curve.speed_at(limit)
    unknown = Boards(profile(), None, 2, 300.0)
    assert (unknown.busy_watts, unknown.speed) == (600.0, 1.0)
    assert startable_watts([unknown]) == pytest.approx(AC_OVER_BOARD * (600 - 160))
    assert busy_watts([unknown, boards]) == pytest.approx(AC_OVER_BOARD * (600 + boards.busy_watts))


@pytest.mark.parametrize("cap", [None, 250.0])
def test_a_load_line_reaches_the_boards_draw_at_the_load_that_the_cap_leaves(
    cap: float | None,
) -> None:
    boards = Boards(profile(), mix_of_classes({"prefill": 1.0}), 4, cap)
    line = LoadLine.of(boards, full_load=50.0)
    assert line.full_load == pytest.approx(50.0 * boards.speed)
    drawn = line.watts(np.array([0.0, line.full_load, 1e9, np.nan]))
    assert drawn[0] == pytest.approx(AC_OVER_BOARD * boards.idle_watts)
    assert drawn[1:3] == pytest.approx(AC_OVER_BOARD * boards.busy_watts)
    assert np.isnan(drawn[3])
    with pytest.raises(InputError, match="full_load"):
        LoadLine.of(boards, 0.0)


# -- load and residual -----------------------------------------------------------------------------


@given(st.floats(0.6, 1.8), st.integers(0, 1000))
def test_the_model_is_scaled_to_the_draw_and_what_is_left_is_the_residual(
    factor: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    load = random.uniform(1000, 5000, 300)
    draw = factor * load + 700.0
    draw[::7] = np.nan
    fit = load_fit(draw, load)
    assert fit.factor == pytest.approx(factor)
    assert fit.explained == pytest.approx(1.0)
    rest = residual_watts(draw, load, fit)
    assert rest[np.isfinite(rest)] == pytest.approx(700.0)


def test_load_that_tells_little_is_left_and_taken_back_with_a_distance() -> None:
    random = np.random.default_rng(2)
    load = random.uniform(1000, 5000, 2000)
    shares = {}
    for noise in (0.0, 650.0, 2000.0):
        shares[noise] = load_fit(load + random.normal(0, noise, 2000), load)
    assert shares[0.0].explained == pytest.approx(1.0)
    # Load's variance is 4000² / 12; the noise's share of the whole is not explained.
    assert shares[650.0].explained == pytest.approx(1 / (1 + 650**2 * 12 / 4000**2), abs=0.02)
    assert [shares[2000.0].is_trusted(was_trusted=was) for was in (True, False)] == [False, False]
    between = LoadFit(1.0, 0.75)
    assert [between.is_trusted(was_trusted=was) for was in (True, False)] == [True, False]
    assert load_fit(np.ones(300), load[:300]).explained == 0.0
    assert load_fit(load[:20], load[:20]).explained == 0.0


def test_power_paths_add_up_over_services_and_stay_below_what_caps_enforce() -> None:
    load = np.array([[[100.0, 900.0]], [[50.0, 50.0]]])
    made = power_paths(load, np.array([[10.0, 10.0]]), LoadFit(2.0, 1.0), 1500.0)
    assert made.tolist() == [[310.0, 1500.0]]
    assert power_paths(load, np.array([[-1e6, 0.0]]), LoadFit(2.0, 1.0), 1500.0)[0, 0] == 0.0


# -- history of the present ------------------------------------------------------------------------


def test_held_bins_are_no_demand_unless_the_model_or_nothing_else_tells_it() -> None:
    draw = np.full((3, 6), 100.0)
    held = np.zeros((3, 6), dtype=np.bool_)
    held[:, 4] = True
    held[2, 1:] = True
    wanted = np.full((3, 6), np.nan)
    wanted[1, 4] = 130.0
    made = demand_of(draw, held, wanted, day_bins=6)
    assert np.isnan(made[0, 4])
    assert np.isfinite(made[0]).sum() == 5
    assert made[1].tolist() == [100, 100, 100, 100, 130, 100]
    assert made[2].tolist() == [100.0] * 6
    wanted[1, 4] = 70.0
    assert demand_of(draw, held, wanted, day_bins=6)[1, 4] == 100.0


@pytest.mark.parametrize("step_seconds", [600, 60])
def test_a_bin_of_which_nobody_told_is_as_held_as_those_within_an_hour(step_seconds: int) -> None:
    hour = 3600 // step_seconds
    share = np.full(10 * hour, np.nan)
    share[3 * hour] = 0.5
    share[: 2 * hour + 5] = 0.0
    held = held_bins(share, step_seconds)
    assert np.nonzero(held)[0].tolist() == list(range(2 * hour + 5, 4 * hour + 1))
    assert not held_bins(np.array([np.nan, 0.0]), step_seconds).any()
    assert held_bins(np.array([np.nan, 0.1]), step_seconds).all()


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(-3, 9), st.floats(-5, 50)), max_size=6))
def test_changes_are_moved_before_the_history_bin_by_bin(
    changes: list[tuple[int, float, float]],
) -> None:
    values = np.full((2, 6), 40.0)
    history = History([SeriesId("a"), SeriesId("b")], values, 3600, 600)
    made = history_of_present(
        history, [WorkChange(row, 600 * at, watts) for row, at, watts in changes]
    )
    wanted = values.copy()
    for row, at, watts in changes:
        for bin_ in range(6):
            wanted[row, bin_] += watts * min(max(at - bin_, 0.0), 1.0)
    assert made == pytest.approx(np.maximum(wanted, 0.0), abs=1e-9)


def test_a_change_of_no_series_is_refused() -> None:
    history = History([SeriesId("a")], np.ones((1, 6)), 3600, 600)
    with pytest.raises(InputError, match="row"):
        history_of_present(history, [WorkChange(1, 0.0, 5.0)])


# -- since when ------------------------------------------------------------------------------------


def breaks_of(row: np.ndarray) -> int:
    """The rule as a loop: an hour that differs more than any pair of hours before did."""
    change = [abs(row[i : i + 6].mean() - row[i - 6 : i].mean()) for i in range(6, len(row) - 5)]
    for i in range(max(DAY, len(change) - 3 * DAY), len(change)):
        if change[i] > 1.25 * max(change[: i - 11]):
            near = change[i : i + 12]
            return i + near.index(max(near)) + 6
    return 0


@given(st.integers(0, 10**6), st.floats(0.5, 2.0), st.integers(6, 500))
def test_breaks_are_where_an_hour_differs_as_never_before(
    seed: int, ratio: float, after: int
) -> None:
    row = np.concatenate([days(4, 100, 20, seed), ratio * days(4, 100, 20, seed + 1)[:after]])
    assert present_since(row[None], 600).tolist() == [breaks_of(row)]


def test_a_row_that_draws_more_than_ever_is_new_an_hour_later() -> None:
    row = np.concatenate([days(10, 250, 25), np.full(6, 380.0)])
    assert present_since(row[None], 600)[0] == 10 * DAY
    assert present_since(row[None, :-6], 600)[0] == 0
    assert present_since(row[None, -50:], 600)[0] == 0
    gaps = row.copy()
    gaps[5:9] = np.nan
    assert present_since(gaps[None], 600)[0] == 10 * DAY


def domain_of(row: np.ndarray) -> tuple[str, ...]:
    """Flags of a first forecast of a domain that drew this."""
    target = Target("power", "row", SeriesId("row"), "domain", 36, 600, LEVELS, None, 1, "row")
    source = MemorySource({"row": row})
    _, (answer,) = step(ForecasterState(), len(row) * 600.0, source, [target])
    return answer.flags


@pytest.mark.parametrize("known_days", [1.0, 1.5, 2.0, 3.0, 3.5])
def test_a_domain_that_is_new_has_no_new_level(known_days: float) -> None:
    row = days(10, 250, 25)
    row[: -round(known_days * DAY)] = np.nan
    assert NEW_LEVEL not in domain_of(row)


def test_a_domain_that_is_new_breaks_by_what_it_has_moved_itself() -> None:
    row = np.concatenate([days(10, 250, 25), np.full(6, 380.0)])
    for known_days, since in ((2.0, 10 * DAY), (0.9, 0)):
        row[: 10 * DAY - round(known_days * DAY)] = np.nan
        assert present_since(row[None], 600)[0] == since
    assert present_since(np.full((1, 10 * DAY), np.nan), 600)[0] == 0


@pytest.mark.parametrize("gap_hours", [1, 2, 6, 12, 30])
@pytest.mark.parametrize("end_hours", [1, 5, 13, 21, 40])
def test_a_gap_in_a_history_is_no_new_level(gap_hours: int, end_hours: int) -> None:
    row = days(10, 250, 25)
    end = len(row) - 6 * end_hours
    row[end - 6 * gap_hours : end] = np.nan
    assert present_since(row[None], 600)[0] == 0


def test_the_process_takes_no_outage_of_a_history_for_a_new_level() -> None:
    row = days(10, 250, 25)
    row[-60:-24] = np.nan
    assert NEW_LEVEL not in domain_of(row)


@pytest.mark.parametrize("gap_hours", [1, 2, 6, 12, 30])
def test_what_came_to_a_domain_while_nobody_looked_is_a_new_level(gap_hours: int) -> None:
    row = np.concatenate([days(10, 250, 25), np.full(6, 380.0)])
    row[10 * DAY - 6 * gap_hours : 10 * DAY] = np.nan
    assert present_since(row[None], 600)[0] == 10 * DAY
    assert present_since(row[None, :-1], 600)[0] == 0


def test_gaps_of_former_days_hide_no_break() -> None:
    row = np.concatenate([days(10, 250, 25), np.full(6, 290.0)])
    assert present_since(row[None], 600)[0] == 10 * DAY
    row[5 * DAY : 5 * DAY + 54] = np.nan
    assert present_since(row[None], 600)[0] == 10 * DAY


# -- peaks of the present --------------------------------------------------------------------------


def test_a_forecast_that_its_domain_contradicts_is_right_at_the_next_issue() -> None:
    past = days(10, 250, 25)
    models = np.array([[255.0, 270.0, 283.0]])
    calm = with_present(models, LEVELS, present(past), SIX_HOURS)
    assert not calm.broken.any()
    assert calm.peaks.tolist() == models.tolist()
    now = np.concatenate([past, 377 + days(1, 17, 0)[:6] - 17])
    told = with_present(models, LEVELS, present(now, ceiling=410.0), SIX_HOURS)
    assert told.broken.all()
    assert now[-1] <= told.peaks[0, 0] <= told.peaks[0, 1] <= told.peaks[0, 2] <= 410.0
    later = np.concatenate([past, 377 + days(4, 17, 0) - 17])
    assert not with_present(models, LEVELS, present(later), SIX_HOURS).broken.any()


def test_days_before_a_break_are_moved_to_its_level() -> None:
    row = np.concatenate([days(5, 250, 25), np.full(12, 380.0)])
    row[7] = np.nan
    since = present_since(row[None], 600)
    moved = at_present_level(np.stack([row, row]), np.array([since[0], 0]), 600)
    hour = slice(5 * DAY - 6, 5 * DAY)
    assert moved[0, hour].mean() == pytest.approx(380.0)
    assert np.isnan(moved[0, 7])
    assert np.diff(moved[0, 8 : 5 * DAY]) == pytest.approx(np.diff(row[8 : 5 * DAY]))
    assert moved[0, 5 * DAY :].tolist() == [380.0] * 12
    assert moved[1, 8:].tolist() == row[8:].tolist()
    fallen = at_present_level(np.append(days(2, 250, 25), np.zeros(6))[None], np.array([288]), 600)
    assert fallen[0].min() == 0.0


def test_the_process_is_right_an_hour_after_a_domain_changed() -> None:
    target = Target(
        "power", "row", SeriesId("row"), "domain", 36, 600, (0.5, 0.95, 0.99), 600.0, 1, "row"
    )
    past, state = days(10, 250, 25), ForecasterState()
    now = np.concatenate([past, days(3, 377, 8, seed=2)])
    promised, flags = {}, {}
    for hours in (0, 1, 7, 13, 19):
        end = 10 * DAY + 6 * hours
        source = MemorySource({"row": now[:end]})
        state, (answer,) = step(state, end * 600.0, source, [target])
        promised[hours], flags[hours] = float(answer.peaks[2]), answer.flags
    assert promised[0] < 300
    assert NEW_LEVEL not in flags[0]
    for hours in (1, 7, 13, 19):
        end = 10 * DAY + 6 * hours
        assert NEW_LEVEL in flags[hours]
        assert now[end : end + 36].max() <= promised[hours] < 1.3 * 385
    # The promise that the break broke is counted, and teaches the pool nothing.
    record = state.records[target.identity]
    assert record.live.violations[0] == 1


def test_long_windows_and_low_levels_lose_nothing() -> None:
    now = np.concatenate([days(10, 250, 25), np.full(6, 380.0)])
    high = np.array([[300.0, 500.0, 700.0]])
    longer = with_present(high, (0.1, 0.5, 0.99), present(now), 2 * SIX_HOURS)
    assert longer.peaks[0, 1:].tolist() == [500.0, 700.0]
    low = with_present(high, (0.1, 0.5, 0.99), present(now), SIX_HOURS)
    assert low.peaks[0, 0] == 300.0
    assert low.peaks[0, 2] < 700.0
    nothing = with_present(high, (0.1, 0.2, 0.3), present(now), SIX_HOURS)
    assert not nothing.broken.any()


@given(
    st.integers(0, 10**6), st.floats(0, 500), st.booleans(),
    st.lists(st.floats(0.5, 0.9999), min_size=1, max_size=5, unique=True).map(sorted),
)  # fmt: skip
def test_peaks_rise_with_the_level_between_the_last_bin_and_the_ceiling(
    seed: int, boards: float, known: bool, levels: list[float]
) -> None:
    rows = np.stack([days(2, 100, 20, seed), np.full(2 * DAY, np.nan)])
    made = present_peak_quantiles(present(rows, boards if known else np.nan, 500.0), levels)
    assert np.isnan(made[1]).all()
    assert (np.diff(made[0]) >= -1e-9).all()
    assert rows[0, -1] <= made[0, 0] + 1e-9
    assert made[0, -1] <= 500.0


def test_levels_and_shapes_that_are_none_are_refused() -> None:
    row = days(2, 100, 20)
    for levels in ((), (0.4, 0.9), (0.9, 0.5), (1.0,)):
        with pytest.raises(InputError, match="levels"):
            present_peak_quantiles(present(row), levels)
    with pytest.raises(InputError, match="busy_watts"):
        PresentDraw(row[None], 600, np.ones(1), np.ones(2), np.ones(1))
