"""When an agent says that the one before it may go."""

from __future__ import annotations

import pytest

from actuator.unix_socket.client import ActuatorUnavailable
from telemetry.app.readiness import PATIENCE_NS, Readiness
from tests.telemetry.telemetry_builders import (
    SECOND,
    KnownActuator,
    actuator_status,
    device_status,
)
from tests.telemetry.test_node_agent import agent_with


def exchanged(*connected: bool, actuator: KnownActuator | None = None) -> str:
    """What an agent waits for, after one exchange with replicas of which some have welcomed it."""
    agent, links, _ = agent_with(400.0, actuator=actuator, links=len(connected))
    for link, is_connected in zip(links, connected, strict=True):
        link.connected = is_connected
    agent.sample(SECOND)
    agent.exchange(SECOND)
    readiness = Readiness(0)
    readiness.look(agent, SECOND)
    return readiness.missing


def absent_actuator() -> KnownActuator:
    """One that does not answer."""
    actuator = KnownActuator(actuator_status(device_status()))
    actuator.error = ActuatorUnavailable("no actuator")
    return actuator


def test_it_is_ready_once_boards_actuator_and_controllers_have_answered() -> None:
    assert Readiness(0).missing
    assert exchanged(True, True) == ""
    assert exchanged(True, actuator=KnownActuator(actuator_status(device_status()))) == ""


@pytest.mark.parametrize(
    ("connected", "actuator", "missing"),
    [
        ((False,), None, "welcomed by 0 of 1 controllers"),
        ((True, False), None, "welcomed by 1 of 2 controllers"),
        ((True,), absent_actuator(), "the actuator does not answer"),
    ],
)
def test_it_says_what_it_waits_for(
    connected: tuple[bool, ...], actuator: KnownActuator | None, missing: str
) -> None:
    assert exchanged(*connected, actuator=actuator) == missing


def test_a_welcome_without_a_report_since_is_not_enough() -> None:
    agent, (link,), _ = agent_with(400.0)
    link.connected = False
    agent.sample(SECOND)
    agent.exchange(SECOND)
    link.connected = True
    assert agent.is_awaited()
    readiness = Readiness(0)
    readiness.look(agent, SECOND)
    assert readiness.missing
    agent.exchange(2 * SECOND)
    assert not agent.is_awaited()
    readiness.look(agent, 2 * SECOND)
    assert readiness.missing == ""


def test_a_replica_that_is_down_is_waited_for_half_a_minute_and_no_controller_for_ever() -> None:
    agent, links, _ = agent_with(400.0, links=2)
    links[1].connected = False
    agent.sample(SECOND)
    agent.exchange(SECOND)
    readiness = Readiness(0)
    readiness.look(agent, PATIENCE_NS - 1)
    assert readiness.missing
    readiness.look(agent, PATIENCE_NS)
    assert readiness.missing == ""
    links[0].connected = False
    alone = Readiness(0)
    alone.look(agent, 100 * PATIENCE_NS)
    assert alone.missing
    # Who was ready stays it: see the class.
    readiness.look(agent, 100 * PATIENCE_NS)
    assert readiness.missing == ""
