"""Heat over a gap: what silent servers counted gives way to their highest readings, and no further.

The judge integrates courses of its own by the trip curve's formula; it knows no rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.breaker_heat import advance_heat
from controller.felt_heat import Felt, feel_heat, felt_less, nothing_felt
from controller.gap_heat import (
    GapRow,
    Heard,
    believable_highest,
    highest_host,
    kept_rows,
    reckoned_again,
    settled_rows,
)
from tests.controller.obedient_row import big_topology
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_SECOND

TOPOLOGY = big_topology(oversubscription=1.0)
LOAD = LoadTree(TOPOLOGY.tree, TOPOLOGY.domain_of_node, TOPOLOGY.node_of_gpu)
N, D = LOAD.n_nodes, len(LOAD.tree)
RATING = LOAD.rating_watts
SECONDS = 5


def rows_of(
    ratio: float, *, least: float = 0.0, seconds: int = SECONDS, start: float = 0.0
) -> tuple[tuple[GapRow, ...], FloatArray]:
    """Everybody silent, counted at a share of the rating; and the heat that this gave."""
    watts, heat = ratio * RATING, np.full(D, start)
    boards = float((watts * LOAD.efficiency)[LOAD.tree.parent < 0].sum()) / N
    rows: tuple[GapRow, ...] = ()
    for k in range(seconds):
        span_ns = (k * NS_PER_SECOND, (k + 1) * NS_PER_SECOND)
        row = GapRow(*span_ns, heat, watts, watts, least * RATING, np.full(N, boards), np.zeros(N))
        rows = kept_rows(rows, row)
        heat = np.minimum(advance_heat(LOAD, heat, watts, 1.0), 1.0)
    return rows, heat


def told(share: float, rows: tuple[GapRow, ...]) -> Heard:
    """Highest readings at a share of what was counted, of servers heard last before the gap."""
    unknown, before_ns = np.full(N, np.inf), np.full(N, -NS_PER_SECOND, dtype=np.int64)
    return Heard(share * rows[0].silent_watts, unknown, before_ns)


def test_what_never_was_is_taken_off() -> None:
    rows, heat = rows_of(1.3)
    assert heat.max() > 0.01
    false, again = reckoned_again(LOAD, rows, told(0.6, rows))
    assert np.allclose(heat - false, 0.0, atol=1e-9)
    assert all((row.watts < RATING).all() for row in again)


def test_what_was_is_kept() -> None:
    rows, _ = rows_of(1.3)
    false, again = reckoned_again(LOAD, rows, told(1.0, rows))
    assert not false.any()
    assert again == rows


def test_servers_draw_beside_boards_what_both_ends_of_the_gap_show_and_a_tenth_more() -> None:
    rows, heat = rows_of(1.2)
    # Half of what was counted were servers at their declared worst, and they drew a half of that.
    half = 0.5 * rows[0].silent_watts
    rows = tuple(replace(row, silent_watts=half, silent_host_watts=half) for row in rows)
    ends = (0.5 * half, 0.4 * half)
    heard = replace(told(1.0, rows), highest_host_watts=highest_host(ends, half, half))
    false, again = reckoned_again(LOAD, rows, heard)
    whole = LOAD.tree.parent < 0
    assert np.allclose((again[0].watts / rows[0].watts)[whole], 1.0 - 0.5 * 0.4)
    assert (heat - false)[whole] == pytest.approx(0.0, abs=1e-9)


def test_without_a_meter_servers_keep_what_was_taught_or_their_declared_worst() -> None:
    worst, unknown = np.full(3, 1000.0), np.full(3, np.nan)
    share, now = np.array([1.0, 0.6, 0.6]), np.array([np.nan, np.nan, 500.0])
    found = highest_host((unknown, now), share * worst, worst)
    assert found.tolist() == [1100.0, 700.0, 1100.0]


def test_untold_and_distrusted_servers_keep_what_they_counted() -> None:
    rows, _ = rows_of(1.3)
    heard = told(0.6, rows)
    heard = replace(heard, highest_watts=np.full(N, np.nan))
    assert not reckoned_again(LOAD, rows, heard)[0].any()


def test_a_meter_bounds_what_is_taken_off() -> None:
    rows, heat = rows_of(1.3, least=1.2)
    bounded, _ = reckoned_again(LOAD, rows, told(0.1, rows))
    truth = np.zeros(D)
    for _ in range(SECONDS):
        truth = advance_heat(LOAD, truth, 1.2 * RATING, 1.0)
    assert np.allclose(heat - bounded, truth)


def test_what_a_meter_has_put_right_is_not_taken_off_again_and_what_it_did_not_reach_is() -> None:
    rows, _ = rows_of(1.3)
    spoke_ns = np.full(D, SECONDS * NS_PER_SECOND, dtype=np.int64)
    never_ns = np.full(D, -1, dtype=np.int64)
    whole = settled_rows(rows, never_ns, spoke_ns)
    assert not reckoned_again(LOAD, whole, told(0.6, rows))[0].any()
    late = settled_rows(rows, never_ns + 3 * NS_PER_SECOND + 1, spoke_ns)
    false, again = reckoned_again(LOAD, late, told(0.6, rows))
    assert all((new.watts < RATING).all() for new in again[:3])
    assert all((new.watts == old.watts).all() for new, old in zip(again[3:], rows[3:], strict=True))
    _, heat = rows_of(1.3, seconds=3)
    assert false == pytest.approx(heat, rel=0.02)
    silent = settled_rows(rows, never_ns, never_ns)
    assert (reckoned_again(LOAD, silent, told(0.6, rows))[0] > 0.0).all()


def test_a_meter_that_comes_back_later_scales_what_is_left() -> None:
    rows, _ = rows_of(1.3)
    memory = nothing_felt(D)
    for row in rows:
        felt = Felt(row.watts, np.full(D, np.nan), np.full(D, -1), np.zeros(D, dtype=np.bool_))
        _, memory = feel_heat(LOAD, memory, np.zeros(D), felt, (row.begin_ns, row.end_ns))
    _, again = reckoned_again(LOAD, rows, told(0.6, rows))
    less = felt_less(memory, [(row.end_ns, row.watts) for row in again])
    assert np.allclose(less.watts[-SECONDS:], [row.watts for row in again])
    assert (less.watts[:-SECONDS] == memory.watts[:-SECONDS]).all()


def test_a_report_speaks_for_its_own_gap_only() -> None:
    """What was silent before a report that told nothing stays at what it counted."""
    rows, _ = rows_of(1.3)
    later = replace(told(0.6, rows), before_ns=np.full(N, 2 * NS_PER_SECOND + 1, dtype=np.int64))
    _, again = reckoned_again(LOAD, rows, later)
    assert again[:3] == rows[:3]
    assert all((new.watts < old.watts).all() for new, old in zip(again[3:], rows[3:], strict=True))


def test_servers_that_come_back_one_by_one_take_off_no_more_than_all_at_once() -> None:
    rows, _ = rows_of(1.3)
    together, _ = reckoned_again(LOAD, rows, told(0.6, rows))
    total, left = np.zeros(D), rows
    for node in range(N):
        one = told(0.6, rows)
        highest = np.where(np.arange(N) == node, one.highest_watts, np.nan)
        false, left = reckoned_again(LOAD, left, replace(one, highest_watts=highest))
        total += false
    assert (total <= together + 1e-9).all()
    assert (total >= 0.9 * together - 1e-9).all()


def test_rows_go_when_nobody_is_silent_and_are_bounded_while_somebody_is() -> None:
    rows, _ = rows_of(1.3, seconds=300)
    assert len(rows) == 256
    assert kept_rows(rows, replace(rows[-1], silent_watts=np.zeros(N))) == ()


@settings(max_examples=40, deadline=None)
@given(
    shares=st.lists(st.floats(0.1, 1.0), min_size=12, max_size=12),
    start=st.floats(0.0, 0.3),
    ratio=st.floats(1.05, 1.5),
)
def test_heat_that_is_left_bounds_every_course_below_the_highest_readings(
    shares: list[float], start: float, ratio: float
) -> None:
    rows, heat = rows_of(ratio, seconds=len(shares), start=start)
    highest = max(shares)
    false, _ = reckoned_again(LOAD, rows, told(highest, rows))
    truth = np.full(D, start)
    for share, row in zip(shares, rows, strict=True):
        truth = np.minimum(advance_heat(LOAD, truth, share * row.watts, 1.0), 1.0)
    assert (heat - false >= truth - 1e-9).all()


@pytest.mark.parametrize(
    ("highest", "joules", "believed"),
    [
        (500.0, 400.0, True),
        (400.0, 415.0, True),  # 5 % and 10 W: a counter and readings differ by that
        (400.0, 440.0, False),  # the reading stood still, or missed what lasted
        (500.0, 0.0, False),  # the counter stood still
        (500.0, -10.0, False),  # the driver was loaded anew
        (500.0, np.nan, False),
        (np.nan, 400.0, False),
    ],
)
def test_a_highest_reading_counts_where_the_counter_does_not_contradict(
    highest: float, joules: float, believed: bool
) -> None:
    told_watts = np.array([highest])
    counters = (np.array([1000.0]), np.array([1000.0 + 60.0 * joules]))
    found = believable_highest(told_watts, counters, np.array([60.0]))
    assert bool(np.isfinite(found[0])) is believed
