"""Filling two kinds of limits at once, and gangs that tie branches: small cases by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.allocation import Limit, allocate
from tests.controller.builders import make_topology
from tests.controller.test_allocation import make_load, make_wants

FREE = 1e9


def test_i5_a_gang_held_elsewhere_leaves_its_room_to_the_next_gang_before_lesser_work() -> None:
    # Boards 0, 4 and 8 stand in three racks; the first gang is held by the third rack.
    topology = make_topology(
        parents=(-1, 0, 0, 0),
        nodes=(1, 2, 3),
        gang=[0, -1, -1, -1, 1, 0, -1, -1, 0, -1, -1, -1],
        priority=[10, 0, 0, 0, 10, 10, 0, 0, 10, 10, 10, 10],
    )
    load = make_load(topology)
    room = np.array([FREE, FREE, 400 * 2 + 450 + 520.0, 400 * 3 + 430.0]) * load.gpu_factor
    caps = allocate(load, make_wants(topology), Limit(room, np.full(12, np.inf))).cap_watts
    assert caps[0] == caps[5] == pytest.approx(caps[8])
    assert caps[8] == pytest.approx(407.5)
    # The second rack's other gang of the same class has all that the first cannot use there.
    assert caps[4] == pytest.approx(400 * 2 + 450 + 520.0 - 407.5 - 800.0)
    assert np.all(caps[6:8] == 400.0)


def test_what_the_band_takes_from_a_gang_is_not_lost_under_the_survivable_jump() -> None:
    # The jump limits the first rack, the band the second, and one gang stands in both.
    topology = make_topology(parents=(-1, 0, 0), nodes=(1, 2), gang=[0, -1, -1, -1, 0, -1, -1, -1])
    load, anything = make_load(topology), np.full(8, np.inf)
    jump = Limit(np.array([FREE, 2000.0, FREE]) * load.gpu_factor, anything)
    band = Limit(np.array([FREE, FREE, 1700.0]) * load.gpu_factor, np.full(8, 700.0))
    found = allocate(load, make_wants(topology), jump, band)
    assert found.cap_watts[4:] == pytest.approx(425.0)
    assert found.cap_watts[0] == pytest.approx(425.0)
    assert found.cap_watts[1:4] == pytest.approx((2000.0 - 425.0) / 3)
    assert found.binding_domain.tolist() == [2, 1, 1, 1, 2, 2, 2, 2]
    assert found.binding_limit.tolist() == [1, 0, 0, 0, 1, 1, 1, 1]


def test_a_board_that_a_limit_never_counts_takes_none_of_its_room() -> None:
    topology = make_topology(parents=(-1,), nodes=(0,))
    load = make_load(topology)
    counted = np.array([-np.inf, np.inf, np.inf, np.inf])
    limit = Limit(1500.0 * load.gpu_factor, counted)
    caps = allocate(load, make_wants(topology), limit).cap_watts
    assert caps == pytest.approx(500.0)


def test_a_long_chain_of_gangs_is_settled_exactly() -> None:
    # Rack i holds gangs i and i + 1; only the first is tight, so each next level follows from it.
    racks = 12
    gang = [number for i in range(racks) for number in (i, i + 1, -1, -1)]
    gang[0] = gang[-3] = -1
    topology = make_topology(
        parents=(-1, *[0] * racks), nodes=tuple(range(1, racks + 1)), gang=gang
    )
    load = make_load(topology)
    wants = replace(make_wants(topology), priority=np.zeros(topology.n_gpus, dtype=np.int64))
    rng = np.random.default_rng(1)
    room = np.append(FREE, rng.uniform(1700.0, 2300.0, racks)) * load.gpu_factor
    caps = allocate(load, wants, Limit(room, np.full(topology.n_gpus, np.inf))).cap_watts
    used = load.sum_gpus(caps) * load.gpu_factor
    # Every rack is full: nothing that a gang could not use stays unused.
    assert used[1:] == pytest.approx(room[1:])
    for number in range(1, racks):
        assert np.ptp(caps[topology.gang == number]) < 1e-6
