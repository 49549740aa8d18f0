"""The agent of one node and the host of many."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from actuator.lease_messages import Operation
from actuator.unix_socket.client import ActuatorUnavailable
from gpu.device import GpuLost
from gpu.device_reader import InlineReader
from telemetry.app.agent_process import BLIND_NS, exchange_until
from telemetry.app.hosted_agents import AgentHost
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.sampler import Sampler
from tests.telemetry.telemetry_builders import (
    SECOND,
    KnownActuator,
    ScriptedDevice,
    actuator_status,
    device_status,
    reading,
)
from wattpack.clock import ManualClock
from wattpack.wire.v1 import power_pb2


class KnownLink:
    """A link in memory."""

    def __init__(self, *, connected: bool = True) -> None:
        self.target = "memory"
        self.connected = connected
        self.report_period_ns: int | None = None
        self.sent: list[power_pb2.NodeReport] = []
        self.hellos: list[power_pb2.Hello] = []
        self.inbox: list[power_pb2.LeaseBatch] = []
        self.closed = False
        self.reopened = 0

    def keep_open(self, now_ns: int, hello: Callable[[], power_pb2.Hello]) -> None:
        self.hellos.append(hello())

    def reopen(self) -> None:
        self.reopened += 1

    def send(self, report: power_pb2.NodeReport) -> None:
        self.sent.append(report)

    def take(self) -> list[power_pb2.LeaseBatch]:
        taken, self.inbox = self.inbox, []
        return taken

    def close(self) -> None:
        self.closed = True


class HandlingClock(ManualClock):
    handled = 0

    def message_handled(self, count: int = 1) -> None:
        self.handled += count


def batch(**changes: Any) -> power_pb2.LeaseBatch:
    leases = [power_pb2.DeviceLease(uuid="GPU-0", cap_watts=450.0)]
    values: dict[str, Any] = {"epoch": 2, "sequence": 8, "nonce": 11, "ttl_ms": 5000}
    values["devices"] = leases
    return power_pb2.LeaseBatch(**(values | changes))


def agent_with(
    *watts: float, actuator: KnownActuator | None = None, links: int = 1, **facts: Any
) -> tuple[NodeAgent, list[KnownLink], HandlingClock]:
    devices = [
        ScriptedDevice(i, lambda now_ns, w=w: reading(w, now_ns, sm_clock_mhz=1900))  # type: ignore[misc]
        for i, w in enumerate(watts)
    ]
    clock = HandlingClock(SECOND)
    known = [KnownLink() for _ in range(links)]
    agent = NodeAgent(
        NodeFacts("n0", "boot-os", "0.1", **facts),
        Senses(Sampler(InlineReader(devices))),
        known,
        actuator,
        clock,
    )
    return agent, known, clock


def test_each_exchange_reports_the_same_fresh_nonce_to_every_replica() -> None:
    actuator = KnownActuator(actuator_status(device_status()))
    agent, links, _ = agent_with(400.0, actuator=actuator, links=2)
    agent.sample(SECOND)
    agent.exchange(SECOND)
    actuator.answer = actuator_status(device_status(), nonce=12)
    agent.exchange(2 * SECOND)
    for link in links:
        assert [(r.sequence, r.nonce) for r in link.sent] == [(1, 11), (2, 12)]
        assert link.hellos[0].devices[0].uuid == "GPU-0"


def test_a_batch_goes_to_the_actuator_and_is_told_to_the_clock() -> None:
    actuator = KnownActuator(actuator_status(device_status()))
    agent, (link,), clock = agent_with(400.0, actuator=actuator)
    link.inbox = [batch(), batch(sequence=9)]
    assert agent.handle() == 2
    assert [command.sequence for command in actuator.commands] == [8, 9]
    assert clock.handled == 2


@pytest.mark.parametrize("bad", [batch(nonce=0), batch(ttl_ms=0)])
def test_a_malformed_batch_never_reaches_the_actuator(bad: power_pb2.LeaseBatch) -> None:
    actuator = KnownActuator(actuator_status(device_status()))
    agent, (link,), clock = agent_with(400.0, actuator=actuator)
    link.inbox = [bad]
    agent.handle()
    assert actuator.commands == []
    assert agent.refused_batches == 1
    assert clock.handled == 1


def test_a_refusal_of_the_actuator_is_counted() -> None:
    actuator = KnownActuator(actuator_status(device_status()), accepts=False)
    agent, (link,), _ = agent_with(400.0, actuator=actuator)
    link.inbox = [batch()]
    agent.handle()
    assert agent.refused_batches == 1


def test_a_silent_actuator_makes_the_node_uncontrolled_and_nothing_stops() -> None:
    actuator = KnownActuator(actuator_status(device_status()))
    agent, (link,), _ = agent_with(400.0, actuator=actuator)
    agent.sample(SECOND)
    assert agent.exchange(SECOND).devices[0].state == power_pb2.DEVICE_STATE_OK
    actuator.error = ActuatorUnavailable("gone")
    report = agent.exchange(2 * SECOND)
    assert report.nonce == 0
    assert report.devices[0].state == power_pb2.DEVICE_STATE_UNCONTROLLED
    link.inbox = [batch()]
    assert agent.handle() == 1
    actuator.error = None
    assert agent.exchange(3 * SECOND).nonce == 11


def test_a_node_above_its_own_limit_cuts_itself_at_once() -> None:
    held = [device_status(f"GPU-{i}", limit_watts=700.0) for i in range(2)]
    actuator = KnownActuator(actuator_status(*held))
    agent, _, _ = agent_with(600.0, 600.0, actuator=actuator, limit_watts=1300.0, other_watts=200.0)
    agent.sample(SECOND)
    assert agent.over_limit()
    cuts = agent.guard(SECOND)
    assert {cut.uuid for cut in cuts} == {"GPU-0", "GPU-1"}
    (command,) = actuator.commands
    assert (command.epoch, command.sequence, command.nonce) == (2, 7, 11)
    assert all(device.operation is Operation.LOCK_CLOCKS for device in command.devices)
    assert sum(device.cap_watts or 0 for device in command.devices) + 200.0 < 1300.0
    assert agent.guard(SECOND + SECOND // 2) == ()
    assert len(agent.guard(2 * SECOND)) == 2
    assert agent.sample(3 * SECOND).emergency_cuts == 2


def test_the_guard_does_nothing_below_the_limit_or_before_any_lease() -> None:
    actuator = KnownActuator(actuator_status(device_status(), highest_epoch=0, highest_sequence=0))
    agent, _, _ = agent_with(600.0, actuator=actuator, limit_watts=500.0)
    agent.sample(SECOND)
    assert agent.guard(SECOND) == ()
    calm, _, _ = agent_with(300.0, actuator=actuator, limit_watts=500.0)
    calm.sample(SECOND)
    assert not calm.over_limit()
    assert calm.guard(SECOND) == ()
    assert actuator.commands == []


def test_an_unreadable_device_counts_at_its_limit_for_the_guard() -> None:
    agent, _, _ = agent_with(limit_watts=100.0)
    assert not agent.over_limit()

    def fail(now_ns: int) -> Any:
        raise GpuLost("gone")

    device = ScriptedDevice(0, lambda now_ns: reading(50.0, now_ns))
    agent = NodeAgent(
        NodeFacts("n0", limit_watts=600.0),
        Senses(Sampler(InlineReader([device]))),
        [],
        None,
        ManualClock(),
    )
    agent.sample(SECOND)
    assert not agent.over_limit()
    device.on_read = fail
    agent.sample(2 * SECOND)
    assert agent.over_limit()


def test_the_shortest_period_asked_for_rules() -> None:
    agent, links, _ = agent_with(1.0, links=2)
    assert agent.report_period_ns() == SECOND
    links[0].report_period_ns = SECOND // 2
    links[1].report_period_ns = SECOND // 4
    assert agent.report_period_ns() == SECOND // 4


def test_a_host_runs_many_nodes_on_virtual_time() -> None:
    built = [agent_with(float(100 * i)) for i in range(1, 4)]
    clock = ManualClock(SECOND)
    host = AgentHost([agent for agent, _, _ in built], clock, clock.new_wake())
    built[0][1][0].inbox = [batch()]
    times: list[int] = []

    def before(now_ns: int) -> None:
        times.append(now_ns)
        if len(times) == 5:
            host.stop()

    host._before_round = before
    host.run()
    host.close()
    assert [(b - a) for a, b in itertools.pairwise(times)] == [SECOND] * 4
    assert all(len(links[0].sent) == 5 for _, links, _ in built)
    assert all(links[0].closed for _, links, _ in built)


class AlwaysSampling:
    alive = True


def test_an_agent_that_sees_no_board_for_a_minute_asks_to_be_started_anew() -> None:
    def fail(now_ns: int) -> Any:
        raise GpuLost("the driver was reloaded")

    clock = ManualClock(SECOND)
    link = KnownLink()
    senses = Senses(Sampler(InlineReader([ScriptedDevice(0, fail)])))
    agent = NodeAgent(NodeFacts("n0"), senses, [link], None, clock)
    agent.sample(SECOND)
    status = exchange_until(agent, AlwaysSampling(), clock, clock.new_wake(), threading.Event())
    assert status == 1
    assert clock.monotonic_ns() == SECOND + BLIND_NS
    assert len(link.sent) == 60


def test_an_agent_whose_sampling_ended_ends_too() -> None:
    agent, (link,), clock = agent_with(1.0)
    sampling = AlwaysSampling()
    sampling.alive = False
    assert exchange_until(agent, sampling, clock, clock.new_wake(), threading.Event()) == 1
    assert link.sent == []


def test_an_agent_that_is_told_to_stop_ends_well() -> None:
    agent, _, clock = agent_with(1.0)
    stop = threading.Event()
    stop.set()
    assert exchange_until(agent, AlwaysSampling(), clock, clock.new_wake(), stop) == 0


def test_a_board_that_answers_at_last_is_described_anew_to_every_controller() -> None:
    agent, links, _ = agent_with(400.0, 300.0, links=2)
    hung = agent._sampler
    whole = hung.sample(SECOND)
    hung._samples[1] = replace(whole[1], limits=None)
    agent.exchange(SECOND)
    agent.exchange(2 * SECOND)
    assert [link.reopened for link in links] == [0, 0]
    assert links[0].hellos[-1].devices[1].default_limit_watts == 0.0
    hung._samples[1] = whole[1]
    for second in range(3, 6):
        agent.exchange(second * SECOND)
    assert [link.reopened for link in links] == [1, 1]
    assert links[0].hellos[-1].devices[1].default_limit_watts == 700.0


def test_a_board_that_the_actuator_does_not_hold_costs_the_others_nothing() -> None:
    actuator = KnownActuator(actuator_status(device_status("GPU-0")))
    agent, (link,), _ = agent_with(400.0, 300.0, actuator=actuator)
    agent.sample(SECOND)
    agent.exchange(SECOND)
    leases = [power_pb2.DeviceLease(uuid=f"GPU-{i}", cap_watts=450.0) for i in range(2)]
    link.inbox = [batch(devices=leases), batch(sequence=9, devices=leases[1:])]
    agent.handle()
    named = [[device.uuid for device in command.devices] for command in actuator.commands]
    # One for none of its boards is the actuator's to refuse.
    assert named == [["GPU-0"], ["GPU-1"]]
