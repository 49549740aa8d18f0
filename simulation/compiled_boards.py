"""A row's boards compiled: all ticks of a step at once, the same to the last bit.

``BoardBank`` with ``CappingRegulation`` stays the form to read and the oracle; a test holds each
against the other. What is rare (writes that come to act, locks that change) is done as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu.simulated.board_arrays import BoardBank, BoardSpec, Bools, Floats, WriteDelays
from gpu.simulated.board_regulation import LONGEST_TICK_SECONDS
from simulation.capping_boards import CappingRegulation
from wattpack.compiled import AVAILABLE, compiled
from wattpack.units import NS_PER_SECOND, seconds_to_ns

Integers = NDArray[np.int64]

_LONGEST_TICK_NS: Final = seconds_to_ns(LONGEST_TICK_SECONDS)
_NOTHING: Final = np.zeros(0)

# Of ``_Tick.at``.
TICK, COUNTED, DRAWN, HELD, TURNED = range(5)


class _Ticks(NamedTuple):
    """The ticks of a step, (n_ticks,) each; what follows from their lengths alone."""

    seconds: Floats
    decay: Floats
    newest_ago: Floats
    oldest_ago: Floats


class _Boards(NamedTuple):
    """What stands over many ticks, (n,) each."""

    idle_watts: Floats
    least_watts: Floats
    ceiling_watts: Floats
    threshold_watts: Floats
    lowest_watts: Floats


class _Loop(NamedTuple):
    """Constants of ``CappingLoop`` that all boards share."""

    gain: float
    reaction_seconds: float


class _Draws(NamedTuple):
    """``RecentDraws``: what the slow loops counted, and what the boards drew."""

    counted_ends: Floats
    counted_rows: Floats
    drawn_ends: Floats
    drawn_rows: Floats


class _Tick(NamedTuple):
    """A tick under way.

    Attributes:
        wanted, felt, allowed, after, drawn: (n,).
        which: Boards whose draw waits for logarithms: ``at[HELD]`` that are held all the tick, then
            ``at[TURNED]`` that are held for a part of it, (n,).
        ratios: Of what the logarithms are wanted: one for each held board, two for each turned.
        at: The tick, the newest rows of both draws, and how many boards are held and turned.
    """

    wanted: Floats
    felt: Floats
    allowed: Floats
    after: Floats
    drawn: Floats
    which: Integers
    ratios: Floats
    at: Integers


@compiled
def same(first: Floats, second: Floats) -> bool:
    """Whether two arrays hold the same numbers."""
    equal = True
    for i in range(len(first)):
        equal &= first[i] == second[i]
    return equal


@compiled
def any_true(mask: Bools) -> bool:
    """Whether any is."""
    found = False
    for i in range(len(mask)):
        found |= mask[i]
    return found


@compiled
def any_above_none(numbers: Floats) -> bool:
    """Whether any is above 0."""
    found = False
    for i in range(len(numbers)):
        found |= numbers[i] > 0.0
    return found


@compiled
def _unchanged(
    now: tuple[Floats, Floats], seen: tuple[Floats, Floats], ignores: Bools, seen_ignores: Bools
) -> bool:
    """Whether acting limits, gains and who ignores its cap are as they were seen."""
    equal = True
    for i in range(len(ignores)):
        equal &= now[0][i] == seen[0][i]
        equal &= now[1][i] == seen[1][i]
        equal &= ignores[i] == seen_ignores[i]
    return equal


@compiled
def _take_demand(demand: Floats, idle: Floats, kept: Floats, wanted: Floats) -> bool:
    """Keep a demand and what it is at least; whether every one is finite and at least 0."""
    usable = True
    for i in range(len(demand)):
        usable &= (demand[i] >= 0.0) & (demand[i] < np.inf)
        kept[i] = demand[i]
        wanted[i] = max(demand[i], idle[i])
    return usable


@compiled
def _energy(ends: Floats, rows: Floats, last: int, moment: float, into: Floats) -> None:
    """``RecentDraws._at``."""
    i = last
    while i > 0 and ends[i] > moment:
        i -= 1
    before = rows[i]
    if i == last:
        into[:] = before
        return
    share = (moment - ends[i]) / (ends[i + 1] - ends[i])
    next_row = rows[i + 1]
    for k in range(len(into)):
        into[k] = before[k] + share * (next_row[k] - before[k])


@compiled
def _begin_tick(
    boards: _Boards, loop: _Loop, ticks: _Ticks, draws: _Draws, tick: _Tick, scratch: Floats
) -> None:
    """Draws of boards that are not held in this tick, and who is (``CappingLoop._follow``)."""
    k, last = tick.at[TICK], tick.at[COUNTED]
    now = draws.counted_ends[last]
    newest, oldest = ticks.newest_ago[k], ticks.oldest_ago[k]
    newer, older = scratch[0], scratch[1]
    _energy(draws.counted_ends, draws.counted_rows, last, now - newest, newer)
    _energy(draws.counted_ends, draws.counted_rows, last, now - oldest, older)
    span, decay = oldest - newest, ticks.decay[k]
    held = turned = 0
    n = len(tick.wanted)
    for i in range(n):
        above = max(0.0, (newer[i] - older[i]) / span - boards.threshold_watts[i])
        allowed = max(boards.ceiling_watts[i] - loop.gain * above, boards.lowest_watts[i])
        after = tick.wanted[i] + (tick.felt[i] - tick.wanted[i]) * decay
        tick.allowed[i] = allowed
        tick.after[i] = after
        tick.drawn[i] = tick.wanted[i]
        held += (tick.felt[i] > allowed) & (after > allowed)
        turned += (tick.felt[i] > allowed) != (after > allowed)
    tick.at[HELD], tick.at[TURNED] = held, turned
    if held + turned:
        _list_ratios(tick)


@compiled
def _list_ratios(tick: _Tick) -> None:
    held = tick.at[HELD]
    h, t = 0, held
    for i in range(len(tick.wanted)):
        was, rises = tick.felt[i] > tick.allowed[i], tick.after[i] > tick.allowed[i]
        if was and rises:
            tick.which[h] = i
            tick.ratios[h] = tick.after[i] / tick.felt[i]
            h += 1
        elif was != rises:
            tick.which[t] = i
            demand, felt, allowed = tick.wanted[i], tick.felt[i], tick.allowed[i]
            tick.ratios[2 * t - held] = (demand - felt) / (demand - allowed)
            over = tick.after[i] / allowed if rises else allowed / felt
            tick.ratios[2 * t - held + 1] = over
            t += 1


@compiled
def _take_logarithms(loop: _Loop, tick: _Tick, seconds: float, logarithms: Floats) -> None:
    """Draws of the boards that were listed (``CappingLoop._follow`` and ``_turning``)."""
    reaction, held = loop.reaction_seconds, tick.at[HELD]
    for h in range(held):
        i = tick.which[h]
        tick.drawn[i] = tick.allowed[i] * (1 + reaction / seconds * logarithms[h])
    for t in range(held, held + tick.at[TURNED]):
        i = tick.which[t]
        crossing = reaction * logarithms[2 * t - held]
        rises = tick.after[i] > tick.allowed[i]
        held_seconds = seconds - crossing if rises else crossing
        shed = held_seconds + reaction * logarithms[2 * t - held + 1]
        free = tick.wanted[i] * (seconds - held_seconds)
        tick.drawn[i] = (free + tick.allowed[i] * shed) / seconds


@compiled
def _end_tick(boards: _Boards, draws: _Draws, tick: _Tick, seconds: float) -> None:
    """Note the draws (``CappingRegulation.hold``, ``BoardBank._tick``)."""
    counted, drawn = tick.at[COUNTED], tick.at[DRAWN]
    old_counted, new_counted = draws.counted_rows[counted], draws.counted_rows[counted + 1]
    old_drawn, new_drawn = draws.drawn_rows[drawn], draws.drawn_rows[drawn + 1]
    for i in range(len(tick.wanted)):
        watts = max(tick.drawn[i], min(tick.wanted[i], boards.least_watts[i]))
        new_counted[i] = watts * seconds + old_counted[i]
        watts = max(watts, boards.idle_watts[i])
        new_drawn[i] = watts * seconds + old_drawn[i]
        tick.drawn[i] = watts
        tick.felt[i] = tick.after[i]
    draws.counted_ends[counted + 1] = draws.counted_ends[counted] + seconds
    draws.drawn_ends[drawn + 1] = draws.drawn_ends[drawn] + seconds
    tick.at[COUNTED] += 1
    tick.at[DRAWN] += 1
    tick.at[TICK] += 1


# Arguments one by one: numba takes longer to unpack a tuple of arrays than to play its tick.
@compiled
def _play_ticks(  # noqa: PLR0913
    constants: Floats, gain: float, reaction_seconds: float, table: Floats,
    counted_ends: Floats, counted_rows: Floats, drawn_ends: Floats, drawn_rows: Floats,
    wanted: Floats, felt: Floats, working: Floats, which: Integers, ratios: Floats, at: Integers,
    logarithms: Floats, stop: int,
) -> int:  # fmt: skip
    """Play ticks until one needs logarithms; so many are wanted.

    Args:
        constants: As ``_Boards``, (5, n).
        table: As ``_Ticks``, (4, n_ticks).
        working: Allowed, after and drawn of ``_Tick``, (3, n).
        logarithms: That the last call wanted; they end its tick.
        stop: The tick to stop before.
    """
    boards = _Boards(constants[0], constants[1], constants[2], constants[3], constants[4])
    ticks = _Ticks(table[0], table[1], table[2], table[3])
    loop = _Loop(gain, reaction_seconds)
    draws = _Draws(counted_ends, counted_rows, drawn_ends, drawn_rows)
    tick = _Tick(wanted, felt, working[0], working[1], working[2], which, ratios, at)
    scratch = np.empty((2, len(wanted)))
    if len(logarithms):
        _take_logarithms(loop, tick, ticks.seconds[at[TICK]], logarithms)
        _end_tick(boards, draws, tick, ticks.seconds[at[TICK]])
    while at[TICK] < stop:
        _begin_tick(boards, loop, ticks, draws, tick, scratch)
        if at[HELD] + at[TURNED]:
            return int(at[HELD] + 2 * at[TURNED])
        _end_tick(boards, draws, tick, ticks.seconds[at[TICK]])
    return 0


@compiled
def _end_step(
    joules: tuple[Floats, Floats], wanted: Floats, gain: Floats, counted: Floats, seconds: float,
    into: Floats,
) -> None:  # fmt: skip
    """Mean draw, energy as the sensors count it, and watts shed, (3, n)."""
    before, after = joules
    for i in range(len(wanted)):
        mean = (after[i] - before[i]) / seconds
        into[0, i] = mean
        into[1, i] = counted[i] + mean * gain[i] * seconds
        into[2, i] = max(wanted[i] - mean, 0.0)


class CompiledBank(BoardBank):
    """``BoardBank`` on the measured capping loops, compiled; arguments are the same."""

    def __init__(
        self,
        specs: Sequence[BoardSpec],
        *,
        regulation: CappingRegulation,
        seed: int | np.random.Generator,
        start_ns: int,
        delays: WriteDelays,
    ) -> None:
        super().__init__(specs, seed=seed, start_ns=start_ns, regulation=regulation, delays=delays)
        self._loops = regulation
        n = len(self)
        self._gain = float(regulation.loop.gain)
        self._tick_tables: dict[int, tuple[list[int], Floats]] = {}
        self._boards = self._limits_of_boards = _NOTHING
        self._working = np.empty((3, n))
        self._which, self._ratios = np.zeros(n, dtype=np.int64), np.empty(2 * n)
        self._at = np.zeros(5, dtype=np.int64)

    def advance(self, demand_watts: Floats, now_ns: int) -> Floats:
        """As ``BoardBank.advance``."""
        demand = np.ascontiguousarray(demand_watts, dtype=np.float64)
        if demand.shape != (len(self),) or now_ns <= self.now_ns or any_true(self.lost):
            return super().advance(demand_watts, now_ns)
        kept, wanted = np.empty((2, len(self)))
        if not _take_demand(demand, self.idle_watts, kept, wanted):
            return super().advance(demand_watts, now_ns)
        seconds = (now_ns - self.now_ns) / NS_PER_SECOND
        self.demand_watts = kept
        history = self._history
        history.make_room(3 + (now_ns - self.now_ns) // _LONGEST_TICK_NS)
        before = history.rows[history.last]
        wanted = self._play(wanted, now_ns)
        into = np.empty((3, len(self)))
        after = history.rows[history.last]
        _end_step((before, after), wanted, self.sensor_gain, self.counted_joules, seconds, into)
        self.drawn_watts, self.counted_joules, self.shed_watts = into
        self._sensed.clear()
        self._rows = None
        return self.drawn_watts

    def _play(self, demand_watts: Floats, to_ns: int) -> Floats:
        locks_stand = same(self.lock_max_mhz, self._seen_lock_mhz)
        if not locks_stand or self._lock_acts_ns > self.now_ns:
            return super()._play(demand_watts, to_ns)
        if not same(self.limit_watts, self._acting.seen_watts):
            self._acting.take_in(self.limit_watts, self.now_ns)
        self._acting_lock_mhz = self._seen_lock_mhz
        wanted = demand_watts
        if any_above_none(self._acting_lock_mhz):
            wanted = self._at_clock(demand_watts)
        self._tick(wanted, to_ns)
        return wanted

    def _tick(self, wanted_watts: Floats, to_ns: int) -> None:
        begin_ns = self.now_ns
        middles_ns, ticks = self._ticks_of(to_ns - begin_ns)
        counted, drawn, at = self._loops.counted, self._history, self._at
        counted.make_room(len(middles_ns))
        drawn.make_room(len(middles_ns))
        at[TICK], at[COUNTED], at[DRAWN] = first, _, _ = 0, counted.last, drawn.last
        limit_watts = self._regulated_watts()
        while first < len(middles_ns):
            if self._acting.come_due(begin_ns + middles_ns[first]):
                limit_watts = self._regulated_watts()
            stop = first + 1 if self._acting.pending else len(middles_ns)
            self._play_until(stop, ticks, self._boards_at(limit_watts), wanted_watts)
            first, counted.last, drawn.last = at[:HELD].tolist()
        self._instant_watts = self._working[2]
        self.now_ns = to_ns

    def _play_until(self, stop: int, ticks: Floats, boards: Floats, wanted_watts: Floats) -> None:
        loops, drawn, logarithms = self._loops, self._history, _NOTHING
        while wanted := _play_ticks(
            boards, self._gain, loops.loop.reaction_seconds, ticks,
            loops.counted.ends, loops.counted.rows, drawn.ends, drawn.rows,
            wanted_watts, loops.felt_watts, self._working, self._which, self._ratios, self._at,
            logarithms, stop,
        ):  # fmt: skip
            logarithms = np.log(self._ratios[:wanted])

    def _ticks_of(self, span_ns: int) -> tuple[list[int], Floats]:
        """Of a step of such a length: the middles of its ticks, and ``_Ticks``, (4, n_ticks)."""
        if span_ns not in self._tick_tables:
            count = -(-span_ns // _LONGEST_TICK_NS)
            ends_ns = [span_ns * tick // count for tick in range(count + 1)]
            loop = self._loops.loop
            seconds = [(end - begin) / NS_PER_SECOND for begin, end in pairwise(ends_ns)]
            ticks = [
                (one, math.exp(-one / loop.reaction_seconds), *loop.looks_ago(one))
                for one in seconds
            ]
            middles_ns = [(begin + end) // 2 for begin, end in pairwise(ends_ns)]
            self._tick_tables[span_ns] = middles_ns, np.ascontiguousarray(np.array(ticks).T)
        return self._tick_tables[span_ns]

    def _boards_at(self, limit_watts: Floats) -> Floats:
        """``_Boards`` at limits in true watts, (5, n); the same as long as these are."""
        if limit_watts is not self._limits_of_boards:
            at = self._loops.at_limit(limit_watts)
            self._boards = np.array(
                [self.idle_watts, self.hold_watts, at.ceiling, at.threshold, at.least]
            )
            self._limits_of_boards = limit_watts
        return self._boards

    def _regulated_watts(self) -> Floats:
        seen, acting = self._regulated, self._acting.watts
        if seen is not None and _unchanged(
            (acting, self.sensor_gain), (seen.acting_watts, seen.gain), self.ignores_cap,
            seen.ignores,
        ):  # fmt: skip
            return seen.watts
        return super()._regulated_watts()


def fastest_bank(
    specs: Sequence[BoardSpec],
    *,
    regulation: CappingRegulation,
    seed: int | np.random.Generator,
    start_ns: int,
    delays: WriteDelays,
) -> BoardBank:
    """The compiled boards where numba is there, else the same in numpy."""
    made = CompiledBank if AVAILABLE else BoardBank
    return made(specs, regulation=regulation, seed=seed, start_ns=start_ns, delays=delays)
