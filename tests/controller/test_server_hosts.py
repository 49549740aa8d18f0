"""What servers are told to draw beside boards: by sums, in intervals, and how it is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from controller.server_hosts import HostLesson, Watched, hosts_after, no_hosts_yet
from controller.tick_values import Observations
from tests.controller.builders import make_topology
from tests.controller.metered_row import MeteredRow
from wattpack.power.feasibility import LoadTree


def test_a_training_row_is_known_when_its_meter_is_lost() -> None:
    """Its servers were known as at rest, ten minutes long: 0.4 of its draw was missing."""
    topology = make_topology(
        parents=(-1,), nodes=(0,) * 8, gpus_per_node=4, ratings=[60_000.0], node_worst_watts=2000.0
    )

    def swing(second: int) -> np.ndarray:
        return np.full(32, 150.0 if second < 60 else 690.0 if second % 4 < 2 else 350.0)

    row = MeteredRow(
        topology,
        swing,
        np.random.default_rng(3),
        metered=(0,),
        meters_until=1500,
        hosts_at=lambda second, boards: np.full(8, 400.0 if second < 60 else 1900.0),
    )
    shares = [float(d.draw_watts[0]) / row.true_watts()[0] for _, d in row.run(1600)]
    assert row.state.server_hosts.watts == pytest.approx(1900.0, rel=0.05)
    assert min(shares[1512:]) > 1.0
    assert max(shares[1512:]) < 1.09


# -- one by one ------------------------------------------------------------------------------------


WORST = 2000.0


def row(
    parents: tuple[int, ...],
    nodes: tuple[int, ...],
    *,
    metered: tuple[int, ...],
    level: Callable[[int], float],
    hosts: Callable[[int, np.ndarray], np.ndarray],
    meter_at: Callable[[int], bool] = lambda second: True,
    bmcs_at: Callable[[int], np.ndarray | bool] | None = None,
    meter_period: int = 1,
    rack_watts: float = 60_000.0,
) -> MeteredRow:
    """Servers of four boards; which meters there are, and when they speak."""
    topology = make_topology(
        parents=parents,
        nodes=nodes,
        gpus_per_node=4,
        ratings=[140_000.0, *[rack_watts] * (len(parents) - 1)],
        node_worst_watts=WORST,
    )
    plant = MeteredRow(
        topology,
        lambda second: np.full(topology.n_gpus, level(second)),
        np.random.default_rng(3),
        metered=metered,
        meter_period=meter_period,
        whole_metered=bmcs_at is not None,
        whole_metered_at=bmcs_at or (lambda second: False),
        hosts_at=hosts,
    )
    observe = plant.observe

    def seen(second: int) -> Observations:
        told = observe(second)
        if meter_at(second):
            return told
        unread = np.full(topology.n_domains, np.nan)
        return replace(told, meter_watts=unread, meter_time_ns=np.full(topology.n_domains, -1))

    plant.observe = seen  # type: ignore[method-assign]
    return plant


def shares_from(plant: MeteredRow, since: int, until: int) -> np.ndarray:
    """Counted over true draw of each domain, a row a second, (seconds, n_domains)."""
    found = [
        decisions.draw_watts / np.array(plant.true_watts())
        for second, decisions in plant.run(until)
        if second >= since
    ]
    return np.array(found)


CHAIN = make_topology(parents=(-1, 0), nodes=(0,) * 4 + (1,) * 4, node_worst_watts=WORST)
WATCHED = Watched(
    shown_watts=np.full(8, np.nan),
    boards_watts=np.full(8, 1000.0),
    boards_most_watts=np.full(8, 1000.0),
    worst_watts=np.full(8, WORST),
    heard=np.ones(8, dtype=bool),
    nearest=np.zeros(8, dtype=np.int64),
    spoken=np.ones(8, dtype=bool),
)
"""Eight servers below one meter."""

TWO_RACKS = ((-1, 0, 0), (1,) * 8 + (2,) * 8)


def test_each_rack_keeps_its_part_of_what_a_meter_above_both_tells() -> None:
    """Busy CPUs beside a rack at rest, whose BMCs are lost: a mean of both tripped the first."""
    plant = row(
        *TWO_RACKS,
        metered=(0,),
        level=lambda second: 690.0,
        hosts=lambda second, boards: np.array([1900.0] * 8 + [400.0] * 8),
        bmcs_at=lambda second: np.array([second < 100] * 8 + [False] * 8),
        rack_watts=34_000.0,
    )
    shares = shares_from(plant, 110, 500)
    assert shares[:, 1].min() > 0.98
    assert shares[-1, 2] < 1.05
    assert max(plant.heat) < 0.05


def test_noise_of_an_hour_leaves_each_its_part() -> None:
    """Up by room and down by watts mixed the racks' servers within hours: the busy one tripped."""
    load = LoadTree(CHAIN.tree, CHAIN.domain_of_node, CHAIN.node_of_gpu)
    n = CHAIN.n_nodes
    true = np.where(np.arange(n) < n // 2, 1900.0, 400.0)
    memory = replace(
        no_hosts_yet(n), watts=true.copy(), tellings=np.full(n, 1000), boards_watts=np.zeros(n)
    )
    rng = np.random.default_rng(1)
    for _ in range(3600):
        left = np.full(CHAIN.n_domains, true.sum() * (1.0 + 0.02 * rng.standard_normal()))
        lesson = HostLesson(np.arange(CHAIN.n_domains) == 0, left, left, np.ones(2, dtype=bool))
        memory = hosts_after(memory, WATCHED, lesson, load, 1.0)
    # Noise errs to the safe side, and takes no one's part.
    assert memory.watts[0] == pytest.approx(1900.0, rel=0.05)
    assert memory.watts[-1] == pytest.approx(400.0, rel=0.25)


@pytest.mark.parametrize("error", [-0.05, -0.02, 0.0, 0.03])
def test_what_meters_differ_by_is_not_taken_off_the_one_rack_without(error: float) -> None:
    """A row's meter that was 3 % low told a bare rack's servers nothing at all: it tripped."""
    nodes = tuple(1 + i // 4 for i in range(16))
    plant = row(
        (-1, 0, 0, 0, 0),
        nodes,
        metered=(0, 1, 2, 3),
        level=lambda second: 690.0,
        hosts=lambda second, boards: np.full(16, 1200.0),
        rack_watts=14_500.0,
    )
    observe = plant.observe

    def off(second: int) -> Observations:
        seen = observe(second)
        watts = seen.meter_watts.copy()
        watts[0] *= 1.0 + error
        return replace(seen, meter_watts=watts)

    plant.observe = off  # type: ignore[method-assign]
    shares = shares_from(plant, 120, 500)
    assert shares[:, 4].min() > 0.99
    assert plant.heat[4] < 0.05


@pytest.mark.parametrize("metered", [(0,), (1, 2)], ids=["row", "racks"])
def test_row_and_racks_below_or_above_a_lost_meter_follow_their_boards(
    metered: tuple[int, ...],
) -> None:
    """Domains that never had a meter counted 0.87 of their draw, and had no margin."""
    plant = row(
        *TWO_RACKS,
        metered=metered,
        level=lambda second: 150.0 if second < 110 else 690.0,
        hosts=lambda second, boards: 400.0 + 0.25 * boards,
        meter_at=lambda second: second < 100,
    )
    shares = shares_from(plant, 115, 250)
    assert shares.min() > 1.03
    assert shares.max() < 1.08


def test_a_meter_that_is_back_for_a_moment_has_told_little() -> None:
    """Three seconds each ten minutes brought back in full what was told an hour ago."""
    plant = row(
        (-1,),
        (0,) * 8,
        metered=(0,),
        level=lambda second: 400.0,
        hosts=lambda second, boards: np.full(8, 400.0 if second < 120 else 1800.0),
        meter_at=lambda second: second < 100 or second % 600 < 3,
    )
    assert shares_from(plant, 1300, 1700).min() > 1.0


@pytest.mark.parametrize(("period", "phase"), [(3, 0), (3, 1), (3, 2), (2, 0), (2, 1)])
def test_boards_that_swing_in_step_with_a_meter_teach_nothing_wrong(
    period: int, phase: int
) -> None:
    """Means of readings told 0.14 to 0.83 of the worst for a true half."""
    plant = row(
        (-1,),
        (0,) * 8,
        metered=(0,),
        level=lambda second: 690.0 if (second + phase) % period == 0 else 350.0,
        hosts=lambda second, boards: np.full(8, 1000.0),
        meter_at=lambda second: second < 200,
        meter_period=period,
    )
    shares = shares_from(plant, 213, 260)
    assert plant.state.server_hosts.watts == pytest.approx(1000.0, rel=0.05)
    assert shares.min() > 1.03
    assert shares.max() < 1.13
