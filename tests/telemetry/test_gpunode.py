"""The node's GpuNode: what it says, when it is written, and what an API that fails costs."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from actuator.lease_messages import DeviceState
from gpu.device import GpuTimeout
from simulation.kube import EmbeddedKube
from telemetry.gpunode import (
    GPU_NODES,
    GpuNodePublisher,
    GpuNodeThread,
    TrustMemory,
    gpunode_status,
)
from telemetry.gpunode.gpunode_publisher import FIELD_MANAGER
from telemetry.node_state import NodeState
from tests.telemetry.telemetry_builders import (
    SECOND,
    actuator_status,
    device_status,
    identity,
    limits,
    node_state,
    reading,
    sample,
)
from wattpack.api import GpuNode
from wattpack.clock import ManualClock, SystemClock
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import ForbiddenError, KubeError, NotFoundError

WALL = 1_700_000_000 * SECOND


def controlled(count: int = 2, cap: float = 700.0, **changes: Any) -> NodeState:
    devices = [device_status(f"GPU-{i}", limit_watts=cap) for i in range(count)]
    values = {"actuator": actuator_status(*devices)} | changes
    return node_state(*(sample(i, limits=limits(cap)) for i in range(count)), **values)


def status_of(state: NodeState, **options: Any) -> dict[str, Any]:
    return gpunode_status(state, **({"has_actuator": True, "wall_time_ns": WALL} | options))


def checked(status: dict[str, Any]) -> dict[str, Any]:
    """The status, after the model of the API took it whole."""
    body = {
        "apiVersion": GPU_NODES.api_version,
        "kind": GPU_NODES.kind,
        "metadata": {"name": "n0"},
        "spec": {"nodeName": "n0"},
        "status": status,
    }
    GpuNode.model_validate(body)
    return status


def condition(status: dict[str, Any]) -> tuple[str, str]:
    (ready,) = status["conditions"]
    return ready["status"], ready["reason"]


def test_the_resource_is_the_one_of_the_api() -> None:
    assert GpuNode.meta.resource == GPU_NODES


def test_a_controlled_node_says_what_its_devices_hold() -> None:
    status = checked(status_of(controlled(cap=500.0)))
    assert status["model"] == "NVIDIA H200"
    assert (status["gpuCount"], status["cappedGpus"], status["health"]) == (2, 2, "Ok")
    assert status["bootId"] == "boot-actuator"
    assert condition(status) == ("True", "Controlled")
    assert status["devices"][1] == {
        "uuid": "GPU-1",
        "model": "NVIDIA H200",
        "index": 1,
        "limitWatts": 500.0,
        "guaranteedWatts": 300.0,
        "defaultLimitWatts": 700.0,
        "state": "Ok",
        "trusted": True,
    }


def test_a_gpu_at_its_default_limit_is_not_capped_and_one_with_a_clock_lock_is() -> None:
    assert status_of(controlled())["cappedGpus"] == 0
    locked = actuator_status(device_status("GPU-0", limit_watts=700.0, lock_max_mhz=1200))
    assert status_of(controlled(1, actuator=locked))["cappedGpus"] == 1


@pytest.mark.parametrize(
    ("state", "health", "verdict"),
    [
        (node_state(), "Unknown", ("False", "NoDevices")),
        (node_state(unidentified=2), "Unreadable", ("False", "DevicesUnreadable")),
        (node_state(sample()), "Uncontrolled", ("False", "NoActuator")),
        (controlled(unidentified=1), "Unreadable", ("False", "DevicesUnreadable")),
        (
            controlled(1, actuator=actuator_status(device_status(state=DeviceState.UNCONTROLLED))),
            "Uncontrolled",
            ("False", "Uncontrolled"),
        ),
        (
            node_state(sample(0, None), actuator=actuator_status(device_status())),
            "Unknown",
            ("False", "DevicesUnreadable"),
        ),
        (
            node_state(
                sample(0, error=GpuTimeout("stuck")), actuator=actuator_status(device_status())
            ),
            "Unreadable",
            ("False", "DevicesUnreadable"),
        ),
    ],
)
def test_health_is_the_worst_device_and_ready_says_why_not(
    state: NodeState, health: str, verdict: tuple[str, str]
) -> None:
    status = checked(status_of(state))
    assert status["health"] == health
    assert condition(status) == verdict


def test_a_node_that_only_reports_is_ready_and_says_so() -> None:
    status = checked(status_of(node_state(sample()), has_actuator=False))
    assert condition(status) == ("True", "ReportOnly")
    assert status["health"] == "Uncontrolled"


def test_more_and_longer_than_the_schema_takes_is_cut() -> None:
    many = [
        sample(i, identity=identity(min(i, 64), uuid=f"G-{i}", model="M" * 500)) for i in range(80)
    ]
    status = checked(status_of(node_state(*many, boot_id="b" * 200)))
    assert len(status["devices"]) == 64
    assert status["gpuCount"] == 80


def test_the_transition_time_moves_with_the_condition_only() -> None:
    first = status_of(controlled())
    later = status_of(controlled(cap=400.0), before=first, wall_time_ns=WALL + 60 * SECOND)
    assert later["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    broken = status_of(node_state(sample()), before=later, wall_time_ns=WALL + 90 * SECOND)
    assert broken["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:14:50Z"


# -- trust (I7) --------------------------------------------------------------------------------


def drawing(mean_watts: float, cap: float, at: int) -> NodeState:
    held = actuator_status(device_status(limit_watts=cap))
    one = sample(reading=reading(mean_watts), energy_mean_watts=mean_watts)
    return node_state(one, actuator=held, now_ns=at * SECOND)


def test_a_device_that_draws_more_than_its_cap_loses_trust_and_earns_it_back() -> None:
    memory = TrustMemory()
    seen = [bool(memory.update(drawing(480.0, 400.0, at))) for at in range(10)]
    assert seen == [False] * 7 + [True] * 3
    assert all(memory.update(drawing(400.0, 400.0, at)) for at in range(10, 39))
    assert not memory.update(drawing(400.0, 400.0, 39))


def test_a_cap_that_was_lowered_just_now_accuses_nobody() -> None:
    memory = TrustMemory()
    for at in range(20):
        assert not memory.update(drawing(690.0, 700.0, at))
    for at in range(20, 24):
        assert not memory.update(drawing(690.0, 300.0, at))
    for at in range(24, 40):
        assert not memory.update(drawing(300.0, 300.0, at))


# -- when it is written ------------------------------------------------------------------------


class Recording:
    """An API that keeps what was applied, and fails when told to."""

    def __init__(self, kube: EmbeddedKube) -> None:
        self.kube = kube
        self.error: KubeError | None = None
        self.parts: list[str] = []

    def apply(self, resource: Any, body: Any, **options: Any) -> Any:
        self.parts.append(options.get("subresource") or "spec")
        if self.error is not None:
            raise self.error
        return self.kube.apply(resource, body, **options)


class Bench:
    """A publisher, its API and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(SECOND)
        self.kube = EmbeddedKube(self.clock)
        self.api = Recording(self.kube)
        self.publisher = make_publisher(self.api, self.clock)

    def run(self, seconds: int, state: NodeState) -> int:
        """Look once a second; how many writes."""
        before = self.publisher.writes
        for _ in range(seconds):
            self.publisher.step(state)
            self.clock.advance_seconds(1)
        return self.publisher.writes - before

    def stored(self) -> GpuNode:
        return GpuNode.model_validate(self.kube.get(GPU_NODES, "n0"))


def make_publisher(api: Any, clock: Any) -> GpuNodePublisher:
    return GpuNodePublisher(
        api, clock, "n0", host_unit=True, has_actuator=True, rng=random.Random(1)
    )


def test_the_object_is_made_and_its_status_written_at_once() -> None:
    bench = Bench()
    assert bench.run(1, controlled()) == 1
    stored = bench.stored()
    assert stored.spec.host_unit
    assert stored.status.observed_generation == stored.generation == 1
    assert [device.limit_watts for device in stored.status.devices] == [700.0, 700.0]
    assert {owner.manager for owner in bench.kube.field_owners(GPU_NODES, "n0")} == {FIELD_MANAGER}


def test_nothing_changes_and_nothing_is_written_for_an_hour() -> None:
    bench = Bench()
    assert bench.run(3599, controlled()) == 1
    assert bench.run(10, controlled()) == 1


def test_caps_that_move_are_written_every_ten_minutes() -> None:
    bench = Bench()
    bench.run(1, controlled())
    writes = sum(bench.run(1, controlled(cap=300.0 + i % 400)) for i in range(1799))
    assert writes == 2


def test_a_state_that_changes_is_written_within_a_second() -> None:
    bench = Bench()
    bench.run(60, controlled())
    assert bench.run(1, node_state(sample(0), sample(1))) == 1
    assert bench.stored().status.health == "Uncontrolled"


def test_a_device_that_comes_and_goes_writes_every_ten_seconds_at_most() -> None:
    bench = Bench()
    writes = sum(bench.run(1, controlled(unidentified=i % 2)) for i in range(100))
    assert 5 <= writes <= 10


def test_a_deleted_object_comes_back() -> None:
    bench = Bench()
    bench.run(60, controlled())
    bench.kube.delete(GPU_NODES, "n0")
    assert bench.run(1, controlled(unidentified=1)) == 1
    assert bench.stored().status.health == "Unreadable"
    assert bench.api.parts == ["spec", "status", "status", "spec", "status"]


def test_failures_are_counted_logged_and_tried_again_ever_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    faulty = FaultyKube(bench.kube, FaultRates(server_error=1.0), clock=bench.clock)
    publisher = bench.publisher = make_publisher(faulty, bench.clock)
    assert bench.run(120, controlled()) == 0
    assert 5 <= publisher.failures <= 12
    assert len([r for r in caplog.records if "not written" in r.message]) == publisher.failures
    faulty.rates = FaultRates()
    assert bench.run(31, controlled()) == 1
    assert bench.stored().status.health == "Ok"


@pytest.mark.parametrize("error", [ForbiddenError("no role"), NotFoundError("no such kind")])
def test_what_retrying_cannot_change_is_tried_every_few_minutes(error: KubeError) -> None:
    bench = Bench()
    bench.api.error = error
    bench.run(600, controlled())
    assert 2 <= bench.publisher.failures <= 4
    bench.api.error = None
    assert bench.run(301, controlled()) == 1


def test_a_write_whose_answer_was_lost_is_written_again() -> None:
    bench = Bench()
    faulty = FaultyKube(bench.kube, FaultRates(lost_answer=1.0), clock=bench.clock)
    bench.publisher = make_publisher(faulty, bench.clock)
    bench.run(1, controlled())
    faulty.rates = FaultRates()
    assert bench.run(5, controlled()) == 1
    assert bench.stored().status.health == "Ok"


def test_the_thread_writes_survives_a_defect_and_ends() -> None:
    clock = SystemClock()
    written, looked = threading.Event(), 0

    class Api:
        def apply(self, resource: Any, body: Any, **options: Any) -> Any:
            if options.get("subresource"):
                written.set()
            return {"metadata": {"generation": 1}}

    def state() -> NodeState:
        nonlocal looked
        looked += 1
        if looked == 1:
            raise RuntimeError("a defect")
        return controlled()

    publisher = make_publisher(Api(), clock)
    thread = GpuNodeThread(publisher, state, clock, look_ns=SECOND // 100)
    thread.start()
    assert written.wait(30)
    thread.stop()
    assert thread.failures == 1
