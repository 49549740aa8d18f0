"""A small row with meters of domains or of whole servers: truth, and what is told of it.

It judges the estimate, so it takes nothing of the controller's arithmetic: boards, servers and
breakers are added up here board by board from the row's own bare numbers (``House``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from controller.step import initial_state, step
from controller.tick_values import Decisions, Observations, Tick, Topology
from tests.controller.builders import SETTINGS, make_observations, seconds
from tests.controller.oracle import House, house_of

FULL_WATTS = 700.0
LEASE_SECONDS = 4
METER_FRESH_SECONDS = 10
REGULATED = 1.02


@dataclass
class MeteredRow:
    """Truth, a second a step.

    Attributes:
        topology: What hangs where.
        demand: Watts that every board wants at a second, (n_gpus,).
        metered: Domains with a meter.
        silent: Servers whose reports and batches are lost at a second, (n_nodes,).
        meter_delay: Seconds from measurement to delivery.
        meter_error: Gain error of every meter.
        sensor_error: Gain error of each board's sensor at most.
        sensor_bias: Gain error of all of them; a limit holds what the sensor says.
        whole_metered: Whole servers less their boards' readings are known at once.
        whole_metered_at: Which of them at a second, (n_nodes,) or all.
        hosts_at: What each draws beside its boards at a second, by what these draw, (n_nodes,).
        lost_boards: Boards that cannot be read (fallen off the bus); they draw nothing.
        frozen_from: From this second on all power readings and energy counters stand still.
        meters_until: The last second that meters measured; what they said goes on for ten more.
        obeys: Whether commands reach the boards at all.
        host_base, host_per_gpu: Draw of a server without its boards, and what each watt of them
            brings with it.
        undeclared_watts: What each server draws beyond all that, whatever it declares.
    """

    topology: Topology
    demand: Callable[[int], np.ndarray]
    rng: np.random.Generator
    metered: tuple[int, ...] = ()
    silent: Callable[[int], np.ndarray] | None = None
    meter_delay: int = 2
    meter_period: int = 1
    meter_error: float = 0.0
    meter_noise: float = 0.002
    sensor_error: float = 0.0
    sensor_bias: float = 0.0
    whole_metered: bool = False
    whole_metered_at: Callable[[int], np.ndarray | bool] = lambda second: True
    hosts_at: Callable[[int, np.ndarray], np.ndarray] | None = None
    host_base: float = 500.0
    host_per_gpu: float = 0.1
    undeclared_watts: float = 0.0
    obeys: bool = True
    lost_boards: tuple[int, ...] = ()
    frozen_from: int = 1_000_000
    meters_until: int = 1_000_000
    draw: np.ndarray = field(init=False)
    caps: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        t = self.topology
        self.house: House = house_of(t)
        self.second = 0
        self.draw = np.full(t.n_gpus, 100.0)
        self.caps = t.guaranteed_watts.astype(float).copy()
        self.until = np.full(t.n_gpus, -1)
        self.confirmed = np.zeros(t.n_gpus, dtype=np.int64)
        self.gain = 1.0 + self.sensor_error * self.rng.uniform(-1, 1, t.n_gpus)
        self.gain *= 1.0 + self.sensor_bias
        self.received = np.full(t.n_nodes, -1, dtype=np.int64)
        self.told = {"draw": np.full(t.n_gpus, np.nan), "caps": self.caps.copy()}
        self.told_confirmed = self.confirmed.copy()
        self.joules = np.zeros(t.n_gpus)
        self.counters = self.joules.copy()
        self.joules_of_late: deque[tuple[int, np.ndarray]] = deque(maxlen=4)
        self.told_mean = self.draw.copy()
        self.readings: list[tuple[int, list[float]]] = []
        self.heat = [0.0 for _ in self.house.domains()]
        self.work = np.zeros(t.n_gpus)
        self.offered = np.zeros(t.n_gpus)

    def hosts(self) -> list[float]:
        """Every server without its boards."""
        mine = np.bincount(self.topology.node_of_gpu, self.draw, self.topology.n_nodes)
        if self.hosts_at is not None:
            return self.hosts_at(self.second, mine).tolist()
        worst = self.topology.node_worst_watts
        return [
            min(self.host_base + self.host_per_gpu * m, w) + self.undeclared_watts
            for m, w in zip(mine.tolist(), worst.tolist(), strict=True)
        ]

    def true_watts(self) -> list[float]:
        """AC load of each domain."""
        draws, hosts = self.draw.tolist(), self.hosts()
        return [self.house.load(d, draws, hosts) for d in self.house.domains()]

    def is_silent(self, second: int) -> np.ndarray:
        """Servers that nobody hears."""
        if self.silent is None:
            return np.zeros(self.topology.n_nodes, dtype=bool)
        return self.silent(second)

    def advance(self, second: int) -> None:
        """One second passes."""
        self.second = second
        fallen = (self.until >= 0) & (self.until <= second)
        self.caps = np.where(fallen, self.topology.guaranteed_watts, self.caps)
        self.until = np.where(fallen, -1, self.until)
        wanted = self.demand(second).copy()
        wanted[list(self.lost_boards)] = 0.0
        allowed = np.minimum(wanted, self.caps * REGULATED / (1.0 + self.sensor_bias))
        self.draw = self.draw + 0.67 * (allowed - self.draw)
        self.joules = self.joules + self.draw
        self.work += np.minimum(self.draw, wanted)
        self.offered += wanted
        watts = self.true_watts()
        for domain, value in enumerate(watts):
            self.heat[domain] = self.house.heated(domain, self.heat[domain], value)
        if second % self.meter_period == 0:
            noisy = (1.0 + self.meter_error) * (
                1.0 + self.meter_noise * self.rng.standard_normal(len(watts))
            )
            self.readings.append((second, [w * n for w, n in zip(watts, noisy, strict=True)]))

    def observe(self, second: int) -> Observations:
        """What the controller is told."""
        t, hosts = self.topology, self.hosts()
        here = ~self.is_silent(second)
        boards = here[t.node_of_gpu]
        self.received = np.where(here, seconds(second), self.received)
        boards &= second < self.frozen_from
        noise = 1.0 + 0.001 * self.rng.standard_normal(t.n_gpus)
        self.told["draw"] = np.where(boards, self.draw * self.gain * noise, self.told["draw"])
        heard = here[t.node_of_gpu]
        self.told["caps"] = np.where(heard, self.caps, self.told["caps"])
        self.told_confirmed = np.where(heard, self.confirmed, self.told_confirmed)
        if second < self.frozen_from:
            self.counters = self.joules.copy()
        self.joules_of_late.append((second, self.counters.copy()))
        first, joules = self.joules_of_late[0]
        mean = (self.counters - joules) / max(second - first, 1) if second > first else self.draw
        self.told_mean = np.where(heard, mean * self.gain, self.told_mean)
        readable = np.ones(t.n_gpus)
        readable[list(self.lost_boards)] = np.nan
        told_hosts = np.full(t.n_nodes, np.nan)
        if self.whole_metered:
            hidden = np.bincount(t.node_of_gpu, self.draw - self.told["draw"], t.n_nodes)
            told_hosts = np.where(self.whole_metered_at(second), np.array(hosts) + hidden, np.nan)
        meter = np.full(t.n_domains, np.nan)
        stamp = np.full(t.n_domains, -1, dtype=np.int64)
        last = min(second - self.meter_delay, self.meters_until)
        ripe = [r for r in self.readings if r[0] <= last]
        fresh = ripe and second - ripe[-1][0] <= METER_FRESH_SECONDS
        for domain in self.metered if fresh else ():
            meter[domain], stamp[domain] = ripe[-1][1][domain], seconds(ripe[-1][0])
        return make_observations(
            t,
            seconds(second),
            node_received_ns=self.received.copy(),
            host_watts=told_hosts,
            gpu_draw_watts=self.told["draw"] * readable,
            gpu_energy_mean_watts=self.told_mean * readable,
            gpu_limit_watts=self.told["caps"] * readable,
            gpu_confirmed_sequence=self.told_confirmed.copy(),
            meter_watts=meter,
            meter_time_ns=stamp,
        )

    def run(self, count: int, hung: Collection[int] = ()) -> Iterator[tuple[int, Decisions]]:
        """Drive the controller for so many seconds, a tick a second but for those it hangs in."""
        self.state = initial_state(self.topology, SETTINGS)
        for second in range(count):
            self.advance(second)
            observed = self.observe(second)
            if second in hung:
                continue
            tick = Tick(self.topology, observed, SETTINGS, seconds(second))
            self.state, commands, decisions = step(tick, self.state)
            heard = commands.send & ~self.is_silent(second) & self.obeys
            boards = heard[self.topology.node_of_gpu]
            self.caps = np.where(boards, commands.cap_watts, self.caps)
            self.until = np.where(boards, second + LEASE_SECONDS, self.until)
            self.confirmed = np.where(boards, commands.sequence, self.confirmed)
            yield second, decisions


def bursts(
    n: int, rng: np.random.Generator, low: float, high: float, count: int = 4000
) -> Callable[[int], np.ndarray]:
    """Boards that change between two levels on their own, each some seconds long."""
    table = np.empty((count, n))
    level = rng.uniform(low, high, n)
    for second in range(count):
        change = rng.random(n) < 0.15
        level = np.where(change, rng.uniform(low, high, n), level)
        table[second] = level
    return lambda second: table[min(second, count - 1)]
