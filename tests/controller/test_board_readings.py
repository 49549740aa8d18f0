"""I7: power readings that do not move, or hide energy, must not hide a load from the breaker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.readings import initial_readings, shown_hosts
from controller.step import initial_state, step
from controller.tick_values import Band, Decisions, Tick
from tests.controller.builders import (
    SETTINGS,
    SWITCHBOARD_THERMAL,
    make_observations,
    make_topology,
    seconds,
)
from tests.controller.faulty_plant import Faults, Plant
from tests.controller.metered_row import MeteredRow

IDLE_SECONDS = 60


def run(faults: Faults, ticks: int, asked_watts: float = 690.0) -> tuple[Plant, list[Decisions]]:
    """A minute of idling, then everything goes to full power at once."""
    topology = make_topology(
        nodes=[1, 2] * 6, oversubscription=1.4, priority=0, curve=SWITCHBOARD_THERMAL
    )
    plant = Plant(topology, faults, np.random.default_rng(1))
    state = initial_state(topology, SETTINGS)
    told = []
    for tick in range(ticks):
        plant.advance(tick)
        if tick == IDLE_SECONDS:
            plant.ask(asked_watts)
        state, commands, decisions = step(
            Tick(topology, plant.observe(tick), SETTINGS, seconds(tick)), state
        )
        plant.send(tick, commands)
        told.append(decisions)
    return plant, told


@pytest.mark.parametrize("counter_offered", [True, False], ids=["counter", "no counter"])
def test_frozen_readings_of_every_board_do_not_let_the_breaker_trip(counter_offered: bool) -> None:
    frozen = Faults(frozen_from=IDLE_SECONDS - 1, counter_offered=counter_offered)
    plant, told = run(frozen, 240)
    assert max(plant.heat) < 0.5
    assert all(band != Band.NORMAL for band in told[IDLE_SECONDS + 8].band)
    assert np.all(np.array(plant.true_watts()) < plant.house.ratings)


def test_readings_that_only_tremble_cannot_hide_what_the_counter_shows() -> None:
    trembling = Faults(frozen_from=IDLE_SECONDS - 1, frozen_jitter_watts=3.0)
    plant, told = run(trembling, 240)
    assert max(plant.heat) < 0.5
    assert told[IDLE_SECONDS + 4].stale_readings.all()
    assert np.all(np.array(plant.true_watts()) < plant.house.ratings)


def test_the_same_boards_with_honest_readings_are_capped_too_and_nothing_is_called_stale() -> None:
    plant, told = run(Faults(), 240)
    assert max(plant.heat) < 0.5
    assert not any(decisions.stale_readings.any() for decisions in told)


def test_boards_whose_readings_froze_are_counted_at_the_most_they_may_draw_and_told() -> None:
    _, told = run(Faults(frozen_from=IDLE_SECONDS - 1), IDLE_SECONDS + 4)
    assert told[-1].stale_readings.all()
    worst = told[-1].worst_watts
    assert np.all(told[-1].draw_watts > 0.85 * worst)
    kinds = [t.kind for decisions in told for t in decisions.transitions]
    assert kinds.count("ReadingsFrozen") == 2  # once for each rack


def test_an_idle_board_as_steady_as_its_counter_is_believed() -> None:
    _, told = run(Faults(), IDLE_SECONDS, asked_watts=100.0)
    assert not told[-1].stale_readings.any()


def stale_by_second(counters: list[float], moves_at: int | None = None) -> list[bool]:
    """Whether the first board, whose reading stands at 400 W, is doubted, second by second."""
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    told = []
    for second, counter in enumerate(counters):
        watts = 100.0 + (second + np.arange(topology.n_gpus)) % 3
        energy = watts.copy()
        watts[0] = 400.0 if second != moves_at else 401.0
        energy[0] = counter
        observed = make_observations(
            topology, seconds(second), gpu_draw_watts=watts, gpu_energy_mean_watts=energy
        )
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(second)), state)
        told.append(bool(decisions.stale_readings[0]))
    return told


@pytest.mark.parametrize("after", [395.0, 0.0], ids=["swings", "stands still, too"])
def test_a_counter_that_passes_a_frozen_reading_does_not_confirm_it(after: float) -> None:
    counters = [400.0] * 8 + [600.0] * 3 + [430.0] * 4 + [after] * 6
    told = stale_by_second(counters)
    assert not any(told[:8])
    assert all(told[8:])


def test_a_reading_that_moves_or_is_long_confirmed_is_believed_again() -> None:
    counters = [400.0] * 8 + [600.0] * 3 + [405.0] * 35
    assert not any(stale_by_second(counters, moves_at=20)[20:])
    told = stale_by_second(counters)
    assert all(told[8:40])
    assert not any(told[41:])


def test_frozen_readings_and_counters_without_any_meter_are_seen_within_seconds() -> None:
    """Everything that agents read stands still at idle while every board goes to full power."""
    topology = make_topology(
        parents=(-1,), nodes=(0,) * 8, oversubscription=1.4, curve=SWITCHBOARD_THERMAL
    )
    full = np.full(topology.n_gpus, 690.0)
    idle = np.full(topology.n_gpus, 110.0)
    plant = MeteredRow(
        topology,
        lambda second: full if second >= IDLE_SECONDS else idle,
        np.random.default_rng(1),
        frozen_from=IDLE_SECONDS - 1,
        host_base=1200.0,
    )
    seen, above = [], 0
    for second, decisions in plant.run(IDLE_SECONDS + 90):
        if second >= IDLE_SECONDS:
            above += plant.true_watts()[0] > plant.house.ratings[0]
            if decisions.stale_readings.all():
                seen.append(second)
    assert seen[0] <= IDLE_SECONDS + 6
    assert 1 <= above <= 10
    assert plant.heat[0] < 0.5


def test_a_servers_meter_that_stands_still_or_is_overdue_shows_nothing() -> None:
    memory = replace(
        initial_readings(1, 4),
        host_time_ns=np.array([seconds(4), seconds(10), seconds(10), -1]),
        host_same=np.array([1, 1, 2, 0]),
    )
    assert shown_hosts(memory, seconds(12)).tolist() == [False, True, False, False]
