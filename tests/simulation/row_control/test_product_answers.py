"""The answers of the row's driver against the product's own desk, report by report."""

from __future__ import annotations

import numpy as np
import pytest

from controller.app.agent_reports import NodeSample
from controller.app.answer_desk import AnswerDesk, lease_batches, words_of
from controller.app.fleet import Arrival
from controller.tick_values import Commands
from simulation.row_control.answers import Answers
from simulation.row_control.messages import Reports
from tests.controller.builders import make_topology
from wattpack.units import NS_PER_SECOND

NODES, BOARDS = 3, 2
TOPOLOGY = make_topology(nodes=(1, 1, 2), gpus_per_node=BOARDS)


class Both:
    """The same reports and ticks for both."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.desk = AnswerDesk(lambda: 1)
        self.answers = Answers(NODES, BOARDS, 1)
        self.nonce = np.zeros(NODES, dtype=np.int64)
        self.heard = np.zeros(NODES, dtype=np.int64)
        self.sequence = self.renewals = self.kept_back = 0
        self.caps = np.full(NODES * BOARDS, 500.0)

    def report(self, now_ns: int) -> None:
        rng, node = self.rng, int(self.rng.integers(NODES))
        # Nonces of reports that are lost are never heard.
        self.nonce[node] += int(rng.choice([1, 1, 1, 2]))
        nonce = int(self.nonce[node])
        self.heard[node] = nonce
        limits = rng.choice([450.0, 500.0, 600.0], BOARDS)
        guaranteed = np.full(BOARDS, 400.0)
        confirmed = np.full(BOARDS, max(0, self.sequence - int(rng.integers(0, 2))))
        controlled = rng.random(BOARDS) < 0.9
        epoch = int(rng.choice([0, 1, 1, 1, 2]))
        rebooted, rises = (bool(rng.random() < 0.1) for _ in range(2))
        none = np.zeros(BOARDS)
        sample = NodeSample(
            received_ns=now_ns,
            sequence=nonce,
            nonce=nonce,
            clock_ns=now_ns,
            highest_epoch=epoch,
            draw_watts=none,
            energy_joules=none,
            limit_watts=limits,
            guaranteed_watts=guaranteed,
            confirmed_sequence=confirmed,
            controlled=controlled,
            leased=controlled,
            pods=(),
            temperature_celsius=none,
            signals=np.zeros((3, BOARDS)),
        )
        theirs = self.desk.arrived(f"node-{node}", Arrival(sample, rebooted, rises), now_ns)
        one = np.array([node])
        reports = Reports(
            node=one,
            arrival_ns=np.array([now_ns]),
            nonce=np.array([nonce]),
            boot=one,
            clock_ns=np.array([now_ns]),
            epoch=np.array([epoch]),
            draw_watts=none[None],
            energy_joules=none[None],
            highest_watts=none[None],
            highest_since_ns=np.array([now_ns]),
            limit_watts=limits[None],
            guaranteed_watts=guaranteed[None],
            confirmed_sequence=confirmed[None],
            controlled=controlled[None],
            leased=controlled[None],
        )
        ours = self.answers.arrived(reports, np.array([rebooted or rises]))
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None:
            return
        self.renewals += 1
        leases = theirs.leases
        assert (leases.epoch, leases.sequence) == (int(ours.epoch[0]), int(ours.sequence[0]))
        assert (leases.nonce, leases.ttl_ms) == (int(ours.nonce[0]), int(ours.ttl_ms[0]))
        assert [d.cap_watts for d in leases.devices] == ours.cap_watts[0].tolist()
        assert [d.guaranteed_watts for d in leases.devices] == ours.guaranteed_watts[0].tolist()

    def tick(self, now_ns: int) -> None:
        rng = self.rng
        self.sequence += 1
        if rng.random() < 0.3:
            self.caps = rng.choice([400.0, 450.0, 500.0], NODES * BOARDS)
        new = rng.random(NODES * BOARDS) < 0.03
        commands = Commands(
            epoch=1,
            sequence=self.sequence,
            ttl_ms=4000,
            send=(rng.random(NODES) < 0.85) & (self.heard > 0),
            nonce=self.heard.astype(np.uint64),
            cap_watts=self.caps,
            lock_max_mhz=np.zeros(NODES * BOARDS, dtype=np.int64),
            guaranteed_watts=np.where(new, 410.0, 0.0),
            decided_ns=now_ns,
        )
        words, batches = words_of(TOPOLOGY, commands), lease_batches(TOPOLOGY, commands)
        theirs = self.desk.decided(words, batches)
        leaves, nonce = self.answers.decided(commands)
        assert {f"node-{i}" for i in np.flatnonzero(leaves)} == set(theirs)
        for i in np.flatnonzero(leaves).tolist():
            assert theirs[f"node-{i}"].leases.nonce == int(nonce[i])
        self.kept_back += int((commands.send & ~leaves).sum())


@pytest.mark.parametrize("seed", range(6))
def test_arrays_and_the_products_desk_send_the_same_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    both, now_ns = Both(rng), NS_PER_SECOND
    for _ in range(300):
        now_ns += int(rng.integers(1, 600)) * 1_000_000
        if rng.random() < 0.65:
            both.report(now_ns)
        else:
            both.tick(now_ns)
    assert both.renewals > 10
    assert both.kept_back > 2
