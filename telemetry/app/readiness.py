"""When the agent that this one follows may go: asked by the kubelet during a rolling update."""

from __future__ import annotations

from telemetry.app.node_agent import NodeAgent
from wattpack.units import NS_PER_SECOND

__all__ = ["PATIENCE_NS", "Readiness"]

PATIENCE_NS = 30 * NS_PER_SECOND
"""A board that never answers, or a replica that is down, holds an update up no longer than this."""


class Readiness:
    """Ready once the boards were read, the actuator answered and controllers have welcomed us.

    It is a fact about the past and stays: the DaemonSet's controller deletes an old pod that is not
    ready as soon as a new one exists, so an agent that said so while no controller is there would
    be replaced on every node at once, by agents that nobody has heard.

    Args:
        started_ns: When the process began, on its clock.

    Attributes:
        missing: What it waits for, for people; empty once ready.
    """

    def __init__(self, started_ns: int) -> None:
        self._patient_until_ns = started_ns + PATIENCE_NS
        self.missing = "no exchange yet"

    def look(self, agent: NodeAgent, now_ns: int) -> None:
        """Judge anew, unless it was ready before."""
        if self.missing:
            self.missing = self._missing(agent, now_ns)

    def _missing(self, agent: NodeAgent, now_ns: int) -> str:
        patient = now_ns < self._patient_until_ns
        unread = agent.state.missing_share()
        if unread >= 1.0 or (patient and unread > 0.0):
            return f"boards without a reading: {unread:.0%}"
        if not agent.has_actuator():
            return "the actuator does not answer"
        welcomes, replicas = agent.welcomes()
        if not welcomes or (patient and welcomes < replicas) or agent.is_awaited():
            return f"welcomed by {welcomes} of {replicas} controllers"
        return ""
