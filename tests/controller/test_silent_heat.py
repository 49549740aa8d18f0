"""Heat of a row that nobody hears: a record of what commands and guarantees left it, not a worst.

Nothing of what silent servers did is told after these gaps: agents began anew in them, or readings
stood still. What was counted while they were silent stays counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.commitments import seen
from controller.picture import look
from controller.tick_values import Observations, Tick, Topology
from tests.controller.builders import SETTINGS, SWITCHBOARD_THERMAL, make_topology, seconds
from tests.controller.metered_row import MeteredRow, bursts

SILENT = (120, 220)


def row(
    *,
    metered: tuple[int, ...] = (),
    meters_until: int = 1_000_000,
    every: int = 0,
    guaranteed_watts: float | None = None,
) -> MeteredRow:
    """Twenty servers whose reports and batches are lost for a while, but for each n-th second's."""
    n = 20
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * n,
        priority=[0, 0, 10, 10] * n,
        oversubscription=1.25,
        floor_watts=250.0,
        curve=SWITCHBOARD_THERMAL,
        guaranteed_watts=guaranteed_watts,
    )
    rng = np.random.default_rng(8)
    begin, end = SILENT

    def lost(second: int) -> np.ndarray:
        # Each server gets through in a second of its own.
        through = np.array([bool(every) and (second + i) % every == 0 for i in range(n)])
        return np.asarray((begin <= second < end) & ~through)

    return MeteredRow(
        topology,
        bursts(topology.n_gpus, rng, 420.0, 640.0),
        rng,
        silent=lost,
        metered=metered,
        meters_until=meters_until,
    )


def heats(plant: MeteredRow, count: int = 300) -> tuple[list[float], list[float]]:
    """True and counted heat from a second before the silence on."""
    true, counted = [], []
    for second, decisions in plant.run(count):
        if second >= SILENT[0] - 1:
            true.append(plant.heat[0])
            counted.append(float(decisions.heat[0]))
    return true, counted


def test_a_long_silence_of_all_adds_no_more_heat_than_their_leases_could() -> None:
    true, counted = heats(row())
    assert min(np.array(counted) - np.array(true)) >= -1e-6
    # Guaranteed caps fit the rating: after the leases' end nothing heats.
    gained = counted[100] - counted[0]
    assert gained < 0.06


@pytest.mark.parametrize("every", [5, 9])
def test_reports_that_get_through_now_and_then_heat_no_row_that_was_told_to_fall(
    every: int,
) -> None:
    true, counted = heats(row(every=every))
    assert min(np.array(counted) - np.array(true)) >= -1e-6
    assert counted[60] - counted[0] < 0.08


def doubted(topology: Topology, observed: Observations) -> dict[str, tuple[Topology, Observations]]:
    """The same silence where nobody can vouch for what the servers were left at."""
    nobody = np.zeros(topology.n_gpus, dtype=np.bool_)
    return {
        "no host unit": (
            replace(topology, node_host_unit=np.zeros(topology.n_nodes, dtype=np.bool_)),
            observed,
        ),
        "no actuator": (topology, replace(observed, gpu_controlled=nobody)),
        "a limit that nobody reads": (
            topology,
            replace(observed, gpu_limit_watts=np.full(topology.n_gpus, np.nan)),
        ),
        "another replica leads": (topology, replace(observed, leading=False)),
        "another led a moment ago": (topology, replace(observed, epoch=observed.epoch + 1)),
        "rebooted": (
            topology,
            replace(observed, node_rebooted=np.ones(topology.n_nodes, dtype=np.bool_)),
        ),
    }


@pytest.mark.parametrize(
    "why",
    [
        "no host unit",
        "no actuator",
        "a limit that nobody reads",
        "another replica leads",
        "another led a moment ago",
        "rebooted",
    ],
)
def test_servers_for_which_nobody_vouched_count_at_their_defaults(why: str) -> None:
    plant = row()
    for _ in plant.run(SILENT[0] + 4):
        pass
    second = SILENT[0] + 4
    observed = plant.observe(second)
    topology, other = doubted(plant.topology, observed)[why]
    tick = Tick(plant.topology, observed, SETTINGS, seconds(second))
    unvouched = replace(tick, topology=topology, observations=other)
    assert felt_watts(plant, unvouched) > 1.05 * felt_watts(plant, tick)


def test_one_server_of_twenty_may_have_rebooted() -> None:
    """I1 bears a twentieth at their default limits, so as many are felt at these."""
    plant = row()
    for _ in plant.run(SILENT[0] + 4):
        pass
    second = SILENT[0] + 4
    tick = Tick(plant.topology, plant.observe(second), SETTINGS, seconds(second))
    held = np.maximum(plant.told["caps"], plant.topology.guaranteed_watts).reshape(20, 4)
    rebooted = (plant.topology.default_limit_watts.reshape(20, 4) - held).sum(axis=1).max()
    boards = 1.05 * (held.sum() + rebooted)
    hosts = plant.topology.node_worst_watts.sum()
    assert felt_watts(plant, tick) == pytest.approx((boards + hosts) / plant.house.efficiency(0))


def felt_watts(plant: MeteredRow, tick: Tick) -> float:
    """By which heat is advanced at a tick."""
    state = plant.state
    state = replace(state, commitments=seen(tick, state.commitments))
    return float(look(tick, state)[0].felt.watts[-1, 0])


def test_a_meter_that_is_lost_with_everybody_makes_no_guarantee_heat() -> None:
    """Its margin is for readings; what counts at the most that it may draw needs none."""
    plant = row(metered=(0,), meters_until=SILENT[0], guaranteed_watts=480.0)
    true, counted = heats(plant)
    assert min(np.array(counted) - np.array(true)) >= -1e-6
    late = np.array(counted[20:100])
    assert np.diff(late).max() <= 1e-9
