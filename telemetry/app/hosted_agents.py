"""The agents of many nodes in one thread: the demo hosts a whole row this way.

Each hosted agent is the same ``NodeAgent`` as on a real node; only the boards are read in the
loop's own thread, since simulated boards cannot hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from telemetry.app.node_agent import NodeAgent
from wattpack.clock import Clock, Wake
from wattpack.units import NS_PER_SECOND


def nothing_before(now_ns: int) -> None:
    """The owner of the boards moves them."""


class AgentHost:
    """Runs many node agents on one shared clock.

    Each round samples every node, then reports every node; batches are handled as they come.
    It blocks only in ``clock.wait_until``.

    Args:
        agents: Of the nodes.
        clock: Shared by everybody in the row; may be virtual.
        wake: What the agents' links set when a batch came.
        period_ns: Between rounds; one report a round.
        before_round: Called with the time before each round.
        together: What it gives is entered while all nodes report.
    """

    def __init__(
        self,
        agents: Sequence[NodeAgent],
        clock: Clock,
        wake: Wake,
        *,
        period_ns: int = NS_PER_SECOND,
        before_round: Callable[[int], None] = nothing_before,
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.agents = tuple(agents)
        self._clock = clock
        self._wake = wake
        self._period_ns = period_ns
        self._before_round = before_round
        self._together = together
        self._stopping = False
        self.rounds = 0

    def run(self) -> None:
        """Run until ``stop``."""
        next_ns = self._clock.monotonic_ns()
        while not self._stopping:
            now_ns = self._clock.monotonic_ns()
            if now_ns >= next_ns:
                self.round(now_ns)
                next_ns = max(next_ns + self._period_ns, now_ns)
            self.handle()
            self._clock.wait_until(next_ns, self._wake)
        self.handle()

    def round(self, now_ns: int) -> None:
        """Sample and report every node once."""
        self._before_round(now_ns)
        for agent in self.agents:
            agent.read(now_ns)
            agent.guard(now_ns)
        with self._together():
            for agent in self.agents:
                agent.exchange(now_ns)
        self.rounds += 1

    def handle(self) -> int:
        """Hand all batches that came to their actuators; how many."""
        return sum(agent.handle() for agent in self.agents)

    def stop(self) -> None:
        """Let ``run`` return; may be called from any thread."""
        self._stopping = True
        self._wake.set()

    def close(self) -> None:
        """End all streams."""
        for agent in self.agents:
            agent.close()
