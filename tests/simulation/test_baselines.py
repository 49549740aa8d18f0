"""The plain rows that the demo is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.app.demo_command import comparison_lines
from simulation.baselines import Floats, compare, run_plain, static_limit_watts, unshared
from simulation.presets import PRESETS, preset_file
from simulation.results import Comparison, summarise
from simulation.scenario import Scenario, load_scenario
from simulation.world import World
from wattpack.units import seconds_to_ns

SECONDS = 90.0


def short() -> Scenario:
    return load_scenario(None, warmup_seconds=20.0, duration_seconds=70.0)


def defaults(world: World) -> Floats:
    return world.bank.default_limit_watts


def test_the_unshared_row_has_the_servers_of_the_rating_in_the_same_mix() -> None:
    row = unshared(short()).row
    assert row.servers == 40
    assert [group.count for group in row.groups] == [31, 9]


def test_static_caps_use_the_breakers_up_and_exceed_none_with_all_gpus_at_their_cap() -> None:
    world = World(short())
    scenario, limits = world.scenario, static_limit_watts(world)
    per_node = np.bincount(world.node_of_gpu, limits) * 1.05 + scenario.plant.worst_host_watts
    ac = per_node / scenario.plant.supply_efficiency
    racks = np.bincount(world.rack_of_node, ac)
    row = racks.sum() + scenario.row.external_watts
    used = max(racks.max() / scenario.rack_rating_watts, row / scenario.row_rating_watts)
    assert used == pytest.approx(1.0, abs=1e-9)


def test_fewer_servers_start_less_and_lower_limits_draw_less() -> None:
    plain = run_plain(short(), SECONDS, defaults)
    fewer = run_plain(unshared(short()), SECONDS, defaults)
    lower = run_plain(short(), SECONDS, static_limit_watts)
    assert plain.tokens_served > 0
    assert fewer.pods_placed < plain.pods_placed
    assert fewer.job_gpu_seconds < plain.job_gpu_seconds
    assert lower.energy_joules < plain.energy_joules
    assert lower.limit_watts < plain.limit_watts


def test_a_plain_row_is_the_same_again() -> None:
    assert run_plain(short(), SECONDS, defaults) == run_plain(short(), SECONDS, defaults)


def test_a_run_that_ended_in_its_warm_up_is_compared_with_nothing() -> None:
    world = World(short())
    world.advance(seconds_to_ns(5.0))
    assert compare(short(), world) == {}
    assert comparison_lines({}, short()) == []


def test_the_table_says_how_far_the_others_are_apart() -> None:
    ours = Comparison(
        servers=52, limit_watts=700.0, tokens_served=0.0, job_gpu_seconds=7200.0,
        energy_joules=1.0, peak_draw_ratio=0.97, trips=0, pods_placed=9,
    )  # fmt: skip
    theirs = ours.model_copy(update={"servers": 40, "job_gpu_seconds": 3600.0})
    lines = comparison_lines({"wattpack": ours, "unshared": theirs}, short())
    assert lines[1].startswith("the same arrivals ")
    assert "40 servers without oversubscription" in lines[3]
    assert "-50%" in lines[3]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_fleet_or_an_inference_row_of_fewer_servers_is_asked_for_less_and_the_table_says_so(
    name: str,
) -> None:
    """Their clients and jobs are as many as the servers make them: no arrivals were refused."""
    ours = Comparison(
        servers=52, limit_watts=400.0, tokens_served=2e6, job_gpu_seconds=7200.0,
        energy_joules=1.0, peak_draw_ratio=0.97, trips=0, pods_placed=52,
    )  # fmt: skip
    lines = comparison_lines({"wattpack": ours}, load_scenario(preset_file(name)))
    assert lines[1].startswith("arrivals grow with servers ")
    assert lines[1].index("tokens") == comparison_lines({"wattpack": ours}, short())[1].index(
        "tokens"
    )


def test_a_run_longer_than_its_scenario_is_compared_over_all_of_its_time() -> None:
    """The demo with the dashboard runs until somebody ends it."""
    scenario = load_scenario(None, warmup_seconds=5.0, duration_seconds=5.0)
    world = World(scenario, ignore_trips=True)
    world.advance(seconds_to_ns(5.0))
    world.reset_accounts()
    world.advance(seconds_to_ns(30.0))
    whole = run_plain(scenario, 30.0, static_limit_watts)
    assert compare(scenario, world)["static_caps"] == whole
    product = {
        "brakes": 0, "invariant_violations": 0, "violations": [], "pods_pending": 0,
        "forecast_coverage_p99": None, "forecast_coverage_n": 0,
    }  # fmt: skip
    assert summarise(world, world, "wattpack", product).simulated_seconds == 25.0
