"""I6: power is given only when it was given back, and comes back slowly after a fall."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from controller.step import initial_state, step
from controller.tick_values import Tick
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller.closed_loop import LOOPS, SEEDS, drive, random_topology
from tests.controller.faulty_plant import Faults
from tests.controller.oracle import fault_seconds, house_of


@LOOPS
@given(SEEDS)
def test_i6_a_raise_never_lifts_what_may_be_held_over_the_survivable_jump(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.6, guaranteed_watts=250.0)
    faults = Faults(batch_lost=0.3, silent_write_failure=0.1, batch_delay_seconds=1)
    away = fault_seconds(SETTINGS)
    before = [0.0] * topology.n_domains
    for row in drive(topology, faults, rng, 50):
        house, sent = row.plant.house, [commands for _, commands in row.plant.in_flight]
        # On the wire or held: a batch may still be lost, and what it lowers may stay.
        may = np.array(row.plant.caps())
        for commands in sent:
            reached = commands.send[topology.node_of_gpu]
            may = np.where(reached, np.maximum(may, commands.cap_watts), may)
        worst = [house.worst(d, may.tolist()) for d in house.domains()]
        for domain in house.domains():
            heat = row.plant.heat[domain]
            risen = worst[domain] > before[domain] + 1e-6
            least = house.worst(domain, topology.guaranteed_watts.tolist())
            survives = house.survives(domain, worst[domain], heat, away)
            assert not risen or survives or worst[domain] <= least + 1e-6
        before = worst


def test_i6_power_moves_only_after_the_lower_cap_was_read_back() -> None:
    topology = make_topology(priority=[0] * 8 + [10] * 8, nodes=(1, 1, 1, 1), parents=(-1, 0))
    low = topology.priority == 0
    raised = {}
    for low_obeys in (False, True):
        caps = np.where(low, 700.0, 400.0)
        state = initial_state(topology, SETTINGS)
        budget = None
        for tick in range(40):
            observed = make_observations(
                topology,
                seconds(tick),
                gpu_draw_watts=caps,
                gpu_energy_mean_watts=caps,
                gpu_limit_watts=caps,
            )
            if budget is not None:
                observed = replace(observed, budget_watts=budget)
            state, commands, decisions = step(
                Tick(topology, observed, SETTINGS, seconds(tick)), state
            )
            # The budget is such that the present draw is just above the target of caps.
            budget = decisions.draw_watts / 0.985 if budget is None else budget
            caps = np.where(low & (not low_obeys), 700.0, commands.cap_watts)
            # Guaranteed caps are of no interest here: nobody is below them.
            caps = np.maximum(caps, 400.0)
        raised[low_obeys] = bool(np.any(caps[~low] > 400.0))
    assert raised == {False: False, True: True}


def test_i6_room_under_the_survivable_jump_is_given_only_once() -> None:
    topology = make_topology(
        priority=[0, 0, 10, 10] * 4, oversubscription=1.7, guaranteed_watts=250.0
    )
    house, away = house_of(topology), fault_seconds(SETTINGS)
    important = topology.priority > 0
    held_down = np.where(important, 250.0, np.nan)
    caps, state = topology.guaranteed_watts.copy(), initial_state(topology, SETTINGS)
    for tick in range(160):
        deaf = tick >= 80
        observed = make_observations(topology, seconds(tick), gpu_limit_watts=caps.copy())
        if not deaf:
            observed = replace(observed, override_cap_watts=held_down)
        state, commands, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        # From now on the less important never take a lower cap; their leases would have to end.
        caps = np.where(~important & deaf, np.maximum(caps, commands.cap_watts), commands.cap_watts)
        may = np.maximum(caps, 250.0).tolist()
        for domain in house.domains():
            assert house.survives(domain, house.worst(domain, may), 0.0, away)
    assert np.any(decisions.decided_cap_watts[important] > caps[important] + 1.0)


def test_i6_after_a_mass_expiry_nothing_is_raised_for_ten_fresh_ticks() -> None:
    topology = make_topology(oversubscription=1.0)
    state = initial_state(topology, SETTINGS)
    raised = []
    for tick in range(60):
        stamp = seconds(20) if 20 < tick < 35 else seconds(tick)
        observed = replace(
            make_observations(topology, seconds(tick)),
            node_received_ns=np.full(topology.n_nodes, stamp),
        )
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        above = commands.cap_watts > topology.guaranteed_watts + 1e-6
        raised.append(bool(commands.send.any() and above.any()))
    assert any(raised[10:20])
    assert not any(raised[24:44])
    assert any(raised[45:])


def raised_seconds(quiet: list[int], count: int) -> list[int]:
    """Ticks at which a row of twelve servers is raised, of which some were never heard."""
    topology = make_topology(parents=(-1,), nodes=(0,) * 12, oversubscription=1.0)
    state = initial_state(topology, SETTINGS)
    raised = []
    for tick in range(count):
        received = np.full(topology.n_nodes, seconds(tick))
        received[quiet] = -1
        observed = make_observations(topology, seconds(tick), node_received_ns=received)
        state, commands, _ = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        sent = commands.send[topology.node_of_gpu]
        if np.any(sent & (commands.cap_watts > topology.guaranteed_watts + 1e-6)):
            raised.append(tick)
    return raised


def test_i6_servers_that_are_off_hold_nobody_at_the_guaranteed_caps_for_ever() -> None:
    assert raised_seconds([], 20)[0] < 15
    late = raised_seconds([3, 7], 60)
    assert late
    assert late[0] > 30
    # A fifth that went silent together may come back; ten minutes later it counts as off.
    many = raised_seconds([3, 7, 11], 660)
    assert many[0] > 600
    assert raised_seconds(list(range(1, 12)), 660)
    assert not raised_seconds(list(range(12)), 660)


def test_i6_raises_stay_within_two_percent_of_the_rating_a_second() -> None:
    topology = make_topology(oversubscription=1.0)
    house, rng = house_of(topology), np.random.default_rng(1)
    previous = topology.guaranteed_watts
    for row in drive(topology, Faults(), rng, 40):
        rise = np.maximum(row.commands.cap_watts - previous, 0.0).tolist()
        for domain in house.domains():
            assert house.gpu_part(domain, rise) <= 0.02 * house.ratings[domain] + 1e-6
        previous = row.commands.cap_watts
