"""The judge of the demo's first minutes can find somebody guilty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks._idle_judge import IdleJudge, Limits, RepeatJudge, waiting_jobs
from benchmarks.first_minutes import rises_told
from simulation.scenario import load_scenario
from simulation.world import World


@pytest.fixture(scope="module")
def world() -> World:
    """The reference row, dark and empty: every GPU is free and nothing is drawn."""
    return World(load_scenario())


def pod(name: str, gpus: int, gang: str = "", size: int = 1, node: str = "") -> dict[str, Any]:
    notes = {"wattpack.io/kernel-class": "training", "wattpack.io/gang-size": str(size)}
    labels = {"wattpack.io/gang": gang} if gang else {}
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": notes},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
    }


def longest(
    world: World, pods: list[dict[str, Any]], band: float, rise: float = 0.0, low_below: int = 0
) -> int:
    """Longest idle time after five seconds of the same."""
    judge = IdleJudge(world)
    n = len(world.domain_names)
    for second in range(5):
        judge.second(
            second, pods, Limits(np.full(n, band), np.full(n, rise), np.zeros(n), low_below)
        )
    return judge.longest_seconds


def gang(members: int) -> list[dict[str, Any]]:
    return [pod(f"m{i}", 8, "g", 2) for i in range(members)]


@pytest.mark.parametrize(
    ("pods", "band", "rise", "seconds"),
    [
        ([pod("p", 1)], 1e6, 0.0, 5),
        ([], 1e6, 0.0, 0),
        ([pod("p", 1, node="node-000")], 1e6, 0.0, 0),
        ([pod("p", 99)], 1e6, 0.0, 0),
        ([pod("p", 1)], 500.0, 0.0, 0),
        ([pod("p", 1)], 2_000.0, 1_600.0, 0),
        ([pod("p", 1)], np.nan, 0.0, 0),
        (gang(2), 1e6, 0.0, 5),
        (gang(1), 1e6, 0.0, 0),
        (gang(2), 9_000.0, 0.0, 0),
    ],
)
def test_idle_is_a_free_gpu_beside_a_job_that_fits(
    world: World, pods: list[dict[str, Any]], band: float, rise: float, seconds: int
) -> None:
    assert longest(world, pods, band, rise) == seconds


def test_less_is_left_free_before_work_that_may_be_capped(world: World) -> None:
    low = pod("p", 1)
    high = {**low, "spec": {**low["spec"], "priority": 1000}}
    assert longest(world, [low], 2_000.0, 1_600.0, low_below=1000) == 5
    assert longest(world, [high], 2_000.0, 1_600.0, low_below=1000) == 0


def test_room_is_left_for_what_runs_and_none_for_what_plans_start() -> None:
    told = {"now": 280.0, "p50": 408.0, "p99": 408.0}
    assert rises_told(told | {"running": {"p50": 295.0, "p99": 319.0}}) == (39.0, 15.0)
    assert rises_told(told) == (128.0, 128.0)
    assert rises_told({"now": 280.0}) == rises_told({"p50": 1.0, "p99": 2.0}) == (0.0, 0.0)


def test_a_second_without_a_fitting_job_starts_the_count_anew(world: World) -> None:
    judge = IdleJudge(world)
    n = len(world.domain_names)
    limits = Limits(np.full(n, 1e6), np.zeros(n), np.zeros(n))
    for second, pods in enumerate([[pod("p", 1)], [pod("p", 1)], [], [pod("p", 1)]]):
        judge.second(second, pods, limits)
    assert judge.longest_seconds == 2


def test_gangs_wait_together_and_count_once() -> None:
    assert [len(job) for job in waiting_jobs([*gang(2), pod("p", 1)])] == [2, 1]


def test_lines_of_one_kind_and_domain_are_counted_in_every_minute() -> None:
    judge = RepeatJudge()
    for second in (0.0, 20.0, 40.0, 59.0, 61.0):
        judge.line(second, "row", "MeterMismatch")
    judge.line(59.0, "rack-1", "MeterMismatch")
    assert judge.most_in_a_minute == 4
    assert judge.worst == "MeterMismatch of row"
