"""The row's actuators as arrays against the product's own lease table, event by event."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from actuator.lease_entry import DeviceBounds, Outcome, Write, WriteKind
from actuator.lease_messages import DeviceCommand, DeviceState, LeaseCommand, Operation
from actuator.lease_table import LeaseTable
from simulation.row_control.actuators import (
    NEVER,
    ActuatorTimes,
    BoardRange,
    RowActuators,
)
from simulation.row_control.messages import LeaseBatches
from wattpack.errors import InputError
from wattpack.units import NS_PER_MS, NS_PER_SECOND

NODES, BOARDS = 3, 2
GUARANTEED, DEFAULT, LOWEST = 400.0, 700.0, 200.0
AT_ONCE = ActuatorTimes(write_seconds=(0.0, 0.0), slow_chance=0.0)


@dataclass
class Product:
    """One node's lease table with boards that take limits, or pretend to."""

    limits: list[float] = field(default_factory=lambda: [GUARANTEED] * BOARDS)
    failing: bool = False
    nonces: int = 0

    def __post_init__(self) -> None:
        names = [str(i) for i in range(BOARDS)]
        bounds = DeviceBounds(LOWEST, DEFAULT, DEFAULT, 1980)
        self.table = LeaseTable(
            dict.fromkeys(names, GUARANTEED), dict.fromkeys(names, bounds), "boot", self._nonce
        )
        self.carry_out(self.table.start({name: self.limits[int(name)] for name in names}))

    def _nonce(self) -> int:
        self.nonces += 1
        return self.nonces

    def carry_out(self, plans: dict[str, tuple[Write, ...]]) -> None:
        for name, writes in plans.items():
            for write in writes:
                if write.kind is WriteKind.POWER_LIMIT and not self.failing:
                    assert write.cap_watts is not None
                    self.limits[int(name)] = write.cap_watts
            limit = self.limits[int(name)]
            self.table.observe(name, Outcome(limit, limit, done=writes))

    def read_back(self) -> None:
        due = {}
        for name in self.table.uuids:
            limit = self.limits[int(name)]
            writes = self.table.observe(name, Outcome(limit, limit))
            if writes:
                due[name] = writes
        self.carry_out(due)

    def apply(self, command: LeaseCommand, now_ns: int) -> bool:
        self.carry_out(self.table.expire(now_ns))
        try:
            self.carry_out(self.table.apply(command, now_ns))
        except InputError:
            return False
        return True


class Both:
    """The same events for both; times are the run's."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        shape = (NODES, BOARDS)
        ranges = BoardRange(*(np.full(shape, w) for w in (LOWEST, DEFAULT, DEFAULT)))
        self.arrays = RowActuators(
            ranges, np.full(shape, GUARANTEED), AT_ONCE, np.random.default_rng(0), 0
        )
        self.products = [Product() for _ in range(NODES)]
        self.nonces: list[tuple[int, int]] = []
        self.epoch, self.sequence = 2, 1
        self.accepted = self.refused = self.fell = 0

    def local(self, node: int, now_ns: int) -> int:
        return int(self.arrays.local_ns(now_ns)[node])

    def fails(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.array([[float(p.failing)] * BOARDS for p in self.products])

    def status(self, node: int, now_ns: int) -> None:
        nonce = int(self.arrays.new_nonces(np.array([node]), np.array([now_ns]))[0])
        assert self.products[node].table.status(self.local(node, now_ns)).nonce == nonce
        self.nonces.append((node, nonce))

    def time(self, now_ns: int) -> None:
        until = np.full(NODES, now_ns)
        before = self.arrays.expired
        self.arrays.expire(until)
        self.arrays.write(until, self.fails())
        self.fell += self.arrays.expired - before
        for node, product in enumerate(self.products):
            product.carry_out(product.table.expire(self.local(node, now_ns)))

    def read_back(self, now_ns: int) -> None:
        self.arrays.next_read_ns[:] = now_ns
        self.arrays.read_back(now_ns)
        self.arrays.write(np.full(NODES, now_ns), self.fails())
        for product in self.products:
            product.read_back()

    def batch(self, now_ns: int) -> None:
        if not self.nonces:
            return
        rng = self.rng
        node, nonce = self.nonces[-1 - int(rng.integers(min(4, len(self.nonces))))]
        self.sequence += int(rng.integers(0, 2))
        epoch = self.epoch + int(rng.choice([0, 0, 0, 0, -1, 1]))
        if rng.random() < 0.05:
            self.epoch, self.sequence = self.epoch + 1, 1
        caps = rng.choice([250.0, 400.0, 550.0, 700.0], BOARDS)
        guaranteed = rng.choice([0.0, 0.0, 350.0, 450.0], BOARDS)
        lock = int(rng.choice([0, 0, 1200]))
        ttl = int(rng.choice([500, 2000, 4000]))
        one = np.array([node])
        batches = LeaseBatches(
            node=one,
            epoch=np.array([epoch]),
            sequence=np.array([self.sequence]),
            nonce=np.array([nonce]),
            ttl_ms=np.array([ttl]),
            cap_watts=caps[None, :],
            lock_max_mhz=np.full((1, BOARDS), lock),
            guaranteed_watts=guaranteed[None, :],
        )
        took = bool(self.arrays.apply(batches, one, np.array([now_ns]))[0])
        self.arrays.write(np.full(NODES, now_ns), self.fails())
        operation = Operation.LOCK_CLOCKS if lock else Operation.SET_POWER_LIMIT
        devices = tuple(
            DeviceCommand(
                str(i), operation, float(caps[i]), lock or None, float(guaranteed[i]) or None
            )
            for i in range(BOARDS)
        )
        command = LeaseCommand(epoch, self.sequence, nonce, ttl, devices)
        assert self.products[node].apply(command, self.local(node, now_ns)) == took
        self.accepted += took
        self.refused += not took

    def compare(self, now_ns: int) -> None:
        arrays = self.arrays
        nodes = np.arange(NODES)
        controlled = arrays.controlled(nodes)
        leased = arrays.leased(nodes, np.full(NODES, now_ns))
        for node, product in enumerate(self.products):
            assert product.table.highest_epoch == arrays.epoch[node]
            status = product.table.status(self.local(node, now_ns))
            arrays.new_nonces(np.array([node]), np.array([now_ns]))
            for i in range(BOARDS):
                held, shown = product.table.held(str(i)), status.devices[str(i)]
                deadline = int(arrays.deadline_ns[node, i])
                assert held.cap_watts == arrays.cap_watts[node, i]
                assert held.guaranteed_watts == arrays.guaranteed_watts[node, i]
                assert held.lease_deadline_ns == (None if deadline == NEVER else deadline)
                assert product.limits[i] == arrays.limit_watts[node, i]
                assert held.limit_watts == arrays.seen_watts[node, i]
                assert held.confirmed_sequence == arrays.confirmed_sequence[node, i]
                assert (shown.state is DeviceState.OK) == controlled[node, i]
                assert shown.lease_active == leased[node, i]


@pytest.mark.parametrize("seed", range(12))
def test_arrays_and_the_products_lease_table_agree_on_every_event(seed: int) -> None:
    rng = np.random.default_rng(seed)
    both, now_ns = Both(rng), NS_PER_SECOND
    for _ in range(120):
        now_ns += int(rng.integers(1, 600)) * NS_PER_MS
        both.time(now_ns)
        event = rng.random()
        if event < 0.35:
            both.status(int(rng.integers(NODES)), now_ns)
        elif event < 0.75:
            both.batch(now_ns)
        elif event < 0.9:
            both.read_back(now_ns)
        else:
            product = both.products[int(rng.integers(NODES))]
            product.failing = not product.failing
        both.compare(now_ns)
    assert both.accepted >= 5
    assert both.refused >= 5
    assert both.fell > 0


def test_a_driver_reload_is_undone_at_the_next_read_back() -> None:
    both, now_ns = Both(np.random.default_rng(0)), 5 * NS_PER_SECOND
    both.arrays.driver_reloaded(1)
    both.products[1].limits = [DEFAULT] * BOARDS
    assert (both.arrays.limit_watts[1] == DEFAULT).all()
    both.read_back(now_ns)
    both.compare(now_ns)
    assert (both.arrays.limit_watts[1] == GUARANTEED).all()
