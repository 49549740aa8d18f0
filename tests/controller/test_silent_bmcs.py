"""What a server drew when its BMC was believed last is not forgotten with the BMC's last word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from controller.carry_over import carry_over
from controller.step import initial_state
from tests.controller.builders import SETTINGS, make_topology
from tests.controller.metered_row import MeteredRow

LIGHT, BUSY, FULL = 150.0, 500.0, 690.0
SILENT = 200
"""From this second BMCs say nothing."""
UNUSED_SECONDS = 12
"""After its last measurement a meter's readings are used for so long."""

WORST = 2000.0
Level = Callable[[int], float]


def row_of_bmcs(level: Level, *, meters_until: int = 1_000_000, since: int = 30) -> MeteredRow:
    """Eight servers below one breaker with a meter; each watt of boards brings 0.25 beside them."""
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * 8,
        gpus_per_node=4,
        ratings=[60_000.0],
        node_worst_watts=WORST,
    )
    return MeteredRow(
        topology,
        lambda second: np.full(topology.n_gpus, level(second)),
        np.random.default_rng(3),
        metered=(0,),
        meters_until=meters_until,
        whole_metered=True,
        whole_metered_at=lambda second: since <= second < SILENT,
        host_base=400.0,
        host_per_gpu=0.25,
    )


def counted_over_true(row: MeteredRow, count: int) -> np.ndarray:
    """The draw that is counted over the true one, of each second."""
    return np.array([float(d.draw_watts[0]) / row.true_watts()[0] for _, d in row.run(count)])


def rest_then_busy(second: int) -> float:
    """At rest until BMCs are known: the meter has taught of servers without one at rest alone."""
    return LIGHT if second < 60 else BUSY if second < SILENT + 5 else FULL


def rest_then_full(second: int) -> float:
    return LIGHT if second < SILENT + 5 else FULL


@pytest.mark.parametrize("level", [rest_then_busy, rest_then_full])
@pytest.mark.parametrize("lead", [-2, 0, 30])
def test_meters_and_bmcs_that_fall_silent_together_hide_no_servers(level: Level, lead: int) -> None:
    """9 % of the rating was missing. Sensors may be 5 % low, so as much is counted beyond them."""
    row = row_of_bmcs(level, meters_until=SILENT - UNUSED_SECONDS - lead)
    shares = counted_over_true(row, SILENT + 90)[SILENT + UNUSED_SECONDS :]
    assert shares.min() > 1.0
    assert shares.max() < 1.08


def test_a_meter_that_is_lost_for_long_forgets_its_servers_and_follows_their_boards() -> None:
    row = row_of_bmcs(rest_then_full, meters_until=SILENT, since=1_000_000)
    shares = counted_over_true(row, SILENT + 700)
    true, lost = row.true_watts()[0], shares[SILENT + UNUSED_SECONDS + 2 :]
    boards, worst = 8 * 4 * FULL, 8 * WORST
    # Sensors may be 5 % low; nothing can be beyond the declared worst.
    assert lost.min() > 1.0
    assert lost[60] < 1.08
    assert (1.05 * boards + 0.8 * worst) / 0.94 / true < lost[-1]
    assert lost[-1] < (1.05 * boards + worst) / 0.94 / true


def test_what_bmcs_showed_is_no_longer_counted_once_a_meter_has_taught() -> None:
    row = row_of_bmcs(lambda second: FULL if second < SILENT + 30 else LIGHT)
    assert counted_over_true(row, 700)[600:].max() < 1.03


@pytest.mark.parametrize("nonsense", [1900.0, 1e9, np.inf], ids=["one", "huge", "infinite"])
def test_a_reading_that_is_not_believed_is_not_remembered(nonsense: float) -> None:
    """A number for ever, or of a whole chassis: 9 % of the row's work was given away for it."""
    row = row_of_bmcs(lambda second: BUSY)
    observe = row.observe

    def told(second: int) -> object:
        seen = observe(second)
        hosts = np.full(8, nonsense) if second >= 100 else seen.host_watts
        return replace(seen, host_watts=hosts)

    row.observe = told  # type: ignore[method-assign,assignment]
    assert counted_over_true(row, 600)[500:].max() < 1.03


# -- beside others below one breaker ---------------------------------------------------------------


def two_racks(busy: float, after: float, *, bmcs: bool) -> MeteredRow:
    """A row with a meter over two racks without: the first's servers fall, then the other's rise.

    Without BMCs what was taught of the first rack's servers is over as suddenly.
    """
    topology = make_topology(
        parents=(-1, 0, 0),
        nodes=(1,) * 10 + (2,) * 4,
        gpus_per_node=4,
        ratings=[100_000.0, 90_000.0, 15_000.0],
        node_worst_watts=2000.0,
        priority=[10] * 56,
        floor_watts=200.0,
    )
    first = np.arange(14) < 10

    def demand(second: int) -> np.ndarray:
        watts = np.full(56, 600.0 if second < SILENT - 5 else 110.0)
        watts[40:] = 300.0 if second < SILENT else 700.0
        return watts

    def hosts(second: int, boards: np.ndarray) -> np.ndarray:
        theirs = 400.0 if second < 60 else busy if second < SILENT - 5 else after
        return np.where(first, theirs, 400.0 if second < 60 else 1900.0)

    return MeteredRow(
        topology,
        demand,
        np.random.default_rng(3),
        metered=(0,),
        whole_metered=bmcs,
        whole_metered_at=lambda second: np.where(first, 40 <= second < SILENT - 10, second >= 40),
        hosts_at=hosts,
    )


@pytest.mark.parametrize("after", [400.0, 700.0, 1000.0])
def test_what_a_server_drew_takes_nothing_off_its_neighbours(after: float) -> None:
    """What is at least counted was taken for what is surely drawn: the other rack tripped."""
    row = two_racks(1700.0, after, bmcs=True)
    shares = [
        float(d.draw_watts[2]) / row.true_watts()[2] for s, d in row.run(420) if s >= SILENT - 5
    ]
    assert min(shares) > 0.99
    assert row.heat[2] < 0.05


def test_what_was_taught_takes_nothing_off_neighbours_either() -> None:
    """Of a rack that drew 7 kW nothing was counted. What is left is that racks share a mean."""
    row = two_racks(1900.0, 400.0, bmcs=False)
    for second, decisions in row.run(300):
        if second >= SILENT - 5:
            boards = float(row.told["draw"][40:].sum()) / 0.94
            assert decisions.draw_watts[2] > 0.99 * boards
            assert decisions.draw_watts[2] > 0.75 * row.true_watts()[2]


def test_servers_that_move_keep_what_they_showed() -> None:
    row = row_of_bmcs(rest_then_busy)
    for _ in row.run(SILENT + 10):
        pass
    here = row.state.server_hosts
    assert (here.watts > 700.0).all()
    more = make_topology(
        parents=(-1,), nodes=(0,) * 9, gpus_per_node=4, ratings=[60_000.0], node_worst_watts=WORST
    )
    names = ("new", *row.topology.node_names)
    moved = carry_over(row.state, row.topology, replace(more, node_names=names)).server_hosts
    assert np.isnan(moved.watts[0])
    assert moved.watts[1:].tolist() == here.watts.tolist()
    assert moved.boards_watts[1:].tolist() == here.boards_watts.tolist()
    assert moved.tellings[1:].tolist() == here.tellings.tolist()
    assert moved.untold_seconds[1:].tolist() == here.untold_seconds.tolist()
    assert np.isnan(initial_state(more, SETTINGS).server_hosts.watts).all()
