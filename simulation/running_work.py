"""The work that runs on the row's GPUs: pods that start and stop, what they serve and compute.

pods ──start, stop──> assignment ──┐
request streams ──> serving fleet ─┼─ step(speeds) ──> what the boards would draw without caps
jobs ────────────> job fleet ──────┘                   tokens, latencies, slowdowns ──> Ledger
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capacity.step_library import shipped_step_tables
from simulation import placed as pl
from simulation.arrivals import RequestStream
from simulation.inference_servers import InferenceServers
from simulation.jobs import JobFleet, JobShape
from simulation.placed import GpuAssignment, Placed, PlacementEvent
from simulation.pod_work import Work, WorkKind
from simulation.row_boards import RowBoards
from simulation.scenario import Scenario
from simulation.serving_queues import Replica, ServingFleet, StepResult
from simulation.serving_steps import BoardState
from simulation.slo import Ledger
from simulation.speeds import BATCH, TRAINING
from simulation.traces import shipped_trace

Floats = NDArray[np.float64]


class GpuSpeeds(NamedTuple):
    """How each GPU is held back now, each (n_gpus,).

    Attributes:
        drawn_over_wanted: Watts drawn over watts wanted at the present clock; 0 without power.
        clock_ratio: Locked over highest clock, 1 without a lock.
        training: Relative speed of training.
        batch: Relative speed of batch work.
    """

    drawn_over_wanted: Floats
    clock_ratio: Floats
    training: Floats
    batch: Floats


class RunningWork:
    """What runs where.

    Args:
        scenario: Services, jobs and their constants.
        boards: The GPUs.

    Attributes:
        assignment: Which pod holds which GPUs.
        record: Every start, and every stop before the work was done.
        moved: Pods that were taken off their GPUs before their work was done.
        inference: Servers that answer in place of the services' replicas.
    """

    def __init__(self, scenario: Scenario, boards: RowBoards) -> None:
        self._scenario, self._boards = scenario, boards
        n_gpus = len(boards.bank)
        self.assignment = GpuAssignment(boards.node_of_gpu)
        self.record: list[PlacementEvent] = []
        self.moved = 0
        self._serving = ServingFleet(n_gpus)
        self.inference: InferenceServers | None = None
        if scenario.inference_row is not None:
            self.inference = InferenceServers(scenario, n_gpus)
        self._jobs = JobFleet(
            n_gpus,
            len(scenario.training),
            scenario.plant.training_dip_ratio,
            scenario.plant.training_dip_share,
        )
        self._streams = [
            RequestStream(
                shipped_trace(service.trace),
                scenario.trace_rate_factor * service.rate_weight,
                scenario.trace_start_seconds + service.trace_offset_seconds,
                scenario.seed,
                i,
            )
            for i, service in enumerate(scenario.services)
        ]
        self._services = {service.name: i for i, service in enumerate(scenario.services)}
        self._done_seconds: dict[str, float] = {}
        self._finished: list[str] = []
        self._finished_ever: set[str] = set()

    # -- pods ------------------------------------------------------------------------------------

    def is_known(self, name: str) -> bool:
        """Whether a pod runs now or has done its work."""
        return name in self.assignment.pods or name in self._finished_ever

    def start(self, now_ns: int, work: Work, node: int, gpus: Sequence[int]) -> None:
        """Let a pod run on GPUs of a server."""
        if work.kind is WorkKind.SERVING and self.inference is not None:
            slot = self.inference.start(work.name)
        elif work.kind is WorkKind.SERVING:
            slot = self._start_replica(self._services[work.workload], node)
        else:
            slot = self._jobs.add(self._shape(work), self._done_seconds.pop(work.name, 0.0))
        self.assignment.place(work, node, gpus, slot)
        self.record.append(PlacementEvent(now_ns, work, node, tuple(gpus), True))

    def _start_replica(self, index: int, node: int) -> int:
        service, boards = self._scenario.services[index], self._boards
        table = shipped_step_tables().find(
            boards.profiles[boards.profile_of_node[node]].model,
            service.language_model,
            service.tensor_parallel,
        )
        return self._serving.add(
            Replica(index, table, service.max_batch, service.prefill_chunk_tokens)
        )

    def _shape(self, work: Work) -> JobShape:
        if work.kind is WorkKind.BATCH:
            return JobShape(-1, 1, work.duration_seconds, work.load_ratio, 1.0)
        names = [job.name for job in self._scenario.training]
        job = self._scenario.training[names.index(work.workload)]
        step = job.step_seconds or self._scenario.plant.training_step_seconds
        return JobShape(names.index(job.name), job.pods, np.inf, 1.0, step)

    def stop(self, now_ns: int, name: str) -> None:
        """Take a pod off its GPUs, if it runs; a job that comes back continues where it stood."""
        if name not in self.assignment.pods:
            return
        placed = self._release(name)
        self.moved += 1
        self.record.append(PlacementEvent(now_ns, placed.work, placed.node, placed.gpus, False))

    def _release(self, name: str) -> Placed:
        placed = self.assignment.release(name)
        if placed.work.kind is WorkKind.SERVING:
            (self.inference.stop if self.inference else self._serving.remove)(placed.slot)
        else:
            self._done_seconds[name] = self._jobs.remove(placed.slot)
        return placed

    def take_finished(self) -> list[str]:
        """Names of batch pods whose work was done since the last call."""
        finished, self._finished = self._finished, []
        return finished

    # -- time ------------------------------------------------------------------------------------

    def step(self, begin: float, seconds: float, speeds: GpuSpeeds, ledger: Ledger) -> Floats:
        """Serve and compute for one step; what the work would draw without caps, (n_gpus,).

        Args:
            begin: Simulated seconds since the start.
            seconds: Length of the step.
            speeds: Of the boards in this step.
            ledger: Takes what was done.
        """
        assignment, n = self.assignment, len(self._boards.bank)
        result = self._serve(begin, seconds, speeds)
        ledger.served(result)
        draw = self._jobs.draw_ratio()
        job_speed = np.minimum(
            assignment.slowest(pl.TRAINING, speeds.training, n),
            assignment.slowest(pl.BATCH, speeds.batch, n),
        )
        done = self._jobs.step(seconds, job_speed)
        self._count_work(ledger)
        for slot in done:
            self._finish(int(slot))
        self._count_windows(ledger)
        return self._demand(result.busy_share, result.busy_watts, draw)

    def _serve(self, begin: float, seconds: float, speeds: GpuSpeeds) -> StepResult:
        drawn, clock = speeds.drawn_over_wanted, speeds.clock_ratio
        assignment, n = self.assignment, len(self._boards.bank)
        if self.inference is not None:
            return self.inference.step(begin, seconds, drawn, clock, assignment)
        for i, stream in enumerate(self._streams):
            self._serving.arrive(i, stream.take(begin))
        state = BoardState(
            assignment.slowest(pl.SERVING, drawn, n),
            assignment.slowest(pl.SERVING, clock, n),
            self._scenario.plant.decode_clock_knee_ratio,
        )
        return self._serving.step(begin, seconds, state)

    def _demand(self, busy_share: Floats, busy_watts: Floats, draw: Floats) -> Floats:
        types, kind, slot = self._boards.types, self.assignment.kind, self.assignment.slot
        context = types.context_watts
        serving = busy_watts[slot] + np.maximum(0.0, 1.0 - busy_share[slot]) * context
        training = np.maximum(context, draw[slot] * types.class_watts(TRAINING))
        batch = np.maximum(context, draw[slot] * types.class_watts(BATCH))
        choices = [self._boards.bank.idle_watts, serving, training, batch]
        return np.asarray(np.choose(kind, choices), dtype=np.float64)

    def _finish(self, slot: int) -> None:
        for name, placed in self.assignment.pods.items():
            if placed.work.kind is WorkKind.BATCH and placed.slot == slot:
                self._finished.append(name)
                self._finished_ever.add(name)
                self._release(name)
                return

    def _count_work(self, ledger: Ledger) -> None:
        """Credit jobs with the GPU-seconds of the step."""
        kind, slot = self.assignment.kind, self.assignment.slot
        for number, name in ((pl.TRAINING, "training"), (pl.BATCH, "batch")):
            mine = slot[kind == number]
            ledger.worked(name, float(self._jobs.last_work_seconds[mine].sum()))

    def _count_windows(self, ledger: Ledger) -> None:
        slowdown, training = self._jobs.take_windows()
        ledger.job_windows("training", slowdown[training])
        ledger.job_windows("batch", slowdown[~training])

    def waiting_since(self, service: int) -> Floats:
        """Arrival of each request under way, simulated seconds."""
        return (self.inference or self._serving).waiting_since(service)
