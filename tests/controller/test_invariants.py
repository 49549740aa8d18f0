"""I1 to I10 as properties: of single decisions, and of a closed loop with faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.allocation import Wants, allocate, gang_kinds
from controller.breaker_heat import fault_seconds, heat_limits
from controller.commitments import holding
from controller.step import State, initial_state, step
from controller.tick_values import Commands, Decisions, Observations, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller.faulty_plant import Faults, Plant
from wattpack.errors import InputError, SafetyError
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.feasibility import (
    LoadTree,
    guaranteed_case_watts,
    size_guaranteed_caps,
    survives_jump,
    worst_watts,
)
from wattpack.power.trip_curves import SWITCHBOARD_THERMAL

MODERATE = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32 - 1)


def random_topology(rng: np.random.Generator, **changes: object) -> Topology:
    """A tree of two or three levels with a random shape, classes, gangs and oversubscription."""
    parents = [-1, 0, 0, *([1, 1] if rng.random() < 0.5 else [])]
    leaves = [i for i in range(len(parents)) if i not in parents]
    n_nodes = int(rng.integers(len(leaves), 9))
    nodes = [leaves[i % len(leaves)] for i in range(n_nodes)]
    n_gpus = n_nodes * 4
    gang = np.full(n_gpus, -1)
    request = rng.choice([500.0, 600.0, 700.0], n_gpus)
    priority = rng.integers(0, 4, n_gpus) * 10
    for number in range(int(rng.integers(0, 3))):
        members = rng.choice(n_gpus, size=3, replace=False)
        members = members[gang[members] < 0]
        gang[members], priority[members] = number, 10 * int(rng.integers(0, 4))
        request[members] = 600.0
    options: dict[str, object] = {
        "parents": parents,
        "nodes": nodes,
        "oversubscription": float(rng.uniform(1.0, 1.45)),
        "priority": priority.tolist(),
        "gang": gang.tolist(),
        "request_watts": request.tolist(),
        "value_per_watt": rng.random(n_gpus).tolist(),
    }
    return make_topology(**{**options, **changes})  # type: ignore[arg-type]


def drive(
    topology: Topology, faults: Faults, rng: np.random.Generator, ticks: int, jump: bool = False
) -> list[tuple[Plant, Observations, Commands, Decisions, State, FloatArray]]:
    """Run controller and plant against each other; a row a tick, with the true load."""
    plant = Plant(topology, faults, rng, SETTINGS)
    state = initial_state(topology, SETTINGS)
    standby: State | None = None
    rows = []
    for tick in range(ticks):
        plant.advance(tick)
        if tick % 20 == 0:
            low, high = rng.choice([100.0, 690.0], 2)
            plant.demand = np.where(rng.random(topology.n_gpus) < 0.7, low, high)
            if jump and tick >= 40:
                plant.demand[:] = 690.0 if tick % 60 else 100.0
        observed = plant.observe(tick)
        if rng.random() < faults.leader_change:
            # The other replica takes over with what it saw, or with nothing at all.
            plant.leader_epoch += 1
            state = standby or initial_state(topology, SETTINGS)
            observed = replace(
                observed,
                epoch=plant.leader_epoch,
                gpu_confirmed_sequence=np.zeros(topology.n_gpus, dtype=np.int64),
            )
        state, commands, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
        plant.send(tick, commands)
        rows.append((plant, observed, commands, decisions, state, plant.true_load_watts()))
    return rows


def i5_violations(topology: Topology, decisions: Decisions, active: BoolArray) -> int:
    """Pairs (high below its request, low above its floor) in the high one's binding domain."""
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    caps = decisions.decided_cap_watts
    short = active & (caps < topology.request_watts - 1.5) & (decisions.binding_domain >= 0)
    count = 0
    for domain in np.unique(decisions.binding_domain[short]):
        below = (load.gpu_domains == domain).any(axis=0) & active
        held = short & (decisions.binding_domain == domain)
        highest = topology.priority[held].max()
        above_floor = below & (caps > topology.floor_watts + 1.5)
        count += int(np.sum(above_floor & (topology.priority < highest)))
    return count


# --- I1 ---------------------------------------------------------------------------------------


@MODERATE
@given(SEEDS)
def test_i1_sized_guaranteed_caps_fit_with_the_largest_nodes_at_default(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    for domain in range(topology.n_domains):
        below = np.flatnonzero((load.node_domains == domain).any(axis=0))
        for node in below:
            caps = np.where(
                topology.node_of_gpu == node,
                topology.default_limit_watts,
                topology.guaranteed_watts,
            )
            worst = worst_watts(load, caps, topology.node_worst_watts)
            assert worst[domain] <= load.rating_watts[domain] + 1e-6


@MODERATE
@given(SEEDS)
def test_i1_guaranteed_caps_are_as_high_as_a_domain_allows(seed: int) -> None:
    topology = random_topology(np.random.default_rng(seed))
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    fixed = np.zeros(topology.n_nodes, dtype=np.bool_)
    more = np.minimum(topology.guaranteed_watts + 4.0, topology.floor_watts)
    case = guaranteed_case_watts(
        load, more, topology.default_limit_watts, topology.node_worst_watts, fixed
    )
    raised = more > topology.guaranteed_watts
    if raised.any():
        assert np.any(case > load.rating_watts)


def test_i1_an_impossible_tree_is_refused_with_domain_and_watts() -> None:
    topology = make_topology(oversubscription=1.2)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    load.rating_watts = load.rating_watts / 3.0
    with pytest.raises(SafetyError, match=r"I1: domain d\d could draw \d+ W"):
        size_guaranteed_caps(
            load,
            topology.min_limit_watts,
            topology.floor_watts,
            topology.default_limit_watts,
            topology.node_worst_watts,
            np.zeros(topology.n_nodes, dtype=np.bool_),
        )


# --- I2 ---------------------------------------------------------------------------------------


@MODERATE
@given(SEEDS)
def test_i2_decided_caps_survive_a_jump_of_every_gpu_to_its_cap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.6, guaranteed_watts=250.0)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    heat = rng.uniform(0.0, 0.4, topology.n_domains)
    state = initial_state(topology, SETTINGS, heat)
    _, _, decisions = step(topology, state, make_observations(topology, 0), SETTINGS, 0)
    worst = worst_watts(load, decisions.decided_cap_watts, topology.node_worst_watts)
    limits = heat_limits(load, SETTINGS)
    at_minimum = worst_watts(load, topology.min_limit_watts, topology.node_worst_watts)
    held = survives_jump(load, worst, heat, fault_seconds(SETTINGS), limits)
    assert np.all(held | (worst <= at_minimum + 1e-6))


@MODERATE
@given(SEEDS)
def test_i2_highest_caps_survive_in_a_closed_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.4)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    limits = heat_limits(load, SETTINGS)
    for *_, decisions, _, _ in drive(topology, Faults(batch_delay_seconds=1), rng, 40):
        held = survives_jump(
            load, decisions.worst_watts, decisions.heat, fault_seconds(SETTINGS), limits
        )
        calm = decisions.heat < 0.01
        assert np.all(held | ~calm)


# --- I3 ---------------------------------------------------------------------------------------


@MODERATE
@given(SEEDS)
def test_i3_every_gpu_counts_at_least_what_it_really_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    faults = Faults(
        report_lost=0.2,
        batch_lost=0.2,
        batch_delay_seconds=2,
        silent_write_failure=0.1,
        reboot=0.01,
        leader_change=0.0,
    )
    plant = Plant(topology, faults, rng, SETTINGS)
    state = initial_state(topology, SETTINGS)
    for tick in range(60):
        plant.advance(tick)
        observed = plant.observe(tick)
        state, commands, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
        plant.send(tick, commands)
        assert np.all(plant.cap <= decisions.highest_cap_watts + 1e-6)


def test_i3_a_silent_node_counts_at_its_default_limits_even_after_expiry() -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    observed = make_observations(topology, 0)
    state, _, first = step(topology, state, observed, SETTINGS, 0)
    received = observed.node_received_ns.copy()
    received[1:] = seconds(60)
    late = replace(observed, node_received_ns=received)
    _, commands, decisions = step(topology, state, late, SETTINGS, seconds(60))
    silent = topology.node_of_gpu == 0
    assert np.all(first.highest_cap_watts[silent] == topology.guaranteed_watts[silent])
    assert np.all(decisions.highest_cap_watts[silent] == topology.default_limit_watts[silent])
    assert not commands.send[0]
    assert decisions.silent_nodes[0]


def test_i3_nothing_is_sent_to_a_node_whose_report_is_too_old_to_answer() -> None:
    topology = make_topology()
    observed = make_observations(topology, 0)
    state, _, _ = step(topology, initial_state(topology, SETTINGS), observed, SETTINGS, 0)
    _, commands, _ = step(topology, state, observed, SETTINGS, seconds(2.5))
    assert not commands.send.any()


# --- I4 ---------------------------------------------------------------------------------------


def test_i4_a_follower_sends_nothing() -> None:
    topology = make_topology()
    observed = make_observations(topology, 0, leading=False)
    _, commands, decisions = step(
        topology, initial_state(topology, SETTINGS), observed, SETTINGS, 0
    )
    assert not commands.send.any()
    assert np.all(decisions.decided_cap_watts > 0)


@pytest.mark.parametrize(
    "cannot_raise", [{"may_raise": False}, {"highest_epoch_seen": 99}], ids=["stale", "fenced"]
)
def test_i4_a_leader_that_may_not_raise_only_extends_or_lowers(
    cannot_raise: dict[str, object],
) -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    for tick in range(40):
        observed = make_observations(topology, seconds(tick), **cannot_raise)
        state, commands, _ = step(topology, state, observed, SETTINGS, seconds(tick))
        assert commands.send.all()
        assert np.all(commands.cap_watts <= observed.gpu_limit_watts + 1e-6)


def test_i4_a_new_leader_raises_nothing_for_one_ttl() -> None:
    topology = make_topology(oversubscription=1.0)
    state = initial_state(topology, SETTINGS)
    raised_at = []
    for tick in range(60):
        epoch = 1 if tick < 30 else 2
        observed = make_observations(topology, seconds(tick), epoch=epoch)
        state, commands, _ = step(topology, state, observed, SETTINGS, seconds(tick))
        if np.any(commands.cap_watts > observed.gpu_limit_watts + 1e-6):
            raised_at.append(tick)
    assert raised_at
    assert not set(raised_at) & set(range(30, 35))
    assert 36 in raised_at


def test_i4_sequence_rises_within_an_epoch_and_nonces_are_echoed() -> None:
    topology = make_topology()
    state, sequences = initial_state(topology, SETTINGS), []
    for tick in range(5):
        nonce = np.arange(10, 10 + topology.n_nodes, dtype=np.uint64)
        observed = make_observations(topology, seconds(tick), node_nonce=nonce)
        state, commands, _ = step(topology, state, observed, SETTINGS, seconds(tick))
        sequences.append(commands.sequence)
        assert np.array_equal(commands.nonce, nonce)
    assert sequences == sorted(set(sequences))


# --- I5 ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_i5_no_more_important_gpu_is_short_while_a_lesser_one_is_above_its_floor(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    wants = Wants(
        minimum_watts=topology.min_limit_watts,
        guaranteed_watts=topology.guaranteed_watts,
        floor_watts=topology.floor_watts,
        request_watts=topology.request_watts,
        slack_watts=topology.default_limit_watts,
        priority=topology.priority,
        gang=topology.gang,
        gang_kind=gang_kinds(topology.gang, topology.default_limit_watts, topology.min_limit_watts),
        value_per_watt=topology.value_per_watt,
        fixed=rng.random(topology.n_gpus) < 0.1,
    )
    expected = rng.uniform(80.0, 700.0, topology.n_gpus)
    full = load.sum_gpus(np.minimum(topology.default_limit_watts, expected)) * load.gpu_factor
    room = full * rng.uniform(0.4, 1.1, topology.n_domains)
    result = allocate(load, wants, room, expected)
    caps, binding = result.cap_watts, result.binding_domain
    active = ~wants.fixed
    used = load.sum_gpus(np.where(active, np.minimum(caps, expected), 0.0)) * load.gpu_factor
    least = np.minimum(topology.min_limit_watts, expected)
    floor = load.sum_gpus(np.where(active, least, 0.0)) * load.gpu_factor
    assert np.all(used <= np.maximum(room, floor) + 1e-6)
    short = active & (caps < topology.request_watts - 1e-6)
    assert np.all(binding[short] >= 0)
    for gpu in np.flatnonzero(short):
        below = (load.gpu_domains == binding[gpu]).any(axis=0) & active
        lesser = below & (topology.priority < topology.priority[gpu])
        assert np.all(caps[lesser] <= topology.floor_watts[lesser] + 1e-6)


@MODERATE
@given(SEEDS)
def test_i5_decided_allocations_keep_the_order_in_a_closed_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng)
    faults = Faults(report_lost=0.05, batch_lost=0.05, ignores_cap_share=0.05)
    for _, _, _, decisions, _, _ in drive(topology, faults, rng, 50):
        if np.any(decisions.band == 3):
            continue
        silent = decisions.silent_nodes[topology.node_of_gpu]
        active = ~silent & decisions.trusted & (decisions.reason != 8)
        assert i5_violations(topology, decisions, active) == 0


@MODERATE
@given(SEEDS)
def test_i5_members_of_a_gang_are_commanded_one_cap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, request_watts=700.0)
    for _, _, commands, decisions, _, _ in drive(topology, Faults(), rng, 40):
        for number in np.unique(topology.gang[topology.gang >= 0]):
            members = topology.gang == number
            assert np.ptp(decisions.decided_cap_watts[members]) < 1e-6
            assert np.ptp(commands.cap_watts[members]) < 1e-6


# --- I6 ---------------------------------------------------------------------------------------


@MODERATE
@given(SEEDS)
def test_i6_the_worst_case_of_what_may_be_held_never_rises_over_the_survivable_jump(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, oversubscription=1.6, guaranteed_watts=250.0)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    faults = Faults(batch_lost=0.3, silent_write_failure=0.1, batch_delay_seconds=1)
    plant = Plant(topology, faults, rng, SETTINGS)
    state = initial_state(topology, SETTINGS)
    for tick in range(50):
        plant.advance(tick)
        observed = plant.observe(tick)
        before = state
        state, commands, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
        plant.send(tick, commands)
        after = holding(topology, state.commitments, observed, SETTINGS, seconds(tick))
        worst = worst_watts(load, after.highest_watts, topology.node_worst_watts)
        grown = worst > decisions.worst_watts + 1e-6
        limit = decisions.limit_watts
        assert np.all(~grown | (worst <= np.maximum(limit, 1.5 * load.rating_watts) + 1e-3))
        held = survives_jump(
            load, worst, decisions.heat, fault_seconds(SETTINGS), heat_limits(load, SETTINGS)
        )
        assert np.all(~grown | held), before.now_ns


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
            state, commands, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
            # The budget is such that the present draw is just above the cap band.
            budget = decisions.draw_watts / 0.96 if budget is None else budget
            caps = np.where(low & (not low_obeys), 700.0, commands.cap_watts)
            # Guaranteed caps are of no interest here: nobody is below them.
            caps = np.maximum(caps, 400.0)
        raised[low_obeys] = bool(np.any(caps[~low] > 400.0))
    assert raised == {False: False, True: True}


def test_i6_room_under_the_survivable_jump_is_given_only_once() -> None:
    topology = make_topology(
        priority=[0, 0, 10, 10] * 4, oversubscription=1.7, guaranteed_watts=250.0
    )
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    important = topology.priority > 0
    held_down = np.where(important, 250.0, np.nan)
    caps, state = topology.guaranteed_watts.copy(), initial_state(topology, SETTINGS)
    limit = np.full(topology.n_domains, np.inf)
    for tick in range(160):
        deaf = tick >= 80
        observed = make_observations(topology, seconds(tick), gpu_limit_watts=caps.copy())
        if not deaf:
            observed = replace(observed, override_cap_watts=held_down)
        state, commands, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
        # From now on the less important never take a lower cap; their leases would have to end.
        caps = np.where(~important & deaf, np.maximum(caps, commands.cap_watts), commands.cap_watts)
        limit = np.minimum(limit, decisions.limit_watts)
        worst = worst_watts(load, np.maximum(caps, 250.0), topology.node_worst_watts)
        assert np.all(worst <= limit + 1e-6)
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
        state, commands, _ = step(topology, state, observed, SETTINGS, seconds(tick))
        above = commands.cap_watts > topology.guaranteed_watts + 1e-6
        raised.append(bool(commands.send.any() and above.any()))
    assert any(raised[10:20])
    assert not any(raised[24:44])
    assert any(raised[45:])


def test_i6_raises_stay_within_two_percent_of_the_rating_a_second() -> None:
    topology = make_topology(oversubscription=1.0)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    rng = np.random.default_rng(1)
    previous = topology.guaranteed_watts
    for _, _, commands, _, _, _ in drive(topology, Faults(), rng, 40):
        rise = load.sum_gpus(np.maximum(commands.cap_watts - previous, 0.0)) * load.gpu_factor
        assert np.all(rise <= 0.02 * load.rating_watts + 1e-6)
        previous = commands.cap_watts


# --- I7 ---------------------------------------------------------------------------------------


def test_i7_a_device_over_every_cap_it_could_hold_is_budgeted_at_its_maximum() -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    kinds = []
    for tick in range(12):
        energy = np.full(topology.n_gpus, 100.0)
        energy[0] = topology.guaranteed_watts[0] * 1.2
        observed = make_observations(
            topology,
            seconds(tick),
            gpu_draw_watts=energy,
            gpu_energy_mean_watts=energy,
            may_raise=False,
        )
        state, _, decisions = step(topology, state, observed, SETTINGS, seconds(tick))
        kinds += [t.kind for t in decisions.transitions]
    assert not decisions.trusted[0]
    assert decisions.trusted[1:].all()
    assert decisions.highest_cap_watts[0] == topology.default_limit_watts[0]
    assert kinds.count("DeviceUntrusted") == 1


@pytest.mark.parametrize("lie", [np.nan, -50.0, 1e6, np.inf], ids=str)
def test_i7_unreadable_power_counts_at_the_most_it_could_be(lie: float) -> None:
    topology = make_topology()
    watts = np.full(topology.n_gpus, 100.0)
    honest = make_observations(topology, 0, gpu_draw_watts=watts)
    lying = watts.copy()
    lying[0] = lie
    _, _, truth = step(topology, initial_state(topology, SETTINGS), honest, SETTINGS, 0)
    _, _, doubt = step(
        topology,
        initial_state(topology, SETTINGS),
        replace(honest, gpu_draw_watts=lying),
        SETTINGS,
        0,
    )
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    extra = (topology.guaranteed_watts[0] * 1.05 - 100.0) / load.efficiency[0]
    assert doubt.draw_watts[0] == pytest.approx(truth.draw_watts[0] + extra)


# --- I8 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0.0, np.nan, -1.0, np.inf])
def test_i8_a_budget_that_is_no_budget_leaves_the_last_good_one(budget: float) -> None:
    topology = make_topology()
    good = 0.8 * topology.tree.rating_watts
    state = initial_state(topology, SETTINGS)
    observed = make_observations(topology, 0, budget_watts=good)
    state, _, first = step(topology, state, observed, SETTINGS, 0)
    bad = make_observations(topology, 1, budget_watts=np.full(topology.n_domains, budget))
    _, _, second = step(topology, state, bad, SETTINGS, 1)
    assert np.allclose(first.cap_band_watts, second.cap_band_watts)
    assert np.all(second.cap_band_watts < 0.8 * topology.tree.rating_watts)


def test_i8_arrays_of_another_topology_are_refused() -> None:
    topology, other = make_topology(), make_topology(nodes=(1, 2))
    state = initial_state(topology, SETTINGS)
    with pytest.raises(InputError, match="observations"):
        step(topology, state, make_observations(other, 0), SETTINGS, 0)
    with pytest.raises(InputError, match="state"):
        step(other, state, make_observations(other, 0), SETTINGS, 0)


# --- I9 ---------------------------------------------------------------------------------------


def test_i9_every_float_of_the_model_names_its_unit() -> None:
    from controller import tick_values

    units = ("_watts", "_ns", "_mhz", "_ms", "_seconds", "_per_watt")
    unitless = {"heat", "brake_heat", "parent_heat", "target_margin", "release_margin"}
    unitless |= {"rise_quantile_prior", "node_default_share"}
    for kind in (
        tick_values.Topology,
        tick_values.Observations,
        tick_values.Decisions,
        tick_values.PowerSettings,
    ):
        for name, hint in kind.__annotations__.items():
            if "Float" in str(hint) or hint == "float":
                assert name.endswith(units) or name in unitless, f"{kind.__name__}.{name}"


# --- I10 --------------------------------------------------------------------------------------


def test_i10_a_node_without_host_unit_is_budgeted_at_its_default_limits() -> None:
    topology = make_topology(oversubscription=1.0)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    bare = replace(topology, node_host_unit=np.array([False, True, True, True]))
    _, _, decisions = step(
        bare, initial_state(bare, SETTINGS), make_observations(bare, 0), SETTINGS, 0
    )
    caps = np.where(bare.node_of_gpu <= 1, bare.default_limit_watts, bare.guaranteed_watts)
    expected = worst_watts(load, caps, bare.node_worst_watts)
    # Domain 1 feeds nodes 0 and 1: one without host unit, the other as the largest of 5 %.
    assert decisions.guaranteed_watts[1] == pytest.approx(expected[1])


def test_i10_a_rebooted_node_counts_at_default_until_a_newer_report() -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    rebooted = np.array([True, False, False, False])
    observed = make_observations(topology, seconds(1), node_rebooted=rebooted)
    state, _, at_boot = step(topology, state, observed, SETTINGS, seconds(1))
    _, _, later = step(
        topology, state, make_observations(topology, seconds(2)), SETTINGS, seconds(2)
    )
    mine = topology.node_of_gpu == 0
    assert np.all(at_boot.highest_cap_watts[mine] == topology.default_limit_watts[mine])
    assert np.all(later.highest_cap_watts[mine] == topology.guaranteed_watts[mine])


# --- the breaker ------------------------------------------------------------------------------


FAULTS = st.builds(
    Faults,
    report_lost=st.sampled_from([0.0, 0.05, 0.3]),
    batch_lost=st.sampled_from([0.0, 0.05, 0.3]),
    batch_delay_seconds=st.integers(0, 2),
    silent_write_failure=st.sampled_from([0.0, 0.05]),
    ignores_cap_share=st.sampled_from([0.0, 0.02]),
    reboot=st.sampled_from([0.0, 0.005]),
    sensor_gain=st.sampled_from([0.0, 0.05]),
    leader_change=st.sampled_from([0.0, 0.03]),
    outage_start=st.integers(10, 60),
    outage_seconds=st.sampled_from([0, 3, 20]),
)


def stressed_topology(rng: np.random.Generator) -> Topology:
    """Rows of many servers at fast breakers: uncapped, they trip within a minute."""
    nodes = [1, 2] * int(rng.integers(6, 10))
    return make_topology(
        parents=(-1, 0, 0),
        nodes=nodes,
        oversubscription=float(rng.uniform(1.3, 1.45)),
        priority=(rng.integers(0, 3, len(nodes) * 4) * 10).tolist(),
        curve=SWITCHBOARD_THERMAL,
    )


def test_the_plant_without_control_trips_its_breaker() -> None:
    rng = np.random.default_rng(3)
    plant = Plant(stressed_topology(rng), Faults(), rng, SETTINGS)
    for tick in range(100):
        plant.demand[:], plant.cap[:] = 690.0, 700.0
        plant.advance(tick)
    assert np.all(plant.heat > 1.0)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, FAULTS)
def test_i1_to_i6_no_breaker_trips_whatever_fails(seed: int, faults: Faults) -> None:
    rng = np.random.default_rng(seed)
    plant = drive(stressed_topology(rng), faults, rng, 140, jump=True)[-1][0]
    assert np.all(plant.heat < 1.0)
