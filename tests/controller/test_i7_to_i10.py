"""I7 to I10: no blind trust, no guessing, named units, and nodes without a cap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.step import initial_state, step
from controller.tick_values import Tick
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from tests.controller.oracle import house_of
from wattpack.errors import InputError
from wattpack.power.board_trust import all_trusted, judged
from wattpack.units import NS_PER_SECOND


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
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        kinds += [t.kind for t in decisions.transitions]
    assert not decisions.trusted[0]
    assert decisions.trusted[1:].all()
    assert decisions.highest_cap_watts[0] == topology.default_limit_watts[0]
    assert kinds.count("DeviceUntrusted") == 1


@pytest.mark.parametrize(
    ("limit_share", "told"), [(1.0, True), (1.5, False)], ids=["ignores it", "late write"]
)
def test_i7_a_board_that_nobody_vouches_for_is_told_if_it_ignores_what_was_read_back(
    limit_share: float, told: bool
) -> None:
    """It counts at its most anyway; that its limit does not hold is news all the same."""
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    vouched = np.ones(topology.n_gpus, dtype=np.bool_)
    vouched[0] = False
    watts, limits = np.full(topology.n_gpus, 100.0), topology.guaranteed_watts.copy()
    watts[0], limits[0] = 1.2 * limits[0], limit_share * limits[0]
    for tick in range(12):
        observed = make_observations(
            topology,
            seconds(tick),
            gpu_draw_watts=watts,
            gpu_energy_mean_watts=watts,
            gpu_limit_watts=limits,
            gpu_controlled=vouched,
        )
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
    assert decisions.trusted.tolist() == [not told, *[True] * (topology.n_gpus - 1)]
    assert decisions.highest_cap_watts[0] == topology.default_limit_watts[0]


@pytest.mark.parametrize("lie", [np.nan, -50.0, 1e6, np.inf], ids=str)
def test_i7_unreadable_power_counts_at_the_most_it_could_be(lie: float) -> None:
    topology = make_topology()
    watts = np.full(topology.n_gpus, 100.0)
    honest = make_observations(topology, 0, gpu_draw_watts=watts)
    lying = watts.copy()
    lying[0] = lie
    _, _, truth = step(Tick(topology, honest, SETTINGS, 0), initial_state(topology, SETTINGS))
    _, _, doubt = step(
        Tick(topology, replace(honest, gpu_draw_watts=lying), SETTINGS, 0),
        initial_state(topology, SETTINGS),
    )
    extra = (topology.guaranteed_watts[0] * 1.05 - 100.0) / house_of(topology).efficiency(0)
    assert doubt.draw_watts[0] == pytest.approx(truth.draw_watts[0] + extra)


@pytest.mark.parametrize("budget", [0.0, np.nan, -1.0, np.inf])
def test_i8_a_budget_that_is_no_budget_leaves_the_last_good_one(budget: float) -> None:
    topology = make_topology()
    good = 0.8 * topology.tree.rating_watts
    state = initial_state(topology, SETTINGS)
    observed = make_observations(topology, 0, budget_watts=good)
    state, _, first = step(Tick(topology, observed, SETTINGS, 0), state)
    bad = make_observations(topology, 1, budget_watts=np.full(topology.n_domains, budget))
    _, _, second = step(Tick(topology, bad, SETTINGS, 1), state)
    assert np.allclose(first.cap_band_watts, second.cap_band_watts)
    assert np.all(second.cap_band_watts < 0.8 * topology.tree.rating_watts)


def test_i8_arrays_of_another_topology_are_refused() -> None:
    topology, other = make_topology(), make_topology(nodes=(1, 2))
    state = initial_state(topology, SETTINGS)
    with pytest.raises(InputError, match="observations"):
        step(Tick(topology, make_observations(other, 0), SETTINGS, 0), state)
    with pytest.raises(InputError, match="state"):
        step(Tick(other, make_observations(other, 0), SETTINGS, 0), state)


def test_i9_every_float_of_the_model_names_its_unit() -> None:
    from controller import tick_values

    units = ("_watts", "_ns", "_mhz", "_ms", "_seconds", "_per_watt")
    unitless = {"heat", "brake_heat", "parent_heat", "target_margin", "release_margin"}
    unitless |= {"host_share", "feed_share", "shed_clock_share", "coincidence"}
    unitless |= {"rise_quantile_prior", "held_rise_prior", "node_default_share"}
    for kind in (
        tick_values.Topology,
        tick_values.Observations,
        tick_values.Decisions,
        tick_values.PowerSettings,
    ):
        for name, hint in kind.__annotations__.items():
            if "Float" in str(hint) or hint == "float":
                assert name.endswith(units) or name in unitless, f"{kind.__name__}.{name}"


def test_i10_a_node_without_host_unit_is_budgeted_at_its_default_limits() -> None:
    topology = make_topology(oversubscription=1.0)
    bare = replace(topology, node_host_unit=np.array([False, True, True, True]))
    _, _, decisions = step(
        Tick(bare, make_observations(bare, 0), SETTINGS, 0), initial_state(bare, SETTINGS)
    )
    caps = np.where(bare.node_of_gpu <= 1, bare.default_limit_watts, bare.guaranteed_watts)
    # Domain 1 feeds nodes 0 and 1: one without host unit, the other as the largest of 5 %.
    assert decisions.guaranteed_watts[1] == pytest.approx(house_of(bare).worst(1, caps.tolist()))


def test_i10_a_rebooted_node_counts_at_default_until_a_newer_report() -> None:
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    rebooted = np.array([True, False, False, False])
    observed = make_observations(topology, seconds(1), node_rebooted=rebooted)
    state, _, at_boot = step(Tick(topology, observed, SETTINGS, seconds(1)), state)
    _, _, later = step(
        Tick(topology, make_observations(topology, seconds(2)), SETTINGS, seconds(2)), state
    )
    mine = topology.node_of_gpu == 0
    assert np.all(at_boot.highest_cap_watts[mine] == topology.default_limit_watts[mine])
    assert np.all(later.highest_cap_watts[mine] == topology.guaranteed_watts[mine])


OFFENCE = range(12, 15)


def test_i7_a_board_that_offended_is_trusted_again_after_thirty_seconds_without() -> None:
    """Below its knee a board draws 7 % more than its cap and for a look even 12 %: no offence."""
    topology = make_topology()
    state = initial_state(topology, SETTINGS)
    trusted = []
    for tick in range(60):
        energy = topology.guaranteed_watts * (1.12 if tick in OFFENCE or tick % 10 == 0 else 1.07)
        observed = make_observations(
            topology,
            seconds(tick),
            gpu_draw_watts=energy,
            gpu_energy_mean_watts=energy,
            may_raise=False,
        )
        state, _, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        trusted.append(bool(decisions.trusted.all()))
    assert trusted == [tick < 13 or tick >= 44 for tick in range(60)]


def test_i7_boards_that_take_a_lowered_cap_late_are_accused_when_their_time_is_over() -> None:
    memory, reaction_seconds, first_ns = all_trusted(2), 40.0, NS_PER_SECOND
    trusted = []
    for second in range(150):
        cap_watts = 700.0 if second < 60 else 300.0
        # The first never follows; the second does a second before its time is over.
        drawn = np.array([690.0, 690.0 if second < 99 else 310.0])
        now_ns = first_ns + second * NS_PER_SECOND
        memory = judged(memory, drawn, np.full(2, cap_watts), reaction_seconds, now_ns)
        trusted.append(memory.trusted.tolist())
    assert trusted[101] == [True, True]
    assert trusted[106:] == [[False, True]] * 44
