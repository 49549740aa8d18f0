"""What actuators of a row do with batches, node by node and compiled: the same to the last bit.

``ActuatorPost`` over ``RowActuators`` stays the form to read and the oracle; a test holds runs of
one against the other. Times, draws and their order are theirs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from simulation.row_control.actuator_post import ActuatorPost
from simulation.row_control.actuators import (
    MATCH_WATTS,
    NEVER,
    NONCE_LIFE_NS,
    READ_BACK_NS,
    RowActuators,
)
from simulation.row_control.messages import LeaseBatches
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.compiled import AVAILABLE, compiled
from wattpack.units import NS_PER_MS, NS_PER_SECOND


class _Rules(NamedTuple):
    """Constants, as a compiled function can have those of other files."""

    never: int
    nonce_life_ns: int
    read_back_ns: int
    match_watts: float
    write_seconds: tuple[float, float]
    slow_write_seconds: tuple[float, float]
    slow_chance: float
    out_of_band_seconds: float
    ns_per_ms: int
    ns_per_second: int


# Few arrays with many rows: numba takes a second for each dozen that a kernel is given.
_OF_BOARDS_WATTS: Final = ("cap_watts", "guaranteed_watts", "limit_watts", "seen_watts")
CAP, GUARANTEED, LIMIT, SEEN = range(4)
_OF_BOARDS: Final = (
    "lock_mhz",
    "driver_lock_mhz",
    "deadline_ns",
    "sequence",
    "confirmed_sequence",
    "failures",
)
LOCK, DRIVER_LOCK, DEADLINE, SEQUENCE, CONFIRMED, FAILURES = range(6)
_OF_NODES: Final = (
    "clock_offset_ns",
    "epoch",
    "fence_sequence",
    "fence_issued_ns",
    "write_ns",
    "next_read_ns",
    "ready_ns",
)
OFFSET, EPOCH, FENCE_SEQUENCE, FENCE_ISSUED, WRITE, NEXT_READ, READY = range(7)
_OF_NONCES: Final = ("nonce_ring", "issued_ring")
NONCE, ISSUED = range(2)
_OF_BATCHES: Final = ("sending", "arrival_ns", "node", "epoch", "sequence", "nonce", "ttl_ms")
SENDING, ARRIVAL, NODE, OF_TERM, OF_TICK, ECHO, TTL_MS = range(7)


class _Held(NamedTuple):
    """``RowActuators``' own arrays, one behind the other."""

    watts: Floats
    board: Integers
    node: Integers
    ring: Integers
    ever_confirmed: Bools
    out_of_band: Bools


class _Draws(NamedTuple):
    """Random numbers drawn ahead, and where the next one lies, (1,)."""

    numbers: Floats
    at: Integers


class _Mail(NamedTuple):
    """Batches on their way in order of sending, room for so many; the first ``filled[0]`` are."""

    filled: Integers
    batch: Integers
    cap_watts: Floats
    guaranteed_watts: Floats
    lock_max_mhz: Integers


@compiled
def _due(
    held: _Held, rules: _Rules, draws: _Draws, nodes: Integers, at_ns: Integers, count: int
) -> None:
    first = draws.at[0]
    draws.at[0] += 2 * count
    ends_ns = np.empty(count, dtype=np.int64)
    for i in range(count):
        node = nodes[i]
        share = draws.numbers[first + count + i]
        low, high = rules.write_seconds
        if draws.numbers[first + i] < rules.slow_chance:
            low, high = rules.slow_write_seconds
        seconds = low + share * (high - low)
        if held.out_of_band[node]:
            seconds = rules.out_of_band_seconds
        begin_ns, under_way_ns = at_ns[i], held.node[WRITE, node]
        if under_way_ns < rules.never:
            begin_ns = max(under_way_ns, begin_ns)
        ends_ns[i] = begin_ns + np.int64(seconds * rules.ns_per_second)
    for i in range(count):
        held.node[WRITE, nodes[i]] = ends_ns[i]


@compiled
def _differs(held: _Held, rules: _Rules, node: int, j: int) -> bool:
    limit, cap = held.watts[LIMIT, node, j], held.watts[CAP, node, j]
    return bool(abs(limit - cap) > rules.match_watts)


@compiled
def _see(held: _Held, rules: _Rules, node: int, j: int, tried: bool) -> None:
    held.watts[SEEN, node, j] = held.watts[LIMIT, node, j]
    if not _differs(held, rules, node, j):
        held.board[FAILURES, node, j] = 0
        held.ever_confirmed[node, j] = True
        held.board[CONFIRMED, node, j] = held.board[SEQUENCE, node, j]
    elif tried:
        held.board[FAILURES, node, j] += 1


@compiled
def _write(held: _Held, rules: _Rules, draws: _Draws, until_ns: Integers, fails: Floats) -> None:
    n, g = fails.shape
    failing = False
    for node in range(n):
        if held.node[WRITE, node] <= until_ns[node]:
            for j in range(g):
                failing |= fails[node, j] != 0.0
    for node in range(n):
        if held.node[WRITE, node] > until_ns[node]:
            continue
        held.node[WRITE, node] = rules.never
        for j in range(g):
            cap = held.watts[CAP, node, j]
            tried = abs(held.watts[SEEN, node, j] - cap) > rules.match_watts
            works = True
            if failing:
                works = draws.numbers[draws.at[0]] >= fails[node, j]
                draws.at[0] += 1
            if works:
                held.board[DRIVER_LOCK, node, j] = held.board[LOCK, node, j]
                if tried:
                    held.watts[LIMIT, node, j] = cap
            _see(held, rules, node, j, tried)


@compiled
def _expire(
    held: _Held, rules: _Rules, draws: _Draws, nodes: Integers, until_ns: Integers, count: int
) -> int:
    """Boards whose lease ended; as with arrays, all are judged before any is changed."""
    g = held.watts.shape[2]
    expired, struck = 0, 0
    which, ended_ns = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for i in range(count):
        node = nodes[i]
        offset_ns, soonest_ns = held.node[OFFSET, node], rules.never
        for j in range(g):
            deadline_ns = held.board[DEADLINE, node, j]
            if deadline_ns <= until_ns[i] + offset_ns:
                expired += 1
                soonest_ns = min(soonest_ns, deadline_ns)
        if soonest_ns < rules.never:
            which[struck], ended_ns[struck] = node, soonest_ns - offset_ns
            struck += 1
    if struck == 0:
        return 0
    caps, deadlines = np.empty((count, g)), np.empty((count, g), dtype=np.int64)
    for i in range(count):
        node = nodes[i]
        for j in range(g):
            cap, deadline_ns = held.watts[CAP, node, j], held.board[DEADLINE, node, j]
            if deadline_ns <= until_ns[i] + held.node[OFFSET, node]:
                cap = min(cap, held.watts[GUARANTEED, node, j], held.watts[SEEN, node, j])
                deadline_ns = rules.never
            caps[i, j], deadlines[i, j] = cap, deadline_ns
    for i in range(count):
        for j in range(g):
            held.watts[CAP, nodes[i], j] = caps[i, j]
            held.board[DEADLINE, nodes[i], j] = deadlines[i, j]
    _due(held, rules, draws, which, ended_ns, struck)
    return expired


@compiled
def _accepts(held: _Held, rules: _Rules, mail: _Mail, row: int) -> bool:
    node, nonce, at_ns = mail.batch[NODE, row], mail.batch[ECHO, row], mail.batch[ARRIVAL, row]
    slot = nonce % held.ring.shape[2]
    issued_ns, local_ns = held.ring[ISSUED, node, slot], at_ns + held.node[OFFSET, node]
    if nonce <= 0 or held.ring[NONCE, node, slot] != nonce:
        return False
    if local_ns - issued_ns > rules.nonce_life_ns:
        return False
    epoch, fence_ns = mail.batch[OF_TERM, row], held.node[FENCE_ISSUED, node]
    newer = issued_ns > fence_ns or (
        issued_ns == fence_ns and mail.batch[OF_TICK, row] > held.node[FENCE_SEQUENCE, node]
    )
    if epoch < held.node[EPOCH, node] or (epoch == held.node[EPOCH, node] and not newer):
        return False
    if issued_ns + mail.batch[TTL_MS, row] * rules.ns_per_ms <= local_ns:
        return False
    return bool(held.node[READY, node] <= at_ns and not held.out_of_band[node])


@compiled
def _hold(held: _Held, rules: _Rules, mail: _Mail, row: int) -> None:
    node, slot = mail.batch[NODE, row], mail.batch[ECHO, row] % held.ring.shape[2]
    issued_ns = held.ring[ISSUED, node, slot]
    held.node[EPOCH, node] = mail.batch[OF_TERM, row]
    held.node[FENCE_SEQUENCE, node] = mail.batch[OF_TICK, row]
    held.node[FENCE_ISSUED, node] = issued_ns
    for j in range(held.watts.shape[2]):
        if mail.guaranteed_watts[row, j] > 0.0:
            held.watts[GUARANTEED, node, j] = mail.guaranteed_watts[row, j]
        held.watts[CAP, node, j] = mail.cap_watts[row, j]
        held.board[LOCK, node, j] = mail.lock_max_mhz[row, j]
        held.board[DEADLINE, node, j] = issued_ns + mail.batch[TTL_MS, row] * rules.ns_per_ms
        held.board[SEQUENCE, node, j] = mail.batch[OF_TICK, row]


@compiled
def _apply(
    held: _Held, rules: _Rules, draws: _Draws, mail: _Mail, rows: Integers, count: int
) -> tuple[int, int]:
    """Refused batches and expired boards, of rows that were sent together."""
    nodes, at_ns = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for i in range(count):
        nodes[i], at_ns[i] = mail.batch[NODE, rows[i]], mail.batch[ARRIVAL, rows[i]]
    expired = _expire(held, rules, draws, nodes, at_ns, count)
    accepted = 0
    for i in range(count):
        if _accepts(held, rules, mail, rows[i]):
            rows[accepted], nodes[accepted], at_ns[accepted] = rows[i], nodes[i], at_ns[i]
            accepted += 1
    for i in range(accepted):
        _hold(held, rules, mail, rows[i])
    _due(held, rules, draws, nodes, at_ns, accepted)
    return count - accepted, expired


@compiled
def _keep(mail: _Mail, rows: Integers, count: int) -> None:
    """Only these rows, in this order, are still on their way."""
    for i in range(count):
        for column in range(mail.batch.shape[0]):
            mail.batch[column, i] = mail.batch[column, rows[i]]
        for j in range(mail.cap_watts.shape[1]):
            mail.cap_watts[i, j] = mail.cap_watts[rows[i], j]
            mail.guaranteed_watts[i, j] = mail.guaranteed_watts[rows[i], j]
            mail.lock_max_mhz[i, j] = mail.lock_max_mhz[rows[i], j]
    mail.filled[0] = count


@compiled
def _deliver(
    held: _Held, rules: _Rules, draws: _Draws, mail: _Mail, until_ns: Integers
) -> tuple[int, int]:
    """Refused batches and expired boards, of all that arrive by then."""
    end = mail.filled[0]
    due, waiting = np.empty(end, dtype=np.int64), np.empty(end, dtype=np.int64)
    refused = expired = n_due = n_waiting = 0
    for row in range(end):
        if mail.batch[ARRIVAL, row] <= until_ns[mail.batch[NODE, row]]:
            due[n_due] = row
            n_due += 1
        else:
            waiting[n_waiting] = row
            n_waiting += 1
        last = row + 1 == end or mail.batch[SENDING, row + 1] != mail.batch[SENDING, row]
        if last and n_due:
            some_refused, some_expired = _apply(held, rules, draws, mail, due, n_due)
            refused, expired, n_due = refused + some_refused, expired + some_expired, 0
    if n_waiting < end:
        _keep(mail, waiting, n_waiting)
    return refused, expired


@compiled
def _serve(
    held: _Held, rules: _Rules, draws: _Draws, mail: _Mail, until_ns: Integers, fails: Floats
) -> tuple[int, int]:
    """Refused batches and expired boards, of all nodes up to each one's time."""
    _write(held, rules, draws, until_ns, fails)
    refused, expired = _deliver(held, rules, draws, mail, until_ns)
    every = np.arange(len(until_ns))
    expired += _expire(held, rules, draws, every, until_ns, len(until_ns))
    _write(held, rules, draws, until_ns, fails)
    return refused, expired


@compiled
def _read_back(held: _Held, rules: _Rules, draws: _Draws, until_ns: int) -> None:
    _, n, g = held.watts.shape
    nodes, at_ns, count = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), 0
    for node in range(n):
        due_ns, differs = held.node[NEXT_READ, node], False
        if due_ns > until_ns or held.node[READY, node] > until_ns:
            continue
        held.node[NEXT_READ, node] = due_ns + rules.read_back_ns
        for j in range(g):
            _see(held, rules, node, j, False)
            differs |= _differs(held, rules, node, j)
        if differs and held.node[WRITE, node] == rules.never:
            nodes[count], at_ns[count] = node, due_ns
            count += 1
    _due(held, rules, draws, nodes, at_ns, count)


class CompiledPost(ActuatorPost):
    """``ActuatorPost``, compiled.

    Args:
        actuators: Whose arrays are written to.
    """

    def __init__(self, actuators: RowActuators) -> None:
        super().__init__(actuators)
        times = actuators.times
        self._rules = _Rules(
            NEVER,
            NONCE_LIFE_NS,
            READ_BACK_NS,
            MATCH_WATTS,
            times.write_seconds,
            times.slow_write_seconds,
            times.slow_chance,
            times.out_of_band_seconds,
            NS_PER_MS,
            NS_PER_SECOND,
        )
        self._held = _Held(
            _together(actuators, _OF_BOARDS_WATTS),
            _together(actuators, _OF_BOARDS),
            _together(actuators, _OF_NODES),
            _together(actuators, _OF_NONCES),
            actuators.ever_confirmed,
            actuators.out_of_band,
        )
        self._mail = _room_for(2 * len(actuators.epoch), actuators.cap_watts.shape[1])
        self._sendings = 0

    def send(self, batches: LeaseBatches, arrival_ns: Integers) -> None:
        """Put batches on the way; see ``ActuatorPost.send``."""
        begin = int(self._mail.filled[0])
        end = begin + len(batches)
        if end > len(self._mail.cap_watts):
            self._mail = _with_more_room(self._mail, end)
        mail = self._mail
        self._sendings += 1
        mail.batch[SENDING, begin:end], mail.batch[ARRIVAL, begin:end] = self._sendings, arrival_ns
        for column in range(NODE, len(_OF_BATCHES)):
            mail.batch[column, begin:end] = getattr(batches, _OF_BATCHES[column])
        mail.cap_watts[begin:end] = batches.cap_watts
        mail.guaranteed_watts[begin:end] = batches.guaranteed_watts
        mail.lock_max_mhz[begin:end] = batches.lock_max_mhz
        mail.filled[0] = end

    def serve(self, until_ns: Integers, fails: Floats) -> None:
        """Up to each node's time; see ``ActuatorPost.serve``."""
        n, g = fails.shape
        # Each write once and again, and for each batch and each node a lease that ends.
        draws = self._draws(2 * n * g + 4 * int(self._mail.filled[0]) + 2 * n)
        refused, expired = _serve(self._held, self._rules, draws, self._mail, until_ns, fails)
        self._took(draws)
        self._actuators.refused += refused
        self._actuators.expired += expired

    def read_back(self, until_ns: int) -> None:
        """Look what drivers hold; see ``RowActuators.read_back``."""
        draws = self._draws(2 * self._held.node.shape[1])
        _read_back(self._held, self._rules, draws, until_ns)
        self._took(draws)

    def _draws(self, most: int) -> _Draws:
        numbers, at = self._actuators.draws.ahead(most)
        self._drawn_from = at
        return _Draws(numbers, np.array([at]))

    def _took(self, draws: _Draws) -> None:
        self._actuators.draws.took(int(draws.at[0]) - self._drawn_from)


def _together(actuators: RowActuators, names: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """Arrays of actuators one behind the other; each of theirs is a row of that from now on."""
    together = np.array([getattr(actuators, name) for name in names])
    for name, row in zip(names, together, strict=True):
        setattr(actuators, name, row)
    return together


def _room_for(rows: int, g: int) -> _Mail:
    locks = np.zeros((rows, g), dtype=np.int64)
    batch = np.zeros((len(_OF_BATCHES), rows), dtype=np.int64)
    filled = np.zeros(1, dtype=np.int64)
    return _Mail(filled, batch, np.zeros((rows, g)), np.zeros((rows, g)), locks)


def _with_more_room(mail: _Mail, rows: int) -> _Mail:
    before, g = mail.cap_watts.shape
    more = _room_for(2 * rows, g)
    more.filled[:] = mail.filled
    more.batch[:, :before] = mail.batch
    more.cap_watts[:before] = mail.cap_watts
    more.guaranteed_watts[:before] = mail.guaranteed_watts
    more.lock_max_mhz[:before] = mail.lock_max_mhz
    return more


def fastest_post(actuators: RowActuators) -> ActuatorPost:
    """The compiled post where numba is there, else the same in numpy."""
    return CompiledPost(actuators) if AVAILABLE else ActuatorPost(actuators)
