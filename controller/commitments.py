"""The highest cap that each GPU may hold now (I3, I6), from what was sent and what was read back.

A command counts until a later one was read back, or until its lease has run out and a report newer
than that came; reports may be answered by it until shortly after its tick (``renewals``). The
guaranteed cap always counts, because expiry falls to it. A GPU of which nothing fresh is known
counts at its default limit: its node may have rebooted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.renewals import REPEATED_WITHIN_NS
from controller.tick_values import Commands, Observations, Tick
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = [
    "Commitments",
    "Holding",
    "held_by_silent",
    "holding",
    "initial_commitments",
    "record",
    "seen",
    "sole_since_ns",
]

_RING = 8
# A report that came this long after a lease must have ended was issued after its end: reports
# older than 2 s are answered by nobody (I4). A lease ends as much later as it may be repeated.
_EXPIRY_MARGIN_NS = 2 * NS_PER_SECOND + REPEATED_WITHIN_NS
# Commands of an epoch that has ended are superseded by time alone.
_NEVER_CONFIRMED = 1 << 62


@dataclass(frozen=True, slots=True)
class Commitments:
    """What was sent in this epoch and not yet superseded.

    Attributes:
        epoch: Of the commands below.
        since_ns: When this epoch began.
        next_sequence: Of the next command.
        last_sent_ns: Of the newest command, -1 before the first.
        sequence: Ring, 0 for empty, (n_ring,).
        sent_ns: Ring, (n_ring,).
        caps_watts: Ring, 0 where nothing was sent, (n_ring, n_gpus).
        older_caps_watts: Highest unconfirmed cap that fell out of the ring, (n_gpus,).
        older_sequence: Sequence of the newest of those, (n_gpus,).
        older_sent_ns: Its time, (n_gpus,).
        unproven_ns: Reports up to this time say nothing: the node rebooted, (n_nodes,).
        node_sent_ns: When each node was last sent a batch, -1 if never, (n_nodes,).
        node_sequence: Sequence of that batch, 0 if never, (n_nodes,).
        node_caps_watts: Its caps, 0 where nothing was sent, (n_gpus,).
    """

    epoch: int
    since_ns: int
    next_sequence: int
    last_sent_ns: int
    sequence: IntArray
    sent_ns: IntArray
    caps_watts: FloatArray
    older_caps_watts: FloatArray
    older_sequence: IntArray
    older_sent_ns: IntArray
    unproven_ns: IntArray
    node_sent_ns: IntArray
    node_sequence: IntArray
    node_caps_watts: FloatArray


@dataclass(frozen=True, slots=True)
class Holding:
    """What each GPU may hold.

    Attributes:
        held_watts: Highest cap by command or read-back; asking for no more raises nothing,
            (n_gpus,).
        highest_watts: The same with guaranteed caps, and defaults where nobody vouches for what
            comes next, (n_gpus,).
        until_now_watts: The same where only the report has to be known: nobody has to vouch for
            the past, (n_gpus,).
        writable: A fresh report and an actuator that vouches for the GPU, (n_gpus,).
        fresh_node: A report within ``report_stale_ns``, (n_nodes,).
    """

    held_watts: FloatArray
    highest_watts: FloatArray
    until_now_watts: FloatArray
    writable: BoolArray
    fresh_node: BoolArray


def initial_commitments(n_gpus: int, n_nodes: int, epoch: int, now_ns: int) -> Commitments:
    """Nothing was sent in this epoch."""
    return Commitments(
        epoch=epoch,
        since_ns=now_ns,
        next_sequence=1,
        last_sent_ns=-1,
        sequence=np.zeros(_RING, dtype=np.int64),
        sent_ns=np.zeros(_RING, dtype=np.int64),
        caps_watts=np.zeros((_RING, n_gpus)),
        older_caps_watts=np.zeros(n_gpus),
        older_sequence=np.zeros(n_gpus, dtype=np.int64),
        older_sent_ns=np.zeros(n_gpus, dtype=np.int64),
        unproven_ns=np.full(n_nodes, -1, dtype=np.int64),
        node_sent_ns=np.full(n_nodes, -1, dtype=np.int64),
        node_sequence=np.zeros(n_nodes, dtype=np.int64),
        node_caps_watts=np.zeros(n_gpus),
    )


def seen(tick: Tick, commitments: Commitments) -> Commitments:
    """The commitments after this tick's epoch and reboots were noticed."""
    observed = tick.observations
    rebooted = observed.node_rebooted
    unproven = np.where(rebooted, observed.node_received_ns, commitments.unproven_ns)
    if observed.epoch != commitments.epoch:
        fresh = initial_commitments(
            commitments.caps_watts.shape[1], len(unproven), observed.epoch, tick.now_ns
        )
        return replace(
            fresh,
            unproven_ns=unproven,
            older_caps_watts=np.maximum(
                commitments.caps_watts.max(axis=0), commitments.older_caps_watts
            ),
            older_sequence=np.full_like(fresh.older_sequence, _NEVER_CONFIRMED),
            older_sent_ns=np.full_like(fresh.older_sent_ns, max(commitments.last_sent_ns, 0)),
        )
    if not some(rebooted):
        return commitments
    return replace(commitments, unproven_ns=unproven)


def sole_since_ns(tick: Tick, commitments: Commitments) -> int:
    """Since when only this replica can have given caps; a predecessor's hold for one lease more.

    Of others' caps no more is known than what each report read back.
    """
    leads_ns = commitments.since_ns if tick.observations.leading else tick.now_ns
    return leads_ns + tick.lease_ns


def holding(tick: Tick, commitments: Commitments) -> Holding:
    """What each GPU may hold at most, given everything sent and read back."""
    topology, observed = tick.topology, tick.observations
    received = observed.node_received_ns
    fresh_node = (received >= 0) & (tick.now_ns - received <= tick.settings.report_stale_ns)
    proven = fresh_node & (received > commitments.unproven_ns) & ~observed.node_rebooted
    by_node = topology.node_of_gpu
    read_back = observed.gpu_limit_watts
    with np.errstate(invalid="ignore"):
        readable = (read_back > 0.0) & np.isfinite(read_back)
    read = proven.take(by_node) & readable
    writable = read & observed.gpu_controlled
    sent = _unsuperseded(tick, commitments, received.take(by_node))
    read_back = np.where(readable, read_back, 0.0)
    held = np.maximum(read_back, sent)
    guaranteed = np.fmax(observed.gpu_guaranteed_watts, topology.guaranteed_watts)
    highest = until_now = np.maximum(held, guaranteed)
    if not every(writable):
        limit = np.maximum(topology.default_limit_watts, read_back)
        highest, until_now = np.where(writable, highest, limit), np.where(read, highest, limit)
    return Holding(held, highest, until_now, writable, fresh_node)


def held_by_silent(
    tick: Tick,
    commitments: Commitments,
    hold: Holding,
    highest_watts: FloatArray,
    trusted: BoolArray,
) -> FloatArray:
    """The highest caps with those of silent boards at what a command or I3 left them, (n_gpus,).

    A record of the past (heat), not a bound on the next seconds. A board that keeps its caps was at
    those of its lease, or without one at its guaranteed cap, if an actuator held it when its server
    was heard last. What else can have happened is that the server rebooted or lost its driver,
    which I1 bears of a twentieth of the servers (the caller counts these).

    Args:
        tick: For topology and reports.
        commitments: What was sent.
        hold: What each GPU may hold by that.
        highest_watts: The highest caps, at a board's most where it is not trusted (I7), (n_gpus,);
            returned itself where nobody is silent.
        trusted: Boards that keep their caps as far as anybody knows, (n_gpus,).
    """
    topology, observed = tick.topology, tick.observations
    received_ns, by_node = observed.node_received_ns, topology.node_of_gpu
    silent = ~hold.fresh_node & (received_ns >= 0) & topology.node_host_unit
    if not some(silent):
        return highest_watts
    settle_ns = int(tick.settings.settle_seconds * NS_PER_SECOND)
    settled_ns = tick.lease_ns + tick.settings.nonce_max_age_ns + settle_ns
    # Of caps that another replica gave nothing is known but what was read back.
    alone = tick.now_ns >= sole_since_ns(tick, commitments) + settle_ns
    ended = silent & (tick.now_ns - received_ns > settled_ns)
    ended &= alone | (not observed.leading)
    leased = silent & (received_ns > commitments.unproven_ns) & alone
    with np.errstate(invalid="ignore"):
        readable = observed.gpu_limit_watts > 0.0
    guaranteed = np.fmax(observed.gpu_guaranteed_watts, topology.guaranteed_watts)
    most = np.maximum(hold.held_watts, guaranteed)
    most = np.where(leased.take(by_node) & readable, most, np.inf)
    fallen = ended.take(by_node) & np.isfinite(observed.gpu_guaranteed_watts)
    most = np.where(fallen, guaranteed, most)
    # Where nothing is enforced nothing was leased, so nothing falls.
    held = topology.enforced_gpu & observed.gpu_controlled & trusted
    return np.asarray(np.minimum(highest_watts, np.where(held, most, np.inf)))


def _unsuperseded(tick: Tick, commitments: Commitments, gpu_received_ns: IntArray) -> FloatArray:
    """Highest cap of any command that could still be in force, 0 for none, (n_gpus,)."""
    lease_ns = tick.lease_ns + _EXPIRY_MARGIN_NS
    confirmed = _confirmed(commitments, tick.observations)
    confirmed = np.maximum(confirmed, 1)
    # What everybody has confirmed beyond needs no look; the ring rises.
    first = int(commitments.sequence.searchsorted(confirmed.min(initial=_NEVER_CONFIRMED)))
    alive = commitments.sequence[first:, None] >= confirmed
    alive &= gpu_received_ns <= (commitments.sent_ns[first:] + lease_ns)[:, None]
    newest = np.where(alive, commitments.caps_watts[first:], 0.0).max(axis=0, initial=0.0)
    older = commitments.older_sequence >= confirmed
    if not some(older):
        return np.asarray(newest)
    older &= gpu_received_ns <= commitments.older_sent_ns + lease_ns
    return np.asarray(np.maximum(newest, np.where(older, commitments.older_caps_watts, 0.0)))


def _confirmed(commitments: Commitments, observed: Observations) -> IntArray:
    """Newest confirmed sequences; an actuator cannot confirm what we never sent, (n_gpus,)."""
    confirmed = observed.gpu_confirmed_sequence
    return np.asarray(np.where(confirmed < commitments.next_sequence, confirmed, 0))


def record(tick: Tick, commitments: Commitments, commands: Commands) -> Commitments:
    """The commitments after these commands were sent."""
    now_ns = tick.now_ns
    if not some(commands.send):
        return commitments
    caps = np.where(commands.send.take(tick.topology.node_of_gpu), commands.cap_watts, 0.0)
    older_caps, older_sequence, older_sent_ns = _folded(tick, commitments)
    return replace(
        commitments,
        next_sequence=commands.sequence + 1,
        node_sent_ns=np.where(commands.send, now_ns, commitments.node_sent_ns),
        node_sequence=np.where(commands.send, commands.sequence, commitments.node_sequence),
        node_caps_watts=np.where(caps > 0.0, caps, commitments.node_caps_watts),
        last_sent_ns=now_ns,
        sequence=np.concatenate((commitments.sequence[1:], (commands.sequence,))),
        sent_ns=np.concatenate((commitments.sent_ns[1:], (now_ns,))),
        caps_watts=np.concatenate((commitments.caps_watts[1:], caps[None, :])),
        older_caps_watts=older_caps,
        older_sequence=older_sequence,
        older_sent_ns=older_sent_ns,
    )


def _folded(tick: Tick, commitments: Commitments) -> tuple[FloatArray, IntArray, IntArray]:
    """Older caps, sequences and times with what leaves the ring unconfirmed, (n_gpus,) each.

    What was confirmed beyond, or has run out by the newest report, is not kept: a younger command
    that is folded in would bring it back with a time of its own.
    """
    confirmed = _confirmed(commitments, tick.observations)
    received_ns = tick.observations.node_received_ns.take(tick.topology.node_of_gpu)
    kept = commitments.older_sequence >= confirmed
    kept &= received_ns <= commitments.older_sent_ns + tick.lease_ns + _EXPIRY_MARGIN_NS
    caps = np.where(kept, commitments.older_caps_watts, 0.0)
    old_sequence = np.where(kept, commitments.older_sequence, 0)
    old_sent_ns = np.where(kept, commitments.older_sent_ns, 0)
    leaving, sequence = commitments.caps_watts[0], int(commitments.sequence[0])
    folds = (leaving > 0.0) & (confirmed <= sequence)
    if not some(folds):
        return caps, old_sequence, old_sent_ns
    sent_ns = int(commitments.sent_ns[0])
    return (
        np.where(folds, np.maximum(caps, leaving), caps),
        np.where(folds, np.maximum(sequence, old_sequence), old_sequence),
        np.where(folds, np.maximum(sent_ns, old_sent_ns), old_sent_ns),
    )
