"""What one tick does: brake and restore, dry run, meters, membership, other actuators."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from controller.cap_reason import CapReason
from controller.controller_state import State
from controller.step import carry_over, initial_state, step
from controller.tick_values import Band, Commands, Decisions, Tick
from tests.controller.builders import (
    SETTINGS,
    SWITCHBOARD_THERMAL,
    make_observations,
    make_topology,
    seconds,
)
from tests.controller.obedient_row import ObedientRow, big_topology
from wattpack.errors import InputError


def test_a_calm_domain_is_brought_to_request_at_the_raise_rate() -> None:
    loop = ObedientRow(big_topology())
    _, early = loop.run(15)
    assert np.any(early.reason == CapReason.RAISE_RATE)
    _, late = loop.run(40)
    assert np.all(loop.caps == 700.0)
    assert np.all(late.reason == CapReason.NOT_CAPPED)


def test_over_the_cap_band_the_least_important_go_to_their_floor_first() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(60)
    loop.demand[:] = 690.0
    _, decisions = loop.run(8)
    low = topology.priority == 0
    assert np.all(decisions.band == Band.CAPPING)
    assert np.all(loop.caps[low] < 600.0)
    assert np.all(loop.caps[~low] == 700.0)
    assert np.all(decisions.draw_watts < 0.98 * topology.tree.rating_watts)
    assert "Capping" in loop.kinds
    assert not any("DryRun" in text for text in loop.texts)


def test_steady_load_at_the_band_changes_no_caps() -> None:
    loop = ObedientRow(big_topology())
    loop.run(60)
    loop.demand[:] = 690.0
    loop.run(20)
    before = loop.changed
    loop.run(120)
    assert loop.changed == before


def test_when_demand_goes_the_caps_are_lifted_after_the_dwell_and_in_order() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(60)
    loop.demand[:] = 690.0
    loop.run(20)
    loop.demand[:] = 150.0
    _, soon = loop.run(15)
    assert np.all(soon.band == Band.CAPPING)
    _, later = loop.run(110)
    assert np.all(later.band == Band.NORMAL)
    assert np.all(loop.caps == 700.0)
    order = [k for k in loop.kinds if k in {"Capping", "Releasing", "Normal"}]
    assert order[-1] == "Normal"


def test_far_over_the_rating_everything_brakes_to_the_minimum_and_comes_back() -> None:
    topology = big_topology(oversubscription=1.35, curve=SWITCHBOARD_THERMAL)
    loop = ObedientRow(topology)
    loop.run(60)
    before = loop.caps.copy()
    hot = np.full(topology.n_domains, 0.49)
    loop.state = replace(loop.state, heat=hot)
    loop.demand[:] = 700.0
    # Caps jump with demand, as after a failed write everywhere.
    loop.caps[:] = 700.0
    commands, decisions = loop.run(1)
    assert np.all(decisions.band == Band.BRAKE)
    assert np.all(commands.cap_watts == topology.min_limit_watts)
    assert np.all(decisions.reason == CapReason.BRAKE)
    _, after = loop.run(8)
    assert np.all(after.band == Band.CAPPING)
    loop.demand[:] = 150.0
    loop.state = replace(loop.state, heat=np.zeros(topology.n_domains))
    loop.run(150)
    # Caps that differ by less than 3 % are left alone.
    assert loop.caps == pytest.approx(before, rel=0.05)
    assert np.all(loop.state.bands.band == Band.NORMAL)


def test_dry_run_decides_and_sends_nothing() -> None:
    topology = big_topology(enforce=False)
    loop = ObedientRow(topology, gpu_controlled=np.zeros(topology.n_gpus, dtype=np.bool_))
    loop.caps[:] = 700.0
    loop.demand[:] = 690.0
    commands, decisions = loop.run(3)
    assert not commands.send.any()
    assert np.any(decisions.decided_cap_watts < 700.0)
    assert np.any(decisions.reason == CapReason.DRY_RUN)
    assert np.all(loop.caps == 700.0)
    assert loop.texts
    assert all(text.endswith("; DryRun: nothing is written") for text in loop.texts)


def test_a_watching_parent_does_not_lower_what_an_enforcing_child_commands() -> None:
    topology = big_topology(enforce=[False, True, True])
    roomy = topology.tree.rating_watts * np.array([0.8, 2.0, 2.0])
    topology = replace(topology, tree=replace(topology.tree, rating_watts=roomy))
    loop = ObedientRow(topology)
    loop.run(60)
    loop.demand[:] = 690.0
    earlier, _ = loop.run(4)
    commands, decisions = loop.run(1)
    assert (earlier.send | commands.send).all()
    assert np.all(loop.caps == 700.0)
    assert np.any(decisions.decided_cap_watts < 700.0)


@pytest.mark.parametrize("watts", [333.0, 690.0])
def test_an_override_caps_a_board_and_its_end_gives_it_back(watts: float) -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(60)
    cap = np.full(topology.n_gpus, np.nan)
    cap[3] = watts
    loop.changes = {"override_cap_watts": cap}
    _, decisions = loop.run(2)
    assert loop.caps[3] == watts
    assert decisions.reason[3] == CapReason.OVERRIDE
    loop.changes = {}
    loop.run(3)
    assert loop.caps[3] == 700.0


def test_a_budget_below_the_rating_moves_the_bands() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(60)
    loop.demand[:] = 450.0
    _, free = loop.run(3)
    loop.changes = {"budget_watts": 0.75 * topology.tree.rating_watts}
    _, tight = loop.run(6)
    assert np.all(free.band == Band.NORMAL)
    assert np.all(tight.band == Band.CAPPING)
    assert np.all(tight.draw_watts <= 0.75 * topology.tree.rating_watts)


def test_a_forecast_above_the_band_warns_once_and_raises_nothing() -> None:
    topology = big_topology()
    calm, warned = ObedientRow(topology), ObedientRow(topology)
    warned.changes = {"forecast_p99_watts": 2.0 * topology.tree.rating_watts}
    calm.run(20)
    warned.run(20)
    assert warned.kinds.count("ForecastAboveBand") == topology.n_domains
    assert np.array_equal(calm.caps, warned.caps)


def test_a_node_that_never_reported_is_sent_nothing_and_counts_in_full() -> None:
    topology = big_topology()
    received = np.full(topology.n_nodes, -1, dtype=np.int64)
    loop = ObedientRow(topology, node_received_ns=received)
    commands, decisions = loop.run(3)
    assert not commands.send.any()
    assert np.all(decisions.highest_cap_watts == 700.0)
    assert np.all(decisions.heat == 0.0)


def test_meter_readings_raise_the_estimate_and_five_alike_are_stale() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    _, by_nodes = loop.run(3)
    reading = by_nodes.draw_watts * 1.2
    estimates = []
    for _ in range(6):
        stamp = np.full(topology.n_domains, seconds(loop.tick), dtype=np.int64)
        loop.changes = {"meter_watts": reading, "meter_time_ns": stamp}
        _, decisions = loop.run(1)
        estimates.append(decisions.draw_watts[0] / by_nodes.draw_watts[0])
    assert estimates[0] == pytest.approx(1.2)
    # Stale by now: the learned gain stays, and for a lost meter five percent of what boards say.
    assert 1.03 < estimates[-1] < 1.2
    assert loop.kinds.count("MeterMismatch") == topology.n_domains


def test_an_old_meter_reading_is_brought_up_by_what_the_nodes_changed_since() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(60)
    _, calm = loop.run(1)
    stamp = np.full(topology.n_domains, seconds(loop.tick - 1), dtype=np.int64)
    loop.changes = {"meter_watts": calm.draw_watts * 1.1, "meter_time_ns": stamp}
    loop.demand[:] = 300.0
    _, risen = loop.run(1)
    load = loop.state.load
    change = load.sum_gpus(np.full(topology.n_gpus, 200.0)) / load.efficiency
    assert risen.draw_watts == pytest.approx(calm.draw_watts * 1.1 + change, rel=1e-3)


def test_uncontrolled_boards_degrade_the_domain_and_lower_the_guarantees_of_others() -> None:
    topology = big_topology()
    controlled = np.ones(topology.n_gpus, dtype=np.bool_)
    controlled[topology.node_of_gpu < 6] = False
    loop = ObedientRow(topology, gpu_controlled=controlled)
    commands, decisions = loop.run(2)
    assert "Degraded" in loop.kinds
    assert np.any(decisions.guaranteed_watts > loop.state.load.rating_watts)
    lowered = commands.guaranteed_watts[controlled]
    assert np.all((lowered >= 200.0) & (lowered < topology.guaranteed_watts[controlled]))


def test_membership_changes_keep_the_memory_of_what_stays() -> None:
    before = big_topology()
    loop = ObedientRow(before)
    loop.run(60)
    after = big_topology(nodes=[1, 2] * 7, priority=[0, 0, 10, 10] * 14)
    state = carry_over(loop.state, before, after)
    old = before.n_gpus
    assert np.array_equal(state.decided_watts[:old], loop.state.decided_watts)
    assert np.all(state.decided_watts[old:] == 0.0)
    assert state.commitments.next_sequence == loop.state.commitments.next_sequence
    caps = np.concatenate((loop.caps, after.guaranteed_watts[old:]))
    observed = make_observations(after, seconds(60), gpu_limit_watts=caps)
    _, commands, _ = step(Tick(after, observed, SETTINGS, seconds(60)), state)
    assert np.all(commands.cap_watts[:old] == 700.0)


def test_a_state_of_another_topology_cannot_be_carried_over() -> None:
    first, second = make_topology(), make_topology()
    with pytest.raises(InputError, match="old_topology"):
        carry_over(initial_state(first, SETTINGS), second, second)


@pytest.mark.parametrize("heat", [[-0.1, 0, 0], [np.nan, 0, 0], [2.0, 0, 0], [0.0]])
def test_kept_heat_is_checked(heat: list[float]) -> None:
    with pytest.raises(InputError, match="heat"):
        initial_state(make_topology(), SETTINGS, np.array(heat))


def test_time_never_runs_backwards() -> None:
    topology = make_topology()
    observed = make_observations(topology, 0)
    state, _, _ = step(Tick(topology, observed, SETTINGS, 10), initial_state(topology, SETTINGS))
    with pytest.raises(InputError, match="now_ns"):
        step(Tick(topology, observed, SETTINGS, 9), state)


def test_a_step_changes_none_of_its_inputs_and_repeats_exactly() -> None:
    topology = big_topology()
    loop = ObedientRow(topology)
    loop.run(61)
    loop.demand[:] = 690.0
    observed, now = loop.observe(), seconds(loop.tick)
    copies = {f.name: np.copy(getattr(observed, f.name)) for f in fields(observed)}
    heat = loop.state.heat.copy()
    first: tuple[State, Commands, Decisions] = step(
        Tick(topology, observed, SETTINGS, now), loop.state
    )
    second = step(Tick(topology, observed, SETTINGS, now), loop.state)
    assert np.array_equal(first[1].cap_watts, second[1].cap_watts)
    assert np.array_equal(first[0].heat, second[0].heat)
    assert np.array_equal(loop.state.heat, heat)
    for name, copy in copies.items():
        assert np.array_equal(copy, getattr(observed, name), equal_nan=copy.dtype.kind == "f")
