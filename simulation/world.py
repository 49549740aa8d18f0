"""The whole simulated row, step by step: GPUs, servers, breakers, meters, and the work on them.

    world = World(load_scenario(path))
    for work in world.due(now_ns): ...        # create pod_manifest(work, …) in the API
    world.pods_changed(pods)                  # after each change: all pods as the API shows them
    world.advance(to_ns)                      # physics and queues up to a time
    world.driver(node)                        # GPUs behind the device port (agents, actuators)
    world.server_power(node)                  # all of a server by its BMC, AC watts; None: no BMC
    world.meter("row")                        # newest delivered reading, or None
    world.boot_id(node); world.pod_uses(node) # what an agent reports besides
    world.take_finished()                     # batch pods whose work is done: delete them
    world.faults.any_active(kind, now_ns)     # faults of the product's own processes
    world.note_caps(now_ns, caps)             # a decision, starts clocks of cap-to-effect
    world.record                              # placements, for results.replay_uncapped
    world.reset_accounts()                    # at the end of the warm-up

The plant moves in whole steps of ``scenario.step_seconds``: ``advance`` goes to the last one that
is not after the given time, so results do not depend on how often it is called. The lock given
to it guards ``advance`` and ``pods_changed``; device reads and writes between steps need none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from gpu.device import GpuDriver
from simulation.cap_effects import CapEffects, DecidedCaps
from simulation.compiled_server_row import fastest_server_row
from simulation.fault_plan import FaultSchedule
from simulation.inference_servers import InferenceServers
from simulation.placed import GpuAssignment, PlacementEvent, PodUseView, bound_pods
from simulation.plant import (
    breakers_of,
    check_ratings,
    domain_names,
    node_names,
    rack_of_nodes,
)
from simulation.plant_breakers import Meters
from simulation.plant_faults import StruckPlant
from simulation.pod_work import NAMESPACE, WORK_LABEL, Work
from simulation.request_workloads import request_workloads
from simulation.row_boards import build_boards
from simulation.running_work import GpuSpeeds, RunningWork
from simulation.scenario import Scenario
from simulation.slo import Ledger
from simulation.speeds import BATCH, TRAINING
from simulation.work_calendar import WorkCalendar
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
        lock: Held while the plant moves or its pods change; needed where several threads do so.
    """

    def __init__(
        self,
        scenario: Scenario,
        start_ns: int = 0,
        *,
        ignore_trips: bool = False,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.scenario = scenario
        self.start_ns = self.now_ns = start_ns
        self._ignore_trips = ignore_trips
        self._step_ns = seconds_to_ns(scenario.step_seconds)
        self._lock = lock or nullcontext()
        self.node_names = node_names(scenario)
        self.domain_names = domain_names(scenario)
        self.rack_of_node = rack_of_nodes(scenario)
        boards = build_boards(scenario, self._generator(6), start_ns)
        self.profiles, self.profile_of_node = boards.profiles, boards.profile_of_node
        self.node_of_gpu, self.gpu_uuids = boards.node_of_gpu, boards.uuids
        self.bank, self.types = boards.bank, boards.types
        self._full_watts = scenario.plant.full_demand_ratio * self.bank.default_limit_watts
        check_ratings(scenario, self.bank.min_limit_watts, self.node_of_gpu)
        self.servers = fastest_server_row(scenario, self.node_of_gpu, self._generator(4))
        self.breakers = breakers_of(scenario)
        self._meters = Meters(
            scenario.row.meter, len(self.domain_names), self._generator(5), start_ns
        )
        self._feeds = Meters(
            scenario.row.feed_meter, len(self.domain_names), self._generator(14), start_ns
        )
        self._bmcs = None
        if scenario.row.bmc == "simulated":
            bmc, nodes = scenario.row.bmc_meter, len(self.node_names)
            self._bmcs = Meters(bmc, nodes, self._generator(8), start_ns)
        self.faults = FaultSchedule(
            scenario.faults,
            self.gpu_uuids,
            self.node_names,
            self.domain_names,
            self.node_of_gpu,
            scenario.seed,
        )
        self._struck = StruckPlant(
            self.faults,
            self.bank,
            self.breakers,
            self._meters,
            self.node_names,
            start_ns,
        )
        self._work, self._calendar = RunningWork(scenario, boards), WorkCalendar(scenario)
        self.effects = CapEffects(len(self.bank))
        self.workloads = request_workloads(scenario)
        self.ledger = Ledger(len(self.workloads))
        self._next_sample_ns = start_ns
        self._moved_before = 0
        self.trips = 0

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.scenario.seed, stream))

    # -- work ------------------------------------------------------------------------------------

    def due(self, now_ns: int) -> list[Work]:
        """Pods to create now; each is given once."""
        return self._calendar.due((now_ns - self.start_ns) / NS_PER_SECOND)

    def pods_changed(self, pods: Sequence[Mapping[str, object]]) -> None:
        """Take in all pods as the API shows them now: start the new, stop those that are gone.

        Raises:
            InputError: if a pod is bound to an unknown node or to one without free GPUs.
        """
        bound = bound_pods(pods, WORK_LABEL)
        with self._lock:
            for name, placed in tuple(self.assignment.pods.items()):
                if bound.get(name) != self.node_names[placed.node]:
                    self.stop(name)
            for name, node in bound.items():
                work = self._calendar.known.get(name)
                if work is None or self._work.is_known(name):
                    continue
                if node not in self.node_names:
                    raise InputError("spec.nodeName", "a node of the row", node, name)
                index = self.node_names.index(node)
                self.start(work, index, self.assignment.choose(work, index))

    def start(self, work: Work, node: int, gpus: Sequence[int]) -> None:
        """Let a pod run on GPUs of a server."""
        self._work.start(self.now_ns, work, node, gpus)

    def stop(self, name: str) -> None:
        """Take a pod off its GPUs, if it runs; a job that comes back continues where it stood."""
        self._work.stop(self.now_ns, name)

    def take_finished(self) -> list[str]:
        """Names of batch pods whose work was done since the last call."""
        return self._work.take_finished()

    @property
    def assignment(self) -> GpuAssignment:
        """Which pod holds which GPUs."""
        return self._work.assignment

    @property
    def record(self) -> list[PlacementEvent]:
        """Placements, and stops before the work was done."""
        return self._work.record

    @property
    def moved(self) -> int:
        """Pods that were taken off their GPUs before their work was done, since the warm-up."""
        return self._work.moved - self._moved_before

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
        alive = self._alive(begin_ns)
        begin = (begin_ns - self.start_ns) / NS_PER_SECOND
        wanted = self._work.step(begin, seconds, self._speeds(alive), self.ledger)
        demand = np.where(alive, self._struck.demand(wanted, self._full_watts, begin_ns), 0.0)
        drawn = self.bank.advance(demand, end_ns)
        watts = self.servers.advance(drawn, seconds)
        opened = self.breakers.advance(watts, seconds)
        self.trips += int(opened.sum())
        if not self._ignore_trips:
            for domain in np.flatnonzero(opened):
                self.servers.switch_off(int(domain))
        self._meters.advance(watts, begin_ns, end_ns)
        if self.scenario.row.use_reserve:
            self._feeds.silent = self._meters.silent
            self._feeds.advance(self.breakers.busiest_share(), begin_ns, end_ns)
        if self._bmcs is not None:
            self._bmcs.advance(self.servers.ac_watts, begin_ns, end_ns)
        self.now_ns = end_ns
        self.effects.observe(end_ns, self.bank.limit_watts, self.bank.sensed_draw_watts())
        self.ledger.energy_joules += float(watts[0]) * seconds
        self.ledger.gpu_joules += float(drawn.sum()) * seconds
        if end_ns >= self._next_sample_ns:
            at = (end_ns - self.start_ns) / NS_PER_SECOND
            self.ledger.series.append((at, *watts.tolist(), float(drawn.sum())))
            self._next_sample_ns += NS_PER_SECOND

    def _alive(self, now_ns: int) -> NDArray[np.bool_]:
        up = (self._struck.down_until_ns <= now_ns) & self.servers.on
        return np.asarray(up[self.node_of_gpu] & ~self.bank.lost, dtype=np.bool_)

    def _speeds(self, alive: NDArray[np.bool_]) -> GpuSpeeds:
        """As the boards are held now."""
        bank = self.bank
        held = bank.drawn_watts / np.maximum(bank.drawn_watts + bank.shed_watts, 1e-9)
        locked = bank.lock_max_mhz > 0
        clock = np.where(locked, bank.lock_max_mhz / bank.max_clock_mhz, 1.0)

        def speed(kernel: int) -> Floats:
            relative = np.maximum(self.types.speed(kernel, held, clock), MIN_SPEED)
            return np.where(alive, relative, MIN_SPEED)

        drawn = np.where(alive, np.clip(held, 0.0, 1.0), 0.0)
        return GpuSpeeds(drawn, clock, speed(TRAINING), speed(BATCH))

    def take_reboots(self) -> list[str]:
        """Nodes that rebooted since the last call; their actuators start anew."""
        return self._struck.take_reboots()

    # -- views -----------------------------------------------------------------------------------

    def driver(self, node: str, *, writable: bool = True) -> GpuDriver:
        """A node's GPUs behind the device port."""
        return self.bank.driver(NodeName(node), writable=writable)

    def boot_id(self, node: str) -> str:
        """Changes on every reboot."""
        return self.bank.boot_id(NodeName(node))

    def is_up(self, node: str) -> bool:
        """Whether the node has power and is not rebooting."""
        i = self.node_names.index(node)
        return bool(self.servers.on[i] and self._struck.down_until_ns[i] <= self.now_ns)

    @property
    def has_bmcs(self) -> bool:
        """Whether servers' BMCs are asked."""
        return self._bmcs is not None

    def server_power(self, node: str) -> tuple[float, int] | None:
        """AC watts that a BMC told last of its whole server and when that was scraped, if ever.

        A scrape's stamp says nothing of how old the BMC's moment was.
        """
        if self._bmcs is None:
            return None
        i = self.node_names.index(node)
        scraped_ns = int(self._bmcs.delivered_ns[i])
        return None if scraped_ns < 0 else (float(self._bmcs.watts[i]), scraped_ns)

    def meter(self, domain: str) -> tuple[float, int] | None:
        """AC watts of the newest delivered reading and when it was taken, None before the first."""
        i = self.domain_names.index(domain)
        taken_ns = int(self._meters.time_ns[i])
        return None if taken_ns < 0 else (float(self._meters.watts[i]), taken_ns)

    def feed_share(self, domain: str) -> tuple[float, int] | None:
        """The busiest feed's share of the load and when it was taken, None before the first."""
        i = self.domain_names.index(domain)
        taken_ns = int(self._feeds.time_ns[i])
        return None if taken_ns < 0 else (float(self._feeds.watts[i]), taken_ns)

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
            len(self.workloads),
            begin_seconds=(self.now_ns - self.start_ns) / NS_PER_SECOND,
        )
        self.effects = CapEffects(len(self.bank))
        self.breakers.reset_peaks()
        self._moved_before = self._work.moved

    @property
    def inference(self) -> InferenceServers | None:
        """The inference row's servers, None where services answer."""
        return self._work.inference

    def unfinished_ages(self, service: int, arrived_before_seconds: float) -> Floats:
        """Ages of requests under way that arrived before a time."""
        now = (self.now_ns - self.start_ns) / NS_PER_SECOND
        arrived = self._work.waiting_since(service)
        return np.asarray(now - arrived[arrived < arrived_before_seconds], dtype=np.float64)
