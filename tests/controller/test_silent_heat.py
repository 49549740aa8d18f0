"""Heat of a row that nobody hears: a record of what commands and guarantees left it, not a worst.

Nothing of what silent servers did is told after these gaps: agents began anew in them, or readings
stood still. What was counted while they were silent stays counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.commitments import seen
from controller.controller_state import State
from controller.picture import look
from controller.tick_values import Observations, Tick
from tests.controller import metered_row
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


def doubted(tick: Tick, state: State) -> dict[str, tuple[Tick, State]]:
    """The same silence where nobody can vouch for what the servers were left at."""
    topology, observed = tick.topology, tick.observations
    nobody = np.zeros(topology.n_gpus, dtype=np.bool_)
    unknown = np.full(topology.n_gpus, np.nan)
    bare = replace(topology, node_host_unit=np.zeros(topology.n_nodes, dtype=np.bool_))
    every_node = np.ones(topology.n_nodes, dtype=np.bool_)
    doubted_ns = np.full(topology.n_gpus, tick.now_ns)
    offended = replace(state.trust, trusted=nobody, doubted_ns=doubted_ns)

    def told(**changes: Any) -> tuple[Tick, State]:
        return replace(tick, observations=replace(observed, **changes)), state

    return {
        "no host unit": (replace(tick, topology=bare), state),
        "no actuator": told(gpu_controlled=nobody),
        "no guaranteed cap": told(gpu_guaranteed_watts=unknown, gpu_limit_watts=unknown),
        "a limit that nobody reads": told(gpu_limit_watts=unknown),
        "boards that ignore their caps": (tick, replace(state, trust=offended)),
        "another replica leads": told(leading=False),
        "another led a moment ago": told(epoch=observed.epoch + 1),
        "rebooted": told(node_rebooted=every_node),
    }


def silent_for(count: int) -> tuple[Tick, State]:
    """A row so many seconds after it fell silent, and what was known a second before."""
    plant = row()
    second = SILENT[0] + count
    for _ in plant.run(second):
        pass
    plant.advance(second)
    return Tick(plant.topology, plant.observe(second), SETTINGS, seconds(second)), plant.state


def felt_watts(tick: Tick, state: State) -> float:
    """By which heat is advanced at a tick."""
    state = replace(state, commitments=seen(tick, state.commitments))
    return float(look(tick, state)[0].felt.watts[-1, 0])


NOT_FALLEN = (
    "no host unit",
    "no actuator",
    "no guaranteed cap",
    "boards that ignore their caps",
    "another led a moment ago",
)
NOT_LEASED = (*NOT_FALLEN, "a limit that nobody reads", "another replica leads", "rebooted")


@pytest.mark.parametrize("why", NOT_LEASED)
def test_servers_for_which_nobody_vouched_count_at_their_defaults(why: str) -> None:
    tick, state = silent_for(4)
    assert felt_watts(*doubted(tick, state)[why]) > 1.05 * felt_watts(tick, state)


@pytest.mark.parametrize("why", NOT_FALLEN)
def test_a_cap_that_nobody_set_is_not_fallen_to_either(why: str) -> None:
    tick, state = silent_for(12)
    by_guarantee = felt_watts(tick, state)
    assert by_guarantee < 0.8 * felt_watts(*silent_for(4))
    assert felt_watts(*doubted(tick, state)[why]) > 1.5 * by_guarantee


def test_one_server_of_twenty_may_have_rebooted() -> None:
    """I1 bears a twentieth at their default limits, so as many are felt at these."""
    tick, state = silent_for(4)
    topology = tick.topology
    held = np.maximum(tick.observations.gpu_limit_watts, topology.guaranteed_watts).reshape(20, 4)
    rebooted = (topology.default_limit_watts.reshape(20, 4) - held).sum(axis=1).max()
    boards = 1.05 * (held.sum() + rebooted)
    hosts = topology.node_worst_watts.sum()
    assert felt_watts(tick, state) == pytest.approx((boards + hosts) / state.load.efficiency[0])


class ToldLater(MeteredRow):
    """Whose agents tell the highest readings of a gap once they are heard again."""

    highest: np.ndarray | None = None

    def observe(self, second: int) -> Observations:
        """With those readings, NaN of the silent."""
        observed = super().observe(second)
        before = self.draw if self.highest is None else self.highest
        highest = np.maximum(before, self.draw)
        here = (~self.is_silent(second))[self.topology.node_of_gpu]
        self.highest = np.where(here, 0.0, highest)
        return replace(observed, gpu_gap_watts=np.where(here, highest, np.nan))


@pytest.mark.parametrize(("kind", "level"), [(MeteredRow, 700.0), (ToldLater, 460.0)])
def test_what_the_meter_of_a_row_took_off_a_silent_rack_is_not_taken_off_once_more(
    kind: type[MeteredRow], level: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long leases: the rack draws more, to its caps or below, while nobody hears its servers."""
    monkeypatch.setattr(metered_row, "SETTINGS", replace(SETTINGS, lease_ttl_ms=10_000))
    monkeypatch.setattr(metered_row, "LEASE_SECONDS", 10)
    topology = make_topology(
        parents=(-1, 0),
        nodes=(1,) * 20,
        priority=[0, 0, 10, 10] * 20,
        oversubscription=1.6,
        floor_watts=250.0,
    )
    plant = kind(
        topology,
        lambda second: np.full(topology.n_gpus, level if second > 150 else 350.0),
        np.random.default_rng(8),
        metered=(0,),
        silent=lambda second: np.full(20, 150 <= second < 180),
        host_base=1300.0,
        host_per_gpu=0.07,
    )
    for second, decisions in plant.run(240):
        # A meter tells of a step two seconds late.
        late = 0.01 if 150 < second < 156 else 0.0
        assert decisions.heat[1] >= plant.heat[1] - late
    assert plant.heat[1] > 0.001


def test_a_meter_that_is_lost_with_everybody_makes_no_guarantee_heat() -> None:
    """Its margin is for readings; what counts at the most that it may draw needs none."""
    plant = row(metered=(0,), meters_until=SILENT[0], guaranteed_watts=480.0)
    true, counted = heats(plant)
    assert min(np.array(counted) - np.array(true)) >= -1e-6
    late = np.array(counted[20:100])
    assert np.diff(late).max() <= 1e-9
