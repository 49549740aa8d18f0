"""An agent that sees a large rise reports at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from gpu.device_reader import InlineReader
from telemetry.app.agent_process import exchange_until
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.large_rise import REST_NS, LastReport, calls_for_report, told
from telemetry.sampler import DeviceSample, Sampler
from tests.telemetry.telemetry_builders import SECOND, ScriptedDevice, reading, sample
from tests.telemetry.test_node_agent import KnownLink
from wattpack.clock import ManualClock, Wake

SAMPLE_NS = SECOND // 5
JUMP_NS = 5 * SECOND + SECOND // 10


def boards(*watts: float | None) -> Sequence[DeviceSample]:
    return [sample(i, w) for i, w in enumerate(watts)]


@pytest.mark.parametrize(
    ("before", "after", "reports"),
    [
        ((100.0, 100.0), (170.0, 170.0), False),  # 10 % of 1400 W
        ((100.0, 100.0), (171.0, 170.0), True),
        ((100.0, 600.0), (600.0, 100.0), False),  # one rises as the other falls
        ((100.0, None), (110.0, 600.0), False),  # what was not told of before has not risen
        ((100.0, 600.0), (500.0, None), True),  # nor does one that cannot be read any more fall
        ((600.0, 600.0), (100.0, 100.0), False),
    ],
)
def test_only_a_rise_of_the_whole_node_calls_for_a_report(
    before: tuple[float | None, ...], after: tuple[float | None, ...], reports: bool
) -> None:
    last = told(boards(*before), SECOND)
    assert calls_for_report(last, boards(*after), SECOND + REST_NS) == reports


def test_reports_keep_a_distance_and_the_first_one_waits_for_its_period() -> None:
    last = told(boards(100.0), SECOND)
    assert not calls_for_report(last, boards(700.0), SECOND + REST_NS - 1)
    assert not calls_for_report(LastReport(), boards(700.0), 10 * SECOND)


class SamplingClock(ManualClock):
    """Samples five times a second while the exchange loop waits, as the sampling thread does."""

    agent: NodeAgent
    end: threading.Event

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        while self.monotonic_ns() < deadline_ns:
            now_ns = self.monotonic_ns()
            next_ns = now_ns - now_ns % SAMPLE_NS + SAMPLE_NS
            super().wait_until(min(next_ns, deadline_ns))
            if next_ns <= deadline_ns:
                self.agent.sample(next_ns)
                if self.agent.has_risen(next_ns):
                    return True
        if self.monotonic_ns() >= 9 * SECOND:
            self.end.set()
        return False


class Alive:
    alive = True


def test_a_jump_is_reported_with_the_next_sample_and_followed_while_it_climbs() -> None:
    def average(now_ns: int) -> float:
        """A board's own mean of 1 s, of a jump from 100 to 700 W."""
        return 100.0 + 600.0 * min(max(now_ns - JUMP_NS, 0) / SECOND, 1.0)

    clock = SamplingClock(SECOND)
    device = ScriptedDevice(0, lambda now_ns: reading(average(now_ns), now_ns))
    link = KnownLink()
    clock.agent = agent = NodeAgent(
        NodeFacts("n0"), Senses(Sampler(InlineReader([device]))), [link], None, clock
    )
    clock.end = threading.Event()
    sent_ns = []
    link.send = lambda report: sent_ns.append(clock.monotonic_ns())  # type: ignore[method-assign]
    agent.sample(SECOND)
    assert exchange_until(agent, Alive(), clock, clock.new_wake(), clock.end) == 0
    between = [at_ns for at_ns in sent_ns if at_ns % SECOND]
    # 100 ms after the jump the average has risen by 60 W, which is not yet a tenth of 700 W.
    assert between[0] == JUMP_NS + 3 * SECOND // 10
    assert all(JUMP_NS < at_ns <= JUMP_NS + SECOND for at_ns in between)
    assert [at_ns for at_ns in sent_ns if at_ns % SECOND == 0] == [s * SECOND for s in range(1, 9)]
