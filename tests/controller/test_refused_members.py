"""I1 in a closed loop: a row whose second rack was refused, against a plant of its own."""

from __future__ import annotations

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from controller.topology import build_grid, topology_of
from tests.controller.builders import SETTINGS, seconds
from tests.controller.faulty_plant import Faults, Plant
from tests.controller.test_topology import make_domain, make_node, profiles, rack
from wattpack.power.member_claims import MemberClaim, claim_of

#: Bears two full servers of eight boards (about 16 kW), not four (about 32 kW).
ROW_WATTS = 28_000.0
NODES = [make_node("a0"), make_node("a1"), make_node("b0", "b"), make_node("b1", "b")]
SERVER_WATTS = 8 * 700.0 * 1.02 / 0.94 + 2_000.0


def topology(claims: dict[str, MemberClaim]) -> Topology:
    """The row and its rack a run, rack b was never accepted."""
    grid = build_grid([make_domain("row", ratingWatts=ROW_WATTS), rack("a")], claims)
    return topology_of(grid, [], NODES, [], profiles())


def worst_row_watts(running: Topology, ticks: int = 90) -> tuple[float, float]:
    """The highest true draw below the row, all four servers at full demand, and breaker heat.

    Servers that the topology leaves out are held by nobody.
    """
    plant = Plant(running, Faults(), np.random.default_rng(1))
    row = running.tree.index("row")
    left_out = (len(NODES) - running.n_nodes) * SERVER_WATTS
    state, worst = initial_state(running, SETTINGS), 0.0
    for tick in range(ticks):
        plant.ask(690.0 if tick > 20 else 100.0)
        plant.advance(tick)
        observed = plant.observe(tick)
        state, commands, _ = step(Tick(running, observed, SETTINGS, seconds(tick)), state)
        plant.send(tick, commands)
        worst = max(worst, plant.true_watts()[row] + left_out * (tick > 25))
    return worst, plant.heat[row]


def test_i1_a_row_above_a_refused_rack_stays_below_its_rating_with_all_that_it_feeds() -> None:
    running = topology({"rack-b": claim_of(rack("b", ratingWatts=1.0).spec)})
    assert running.node_names == ("a0", "a1", "b0", "b1")
    assert running.tree.names == ("row", "rack-a")
    worst, heat = worst_row_watts(running)
    assert 0.8 * ROW_WATTS < worst <= ROW_WATTS
    assert heat == pytest.approx(0.0)


def test_a_row_that_knows_nothing_of_the_rack_would_be_overloaded() -> None:
    """What the first test guards: the same servers, in no sum."""
    worst, _ = worst_row_watts(topology({}))
    assert worst > 1.1 * ROW_WATTS
