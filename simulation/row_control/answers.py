"""Which batches leave when, for all nodes at once: the product's answer desk as arrays.

Ticks decide; a report is answered on arrival by what the last tick told its node, where the product
may say that again (``controller.renewals`` has the rule, ``controller.app.answer_desk`` the order).
A test plays the same reports and ticks to the product's desk.
"""

from __future__ import annotations

import numpy as np

from controller.renewals import REPEATED_WITHIN_NS
from controller.tick_values import Commands
from simulation.row_control.messages import LeaseBatches, Reports
from simulation.row_control.work import Bools, Integers

_SAME_WATTS = 0.5


class Answers:
    """What was said to each node, and whether it may be said again.

    Args:
        n_nodes: Nodes.
        g: Boards of each.
        epoch: Of our term.
    """

    def __init__(self, n_nodes: int, g: int, epoch: int) -> None:
        self._epoch = epoch
        self._told: Bools = np.zeros(n_nodes, dtype=np.bool_)
        self._sequence = np.zeros(n_nodes, dtype=np.int64)
        self._decided_ns = np.zeros(n_nodes, dtype=np.int64)
        self._ttl_ms = np.zeros(n_nodes, dtype=np.int64)
        self._cap_watts = np.zeros((n_nodes, g))
        self._lock_mhz = np.zeros((n_nodes, g), dtype=np.int64)
        self._heard_nonce = np.zeros(n_nodes, dtype=np.int64)
        self._answered = np.zeros(n_nodes, dtype=np.int64)
        self._sent_sequence = np.zeros(n_nodes, dtype=np.int64)
        self._doubtful: Bools = np.ones(n_nodes, dtype=np.bool_)

    def decided(self, commands: Commands) -> tuple[Bools, Integers]:
        """Which nodes' batches of a tick leave now, and which report each answers, (n_nodes,)."""
        shape = self._cap_watts.shape
        caps = commands.cap_watts.reshape(shape)
        locks = commands.lock_max_mhz.reshape(shape)
        same = (np.abs(caps - self._cap_watts) <= _SAME_WATTS) & (locks == self._lock_mhz)
        news = ~self._told | ~same.all(axis=1)
        sent = commands.send
        # Nothing was sent: an older word is repeated only where it is still what is meant.
        self._told = sent | (self._told & ~news)
        news = news | (commands.guaranteed_watts.reshape(shape) > 0.0).any(axis=1)
        answered = (self._heard_nonce == self._answered) & (self._answered != 0)
        nonce = np.where(answered, self._heard_nonce, commands.nonce.astype(np.int64))
        self._cap_watts = np.where(sent[:, None], caps, self._cap_watts)
        self._lock_mhz = np.where(sent[:, None], locks, self._lock_mhz)
        self._decided_ns = np.where(sent, commands.decided_ns, self._decided_ns)
        self._ttl_ms = np.where(sent, commands.ttl_ms, self._ttl_ms)
        self._sequence = np.where(sent, commands.sequence, self._sequence)
        leaves = sent & ~(answered & ~news & ~self._doubtful)
        self._sent_sequence = np.where(leaves, commands.sequence, self._sent_sequence)
        return leaves, nonce

    def arrived(self, reports: Reports, refused: Bools) -> LeaseBatches | None:
        """Answers to reports, None if the next tick has to give them all.

        Args:
            reports: One a node.
            refused: Reports that a tick has to judge first: of a node that rebooted, or of a large
                rise, (k,).
        """
        nodes = reports.node
        nonces = reports.nonce
        doubtful = nonces != self._heard_nonce.take(nodes) + 1
        behind = reports.confirmed_sequence < self._sent_sequence.take(nodes)[:, None]
        if behind.any():
            doubtful |= (reports.controlled & behind).any(axis=1)
        self._doubtful[nodes] = doubtful
        self._heard_nonce[nodes] = nonces
        may = self._told.take(nodes) & ~refused & (reports.epoch <= self._epoch)
        may &= reports.arrival_ns - self._decided_ns.take(nodes) <= REPEATED_WITHIN_NS
        caps = self._cap_watts.take(nodes, axis=0)
        held = np.fmax(reports.limit_watts, reports.guaranteed_watts)
        may &= (caps <= held + _SAME_WATTS).all(axis=1)
        if not may.all():
            if not may.any():
                return None
            nodes, nonces, caps = nodes[may], nonces[may], caps[may]
        sequence = self._sequence.take(nodes)
        self._answered[nodes] = nonces
        self._sent_sequence[nodes] = sequence
        return LeaseBatches(
            node=nodes,
            epoch=np.full(len(nodes), self._epoch, dtype=np.int64),
            sequence=sequence,
            nonce=nonces,
            ttl_ms=self._ttl_ms.take(nodes),
            cap_watts=caps,
            lock_max_mhz=self._lock_mhz.take(nodes, axis=0),
            guaranteed_watts=np.zeros(caps.shape),
        )
