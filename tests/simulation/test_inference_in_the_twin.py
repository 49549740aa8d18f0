"""An inference row in the whole twin: chosen by the scenario, held by the product, its SLOs."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.app.demo_command import build_parser, chosen_scenario, request_lines
from simulation.app.inference_loads import ClassLoad
from simulation.app.load_forecasts import row_loads
from simulation.app.twin_run import run_twin
from simulation.inference_row.compiled_servers import fastest_servers
from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.row_power import GPUS_PER_SERVER, ServerPower
from simulation.inference_row.row_under_policy import polca_scenario
from simulation.inference_servers import HOUR_SECONDS, served_row_in
from simulation.presets import PRESETS, preset_file
from simulation.request_workloads import request_workloads
from simulation.scenario import Scenario, load_scenario
from simulation.work_calendar import WorkCalendar
from simulation.world import World
from tests.simulation.twin_builders import small_scenario
from wattpack.errors import InputError
from wattpack.units import seconds_to_ns

CLASSES = tuple(one.name for one in POLCA_CLASSES)
WORK = {
    "services": [],
    "training": [],
    "batch": {"pods_per_hour": 0.0, "initial_pods": 0},
    "inference_row": {"lengths": "azure"},
}


def row_of(servers: int, rated: float) -> dict[str, object]:
    power = ServerPower.of()
    return {
        "row": {
            "groups": [{"gpu_model": "A100-SXM", "count": servers}],
            "racks": 2,
            "rated_servers": rated,
            "rated_server_watts": power.rated_ac_watts,
            "rack_rated_servers": 1.25 * servers / 2,
            "external_watts": 0.0,
        },
        "plant": power.plant.model_dump(),
    }


def inference(servers: int = 8, rated: float = 8.0, **overrides: object) -> Scenario:
    return small_scenario(**(row_of(servers, rated) | WORK | overrides))


def placed(scenario: Scenario) -> World:
    world = World(scenario)
    for node, work in enumerate(WorkCalendar(scenario).due(0.0)):
        world.start(work, node, world.assignment.choose(work, node))
    return world


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"row": {"gpus_per_server": 4}}, r"row\.gpus_per_server 8"),
        ({}, r"servers of one type"),
        ({"row": {"groups": [{"gpu_model": "A100-SXM", "count": 3}], "racks": 1}}, "at least 4"),
        (
            {"inference_row": {"low_priority_class": "spot"}},
            r"low_priority_class: .* 'spot' is none",
        ),
        ({"inference_row": {"length": "azure"}}, r"inference_row\.length"),
        ({"inference_row": {"lengths": "mine"}}, r"inference_row\.lengths"),
        ({"inference_row": {"begin_hours": -1}}, r"inference_row\.begin_hours"),
    ],
)
def test_a_row_that_such_requests_are_not_known_of_is_refused_by_its_key(
    values: dict[str, object], key: str
) -> None:
    with pytest.raises(InputError, match=key):
        load_scenario(None, **({"inference_row": {}} | values))


def test_boards_without_times_and_lengths_of_others_are_refused_before_anything_runs() -> None:
    def of(model: str, lengths: str) -> Scenario:
        row = {"groups": [{"gpu_model": model, "count": 8}], "racks": 2}
        return load_scenario(None, row=row, inference_row={"lengths": lengths})

    with pytest.raises(InputError, match=r"row\.groups\[\]\.gpu_model"):
        World(of("B200-SXM", "published"))
    with pytest.raises(InputError, match="lengths"):
        World(of("H100-SXM", "azure"))


def test_every_server_is_a_pod_of_its_class() -> None:
    scenario = inference(12)
    works = WorkCalendar(scenario).due(3600.0)
    assert {work.workload for work in works} == set(CLASSES)
    assert len(works) == scenario.row.servers
    assert {work.gpus for work in works} == {GPUS_PER_SERVER}
    of_class = {one.name: one.priority_class for one in request_workloads(scenario)}
    assert of_class == {
        "summarise": "low",
        "chat-low": "low",
        "search": "high",
        "chat-high": "high",
    }
    assert all(work.priority_class == of_class[work.workload] for work in works)


def test_uncapped_the_twin_answers_as_the_row_alone_does() -> None:
    world = placed(inference())
    world.advance(seconds_to_ns(300.0))
    row = served_row_in(world.scenario)
    assert world.inference is not None
    servers = world.inference.work.servers
    alone = fastest_servers(servers.requests, 8, 13 * HOUR_SECONDS, row.times)
    alone.full_speed_watts(300, 1.0)
    mine, theirs = (s.done_seconds - s.requests.arrival_seconds for s in (servers, alone))
    both = np.isfinite(mine) & np.isfinite(theirs)
    assert both.sum() > 100
    # Boards hold their own limit by what their sensors read: prompts take a little longer.
    assert np.median(mine[both]) == pytest.approx(np.median(theirs[both]), rel=0.03)


def test_a_server_without_its_pod_stands_still_and_goes_on_elsewhere() -> None:
    scenario = inference()
    world = placed(scenario)
    world.advance(seconds_to_ns(60.0))
    held = world.assignment.pods["chat-high-0"]
    world.stop("chat-high-0")
    world.advance(seconds_to_ns(120.0))
    assert world.inference is not None
    servers, begin = world.inference.work.servers, 13 * HOUR_SECONDS
    mine = servers.requests.server == held.slot
    done = servers.done_seconds[mine]
    assert not ((done > begin + 60.5) & (done < begin + 120.0)).any()
    others = servers.done_seconds[~mine]
    assert ((others > begin + 60.5) & (others < begin + 120.0)).any()
    world.start(held.work, held.node, held.gpus)
    world.advance(seconds_to_ns(200.0))
    assert (servers.done_seconds[mine] > begin + 120.0).any()


def test_the_ledger_has_each_request_that_was_answered_once() -> None:
    world = placed(inference())
    world.advance(seconds_to_ns(200.0))
    assert world.inference is not None
    servers = world.inference.work.servers
    done = np.isfinite(servers.done_seconds)
    of_class = servers.requests.of_class
    assert world.ledger.requests == np.bincount(of_class[done], minlength=4).tolist()
    come = servers.requests.arrival_seconds <= 13 * HOUR_SECONDS + 200.0
    for k in range(4):
        waits = len(world.unfinished_ages(k, np.inf))
        assert waits == np.count_nonzero(come & ~done & (of_class == k))


def test_the_product_holds_the_row_and_the_result_has_its_slos() -> None:
    # A third more servers than the breaker is for, in busy hours that are half as busy again.
    result = run_twin(
        inference(
            10, 7.4, duration_seconds=120.0, inference_row={"lengths": "azure", "hotter": 0.5}
        )
    )
    assert (result.trips, result.invariant_violations, result.pods_pending) == (0, 0, 0)
    assert result.uncapped_peak_draw_ratio > result.peak_draw_ratio
    assert set(result.request_seconds_by_workload) == set(CLASSES)
    assert set(result.uncapped_request_seconds_by_workload) == set(CLASSES)
    losses = result.request_losses
    assert {"high_first_p50", "low_token_p99", "chat_high_whole_p50"} <= set(losses)
    # Low priority gives way first.
    assert losses["low_whole_p50"] > losses["high_whole_p50"] - 1e-9
    assert losses["low_whole_p50"] > 0.0
    assert all(losses[name] > 0.0 for name in result.request_slos_broken)
    lines = "\n".join(request_lines(result))
    assert all(name in lines for name in (*CLASSES, "POLCA's limits"))


def test_other_work_has_no_losses_of_an_inference_row() -> None:
    result = run_twin(small_scenario())
    assert (result.request_losses, result.request_slos_broken) == ({}, [])
    assert set(result.request_seconds_by_workload) <= {"chat", "summarise"}
    assert request_lines(result) == []


def test_earlier_days_draw_about_what_the_row_does() -> None:
    scenario = inference(40)
    loads = [
        ClassLoad(scenario, k, one.replicas) for k, one in enumerate(request_workloads(scenario))
    ]
    now = np.array([1800.0, -10 * HOUR_SECONDS])  # 13:30, and 03:00 of the same day
    coarse = np.sum([load.gpu_watts(load.rates(now), now) for load in loads], axis=0)
    row = served_row_in(scenario)
    arrivals = row.arrivals(40, seed=3)
    for at, told in zip((13.5, 27.0), coarse, strict=True):
        begin = (at - 0.5) * HOUR_SECONDS
        requests = arrivals.between(begin, begin + HOUR_SECONDS)
        servers = fastest_servers(requests, 40, begin, row.times)
        watts = servers.full_speed_watts(3600, 1.0)[600:].mean(axis=0).sum() * GPUS_PER_SERVER
        assert told == pytest.approx(watts, rel=0.1)


def test_the_row_s_forecast_names_the_classes_tokens() -> None:
    loads = row_loads(World(inference()))
    assert [load["workload"] for load in loads] == list(CLASSES)
    assert all(load["perBoard"] > 0.0 for load in loads)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_chosen_by_a_flag_of_the_demo(name: str) -> None:
    arguments = build_parser().parse_args(["--headless", "--preset", name, "--duration", "60"])
    scenario = chosen_scenario(arguments)
    assert (scenario.name, scenario.duration_seconds) == (name, 60.0)
    World(scenario)


def test_the_inference_preset_is_the_row_of_the_benchmarks() -> None:
    mine = load_scenario(preset_file("inference-row"))
    theirs = polca_scenario(52, mine.seed, ServerPower.of())
    assert (mine.row, mine.plant) == (theirs.row, theirs.plant)
    assert mine.priority_classes == theirs.priority_classes
    with pytest.raises(InputError, match="preset"):
        preset_file("batch-row")
