"""What a breaker cooled while nobody led is known from how long servers had no answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds

TOLD = 0.2
TICKS = 6
# Of a lease, of the age of a report that may be answered, and of settling.
LAPSE_SECONDS = 4.0 + 2.0 + 1.3


def row(nodes: int = 30) -> Topology:
    return make_topology(parents=(-1,), nodes=(0,) * nodes, oversubscription=1.3)


def heat_after(topology: Topology, unanswered_seconds: list[list[float]]) -> float:
    """After ticks at each of which every server says for how long nobody had answered it."""
    state = initial_state(topology, SETTINGS, np.full(topology.n_domains, TOLD))
    for second, told in enumerate(unanswered_seconds):
        observed = make_observations(
            topology,
            seconds(second),
            node_unanswered_ns=np.array([seconds(s) for s in told], dtype=np.int64),
        )
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(second)), state)
    return float(decisions.heat[0])


def cooled(topology: Topology, unled_seconds: float) -> float:
    lasted = unled_seconds + TICKS - 1
    return TOLD * float(np.exp(-lasted / topology.tree.cooling_seconds[0]))


def test_told_heat_is_cooled_once_for_the_time_that_nobody_led() -> None:
    topology = row()
    first, answered = [300.0] * 30, [1.0] * 30
    heat = heat_after(topology, [first] + [answered] * (TICKS - 1))
    assert heat == pytest.approx(cooled(topology, 300.0 - LAPSE_SECONDS), rel=1e-3)
    # Not answered for longer, as by a standby: what was taken off is not taken off again.
    assert heat_after(topology, [first] * TICKS) == pytest.approx(heat, rel=1e-3)


@pytest.mark.parametrize("told", [1.0, 300.0], ids=["answered", "out of the 5 %"])
def test_as_many_servers_as_stand_at_default_limits_in_i1_may_tell_less(told: float) -> None:
    topology = row()
    one_less = [told] + [300.0] * 29
    heat = heat_after(topology, [one_less] * TICKS)
    assert heat == pytest.approx(cooled(topology, 300.0 - LAPSE_SECONDS), rel=1e-3)
    two_less = [1.0, 1.0] + [300.0] * 28
    assert heat_after(topology, [two_less] * TICKS) == pytest.approx(cooled(topology, 0.0))


@pytest.mark.parametrize("kind", ["a moment", "untold", "late", "no host units", "watches"])
def test_nothing_is_taken_off_where_nobody_knows_that_leases_had_run_out(kind: str) -> None:
    topology, told = row(), [[300.0] * 30] * TICKS
    if kind == "a moment":
        told = [[6.0] * 30] * TICKS
    elif kind == "untold":
        told = [[]] * TICKS
    elif kind == "late":
        told = [[1.0] * 30] * 11 + told
    elif kind == "no host units":
        topology = replace(topology, node_host_unit=np.zeros(30, dtype=np.bool_))
    else:
        tree = replace(topology.tree, enforce=np.zeros(1, dtype=np.bool_))
        topology = replace(topology, tree=tree)
    lasted = len(told) - 1
    expected = TOLD * float(np.exp(-lasted / topology.tree.cooling_seconds[0]))
    assert heat_after(topology, told) == pytest.approx(expected)
