"""The twin's plant for this driver: boards, servers, breakers and meters, step by step."""

from __future__ import annotations

import numpy as np

from gpu.simulated.board_spec import SENSOR_GAIN_SPREAD
from simulation.compiled_server_row import fastest_server_row
from simulation.plant import ROW, breakers_of, domain_names, node_names, rack_of_nodes
from simulation.plant_breakers import Meters
from simulation.row_boards import build_boards
from simulation.row_control.compiled_held import clock_shares, drawn_shares, find_alive
from simulation.row_control.faults import RowFaultKind, RowFaults
from simulation.row_control.work import Bools, Floats, Held, Integers
from simulation.scenario import Scenario
from wattpack.compiled import AVAILABLE
from wattpack.units import NS_PER_SECOND, NodeName

K = RowFaultKind


class RowPlant:
    """Truth: what boards draw, what breakers bear, what meters say.

    Args:
        scenario: Shape, constants and seed.
        start_ns: First instant.
    """

    def __init__(self, scenario: Scenario, start_ns: int) -> None:
        self.scenario, self.start_ns, self.now_ns = scenario, start_ns, start_ns
        boards = build_boards(scenario, self._generator(6), start_ns)
        self.boards, self.bank = boards, boards.bank
        self.node_names, self.domain_names = node_names(scenario), domain_names(scenario)
        self.node_of_gpu = boards.node_of_gpu
        self.rack_of_node = rack_of_nodes(scenario)
        self.n_nodes, self.n_gpus = scenario.row.servers, len(boards.bank)
        self.gpus_per_node = scenario.row.gpus_per_server
        self.servers = fastest_server_row(scenario, self.node_of_gpu, self._generator(4))
        self.breakers = breakers_of(scenario)
        n_domains = len(self.domain_names)
        self.meters = Meters(scenario.row.meter, n_domains, self._generator(5), start_ns)
        self.bmcs = Meters(scenario.row.bmc_meter, self.n_nodes, self._generator(8), start_ns)
        self.feeds = Meters(scenario.row.feed_meter, n_domains, self._generator(14), start_ns)
        self.watts = np.zeros(n_domains)
        self.drawn_watts = np.zeros(self.n_gpus)
        self.trips = 0
        self._gain = self.bank.sensor_gain.copy()
        self._full_clock = np.ones(self.n_gpus)
        self._down_until_ns: Integers = np.zeros(self.n_nodes, dtype=np.int64)

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.scenario.seed, stream))

    @property
    def up(self) -> Bools:
        """Servers with power that are not rebooting, (n_nodes,)."""
        return np.asarray(self.servers.on & (self._down_until_ns <= self.now_ns))

    def held(self) -> Held:
        """How the boards are held now."""
        bank = self.bank
        if not AVAILABLE:
            return self.held_in_numpy()
        share, clock = np.empty((2, self.n_gpus))
        alive = np.empty(self.n_gpus, dtype=np.bool_)
        drawn_shares(bank.drawn_watts, bank.shed_watts, share)
        locked = clock_shares(bank.lock_max_mhz, bank.max_clock_mhz, clock)
        down, on = self._down_until_ns, self.servers.on
        if not find_alive(bank.lost, on, down, self.now_ns, self.node_of_gpu, alive):
            share[~alive] = 0.0
        return Held(share, clock if locked else self._full_clock, alive)

    def held_in_numpy(self) -> Held:
        """The same as ``held``: the form to read, and its oracle."""
        bank = self.bank
        share = bank.drawn_watts / np.maximum(bank.drawn_watts + bank.shed_watts, 1e-9)
        share = np.minimum(np.maximum(share, 0.0), 1.0)
        locked = bank.lock_max_mhz > 0
        clock = np.where(locked, bank.lock_max_mhz / bank.max_clock_mhz, 1.0)
        alive = self.up.take(self.node_of_gpu) & ~bank.lost
        return Held(np.where(alive, share, 0.0), clock, alive)

    def begin_window(self, faults: RowFaults, seconds: float) -> None:
        """Let faults of boards, meters and feeds hold that last at a time of the run."""
        bank, n = self.bank, self.n_gpus
        bank.ignores_cap = faults.struck(K.IGNORES_CAP, seconds, n)
        if faults.any_active(K.SENSOR_GAIN, seconds):
            gain = self._gain * faults.factor(K.SENSOR_GAIN, seconds, n)
            bank.sensor_gain = np.clip(gain, 1.0 - SENSOR_GAIN_SPREAD, 1.0 + SENSOR_GAIN_SPREAD)
        else:
            bank.sensor_gain = self._gain
        n_domains = len(self.domain_names)
        self.meters.silent = faults.struck(K.METER_SILENT, seconds, n_domains)
        self.feeds.silent = self.meters.silent
        self.bmcs.silent = faults.struck(K.BMC_SILENT, seconds, self.n_nodes)
        self.bmcs.stuck = faults.struck(K.BMC_FROZEN, seconds, self.n_nodes)
        lost = faults.struck(K.FEED_LOST, seconds, n_domains)
        self.breakers.lost_feeds = lost.astype(np.int64)

    def advance(self, wanted_watts: Floats, seconds: float) -> Bools:
        """Integrate one step; which breakers opened in it, (n_domains,).

        Args:
            wanted_watts: Of every board without limit or lock; dead ones draw nothing, (n_gpus,).
            seconds: Length.
        """
        begin_ns = self.now_ns
        self.now_ns = begin_ns + round(seconds * NS_PER_SECOND)
        self.drawn_watts = self.bank.advance(wanted_watts, self.now_ns)
        self.watts = self.servers.advance(self.drawn_watts, seconds)
        opened = self.breakers.advance(self.watts, seconds)
        self.meters.advance(self.watts, begin_ns, self.now_ns)
        self.bmcs.advance(self.servers.ac_watts, begin_ns, self.now_ns)
        if self.scenario.row.use_reserve:
            self.feeds.advance(self.breakers.busiest_share(), begin_ns, self.now_ns)
        if opened.any():
            self.trips += int(opened.sum())
            for domain in np.flatnonzero(opened):
                self.servers.switch_off(int(domain))
        return opened

    def reload_driver(self, node: int) -> None:
        """Limits to default, locks gone, counters from zero, on one server's boards."""
        self.bank.reload_driver(NodeName(self.node_names[node]))

    def reboot(self, node: int, up_ns: int) -> None:
        """The server is dark until a time."""
        self.bank.reboot(NodeName(self.node_names[node]))
        self._down_until_ns[node] = up_ns

    def domain_sums(self, node_watts: Floats) -> Floats:
        """Sums of a figure of servers over the row and each rack, (n_domains,)."""
        racks = np.bincount(self.rack_of_node, node_watts, self.scenario.row.racks)
        return np.concatenate([[racks.sum()], racks])

    def members(self, domain: int) -> Bools:
        """Servers below a domain, (n_nodes,)."""
        everyone = np.ones(self.n_nodes, dtype=np.bool_)
        return everyone if domain == ROW else self.rack_of_node == domain - 1
