"""``wattpack agent --local``: this machine's GPUs, for a person at a terminal; no controller."""

from __future__ import annotations

import json
import threading
from typing import Any, Protocol

from telemetry.app.attributor import Attributor
from telemetry.app.device_sources import Source
from telemetry.node_state import NodeState, to_json
from telemetry.sampler import PROCESSES_PERIOD_NS, Sampler
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

ONCE_ROUNDS_NS = NS_PER_SECOND
"""``--once`` samples for a second, so that means and rises are more than one number."""


class Show(Protocol):
    """Shows one state to the person."""

    def __call__(self, state: NodeState, /) -> None:
        """Show it."""
        ...


class LocalAgent:
    """Samples a source and keeps the latest state.

    Args:
        source: The devices.
        attributor: Finds out who uses them.
        clock: Real or virtual time.
        period_ns: Between rounds.
        node: This machine's name.
    """

    def __init__(
        self, source: Source, attributor: Attributor, clock: Clock, period_ns: int, node: str
    ) -> None:
        self._source = source
        self._attributor = attributor
        self._clock = clock
        self._period_ns = period_ns
        self._node = node
        self._sampler = Sampler(source.reader)
        self._submitted_ns: int | None = None
        self.state: NodeState | None = None

    def round(self, *, wait_for_pods: bool = False) -> NodeState:
        """Sample once; the new state."""
        now_ns = self._clock.monotonic_ns()
        self._source.before_round(now_ns)
        samples = self._sampler.sample(now_ns)
        processes = {sample.identity.uuid: sample.processes for sample in samples}
        if wait_for_pods:
            self._attributor.attribute_now(processes)
        elif self._submitted_ns is None or now_ns - self._submitted_ns >= PROCESSES_PERIOD_NS:
            self._attributor.submit(processes)
            self._submitted_ns = now_ns
        self.state = NodeState(
            self._node,
            "",
            now_ns,
            samples,
            self._attributor.latest,
            unidentified=self._source.unidentified,
        )
        return self.state

    def run_once(self) -> NodeState:
        """Sample for a second; the last state with its attribution."""
        start_ns = self._clock.monotonic_ns()
        at_ns = start_ns
        while at_ns < start_ns + ONCE_ROUNDS_NS:
            self.round()
            at_ns += self._period_ns
            self._clock.wait_until(at_ns)
        return self.round(wait_for_pods=True)

    def run(self, show: Show, stop: threading.Event, show_every_ns: int) -> None:
        """Sample until ``stop``; show the state now and then."""
        next_ns = shown_ns = self._clock.monotonic_ns()
        while not stop.is_set():
            state = self.round()
            if state.now_ns >= shown_ns:
                show(state)
                shown_ns = state.now_ns + show_every_ns
            # A late round is skipped, not made up for: samples stay evenly spaced.
            next_ns = max(next_ns + self._period_ns, self._clock.monotonic_ns())
            self._clock.wait_until(next_ns)


def print_json(state: NodeState) -> None:
    """One JSON object a line."""
    print(json.dumps(to_json(state), allow_nan=False), flush=True)


def live_table(note: str) -> tuple[Any, Show]:
    """A ``rich`` live display and the function that updates it."""
    from rich.live import Live

    from telemetry.app.live_table import build_table

    live = Live(refresh_per_second=4, auto_refresh=False)

    def show(state: NodeState) -> None:
        live.update(build_table(state, note), refresh=True)

    return live, show


def print_table(state: NodeState, note: str) -> None:
    """The table once."""
    from rich.console import Console

    from telemetry.app.live_table import build_table

    Console().print(build_table(state, note))
