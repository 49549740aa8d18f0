"""The row as a whole: placed pods make the load, caps slow it, faults strike whom they should."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.cap_effects import DecidedCaps
from simulation.faces import WorldFeeds
from simulation.pod_work import NAMESPACE, pod_manifest
from simulation.row_objects import row_objects
from simulation.scenario import Scenario
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.api import PowerDomain
from wattpack.errors import InputError
from wattpack.power.power_grid import rating_after_feed_loss
from wattpack.units import NS_PER_SECOND

SECOND = NS_PER_SECOND


def place_all(world: World) -> None:
    """First fit, in the scenario's order."""
    for work in world.due(world.now_ns):
        for node in range(len(world.node_names)):
            if len(world.assignment.free(node)) >= work.gpus:
                world.start(work, node, world.assignment.choose(work, node))
                break


def running(scenario: Scenario, seconds: float = 12.0) -> World:
    world = World(scenario)
    place_all(world)
    world.advance(round(seconds * SECOND))
    return world


def bound(world: World, name: str, node: str) -> dict[str, object]:
    pod = pod_manifest(world._calendar.known[name], 0)
    pod["spec"]["nodeName"] = node
    return pod


def test_an_empty_row_draws_idle_watts_and_serves_nobody() -> None:
    world = World(small_scenario())
    world.advance(10 * SECOND)
    assert world.bank.drawn_watts == pytest.approx(world.bank.idle_watts)
    assert sum(world.ledger.requests) == 0


def test_placed_pods_make_the_load() -> None:
    world = running(small_scenario())
    busy = world.assignment.kind > 0
    drawn, idle = world.bank.drawn_watts, world.bank.idle_watts
    assert drawn[~busy] == pytest.approx(idle[~busy])
    assert drawn[busy].mean() > 3 * idle.mean()
    assert world.ledger.requests[0] > 0


def test_calling_often_or_seldom_gives_the_same_bits() -> None:
    seldom = running(small_scenario())
    often = World(small_scenario())
    place_all(often)
    for now_ns in range(0, 12 * SECOND + 1, SECOND // 7):
        often.advance(now_ns)
    often.advance(12 * SECOND)
    assert np.array_equal(seldom.bank.energy_joules, often.bank.energy_joules)
    assert seldom.ledger.tokens == often.ledger.tokens


def test_a_cap_lowers_power_and_slows_the_work_that_it_holds() -> None:
    free, capped = running(small_scenario()), World(small_scenario())
    place_all(capped)
    capped.bank.set_limits(np.full(len(capped.bank), 250.0))
    capped.advance(12 * SECOND)
    assert capped.ledger.energy_joules < 0.85 * free.ledger.energy_joules
    assert sum(capped.ledger.tokens) < sum(free.ledger.tokens)
    work = [world.ledger.gpu_seconds["training"] for world in (free, capped)]
    assert 0.2 < work[1] / work[0] < 0.6


def test_a_clock_lock_slows_training() -> None:
    world = World(small_scenario())
    place_all(world)
    for i in range(len(world.bank)):
        world.bank.set_lock(i, 1200)
    speeds = world._speeds(np.ones(len(world.bank), dtype=np.bool_))
    # What servers make of it: test_serving_queues, "leaves decode alone down to a knee".
    assert speeds.clock_ratio == pytest.approx(1200 / world.bank.max_clock_mhz)
    assert (speeds.training < 0.65).all()


def test_energy_is_the_sum_of_power_over_time() -> None:
    world = running(small_scenario(), 30.0)
    gpu = world.bank.energy_joules.sum()
    assert world.ledger.gpu_joules == pytest.approx(gpu)
    assert world.ledger.energy_joules > gpu / world.scenario.plant.supply_efficiency


def test_pods_start_stop_and_move_as_the_api_shows_them() -> None:
    world = World(small_scenario())
    world.due(0)
    world.pods_changed([bound(world, "chat-0", "node-001"), bound(world, "chat-1", "node-001")])
    assert [use.name for use in world.pod_uses("node-001")] == ["chat-0", "chat-1"]
    assert len(world.pod_uses("node-001")[0].gpu_uuids) == 4
    world.pods_changed([bound(world, "chat-0", "node-003")])
    world.pods_changed([bound(world, "chat-0", "node-003")])
    assert [use.name for use in world.pod_uses("node-003")] == ["chat-0"]
    assert world.pod_uses("node-001") == []
    assert world.moved == 2


def test_pods_that_finish_are_told_once_and_not_started_again() -> None:
    world = World(small_scenario())
    world.due(60 * SECOND)
    batch = min(
        (w for w in world._calendar.known.values() if w.duration_seconds),
        key=lambda w: w.duration_seconds,
    )
    pods = [bound(world, batch.name, "node-000")]
    world.pods_changed(pods)
    world.advance(round((batch.duration_seconds + 2.0) * SECOND))
    assert world.take_finished() == [batch.name]
    world.pods_changed(pods)
    assert world.pod_uses("node-000") == []
    assert world.take_finished() == []


def test_strange_pods_are_ignored_and_impossible_bindings_refused() -> None:
    world = World(small_scenario())
    world.due(0)
    deleted = bound(world, "chat-0", "node-000")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    other = {"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {"nodeName": "node-000"}}
    world.pods_changed([deleted, other, {"metadata": {}, "spec": {}}])
    assert world.pod_uses("node-000") == []
    with pytest.raises(InputError, match="a node of the row"):
        world.pods_changed([bound(world, "chat-0", "node-999")])
    full = [bound(world, name, "node-001") for name in ("chat-0", "chat-1", "summarise-0")]
    with pytest.raises(InputError, match="4 free GPUs"):
        world.pods_changed(full)


def fault(kind: str, **more: object) -> list[dict[str, object]]:
    return [{"kind": kind, "at_seconds": 10.0, "duration_seconds": 20.0, **more}]


def test_a_reboot_loses_limits_changes_the_boot_id_and_stops_the_work_for_a_while() -> None:
    world = World(small_scenario(faults=fault("node_reboot", target="node-002")))
    place_all(world)
    world.bank.set_limits(np.full(len(world.bank), 300.0))
    before = world.boot_id("node-002")
    world.advance(15 * SECOND)
    assert world.boot_id("node-002") != before
    assert world.take_reboots() == ["node-002"]
    assert not world.is_up("node-002")
    mine = world.node_of_gpu == 2
    assert (world.bank.limit_watts[mine] == 700.0).all()
    assert (world.bank.limit_watts[~mine] == 300.0).all()
    assert world.bank.drawn_watts[mine] == pytest.approx(world.bank.idle_watts[mine], rel=0.01)
    world.advance(40 * SECOND)
    assert world.is_up("node-002")


def test_a_driver_reload_loses_limits_and_keeps_the_boot() -> None:
    world = World(small_scenario(faults=fault("driver_reload", target="node-001")))
    world.bank.set_limits(np.full(len(world.bank), 300.0))
    before = world.boot_id("node-001")
    world.advance(15 * SECOND)
    assert world.boot_id("node-001") == before
    assert (world.bank.limit_watts == 700.0).sum() == 8


def test_lasting_faults_begin_and_end_with_their_share_of_boards() -> None:
    world = World(small_scenario(faults=fault("silent_write_failure", share=0.25)))
    counts = {}
    for second in (5, 15, 35):
        world.advance(second * SECOND)
        counts[second] = int(world.bank.silent_writes.sum())
    assert counts == {5: 0, 15: 8, 35: 0}


def test_a_sensor_gain_fault_changes_what_is_sensed_and_at_a_limit_what_is_drawn() -> None:
    plain = running(small_scenario())
    world = running(small_scenario(faults=fault("sensor_gain", ratio=1.05)))
    free = world.bank.shed_watts < 1e-9
    assert 0 < free.sum() < len(free)
    assert world.bank.drawn_watts[free] == pytest.approx(plain.bank.drawn_watts[free])
    ratio = world.bank.sensed_instant_draw_watts() / plain.bank.sensed_instant_draw_watts()
    assert ratio[free] == pytest.approx(1.05)
    # A board holds what it reads: one that reads more comes to draw less.
    assert (world.bank.drawn_watts <= plain.bank.drawn_watts + 1e-6).all()


def test_without_bmcs_nobody_tells_what_servers_draw_and_with_them_it_comes_late() -> None:
    assert running(small_scenario()).server_power("node-000") is None
    row = small_scenario().row.model_dump() | {"bmc": "simulated"}
    world = World(small_scenario(row=row))
    world.advance(3 * SECOND)
    assert world.server_power("node-000") is None
    whole = []
    while world.now_ns < 60 * SECOND:
        world.advance(world.now_ns + SECOND)
        whole.append(world.servers.ac_watts[0])
    told = world.server_power("node-000")
    assert told is not None
    watts, scraped_ns = told
    assert watts % 10.0 == 0.0
    # The mean of two seconds that ended two seconds before the scrape.
    end = scraped_ns // SECOND - 2
    assert watts == pytest.approx(np.mean(whole[end - 2 : end]), rel=0.06)


def test_feeds_that_are_lost_one_after_the_other_add_up() -> None:
    faults = fault("feed_loss", target="row") + fault("feed_loss", target="row")
    row = {"redundancy": "KofN", "feeds": 4, "required_feeds": 2}
    world = World(small_scenario(faults=faults, row=small_scenario().row.model_dump() | row))
    whole = np.array([world.breakers.rating_watts[0], 0.0, 0.0])
    assert world.breakers.load_ratio(whole)[0] == pytest.approx(0.5)
    world.advance(15 * SECOND)
    assert world.breakers.load_ratio(whole)[0] == pytest.approx(1.0)
    specs = [
        PowerDomain.model_validate(body).spec
        for _, body in row_objects(world)
        if body["kind"] == PowerDomain.meta.kind
    ]
    rated = [rating_after_feed_loss(spec.rating_watts, spec.redundancy) for spec in specs]
    assert rated == pytest.approx(world.breakers.rating_watts.tolist())


def test_a_lost_feed_shows_in_what_the_busiest_one_carries() -> None:
    own = {"redundancy": "KofN", "feeds": 4, "required_feeds": 3, "use_reserve": True}
    row = small_scenario().row.model_dump() | own
    world = World(small_scenario(faults=fault("feed_loss", target="row"), row=row))
    assert WorldFeeds(world).read() == {}
    world.advance(8 * SECOND)
    told = {name: share for name, (share, _) in WorldFeeds(world).read().items()}
    assert told == pytest.approx(dict.fromkeys(world.domain_names, 0.25), rel=0.02)
    world.advance(15 * SECOND)
    told = {name: share for name, (share, _) in WorldFeeds(world).read().items()}
    assert told["row"] == pytest.approx(1.0 / 3.0, rel=0.02)
    assert told["rack-0"] == pytest.approx(0.25, rel=0.02)


def test_everything_steps_to_full_power_at_once() -> None:
    world = World(small_scenario(faults=fault("demand_step")))
    world.advance(round(10.5 * SECOND))
    sensed = world.bank.sensed_instant_draw_watts()
    assert (sensed > 1.0 * 700.0).all()
    assert np.median(sensed) == pytest.approx(1.04 * 700.0, rel=0.02)
    world.advance(15 * SECOND)
    assert world.bank.sensed_draw_watts() == pytest.approx(0.99 * 700.0, rel=0.06)
    assert world.breakers.peak_ratio[0] > 1.0


def test_an_unprotected_overload_trips_the_breaker_and_darkens_the_row() -> None:
    step = [{"kind": "demand_step", "at_seconds": 0.0, "duration_seconds": 600.0}]
    scenario = small_scenario(
        faults=step, row=small_scenario().row.model_dump() | {"rated_servers": 2.0}
    )
    world = World(scenario)
    world.advance(60 * SECOND)
    assert world.trips >= 1
    assert world.servers.domain_watts.min() == 0.0
    count = World(scenario, ignore_trips=True)
    count.advance(60 * SECOND)
    assert count.trips >= 1
    assert count.servers.domain_watts.min() > 0.0


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("node_reboot", "node-99"),
        ("feed_loss", "rack-9"),
        ("ignore_cap", "GPU-x"),
        ("api_down", "row"),
    ],
)
def test_a_fault_on_nothing_is_refused(kind: str, target: str) -> None:
    with pytest.raises(InputError, match=r"faults\.0\.target"):
        World(small_scenario(faults=fault(kind, target=target)))


def test_the_clock_of_cap_to_effect_runs_from_the_command_to_the_sensed_drop() -> None:
    world = World(small_scenario(faults=[{"kind": "demand_step", "at_seconds": 0.0,
                                          "duration_seconds": 60.0}]))  # fmt: skip
    world.advance(10 * SECOND)
    caps = np.full(len(world.bank), np.nan)
    caps[:8] = 400.0
    world.note_caps(10 * SECOND, DecidedCaps(caps, np.zeros(len(caps), dtype=np.int64)))
    world.advance(round(10.5 * SECOND))
    world.bank.set_limits(caps, np.isfinite(caps))
    world.advance(20 * SECOND)
    figures = world.effects.figures()
    assert (figures.n, figures.without_effect) == (8, 0)
    # Half a second until the write, then the board settles and its 1 s average follows.
    assert figures.p50_seconds is not None
    assert figures.max_seconds is not None
    assert 1.0 <= figures.p50_seconds <= figures.max_seconds <= 2.5


def test_a_step_of_the_reference_row_is_cheap_in_memory() -> None:
    world = World(small_scenario(trace_rate_factor=40.0))
    place_all(world)
    world.advance(30 * SECOND)
    assert len(world._work._serving._buffer) < 200_000
