"""Which lease batch leaves when: ticks decide, reports are answered on arrival (I3).

      tick ── Commands ──> decided() ──> batches that must leave now
                              │ what was said, by node
    report ──────────────> arrived() ──> the same again, for a lease from this report on

One thread owns the desk (the event loop of the streams), so a node's messages leave in the order in
which they were decided. A tick that tells a node nothing new sends it nothing, if its newest report
was answered already: the word goes out with the next report, one message a node and second as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from controller.app.fleet import Arrival
from controller.renewals import Heard, Word, may_be_repeated, repeatable, says_the_same
from controller.tick_values import Commands, PowerSettings, Topology
from wattpack.masks import every
from wattpack.power.domain_tree import BoolArray
from wattpack.wire.v1 import power_pb2

__all__ = ["AnswerDesk", "lease_batches", "words_of"]

NONCE_MAX_AGE_NS = PowerSettings().nonce_max_age_ns


@dataclass(slots=True)
class _Node:
    """One node's side of the conversation.

    Attributes:
        word: What the last tick told it.
        message: The same for the wire.
        heard: Its newest report, None before the first.
        report_sequence: Of that report.
        answered: Nonce of the newest report that was answered between ticks, 0 for none.
        left_out: That answer named not all boards: ticks have to.
        sent_sequence: Of the newest batch that left.
        doubtful: Its newest report misses one before it, or does not confirm the last batch.
    """

    word: Word | None = None
    message: power_pb2.ControllerMessage | None = None
    heard: Heard | None = None
    report_sequence: int = -1
    answered: int = 0
    left_out: bool = False
    sent_sequence: int = 0
    doubtful: bool = True


class AnswerDesk:
    """What was said to each node, and whether it may be said again.

    Args:
        epoch: Of our present term, 0 while we do not lead; asked at each report.
    """

    def __init__(self, epoch: Callable[[], int]) -> None:
        self._epoch = epoch
        self._nodes: dict[str, _Node] = {}
        self.renewals = 0

    def decided(
        self, words: Mapping[str, Word], batches: Mapping[str, power_pb2.ControllerMessage]
    ) -> dict[str, power_pb2.ControllerMessage]:
        """The batches of a tick that have to leave now, by node.

        Args:
            words: What the tick means for each node; the others are forgotten.
            batches: What it sends.
        """
        for name in self._nodes.keys() - words.keys():
            del self._nodes[name]
        leaving = {}
        for name, word in words.items():
            node = self._nodes.setdefault(name, _Node())
            message = batches.get(name)
            if message is None:
                # Nothing was sent: an older word is repeated only where it is still what is meant.
                if node.word is not None and not says_the_same(node.word, word):
                    node.word = node.message = None
            elif self._take(node, word, message):
                leaving[name] = message
        return leaving

    @staticmethod
    def _take(node: _Node, word: Word, message: power_pb2.ControllerMessage) -> bool:
        """Remember a tick's word; whether it leaves now and not with the next report."""
        news = node.word is None or not says_the_same(node.word, word)
        news |= any(device.guaranteed_watts > 0.0 for device in message.leases.devices)
        heard, batch = node.heard, message.leases
        answered = heard is not None and heard.nonce == node.answered != 0
        if answered and heard is not None:
            # The actuator has, or will have, our answer to this report: one to an earlier report
            # would come too late for it (I4).
            batch.nonce = heard.nonce
        node.word, node.message = word, message
        if answered and not (news or node.doubtful or node.left_out):
            return False
        node.sent_sequence = word.sequence
        return True

    def arrived(
        self, name: str, arrival: Arrival, now_ns: int
    ) -> power_pb2.ControllerMessage | None:
        """The answer to a report, None where the next tick has to give it."""
        sample = arrival.sample
        node = self._nodes.setdefault(name, _Node())
        in_row = sample.sequence == node.report_sequence + 1
        confirms = not np.any(sample.controlled & (sample.confirmed_sequence < node.sent_sequence))
        node.doubtful = not (in_row and confirms)
        node.report_sequence = sample.sequence
        node.heard = heard = Heard(
            nonce=sample.nonce,
            received_ns=sample.received_ns,
            highest_epoch=sample.highest_epoch,
            rebooted=arrival.rebooted,
            calls_for_tick=arrival.calls_for_tick,
            limit_watts=sample.limit_watts,
            guaranteed_watts=sample.guaranteed_watts,
        )
        word, message = node.word, node.message
        if word is None or message is None:
            return None
        if not may_be_repeated(word, heard, self._epoch(), NONCE_MAX_AGE_NS, now_ns):
            return None
        again = repeatable(word, heard)
        answer = _again(message, heard.nonce, again)
        node.left_out = not every(again)
        node.answered, node.sent_sequence = heard.nonce, word.sequence
        self.renewals += 1
        return answer


def _again(
    message: power_pb2.ControllerMessage, nonce: int, boards: BoolArray
) -> power_pb2.ControllerMessage:
    """A tick's batch as the answer to a report: its caps, for these boards, (n_boards,)."""
    told = message.leases
    batch = power_pb2.LeaseBatch(
        epoch=told.epoch,
        sequence=told.sequence,
        nonce=nonce,
        ttl_ms=told.ttl_ms,
        devices=[
            power_pb2.DeviceLease(
                uuid=device.uuid, cap_watts=device.cap_watts, lock_max_mhz=device.lock_max_mhz
            )
            for device, named in zip(told.devices, boards.tolist(), strict=True)
            if named
        ],
    )
    return power_pb2.ControllerMessage(leases=batch)


def lease_batches(topology: Topology, commands: Commands) -> dict[str, power_pb2.ControllerMessage]:
    """The wire messages of a tick by node."""
    batches: dict[str, power_pb2.ControllerMessage] = {}
    boundaries = _boundaries(topology)
    for index in commands.send.nonzero()[0]:
        batch = power_pb2.LeaseBatch(
            epoch=commands.epoch,
            sequence=commands.sequence,
            nonce=int(commands.nonce[index]),
            ttl_ms=commands.ttl_ms,
            devices=[
                power_pb2.DeviceLease(
                    uuid=_own_name(topology.gpu_uuids[gpu]),
                    cap_watts=float(commands.cap_watts[gpu]),
                    lock_max_mhz=int(commands.lock_max_mhz[gpu]),
                    guaranteed_watts=float(commands.guaranteed_watts[gpu]),
                )
                for gpu in range(boundaries[index], boundaries[index + 1])
            ],
        )
        batches[topology.node_names[index]] = power_pb2.ControllerMessage(leases=batch)
    return batches


def words_of(topology: Topology, commands: Commands) -> dict[str, Word]:
    """What a leader's tick means for each node, sent or not; nothing where nobody leads."""
    if commands.epoch <= 0:
        return {}
    boundaries = _boundaries(topology)
    return {
        name: Word(
            commands.epoch,
            commands.sequence,
            commands.decided_ns,
            commands.cap_watts[boundaries[index] : boundaries[index + 1]],
            commands.lock_max_mhz[boundaries[index] : boundaries[index + 1]],
        )
        for index, name in enumerate(topology.node_names)
    }


def _own_name(uuid: str) -> str:
    """What the agent itself calls its board, however the topology had to name it.

    A stream is bound to the node that it was authenticated for, so its leases are about that
    node's boards alone, also where two nodes name the same UUID (``known_servers``).
    """
    return uuid.rpartition("/")[2]


def _boundaries(topology: Topology) -> list[int]:
    """Where each node's GPUs start in the arrays, which are ordered by node, (n_nodes + 1,)."""
    counts = np.bincount(topology.node_of_gpu, minlength=topology.n_nodes)
    return [0, *np.cumsum(counts).tolist()]
