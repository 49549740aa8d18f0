"""What the status of a domain says of pods that got a node lately."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller.app.arrival_book import ArrivalBook, PodsOnGpus
from controller.app.tick_loop import TickOutcome
from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from wattpack.api.power_domain import MAX_ARRIVALS, Arrival
from wattpack.kube.port import JsonObject
from wattpack.times import rfc3339

NOW_NS = seconds(1_000_000)
Key = tuple[str, str]


def pod(name: str, age_seconds: float) -> JsonObject:
    bound = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": rfc3339(NOW_NS - seconds(age_seconds)),
    }
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "status": {"conditions": [bound]}}


def told(
    pods: dict[str, list[int]],
    ages: dict[str, float],
    book: ArrivalBook | None = None,
    after_seconds: float = 0.0,
    **seen: Any,
) -> dict[str, list[Arrival]]:
    """Arrivals of pods on GPUs by position; two racks d1 and d2, 16 boards of 70 to 700 W."""
    topology: Topology = make_topology()
    now_ns = seconds(5)
    observed = make_observations(topology, now_ns, **seen)
    state = initial_state(topology, SETTINGS)
    _, _, decisions = step(Tick(topology, observed, SETTINGS, now_ns), state)
    outcome = TickOutcome(topology, observed, decisions, NOW_NS + seconds(after_seconds))
    objects: dict[Key, JsonObject] = {("team", n): pod(n, age) for n, age in ages.items()}
    on = {f"gpu-{i}": ("team", name) for name, gpus in pods.items() for i in gpus}
    idle = dict.fromkeys(topology.gpu_uuids, 70.0)
    return (book or ArrivalBook()).take(outcome, PodsOnGpus(objects, on, idle))


def test_a_new_pod_is_told_with_what_its_boards_draw_above_idle() -> None:
    found = told({"a": [0, 1], "b": [8]}, {"a": 10, "b": 119}, gpu_draw_watts=np.full(16, 370.0))
    assert found == {
        "d1": [Arrival(pod_uid="uid-a", draw_watts=600)],
        "d2": [Arrival(pod_uid="uid-b", draw_watts=300)],
    }


def test_a_pod_past_its_ramp_and_one_that_nobody_knows_are_not_told() -> None:
    assert told({"old": [0], "unknown": [1]}, {"old": 121}) == {}


def test_a_pod_with_an_unread_board_or_a_silent_node_is_left_out() -> None:
    watts = np.full(16, 370.0)
    watts[0] = np.nan
    received = np.full(4, seconds(5), dtype=np.int64)
    received[1] = -1
    ages = {"unread": 10.0, "silent": 10.0, "fine": 10.0}
    found = told(
        {"unread": [0, 1], "silent": [4], "fine": [8]},
        ages,
        gpu_draw_watts=watts,
        node_received_ns=received,
    )
    assert found == {"d2": [Arrival(pod_uid="uid-fine", draw_watts=300)]}


def test_a_board_below_idle_takes_nothing_away() -> None:
    assert told({"a": [0]}, {"a": 1}, gpu_draw_watts=np.full(16, 30.0)) == {
        "d1": [Arrival(pod_uid="uid-a", draw_watts=0)]
    }


@pytest.mark.parametrize(
    ("watts", "at_work"),
    [([370.0, 370.0, 370.0], True), ([370.0, 120.0, 370.0], False), ([120.0] * 3, False)],
)
def test_a_pod_that_draws_like_work_for_ten_seconds_is_at_work(
    watts: list[float], at_work: bool
) -> None:
    """Copying weights in is no work, nor is a burst."""
    book = ArrivalBook()
    for second, drawn in zip((0.0, 5.0, 10.0), watts, strict=True):
        full = np.full(16, drawn)
        found = told({"a": [0]}, {"a": 1}, book, second, gpu_draw_watts=full)
    assert found["d1"][0].at_work is at_work


def test_a_status_has_room_for_every_arrival_of_a_large_rack() -> None:
    assert MAX_ARRIVALS >= 8 * 32
