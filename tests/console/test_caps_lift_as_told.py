"""What ``explain cap`` says of lifting, done and left undone on the real controller.

Each test brings a row into one state, reads the explanation of one GPU from the live view, and then
drives the row on twice: as the explanation says, and otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from console.cap_reasons import explain_gpu
from controller.app.live_view_builder import ViewContext, live_view
from controller.cap_reason import CapReason
from controller.tick_values import Band, Topology
from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology, seconds
from tests.controller.obedient_row import ObedientRow, big_topology, jump_bound_topology
from wattpack.live_view import LiveView

HOT = 690.0
REQUEST = 700.0


def view_of(row: ObedientRow) -> LiveView:
    topology = row.topology
    nobody = [""] * topology.n_gpus
    context = ViewContext(
        wall_time_ns=0,
        tick=row.tick,
        tick_seconds=0.0,
        models=nobody,
        pods=nobody,
        outlooks={},
        temperatures_celsius=np.full(topology.n_gpus, np.nan),
        simulated=True,
        label="",
    )
    return live_view(topology, row.seen, row.decisions, [], context)


def told(row: ObedientRow, gpu: int, reason: CapReason) -> str:
    """What lifts the GPU's cap, after it was seen that this is why it is held."""
    answer = explain_gpu(view_of(row), f"gpu-{gpu}")
    assert answer["reason"] == reason.name
    return f"{answer['sentence']} | {answer['limit']} | {answer['lifts']}"


def lifted(row: ObedientRow, gpu: int, ticks: int, change: Callable[[ObedientRow], None]) -> bool:
    """Whether a row like this one raises the GPU to its request within so many ticks."""
    other = row.fork()
    change(other)
    other.run(ticks)
    return bool(other.caps[gpu] >= min(REQUEST, other.topology.request_watts[gpu]) - 1.0)


def nothing(_: ObedientRow) -> None:
    """Leave everything as it is."""


def draw(watts: float) -> Callable[[ObedientRow], None]:
    return lambda row: row.demand.fill(watts)


def restored(**options: object) -> ObedientRow:
    row = ObedientRow(big_topology(**options))
    row.run(60)
    return row


def first(topology: Topology, priority: int) -> int:
    return int(np.flatnonzero(topology.priority == priority)[0])


def test_a_band_lets_go_by_draw_and_by_what_would_be_drawn_without_caps() -> None:
    row = restored()
    row.demand[:] = HOT
    row.run(20)
    low = first(row.topology, 0)
    domain = view_of(row).domains[row.decisions.binding_domain[low]]
    assert domain.release_watts is not None
    assert domain.calm_watts is not None
    text = told(row, low, CapReason.DOMAIN_BAND)
    assert f"draw less than {domain.release_watts / 1000:,.1f} kW" in text
    assert f"less than {domain.calm_watts / 1000:,.1f} kW" in text
    assert lifted(row, low, 130, draw(150.0))
    assert not lifted(row, low, 130, nothing)


def test_a_band_holds_while_only_its_draw_is_below_release() -> None:
    row = restored()
    row.demand[:] = HOT
    row.run(20)
    row.demand[:] = 150.0
    row.run(45)
    domain = view_of(row).domains[0]
    assert domain.release_watts is not None
    assert domain.calm_watts is not None
    assert domain.uncapped_watts is not None
    assert domain.band == Band.CAPPING.name
    assert domain.draw_watts < domain.release_watts
    assert domain.uncapped_watts > domain.calm_watts, "the condition that is not met is told"
    row.run(60)
    domain = view_of(row).domains[0]
    assert domain.uncapped_watts is not None
    assert domain.calm_watts is not None
    assert domain.uncapped_watts < domain.calm_watts
    assert domain.band == Band.NORMAL.name


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "its rating of"),
        ({"budget_share": 0.9}, "its budget of"),
        ({"imbalance": 1.1}, "what its feeds carry"),
    ],
)
def test_a_band_names_what_it_is_a_share_of(changes: dict[str, float], says: str) -> None:
    budget_share = changes.pop("budget_share", 1.0)
    row = restored(**changes)
    row.changes["budget_watts"] = budget_share * row.topology.tree.rating_watts
    row.demand[:] = HOT
    row.run(20)
    assert says in told(row, first(row.topology, 0), CapReason.DOMAIN_BAND)


def test_a_survivable_jump_lets_go_when_the_breaker_cools_or_others_may_hold_less() -> None:
    row = restored()
    row.state = replace(row.state, heat=np.full(row.topology.n_domains, 0.24))
    row.run(3)
    low, high = first(row.topology, 0), first(row.topology, 10)
    text = told(row, low, CapReason.SURVIVABLE_JUMP)
    assert "cooler breaker (heat 0.24)" in text
    assert row.caps[high] > row.caps[low]

    def cool(other: ObedientRow) -> None:
        other.state = replace(other.state, heat=np.zeros(other.topology.n_domains))

    def others_lower(other: ObedientRow) -> None:
        by_hand = np.where(other.topology.priority == 10, 300.0, np.nan)
        other.changes["override_cap_watts"] = by_hand

    assert lifted(row, low, 30, cool)
    assert lifted(row, low, 30, others_lower)
    assert not lifted(row, low, 30, draw(0.0)), "draws do not count"


def test_a_jump_that_a_capped_domain_may_not_make_waits_for_its_band_too() -> None:
    topology = jump_bound_topology()
    row = ObedientRow(topology)
    row.run(60)
    low = first(topology, 0)
    held = row.caps[low]
    assert "while it caps" not in told(row, low, CapReason.SURVIVABLE_JUMP)
    row.demand[:24] = HOT
    row.run(30)
    assert row.caps[low] < held - 50.0
    domain = view_of(row).domains[0]
    assert domain.jump_limit_watts is not None
    assert domain.survivable_watts is not None
    text = told(row, low, CapReason.SURVIVABLE_JUMP)
    borne = f"{domain.survivable_watts / 1000:,.1f} kW"
    assert f"at most {domain.jump_limit_watts / 1000:,.1f} kW may be while it caps" in text
    assert f"(its breaker survives {borne})" in text
    assert text.endswith(f"or {domain.name} caps no longer")
    calm = row.fork()
    calm.demand[:] = 100.0
    calm.run(130)
    assert calm.caps[low] >= held - 1.0


def test_a_brake_ends_below_its_target_and_not_below_its_cap_band() -> None:
    row = restored(oversubscription=1.35, curve=SWITCHBOARD_THERMAL)
    row.state = replace(row.state, heat=np.full(row.topology.n_domains, 0.49))
    row.demand[:] = row.caps[:] = REQUEST
    row.run(1)
    text = told(row, 0, CapReason.BRAKE)
    domain = next(d for d in view_of(row).domains if f"{d.name} is in the brake" in text)
    assert domain.calm_watts is not None
    assert f"stay at {domain.calm_watts / 1000:,.1f} kW or less" in text
    assert domain.band == Band.BRAKE.name

    def left_brake(share: float) -> bool:
        """Whether it ends while the row's meter stands at this share of its rating."""
        other = row.fork()
        rating = other.topology.tree.rating_watts
        for tick in range(15):
            reading = share * rating * (1.0 + 0.0001 * (tick % 2))
            other.changes["meter_watts"] = reading
            other.changes["meter_time_ns"] = np.full(len(rating), seconds(other.tick))
            other.run(1)
        assert np.allclose(other.decisions.draw_watts, share * rating, rtol=0.005)
        return bool((other.decisions.band != Band.BRAKE).all())

    assert left_brake(0.925)
    assert not left_brake(0.94), "0.94 is below the cap band of 0.95 and above 0.93"


def test_power_that_others_hold_waits_for_their_read_back() -> None:
    topology = big_topology()
    important = topology.priority == 10
    row = ObedientRow(topology)
    row.changes["override_cap_watts"] = np.where(important, 300.0, np.nan)
    row.run(60)
    row.state = replace(row.state, heat=np.full(topology.n_domains, 0.244))
    row.run(20)
    row.deaf = ~important
    row.changes["override_cap_watts"] = np.full(topology.n_gpus, np.nan)
    row.run(60)
    high = first(topology, 10)
    told(row, high, CapReason.WAITING_FOR_READ_BACK)

    def obey(other: ObedientRow) -> None:
        other.deaf[:] = False

    assert lifted(row, high, 60, obey)
    assert not lifted(row, high, 60, nothing)


def test_a_raise_at_its_rate_needs_nobody() -> None:
    row = ObedientRow(big_topology())
    row.run(15)
    gpu = int(np.flatnonzero(row.decisions.reason == CapReason.RAISE_RATE)[0])
    text = told(row, gpu, CapReason.RAISE_RATE)
    rate = view_of(row).domains[0].raise_watts_per_second
    assert rate is not None
    assert f"at {rate / 1000:,.1f} kW a second" in text or "a second at most" in text
    assert lifted(row, gpu, 50, nothing)


@pytest.mark.parametrize("gpu", [0, 1])
def test_an_override_holds_its_board_and_the_gang_of_it(gpu: int) -> None:
    gang = np.full(48, -1)
    gang[:2] = 0
    row = restored(gang=gang.tolist())
    by_hand = np.full(48, np.nan)
    by_hand[0] = 420.0
    row.changes["override_cap_watts"] = by_hand
    row.run(5)
    told(row, gpu, CapReason.OVERRIDE)

    def delete(other: ObedientRow) -> None:
        other.changes["override_cap_watts"] = np.full(48, np.nan)

    assert lifted(row, gpu, 20, delete)
    assert not lifted(row, gpu, 100, nothing)


def test_a_new_leader_waits_for_one_lease() -> None:
    row = restored()
    row.caps[:] = row.topology.guaranteed_watts
    row.changes["epoch"] = 2
    row.confirmed[:] = 0
    row.run(2)
    text = told(row, 0, CapReason.STARTING)
    assert "one lease time" in text
    assert lifted(row, 0, 60, nothing)


@pytest.mark.parametrize(
    ("hold", "release", "reason"),
    [
        ({"may_raise": False}, {"may_raise": True}, CapReason.LEASE_NOT_RENEWED),
        ({"node_epoch": 5}, {"epoch": 6}, CapReason.EPOCH_BEHIND),
        ({"leading": False, "epoch": 0}, {"leading": True, "epoch": 2}, CapReason.NOT_LEADING),
    ],
)
def test_what_stops_a_whole_replica_stops_it_until_it_ends(
    hold: dict[str, int], release: dict[str, int], reason: CapReason
) -> None:
    if "node_epoch" in hold:
        hold = {"node_epoch": np.full(12, 5)}  # type: ignore[dict-item]
    row = ObedientRow(big_topology(), **hold)
    row.run(100)
    told(row, 0, reason)
    assert view_of(row).raises_stopped == reason.name
    assert lifted(row, 0, 80, lambda other: other.changes.update(release))
    assert not lifted(row, 0, 80, nothing)


def test_a_domain_that_recovers_waits_for_its_silent_servers() -> None:
    row = ObedientRow(big_topology())
    row.silence(0, 1, 2, 3)
    row.run(100)
    gpu = int(np.flatnonzero(row.topology.node_of_gpu == 8)[0])
    text = told(row, gpu, CapReason.RECOVERING)
    assert "of 6 servers of d1 are heard" in text or "8 of 12 servers of d0 are heard" in text
    domain = view_of(row).domains[0]
    assert domain.recovering
    assert (domain.servers, domain.heard_servers) == (12, 8)

    def heard(other: ObedientRow) -> None:
        other.heard_ns.clear()

    def one_of_them(other: ObedientRow) -> None:
        del other.heard_ns[0]

    assert lifted(row, gpu, 80, heard)
    assert not lifted(row, gpu, 80, one_of_them)
    assert not lifted(row, gpu, 80, nothing)
    assert lifted(row, gpu, 560, nothing), "a server silent for ten minutes is waited for no more"


def test_a_domain_that_recovers_waits_for_its_breaker() -> None:
    row = ObedientRow(big_topology())
    row.state = replace(row.state, heat=np.full(row.topology.n_domains, 0.15))
    row.run(60)
    text = told(row, 0, CapReason.RECOVERING)
    assert "heat below 0.1" in text

    def cool(other: ObedientRow) -> None:
        other.state = replace(other.state, heat=np.full(other.topology.n_domains, 0.05))

    assert lifted(row, 0, 60, cool)
    assert not lifted(row, 0, 60, nothing)


def test_what_recovers_is_told_beside_what_holds_the_decision() -> None:
    row = ObedientRow(big_topology(), may_raise=False)
    by_hand = np.full(48, np.nan)
    by_hand[0] = 420.0
    row.changes["override_cap_watts"] = by_hand
    row.run(60)
    assert "nothing is raised until the leader renews" in told(row, 0, CapReason.OVERRIDE)


@pytest.mark.parametrize("lost", ["report", "actuator"])
def test_an_uncontrolled_board_waits_for_agent_and_actuator(lost: str) -> None:
    row = restored()
    if lost == "report":
        row.silence(0)
    else:
        row.changes["gpu_controlled"] = row.topology.node_of_gpu != 0
        row.caps[:4] = row.topology.guaranteed_watts[:4]
    row.run(10)
    row.caps[:4] = row.topology.guaranteed_watts[:4]
    told(row, 0, CapReason.UNCONTROLLED)

    def back(other: ObedientRow) -> None:
        other.heard_ns.clear()
        other.changes.pop("gpu_controlled", None)

    assert lifted(row, 0, 60, back)
    assert not lifted(row, 0, 60, nothing)


def test_a_board_that_ignores_its_cap_is_told_as_such_and_not_as_silent() -> None:
    row = ObedientRow(big_topology())
    energy = np.full(48, 100.0)
    energy[0] = 690.0
    row.changes["gpu_energy_mean_watts"] = energy
    row.run(60)
    text = told(row, 0, CapReason.UNTRUSTED)
    assert "keeps its cap for 30 s" in text

    def keep(other: ObedientRow) -> None:
        other.changes["gpu_energy_mean_watts"] = np.full(48, 100.0)

    assert lifted(row, 0, 60, keep)
    assert not lifted(row, 0, 25, keep)
    assert not lifted(row, 0, 60, nothing)


def test_a_rack_that_enforces_is_not_told_that_a_watching_row_caps_it() -> None:
    topology = make_topology(
        nodes=[1, 2] * 6, oversubscription=1.3, enforce=[False, True, True], priority=0
    )
    tree = topology.tree
    wide = replace(tree, rating_watts=np.where(np.arange(3) > 0, 10.0, 1.0) * tree.rating_watts)
    row = ObedientRow(replace(topology, tree=wide))
    row.run(60)
    row.demand[:] = HOT
    row.run(10)
    assert row.caps[0] == REQUEST
    text = told(row, 0, CapReason.DRY_RUN)
    assert "d0 is in DryRun" in text


def test_a_board_that_fell_and_is_only_watched_is_not_said_to_hold_what_it_asks_for() -> None:
    row = ObedientRow(big_topology(enforce=False))
    row.run(60)
    assert row.caps[0] == row.topology.guaranteed_watts[0] < REQUEST
    text = told(row, 0, CapReason.NOT_CAPPED)
    assert "400 W" in text
    assert "d1 is in DryRun" in text
    assert not lifted(row, 0, 60, nothing)
