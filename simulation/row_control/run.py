"""One run: a row, its work, a policy and what goes wrong, window by window.

sensors ──> agents ──reports──> policy ──batches──> actuators ──limits──> boards
              (times to the ns inside a window)            │
work ──wanted watts──> boards ──> servers ──> breakers <───┘  (one step a window)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from simulation.row_control.accounts import RowAccounts, RowResult
from simulation.row_control.actuators import ActuatorTimes, BoardRange, RowActuators
from simulation.row_control.agents import AgentSettings, RowAgents
from simulation.row_control.faults import RowFaultKind, RowFaults
from simulation.row_control.messages import BoardWrites, LeaseBatches, Orders
from simulation.row_control.row_monitor import RowMonitor
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Known, RowPolicy, Watchful
from simulation.row_control.start_states import RowStart
from simulation.row_control.trust_monitor import FrozenSensors, TrustMonitor
from simulation.row_control.work import Floats, RowWork
from simulation.scenario import Scenario
from wattpack.units import NS_PER_SECOND, seconds_to_ns

K = RowFaultKind
START_NS = 1_000 * NS_PER_SECOND
HEARD_FIRST_NS = round(1.25 * NS_PER_SECOND)
METER_FRESH_NS = 10 * NS_PER_SECOND
"""A source of meter readings drops older ones, as the product's does by default."""

FEED_RISE = 1.03
"""A busiest feed's share of so many times the one before makes a tick due at once."""

MakePolicy = Callable[[int], RowPolicy]
"""A policy that begins with nothing, for a fencing epoch from 1 on."""


@dataclass(frozen=True, slots=True)
class RowSetup:
    """What a run is made of, besides its work and policy.

    Attributes:
        scenario: Plant, shape, seed, lease and step.
        faults: What goes wrong.
        agents: How agents report.
        times: How fast actuators are.
        meters: Whether the domains' meters reach the policy.
        bmcs: Whether the servers' BMCs do, whatever the scenario says; how late and coarse they
            are is its ``row.bmc_meter``.
        clock_spread_seconds: How far nodes' clocks are apart.
        start: How the row stands when the run begins; None: cool, at the policy's own limits.
            Policies without leases begin with their own limits and no locks, on breakers as hot.
    """

    scenario: Scenario
    faults: RowFaults = field(default_factory=RowFaults)
    agents: AgentSettings = field(default_factory=AgentSettings)
    times: ActuatorTimes = field(default_factory=ActuatorTimes)
    meters: bool = True
    bmcs: bool = False
    clock_spread_seconds: float = 5.0
    start: RowStart | None = None


class RowRun:
    """A row under a policy.

    Args:
        setup: Plant, faults, agents.
        work: Fresh work; it is used up.
        make_policy: Called at the begin and after each crash of the controller.
    """

    def __init__(self, setup: RowSetup, work: RowWork, make_policy: MakePolicy) -> None:
        self.setup, self.work, self._make_policy = setup, work, make_policy
        scenario = setup.scenario
        self.plant = plant = RowPlant(scenario, START_NS)
        self._epoch, self._crashed, self._brakes = 1, False, 0
        self.policy = make_policy(self._epoch)
        shape = (plant.n_nodes, plant.gpus_per_node)
        bank = plant.bank
        ranges = (bank.min_limit_watts, bank.default_limit_watts, bank.max_limit_watts)
        self.actuators = RowActuators(
            BoardRange(*(column.reshape(shape) for column in ranges)),
            self.policy.initial_watts().reshape(shape),
            setup.times,
            self._generator(11),
            START_NS,
            setup.clock_spread_seconds,
        )
        self.agents = RowAgents(plant, self.actuators, setup.agents, self._generator(12))
        if setup.start is not None:
            self._begin_as(setup.start)
        bank.limit_watts[:] = self.actuators.limit_watts.ravel()
        self.accounts = RowAccounts(plant, work)
        lease = scenario.control.lease_ttl_ms / 1000.0
        self.monitor = RowMonitor(plant, self.actuators, lease)
        self.trust = TrustMonitor(plant, self.actuators)
        self._heard_ns = np.full(plant.n_nodes, START_NS, dtype=np.int64)
        self._tick_ns = seconds_to_ns(scenario.control.tick_seconds)
        # Who takes over a row has heard its servers once.
        self._first_tick_ns = START_NS + (HEARD_FIRST_NS if setup.start is not None else 0)
        self._next_tick_ns = self._first_tick_ns
        self._orders: list[tuple[int, BoardWrites]] = []
        self._writes_generator = self._generator(13)
        self.ticks = 0
        self._feed_share = np.full(len(plant.domain_names), np.nan)
        self._asks_bmcs = setup.bmcs or scenario.row.bmc == "simulated"

    def _begin_as(self, start: RowStart) -> None:
        self.plant.breakers.heat = start.heat.copy()
        self.plant.breakers.reset_peaks()
        if self.policy.uses_leases:
            self.actuators.begin_as(start, START_NS)
            self.plant.bank.lock_max_mhz[:] = start.lock_mhz.ravel()

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.setup.scenario.seed, stream))

    def run(self, seconds: float) -> RowResult:
        """Go on for so long; the books since the run began."""
        step_seconds = self.setup.scenario.step_seconds
        for _ in range(round(seconds / step_seconds)):
            self._window(step_seconds)
        violations = dict(self.monitor.counts + self.trust.counts)
        brakes = self._brakes + (0 if self._crashed else self.policy.brakes)
        return self.accounts.result(brakes, self.actuators.expired, violations)

    def _window(self, step_seconds: float) -> None:
        plant, faults = self.plant, self.setup.faults
        begin_ns = plant.now_ns
        end_ns = begin_ns + seconds_to_ns(step_seconds)
        seconds = (begin_ns - plant.start_ns) / NS_PER_SECOND
        self._events(seconds, step_seconds)
        plant.begin_window(faults, seconds)
        self._talk(begin_ns, end_ns, seconds)
        self._set_limits()
        self._advance(seconds, step_seconds)
        self.accounts.took(step_seconds)
        if self.policy.uses_leases and plant.now_ns % NS_PER_SECOND < end_ns - begin_ns:
            self.monitor.check(self._heard_ns, self._excused(seconds))
            self._watch_trust(seconds)

    def _watch_trust(self, seconds: float) -> None:
        if self._crashed or not isinstance(self.policy, Watchful):
            return
        faults, n = self.setup.faults, self.plant.n_gpus
        counters = faults.struck(K.COUNTERS_FROZEN, seconds, n)
        frozen = FrozenSensors(self.agents.frozen_watts, counters)
        self.trust.check(self.policy.doubted(), self._heard_ns, frozen)

    def _advance(self, seconds: float, step_seconds: float) -> None:
        plant = self.plant
        held = plant.held()
        wanted = self.work.step(seconds, step_seconds, held)
        full = self.setup.faults.struck(K.ALL_TO_FULL, seconds, plant.n_gpus)
        if full.any():
            highest = np.maximum(wanted, plant.bank.default_limit_watts)
            wanted = np.where(full, highest, wanted)
        plant.advance(np.where(held.alive, wanted, 0.0), step_seconds)

    def _events(self, seconds: float, step_seconds: float) -> None:
        """Reboots and driver reloads that begin in this window."""
        for fault in self.setup.faults.beginning(seconds, seconds + step_seconds):
            up_ns = self.plant.start_ns + seconds_to_ns(fault.end_seconds)
            for node in np.flatnonzero(fault.struck).tolist():
                if fault.kind is K.DRIVER_RELOAD:
                    self.plant.reload_driver(node)
                    self.actuators.driver_reloaded(node)
                else:
                    # The host unit runs before any work can start (I10).
                    self.actuators.rebooted(node, up_ns)
                    self.plant.reboot(node, int(self.actuators.ready_ns[node]))

    # -- what is said in a window ----------------------------------------------------------------

    def _talk(self, begin_ns: int, end_ns: int, seconds: float) -> None:
        self._crash(seconds)
        if not self.policy.uses_leases:
            self._regular_tick(begin_ns, seconds)
            self._stand(begin_ns)
            return
        agents, faults = self.agents, self.setup.faults
        agents.look(begin_ns)
        self._regular_tick(begin_ns, seconds)
        # Until each node's report in this window, then the report, then the rest of the window.
        agents.report(end_ns, faults, seconds)
        self._hear(end_ns, seconds)
        agents.finish(end_ns, faults, seconds)

    def _write_failures(self, seconds: float) -> Floats:
        faults, plant = self.setup.faults, self.plant
        chance = faults.chance(K.WRITES_FAIL, seconds, plant.n_gpus)
        return chance.reshape(plant.n_nodes, plant.gpus_per_node)

    def _crash(self, seconds: float) -> None:
        """Both replicas die, or the next leader begins, with a higher epoch and nothing else."""
        down = self.setup.faults.any_active(K.CONTROLLER_DOWN, seconds)
        if down and not self._crashed:
            self._brakes += self.policy.brakes
        if self._crashed and not down:
            self._epoch += 1
            self.policy = self._make_policy(self._epoch)
        self._crashed = down

    def _regular_tick(self, now_ns: int, seconds: float) -> None:
        due = now_ns >= self._next_tick_ns
        if not (due or self._feed_seems_lost()):
            return
        if due:
            self._next_tick_ns += self._tick_ns
        self._hear(now_ns, seconds)
        self._tick(now_ns, seconds)

    def _feed_seems_lost(self) -> bool:
        """Whether a reading of feeds came that is told at once, as the product's reader does."""
        if not self.setup.scenario.row.use_reserve:
            return False
        with np.errstate(invalid="ignore"):
            return bool((self.plant.feeds.watts > FEED_RISE * self._feed_share).any())

    def _hear(self, until_ns: int, seconds: float) -> None:
        """Give the policy what has arrived; it may ask for a tick in between."""
        reports = self.agents.arrived(until_ns) if self.policy.uses_leases else None
        while reports is not None and len(reports) and not self._crashed:
            answer = self.policy.arrived(reports)
            nodes, came_ns = reports.node[: answer.taken], reports.arrival_ns[: answer.taken]
            self._heard_ns[nodes] = came_ns
            if answer.orders.batches is not None:
                self._answer(answer.orders.batches, seconds)
            if answer.taken == len(reports):
                return
            self._tick(int(came_ns[-1]), seconds)
            reports = reports.rows(slice(answer.taken, None))

    def _tick(self, now_ns: int, seconds: float) -> None:
        if self._crashed or now_ns < self._first_tick_ns:
            return
        self.ticks += 1
        self._carry_out(self.policy.tick(self._known(now_ns, seconds)), now_ns, seconds)

    def _known(self, now_ns: int, seconds: float) -> Known:
        meters, faults = self.plant.meters, self.setup.faults
        n = len(meters.watts)
        skew_ns = (faults.shift(K.METER_CLOCK, seconds, n) * NS_PER_SECOND).astype(np.int64)
        # A stamp of the future is one of now, as the product's reader of meters has it.
        stamp_ns = np.minimum(meters.time_ns + skew_ns, now_ns)
        fresh = (meters.time_ns >= 0) & (now_ns - stamp_ns <= METER_FRESH_NS)
        fresh &= self.setup.meters
        known = Known(
            now_ns,
            np.where(fresh, meters.watts, np.nan),
            np.where(fresh, stamp_ns, -1),
            not faults.any_active(K.API_DOWN, seconds),
        )
        if self._asks_bmcs:
            bmcs = self.plant.bmcs
            stamp_ns = bmcs.delivered_ns
            known = replace(known, server_watts=bmcs.watts.copy(), server_time_ns=stamp_ns)
        if not self.setup.scenario.row.use_reserve:
            return known
        feeds = self.plant.feeds
        self._feed_share = feeds.watts.copy()
        stamp_ns = np.minimum(feeds.time_ns + skew_ns, now_ns)
        return replace(known, feed_share=self._feed_share, feed_time_ns=stamp_ns)

    def _answer(self, batches: LeaseBatches, seconds: float) -> None:
        """Each batch leaves when its node's report came."""
        loss = self.setup.faults.chance(K.MESSAGE_LOSS, seconds, self.plant.n_nodes)
        self.agents.send(batches, self._heard_ns.take(batches.node), loss)

    def _carry_out(self, orders: Orders, now_ns: int, seconds: float) -> None:
        if orders.batches is not None:
            self._send(orders.batches, now_ns, seconds)
        if orders.writes is not None:
            due_ns = now_ns + seconds_to_ns(orders.writes.delay_seconds)
            self._orders.append((due_ns, orders.writes))

    def _send(self, batches: LeaseBatches, now_ns: int, seconds: float) -> None:
        loss = self.setup.faults.chance(K.MESSAGE_LOSS, seconds, self.plant.n_nodes)
        self.agents.send(batches, np.full(len(batches), now_ns), loss)

    # -- what reaches the boards -----------------------------------------------------------------

    def _stand(self, now_ns: int) -> None:
        """Words without lease that act now; what stands is kept over reboots, in their favour."""
        actuators, shape = self.actuators, self.actuators.cap_watts.shape
        for due_ns, writes in [entry for entry in self._orders if entry[0] <= now_ns]:
            self._orders.remove((due_ns, writes))
            limits, locks = writes.limit_watts.reshape(shape), writes.lock_mhz.reshape(shape)
            np.copyto(actuators.cap_watts, limits, where=~np.isnan(limits))
            np.copyto(actuators.lock_mhz, locks, where=locks >= 0)
        seconds = (now_ns - self.plant.start_ns) / NS_PER_SECOND
        fails = self._write_failures(seconds)
        wrong = (actuators.limit_watts != actuators.cap_watts) | (
            actuators.driver_lock_mhz != actuators.lock_mhz
        )
        if fails.any():
            wrong &= self._writes_generator.random(shape) >= fails
        if not wrong.any():
            return
        np.copyto(actuators.limit_watts, actuators.cap_watts, where=wrong)
        np.copyto(actuators.driver_lock_mhz, actuators.lock_mhz, where=wrong)

    def _set_limits(self) -> None:
        bank, actuators = self.plant.bank, self.actuators
        limits = actuators.limit_watts.ravel()
        changed = bank.limit_watts != limits
        if changed.any():
            bank.set_limits(limits, changed)
        bank.lock_max_mhz[:] = actuators.driver_lock_mhz.ravel()

    def _excused(self, seconds: float) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Boards that declared faults or a late actuator keep from obeying, (n_nodes, g)."""
        return (self._write_failures(seconds) > 0.0) | self.actuators.out_of_band[:, None]
