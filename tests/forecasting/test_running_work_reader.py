"""A forecaster that starts beside its controller asks again for domains that run in a moment."""

from __future__ import annotations

import numpy as np
import pytest

from forecasting.app.forecast_loop import LOOK_NS, ForecasterProcess
from forecasting.app.running_work_reader import FIRST_LOOKS
from forecasting.memory_source import MemorySource
from simulation.kube import EmbeddedKube
from tests.forecasting.test_domain_boards import domain, node
from wattpack.api import DemandForecast, PowerDomain
from wattpack.clock import ManualClock
from wattpack.kube.port import NODES
from wattpack.units import NS_PER_SECOND, seconds_to_ns

DAY = 144
FORECASTS, DOMAINS = DemandForecast.meta.resource, PowerDomain.meta.resource
ACCEPTED_AFTER_SECONDS = 25.0


class Clock(ManualClock):
    """Calls somebody when a moment is over."""

    def __init__(self) -> None:
        super().__init__(wall_offset_ns=10 * 86400 * NS_PER_SECOND)
        self.waits: list[int] = []

    def wait_until(self, deadline_ns: int, wake: object = None) -> bool:
        self.waits.append(deadline_ns)
        self.advance_to(max(deadline_ns, self.monotonic_ns()))
        return False


class World:
    """One forecaster, one domain that is accepted after its first round, and two rounds."""

    def __init__(self, accepted_after_seconds: float) -> None:
        self.clock = Clock()
        self.kube = EmbeddedKube(self.clock)
        t = np.arange(12 * DAY)
        values = 4000.0 + 500.0 * np.sin(2 * np.pi * t / DAY)
        values += np.random.default_rng(0).normal(0.0, 40.0, len(t))
        source = MemorySource({"domain:row": values})
        self.process = ForecasterProcess(self.clock, self.kube, source)
        made = node("a")
        self.kube.replace(
            NODES, {**self.kube.create(NODES, made), "status": made["status"]}, subresource="status"
        )
        body = {
            "apiVersion": FORECASTS.api_version, "kind": FORECASTS.kind,
            "metadata": {"name": "row", "namespace": "power"},
            "spec": {"target": {"powerDomain": "row", "series": "domain:row"}},
        }  # fmt: skip
        self.kube.create(FORECASTS, body, "power")
        self._due_ns = seconds_to_ns(accepted_after_seconds)
        self._accepted = False
        self.began_ns: list[int] = []

    def run(self, rounds: int) -> None:
        """So many rounds; the domain is accepted when its time comes."""

        def stopped() -> bool:
            self.began_ns.append(self.clock.monotonic_ns())
            return len(self.began_ns) > rounds

        wait = self.clock.wait_until

        def waiting(deadline_ns: int, wake: object = None) -> bool:
            answer = wait(deadline_ns, wake)
            if not self._accepted and self.clock.monotonic_ns() >= self._due_ns:
                made = domain("row", ["a"])
                kept = self.kube.create(DOMAINS, {**made, "status": {}})
                self.kube.replace(DOMAINS, {**kept, "status": made["status"]}, subresource="status")
                self._accepted = True
            return answer

        self.clock.wait_until = waiting  # type: ignore[method-assign]
        self.process.run(stopped)

    @property
    def p99_watts(self) -> float:
        return float(self.kube.get(FORECASTS, "row", "power")["status"]["p99"])


def test_a_domain_that_is_accepted_a_moment_later_is_forecast_with_its_boards() -> None:
    world = World(ACCEPTED_AFTER_SECONDS)
    world.run(1)
    before = world.p99_watts
    assert world.began_ns[1] == 3 * LOOK_NS, "thirty seconds, not ten minutes"
    world.process.tick()
    # Eight boards that stand idle may all be given away before six hours are over.
    assert world.p99_watts > before + 2000.0
    (engine,) = world.process.state.engines.values()
    (issue,) = engine.memory.open_issues
    assert issue.told_peaks.max() == pytest.approx(world.p99_watts, rel=0.2)


def test_nobody_looks_for_ever_for_a_domain_that_nobody_accepts() -> None:
    world = World(accepted_after_seconds=86400.0)
    world.run(3)
    first, second, third, _ = world.began_ns
    assert (second - first, third - second) == (seconds_to_ns(600.0),) * 2
    assert len([at for at in world.clock.waits if at < second]) == FIRST_LOOKS
    assert not [at for at in world.clock.waits if second < at < third]
