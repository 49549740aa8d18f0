"""The whole simulated row, step by step: GPUs, servers, breakers, meters, and the work on them.

    world = World(load_scenario(path))
    for work in world.due(now_ns): ...        # create pod_manifest(work, …) in the API
    world.pods_changed(pods)                  # after each change: all pods as the API shows them
    world.advance(to_ns)                      # physics and queues up to a time
    world.driver(node)                        # GPUs behind the device port (agents, actuators)
    world.host_watts(node)                    # server without its GPUs, DC watts, as sensed
    world.meter("row")                        # newest delivered reading, or None
    world.boot_id(node); world.pod_uses(node) # what an agent reports besides
    world.take_finished()                     # batch pods whose work is done: delete them
    world.faults.any_active(kind, now_ns)     # faults of the product's own processes
    world.note_caps(now_ns, caps)             # a decision, starts clocks of cap-to-effect
    world.record                              # placements, for results.replay_uncapped
    world.reset_accounts()                    # at the end of the warm-up

The plant moves in whole steps of ``scenario.step_seconds``: ``advance`` goes to the last one that
is not after the given time, so results do not depend on how often it is called. One lock guards
``advance`` and ``pods_changed``; device reads and writes between steps need none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from capacity.profile_library import shipped_library
from capacity.serving_model import find_serving
from gpu.simulated.simulated_device import SimulatedDriver
from simulation import placed as pl
from simulation.arrivals import RequestStream
from simulation.cap_effects import CapEffects, DecidedCaps
from simulation.fault_plan import FaultSchedule
from simulation.jobs import JobFleet, JobShape
from simulation.placed import (
    GpuAssignment,
    Placed,
    PlacementEvent,
    PodUseView,
    bound_pods,
)
from simulation.plant import (
    ServerRow,
    breakers_of,
    check_ratings,
    domain_names,
    node_names,
    rack_of_nodes,
)
from simulation.plant_breakers import Meters
from simulation.plant_faults import StruckPlant
from simulation.pod_work import NAMESPACE, WORK_LABEL, Work, WorkKind, batch_works, standing_works
from simulation.row_boards import build_boards
from simulation.scenario import Scenario
from simulation.serving_queues import ServingFleet
from simulation.slo import Ledger
from simulation.speeds import BATCH, DECODE, PREFILL, TRAINING
from simulation.traces import shipped_trace
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, NodeName, seconds_to_ns

Floats = NDArray[np.float64]

MIN_SPEED = 1e-6
"""Stands for no progress at all where a division follows."""


class World:
    """The plant and the work of one run.

    Args:
        scenario: What to build.
        start_ns: The clock's reading at simulated second 0.
        ignore_trips: Breakers only count their trips (the uncapped comparison run).
    """

    def __init__(
        self, scenario: Scenario, start_ns: int = 0, *, ignore_trips: bool = False
    ) -> None:
        self.scenario = scenario
        self.start_ns = self.now_ns = start_ns
        self._ignore_trips = ignore_trips
        self._step_ns = seconds_to_ns(scenario.step_seconds)
        self._lock = threading.RLock()
        self.node_names = node_names(scenario)
        self.domain_names = domain_names(scenario)
        self.rack_of_node = rack_of_nodes(scenario)
        boards = build_boards(scenario, self._generator(6), start_ns)
        self.profiles, self.profile_of_node = boards.profiles, boards.profile_of_node
        self.node_of_gpu, self.gpu_uuids = boards.node_of_gpu, boards.uuids
        self.bank, self.types = boards.bank, boards.types
        check_ratings(scenario, self.bank.min_limit_watts, self.node_of_gpu)
        self.servers = ServerRow(scenario, self.node_of_gpu, self._generator(4))
        self.breakers = breakers_of(scenario)
        self._meters = Meters(
            scenario.row.meter, len(self.domain_names), self._generator(5), start_ns
        )
        self.faults = FaultSchedule(
            scenario.faults,
            self.gpu_uuids,
            self.node_names,
            self.domain_names,
            self.node_of_gpu,
            scenario.seed,
        )
        self._struck = StruckPlant(
            self.faults, self.bank, self.breakers, self._meters, self.node_names, start_ns
        )
        self._build_work()
        self.trips = 0

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.scenario.seed, stream))

    def _build_work(self) -> None:
        scenario = self.scenario
        n_gpus = len(self.bank)
        self.assignment = GpuAssignment(self.node_of_gpu)
        self._serving = ServingFleet(n_gpus)
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
        self._works: dict[str, Work] = {}
        self._batch: Iterator[Work] = batch_works(scenario)
        self._coming: list[Work] = standing_works(scenario)
        self._next_batch = next(self._batch, None)
        self._done_seconds: dict[str, float] = {}
        self._finished: list[str] = []
        self._finished_ever: set[str] = set()
        self.effects = CapEffects(n_gpus)
        self.ledger = Ledger(len(scenario.services))
        self.record: list[PlacementEvent] = []
        self.moved = 0
        self._next_sample_ns = self.start_ns

    # -- work ------------------------------------------------------------------------------------

    def due(self, now_ns: int) -> list[Work]:
        """Pods to create now; each is given once."""
        seconds = (now_ns - self.start_ns) / NS_PER_SECOND
        works = [w for w in self._coming if w.start_seconds <= seconds]
        self._coming = [w for w in self._coming if w.start_seconds > seconds]
        while self._next_batch is not None and self._next_batch.start_seconds <= seconds:
            works.append(self._next_batch)
            self._next_batch = next(self._batch, None)
        self._works.update({work.name: work for work in works})
        return works

    def pods_changed(self, pods: Sequence[Mapping[str, object]]) -> None:
        """Take in all pods as the API shows them now: start the new, stop those that are gone.

        Raises:
            InputError: if a pod is bound to an unknown node or to one without free GPUs.
        """
        bound = bound_pods(pods, WORK_LABEL)
        with self._lock:
            for name, placed in tuple(self.assignment.pods.items()):
                if bound.get(name) != self.node_names[placed.node]:
                    self._stop(name)
            for name, node in bound.items():
                work = self._works.get(name)
                known = name in self.assignment.pods or name in self._finished_ever
                if work is None or known:
                    continue
                if node not in self.node_names:
                    raise InputError("spec.nodeName", "a node of the row", node, name)
                index = self.node_names.index(node)
                self.start(work, index, self.assignment.choose(work, index))

    def start(self, work: Work, node: int, gpus: Sequence[int]) -> None:
        """Let a pod run on GPUs of a server."""
        self._works.setdefault(work.name, work)
        if work.kind is WorkKind.SERVING:
            service = self.scenario.services[self._services[work.workload]]
            times = find_serving(
                shipped_library().serving,
                self.profiles[self.profile_of_node[node]].model,
                service.language_model,
                service.tensor_parallel,
            )
            slot = self._serving.add(
                self._services[work.workload],
                times,
                service.max_batch,
                service.prefill_chunk_tokens,
            )
        else:
            slot = self._jobs.add(self._shape(work), self._done_seconds.pop(work.name, 0.0))
        self.assignment.place(work, node, gpus, slot)
        self.record.append(PlacementEvent(self.now_ns, work, node, tuple(gpus), True))

    def _shape(self, work: Work) -> JobShape:
        if work.kind is WorkKind.BATCH:
            return JobShape(-1, 1, work.duration_seconds, work.load_ratio, 1.0)
        names = [job.name for job in self.scenario.training]
        job = self.scenario.training[names.index(work.workload)]
        step = job.step_seconds or self.scenario.plant.training_step_seconds
        return JobShape(names.index(job.name), job.pods, np.inf, 1.0, step)

    def _stop(self, name: str) -> Placed:
        """Take a pod off its GPUs; a job that comes back continues where it stood."""
        placed = self.assignment.release(name)
        if placed.work.kind is WorkKind.SERVING:
            self._serving.remove(placed.slot)
        else:
            self._done_seconds[name] = self._jobs.remove(placed.slot)
        if name not in self._finished_ever:
            self.moved += 1
            self.record.append(
                PlacementEvent(self.now_ns, placed.work, placed.node, placed.gpus, False)
            )
        return placed

    def stop(self, name: str) -> None:
        """Take a pod off its GPUs (replay of a recorded eviction)."""
        if name in self.assignment.pods:
            self._stop(name)

    def take_finished(self) -> list[str]:
        """Names of batch pods whose work was done since the last call."""
        finished, self._finished = self._finished, []
        return finished

    # -- physics ---------------------------------------------------------------------------------

    def advance(self, to_ns: int) -> None:
        """Move to the last whole step that is not after a time."""
        with self._lock:
            while self.now_ns + self._step_ns <= to_ns:
                self._step()

    def _step(self) -> None:
        begin_ns, end_ns = self.now_ns, self.now_ns + self._step_ns
        seconds = self._step_ns / NS_PER_SECOND
        self._struck.step(begin_ns, end_ns)
        demand = self._work(begin_ns, seconds)
        drawn = self.bank.advance(demand, end_ns)
        watts = self.servers.advance(drawn, seconds)
        opened = self.breakers.advance(watts, seconds)
        self.trips += int(opened.sum())
        if not self._ignore_trips:
            for domain in np.flatnonzero(opened):
                self.servers.switch_off(int(domain))
        self._meters.advance(watts, begin_ns, end_ns)
        self.now_ns = end_ns
        self.effects.observe(end_ns, self.bank.limit_watts, self.bank.sensed_draw_watts())
        self.ledger.energy_joules += float(watts[0]) * seconds
        self.ledger.gpu_joules += float(drawn.sum()) * seconds
        if end_ns >= self._next_sample_ns:
            at = (end_ns - self.start_ns) / NS_PER_SECOND
            self.ledger.series.append((at, *watts.tolist(), float(drawn.sum())))
            self._next_sample_ns += NS_PER_SECOND

    def _work(self, begin_ns: int, seconds: float) -> Floats:
        """Serve and compute for one step; what the work would draw without caps, (n_gpus,)."""
        begin = (begin_ns - self.start_ns) / NS_PER_SECOND
        for i, stream in enumerate(self._streams):
            self._serving.arrive(i, stream.take(begin))
        alive = self._alive(begin_ns)
        prefill, decode, training, batch = self._speeds(alive)
        n = len(self.bank)
        assignment = self.assignment
        result = self._serving.step(
            begin,
            seconds,
            assignment.slowest(pl.SERVING, prefill, n),
            assignment.slowest(pl.SERVING, decode, n),
        )
        self.ledger.served(result)
        draw = self._jobs.draw_ratio()
        job_speed = np.minimum(
            assignment.slowest(pl.TRAINING, training, n), assignment.slowest(pl.BATCH, batch, n)
        )
        done = self._jobs.step(seconds, job_speed)
        self._count_work()
        for slot in done:
            self._finish(int(slot))
        self._count_windows()
        return self._demand(alive, result.prefill_share, result.decode_share, draw)

    def _alive(self, now_ns: int) -> NDArray[np.bool_]:
        up = (self._struck.down_until_ns <= now_ns) & self.servers.on
        return np.asarray(up[self.node_of_gpu] & ~self.bank.lost, dtype=np.bool_)

    def _speeds(self, alive: NDArray[np.bool_]) -> tuple[Floats, ...]:
        """Relative speed of each kernel class on each GPU as the boards are held now."""
        bank = self.bank
        held = bank.drawn_watts / np.maximum(bank.drawn_watts + bank.shed_watts, 1e-9)
        locked = bank.lock_max_mhz > 0
        clock = np.where(locked, bank.lock_max_mhz / bank.max_clock_mhz, 1.0)
        kernels = (PREFILL, DECODE, TRAINING, BATCH)
        return tuple(
            np.where(alive, np.maximum(self.types.speed(k, held, clock), MIN_SPEED), MIN_SPEED)
            for k in kernels
        )

    def _demand(
        self, alive: NDArray[np.bool_], prefill: Floats, decode: Floats, draw: Floats
    ) -> Floats:
        types, kind, slot = self.types, self.assignment.kind, self.assignment.slot
        context = types.context_watts
        rest = np.maximum(0.0, 1.0 - prefill[slot] - decode[slot])
        serving = (
            prefill[slot] * types.class_watts(PREFILL)
            + decode[slot] * types.class_watts(DECODE)
            + rest * context
        )
        training = np.maximum(context, draw[slot] * types.class_watts(TRAINING))
        batch = np.maximum(context, draw[slot] * types.class_watts(BATCH))
        choices = [self.bank.idle_watts, serving, training, batch]
        demand = np.choose(kind, choices)
        demand = self._struck.demand(demand, self.now_ns)
        return np.where(alive, demand, 0.0)

    def _finish(self, slot: int) -> None:
        for name, placed in self.assignment.pods.items():
            if placed.work.kind is WorkKind.BATCH and placed.slot == slot:
                self._finished.append(name)
                self._finished_ever.add(name)
                self._stop(name)
                return

    def _count_work(self) -> None:
        """Credit jobs with the GPU-seconds of the step."""
        kind, slot = self.assignment.kind, self.assignment.slot
        for number, name in ((pl.TRAINING, "training"), (pl.BATCH, "batch")):
            mine = slot[kind == number]
            self.ledger.worked(name, float(self._jobs.last_work_seconds[mine].sum()))

    def _count_windows(self) -> None:
        slowdown, training = self._jobs.take_windows()
        self.ledger.job_windows("training", slowdown[training])
        self.ledger.job_windows("batch", slowdown[~training])

    def take_reboots(self) -> list[str]:
        """Nodes that rebooted since the last call; their actuators start anew."""
        return self._struck.take_reboots()

    # -- views -----------------------------------------------------------------------------------

    def driver(self, node: str, *, writable: bool = True) -> SimulatedDriver:
        """A node's GPUs behind the device port."""
        return self.bank.driver(NodeName(node), writable=writable)

    def boot_id(self, node: str) -> str:
        """Changes on every reboot."""
        return self.bank.boot_id(NodeName(node))

    def is_up(self, node: str) -> bool:
        """Whether the node has power and is not rebooting."""
        i = self.node_names.index(node)
        return bool(self.servers.on[i] and self._struck.down_until_ns[i] <= self.now_ns)

    def host_watts(self, node: str) -> float:
        """What the server draws without its GPUs, DC watts."""
        return float(self.servers.host_watts[self.node_names.index(node)])

    def meter(self, domain: str) -> tuple[float, int] | None:
        """AC watts of the newest delivered reading and when it was taken, None before the first."""
        i = self.domain_names.index(domain)
        taken_ns = int(self._meters.time_ns[i])
        return None if taken_ns < 0 else (float(self._meters.watts[i]), taken_ns)

    def pod_uses(self, node: str) -> list[PodUseView]:
        """Pods on a node with their GPUs."""
        i = self.node_names.index(node)
        return [
            PodUseView(
                NAMESPACE,
                placed.work.name,
                placed.work.uid,
                tuple(self.gpu_uuids[g] for g in placed.gpus),
            )
            for placed in self.assignment.on_node(i)
        ]

    def note_caps(self, now_ns: int, caps: DecidedCaps) -> None:
        """A decision was made: clocks of ``cap_to_effect`` start."""
        self.effects.decided(now_ns, caps, self.bank.sensed_draw_watts())

    def reset_accounts(self) -> None:
        """Begin the accounts here: what came before was the warm-up."""
        self.ledger = Ledger(
            len(self.scenario.services),
            begin_seconds=(self.now_ns - self.start_ns) / NS_PER_SECOND,
        )
        self.effects = CapEffects(len(self.bank))
        self.breakers.reset_peaks()
        self.moved = 0

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return self._serving.in_flight

    def unfinished_ages(self, service: int, arrived_before_seconds: float) -> Floats:
        """Ages of requests under way that arrived before a time."""
        now = (self.now_ns - self.start_ns) / NS_PER_SECOND
        arrived = self._serving.waiting_since(service)
        return np.asarray(now - arrived[arrived < arrived_before_seconds], dtype=np.float64)
