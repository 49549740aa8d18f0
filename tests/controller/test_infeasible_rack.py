"""I1 where it cannot hold: who is lowered for it, and who is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.controller_state import initial_state
from controller.guarantee import guaranteed_commands
from controller.guaranteed_case import guaranteed_case
from controller.tick_values import Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, make_tree, seconds
from wattpack.power.feasibility import LoadTree, size_where_feasible

NODES = (1, 1, 1, 1, 2, 2, 2, 2)
PARENTS = (-1, 0, 0)
A, B = slice(0, 16), slice(16, 32)


def sized(*ratings: float, enforce: Any = True) -> np.ndarray[Any, Any]:
    """Guaranteed caps of two racks of four servers with four boards each, 200 to 400 W."""
    tree = make_tree(PARENTS, ratings, enforce=enforce)
    load = LoadTree(tree, np.array(NODES), np.repeat(np.arange(8), 4))
    low, high = np.full(32, 200.0), np.full(32, 400.0)
    worst = np.full(8, 1000.0)
    fixed = np.zeros(8, dtype=np.bool_)
    return size_where_feasible(load, low, high, np.full(32, 700.0), worst, fixed)


def test_a_rack_that_cannot_hold_lowers_its_own_members_only() -> None:
    caps = sized(1e6, 1_000.0, 1e6)
    assert np.all(caps[A] == 200.0)
    assert np.all(caps[B] == 400.0)


def test_a_row_that_cannot_hold_lowers_everybody_below_it() -> None:
    assert np.all(sized(1_000.0, 1e6, 1e6) == 200.0)


def test_beside_a_rack_that_cannot_hold_the_row_still_binds_the_others() -> None:
    """The row has room for rack a at its minimum and for rack b somewhere in between."""
    caps = sized(20_000.0, 1_000.0, 1e6)
    assert np.all(caps[A] == 200.0)
    assert np.all(caps[B] == caps[B][0])
    assert 200.0 < caps[B][0] < 400.0


def running(**changes: Any) -> Topology:
    """Two racks whose guaranteed caps are 400 W, ratings as given."""
    ratings = changes.pop("ratings")
    topology = make_topology(parents=PARENTS, nodes=NODES, guaranteed_watts=400.0)
    return replace(topology, tree=make_tree(PARENTS, ratings), **changes)


def wanted(topology: Topology) -> np.ndarray[Any, Any]:
    """Guaranteed caps that are commanded after rack a's first two servers lost their host unit."""
    unit = np.ones(8, dtype=np.bool_)
    unit[:2] = False
    now = replace(topology, node_host_unit=unit)
    state = replace(initial_state(now, SETTINGS), heard=np.ones(3, dtype=np.bool_))
    observed = make_observations(now, seconds(1))
    case = guaranteed_case(now, state.load, observed)
    raise_all = np.ones(now.n_gpus, dtype=np.bool_)
    tick = Tick(now, observed, SETTINGS, seconds(1))
    commands = guaranteed_commands(tick, state, case, raise_all)
    return np.where(commands > 0.0, commands, topology.guaranteed_watts)


@pytest.mark.parametrize("row_watts", [1e6, 30_500.0])
def test_an_overfull_rack_is_lowered_before_its_neighbour_pays_for_it(row_watts: float) -> None:
    """Also where the row is over its rating only as long as that rack is."""
    caps = wanted(running(ratings=[row_watts, 16_500.0, 1e6]))
    assert np.all(caps[8:16] < 400.0)
    assert np.all(caps[B] == 400.0)


def test_a_row_that_is_still_over_takes_the_rest_from_all_of_its_racks() -> None:
    caps = wanted(running(ratings=[26_000.0, 17_000.0, 1e6]))
    assert np.all(caps[8:16] < 400.0)
    assert np.all(caps[B] < 400.0)
