"""An inference row's servers as pods of the twin: each answers while its pod holds eight boards.

Requests, queues and speeds are ``simulation.inference_row``'s, which benchmarks drive as well; here
they only meet pods. Server k of a class is its pod k: clients keep their servers wherever the pod
runs, and one without a pod, power or a running node stands still with what it was asked and holds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulation import placed as pl
from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.row_power import GPUS_PER_SERVER
from simulation.inference_row.row_work import InferenceWork
from simulation.inference_row.served_rows import ServedRow, served_row_of
from simulation.placed import GpuAssignment
from simulation.scenario import Scenario
from simulation.serving_queues import StepResult
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST_HOURS: Final = 3.0
"""Of requests; a demo that nobody ends goes on without any. A day of 52 H100 servers would be five
million of them and take a quarter of a minute to draw."""

HOUR_SECONDS: Final = 3600.0


class Held(NamedTuple):
    """How each server's boards are held (``inference_row.row_work.HeldBoards``), (n_gpus,) each."""

    drawn_share: Floats
    clock_share: Floats
    alive: Bools


def served_row_in(scenario: Scenario) -> ServedRow:
    """What the servers of a scenario's inference row take and how much they are asked.

    Raises:
        InputError: without an inference row, and for boards of which no such row is known.
    """
    settings = scenario.inference_row
    if settings is None:
        raise InputError("inference_row", "its settings, {} for the defaults", None)
    return served_row_of(scenario.row.groups[0].gpu_model, settings.lengths)


class InferenceServers:
    """The row's servers with their queues; slot i is server i.

    Args:
        scenario: With an inference row, and servers of one type.
        n_slots: Length of what a step tells, at least the number of servers.

    Raises:
        InputError: for boards of which no such row is known.
    """

    def __init__(self, scenario: Scenario, n_slots: int) -> None:
        row, settings = served_row_in(scenario), scenario.inference_row
        assert settings is not None
        self._n = scenario.row.servers
        self._n_slots = n_slots
        arrivals = row.arrivals(self._n, seed=scenario.seed, hotter=settings.hotter)
        self.begin_seconds = HOUR_SECONDS * settings.begin_hours
        runs = scenario.warmup_seconds + scenario.duration_seconds
        end = self.begin_seconds + max(runs, LEAST_HOURS * HOUR_SECONDS)
        requests = arrivals.between(self.begin_seconds, end)
        self._work = InferenceWork(
            requests, arrivals.class_of_server, self.begin_seconds, times=row.times
        )
        self._slot_of: dict[str, int] = {
            f"{one.name}-{i}": int(server)
            for k, one in enumerate(POLCA_CLASSES)
            for i, server in enumerate(np.flatnonzero(arrivals.class_of_server == k))
        }
        self._runs = np.zeros(self._n, dtype=np.bool_)
        self._come = 0
        self._open = np.zeros(0, dtype=np.int64)  # requests that came and are not answered

    @property
    def work(self) -> InferenceWork:
        """With the queues and every request's times, since Monday, midnight."""
        return self._work

    def start(self, pod: str) -> int:
        """A server's pod runs; its slot."""
        slot = self._slot_of[pod]
        self._runs[slot] = True
        return slot

    def stop(self, slot: int) -> None:
        """A server's pod is gone; what it was asked waits."""
        self._runs[slot] = False

    def waiting_since(self, of_class: int) -> Floats:
        """When each request of a class that is not answered arrived, seconds since the start."""
        requests = self._work.servers.requests
        mine = self._open[requests.of_class[self._open] == of_class]
        return np.asarray(requests.arrival_seconds[mine] - self.begin_seconds, dtype=np.float64)

    def step(
        self,
        begin_seconds: float,
        seconds: float,
        drawn_over_wanted: Floats,
        clock_ratio: Floats,
        assignment: GpuAssignment,
    ) -> StepResult:
        """Let the servers answer for one step.

        Args:
            begin_seconds: Since the start.
            seconds: Length of the step.
            drawn_over_wanted: Of each GPU; 0 without power, (n_gpus,).
            clock_ratio: Locked over highest clock of each GPU, (n_gpus,).
            assignment: Which pod holds which GPUs.
        """
        drawn = assignment.slowest(pl.SERVING, drawn_over_wanted, self._n_slots)[: self._n]
        clock = assignment.slowest(pl.SERVING, clock_ratio, self._n_slots)[: self._n]
        alive = self._runs & (drawn > 0.0)
        held = Held(
            np.repeat(drawn, GPUS_PER_SERVER),
            np.repeat(clock, GPUS_PER_SERVER),
            np.repeat(alive, GPUS_PER_SERVER),
        )
        watts = np.zeros(self._n_slots)
        watts[: self._n] = self._work.step(begin_seconds, seconds, held)[::GPUS_PER_SERVER]
        return self._told(begin_seconds + seconds, watts)

    def _told(self, end_seconds: float, watts: Floats) -> StepResult:
        servers, requests = self._work.servers, self._work.servers.requests
        until = self.begin_seconds + end_seconds
        come = int(np.searchsorted(requests.arrival_seconds, until, side="right"))
        candidates = np.concatenate([self._open, np.arange(self._come, come)])
        first, done = servers.tokens_seconds(candidates)
        ended = np.isfinite(done)
        self._open, self._come = candidates[~ended], come
        which = candidates[ended]
        arrived = requests.arrival_seconds[which]
        output = requests.output_tokens[which]
        return StepResult(
            # The servers' own draw holds what they draw without work.
            busy_share=np.ones(self._n_slots),
            busy_watts=watts,
            service=requests.of_class[which],
            latency_seconds=done[ended] - arrived,
            first_token_seconds=first[ended] - arrived,
            tokens=requests.prompt_tokens[which] + output,
            arrived_seconds=arrived - self.begin_seconds,
            output_tokens=output,
        )
