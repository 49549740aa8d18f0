"""The same queues server by server, compiled: a hundred times faster, the same to the last bit.

``BatchingServers`` stays the form to read and the oracle; a test holds each against the other.
Without numba (extra ``simulation``) the numpy form runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simulation.compiled import AVAILABLE, compiled
from simulation.inference_row.batching_servers import (
    NEVER,
    STOPPED,
    TINY_SECONDS,
    TINY_TOKENS,
    BatchingServers,
    Floats,
    Integers,
    StepDraw,
)
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.server_times import TABLE_PROMPT_TOKENS, ServerTimes
from wattpack.errors import InputError


class _Requests(NamedTuple):
    """Of all requests, by server, then arrival, (n + 1,); ``stop`` is where each server's end."""

    arrival: Floats
    prompt: Floats
    output: Floats
    prompt_seconds: Floats
    prompt_watts: Floats
    first: Floats
    done: Floats
    stop: Integers


class _State(NamedTuple):
    """Of each server, (n_servers,), or of its slots, (n_servers, max_batch)."""

    now: Floats
    head: Integers
    under_way: Integers
    prompt_left: Floats
    batch: Integers
    context: Floats
    reserved: Floats
    turns: Floats
    ends_at: Floats
    slot_of: Integers
    next_end: Floats
    work: Floats


class _Table(NamedTuple):
    """``ServerTimes`` as a compiled function can have it."""

    token_seconds_by_batch: Floats
    token_seconds_per_context: float
    prompt_tokens: Floats
    decode_ratio: Floats
    batch_ratio: Floats
    tdp_watts: float
    idle_watts: float
    kv_tokens: float
    work_seconds_per_token: float


class _Pace(NamedTuple):
    """A step: its length, and the speed of each server in prompts and decode, (n_servers,)."""

    seconds: float
    prompt_speed: Floats
    decode_speed: Floats


class _Spent(NamedTuple):
    """What a step came to, (n_servers,) each."""

    joules: Floats
    in_prompts: Floats
    in_decode: Floats


@compiled
def _decode_watts(table: _Table, batch: int, context: float) -> float:
    mean = context / batch
    x, y = table.prompt_tokens, table.decode_ratio
    if mean <= x[0]:
        alone = y[0]
    elif mean >= x[-1]:
        alone = y[-1]
    else:
        j = 0
        while x[j + 1] <= mean:
            j += 1
        alone = y[j]
        if mean != x[j]:
            alone = (y[j + 1] - y[j]) / (x[j + 1] - x[j]) * (mean - x[j]) + y[j]
    return float(table.tdp_watts * alone * table.batch_ratio[batch])


@compiled
def _room_seconds(requests: _Requests, state: _State, table: _Table, i: int) -> float:
    """When the next request comes that could begin; never while there is no room."""
    head = state.head[i]
    if head >= requests.stop[i] or state.batch[i] >= len(table.batch_ratio) - 1:
        return NEVER
    need = requests.prompt[head] + requests.output[head]
    if state.reserved[i] + need > table.kv_tokens:
        return NEVER
    return float(requests.arrival[head] - TINY_SECONDS)


@compiled
def _admit(requests: _Requests, state: _State, table: _Table, i: int) -> None:
    if state.under_way[i] >= 0 or _room_seconds(requests, state, table, i) > state.now[i]:
        return
    which = state.head[i]
    state.under_way[i] = which
    state.prompt_left[i] = requests.prompt_seconds[which]
    state.reserved[i] += requests.prompt[which] + requests.output[which]
    state.head[i] += 1


@compiled
def _prompt_done(requests: _Requests, state: _State, i: int) -> None:
    which = state.under_way[i]
    requests.first[which] = state.now[i]
    slot = 0
    while state.ends_at[i, slot] != NEVER:
        slot += 1
    ends = state.turns[i] + requests.output[which] - 1.0
    state.ends_at[i, slot] = ends
    state.slot_of[i, slot] = which
    state.next_end[i] = min(state.next_end[i], ends)
    state.batch[i] += 1
    state.context[i] += requests.prompt[which] + 1.0
    state.under_way[i] = -1


@compiled
def _answer_done(requests: _Requests, state: _State, i: int) -> None:
    slot = np.argmin(state.ends_at[i])
    which = state.slot_of[i, slot]
    requests.done[which] = state.now[i]
    held = requests.prompt[which] + requests.output[which]
    state.reserved[i] -= held
    state.context[i] -= held
    state.batch[i] -= 1
    state.ends_at[i, slot] = NEVER
    state.next_end[i] = state.ends_at[i].min()


@compiled
def _token_seconds(state: _State, table: _Table, i: int, speed: float) -> float:
    batch = state.batch[i]
    base = table.token_seconds_by_batch[batch]
    beyond = state.context[i] - TABLE_PROMPT_TOKENS * batch
    full = max(0.9 * base, base + table.token_seconds_per_context * beyond)
    return float(full / speed)


@compiled
def _one_round(
    requests: _Requests, state: _State, table: _Table, pace: _Pace, spent: _Spent, i: int
) -> None:
    """From now to the next event of one server, at most to ``pace.seconds``, here a time."""
    left = pace.seconds - state.now[i]
    if state.under_way[i] >= 0:
        speed = pace.prompt_speed[i]
        seconds = min(max(state.prompt_left[i] / speed, 0.0), left)
        spent.joules[i] += seconds * requests.prompt_watts[state.under_way[i]]
        spent.in_prompts[i] += seconds
        state.now[i] += seconds
        state.prompt_left[i] -= seconds * speed
        state.work[i] += seconds * speed
        if state.prompt_left[i] <= TINY_SECONDS:
            _prompt_done(requests, state, i)
        return
    of_arrival = _room_seconds(requests, state, table, i) + 2.0 * TINY_SECONDS - state.now[i]
    if state.batch[i] == 0:
        seconds = min(max(of_arrival, 0.0), left)
        spent.joules[i] += seconds * table.idle_watts
        state.now[i] += seconds
        return
    each = _token_seconds(state, table, i, pace.decode_speed[i])
    of_answer = (state.next_end[i] - state.turns[i]) * each
    seconds = min(max(min(of_answer, of_arrival), 0.0), left)
    spent.joules[i] += seconds * _decode_watts(table, state.batch[i], state.context[i])
    spent.in_decode[i] += seconds
    state.now[i] += seconds
    tokens = seconds / each
    state.turns[i] += tokens
    made = tokens * state.batch[i]
    state.context[i] += made
    state.work[i] += made * table.work_seconds_per_token
    if state.turns[i] >= state.next_end[i] - TINY_TOKENS:
        _answer_done(requests, state, i)


@compiled
def _one_step(
    requests: _Requests, state: _State, table: _Table, pace: _Pace, spent: _Spent, i: int
) -> None:
    end = state.now[i] + pace.seconds
    until = _Pace(end, pace.prompt_speed, pace.decode_speed)
    if pace.prompt_speed[i] > STOPPED and pace.decode_speed[i] > STOPPED:
        while state.now[i] < end - TINY_SECONDS:
            _admit(requests, state, table, i)
            _one_round(requests, state, table, until, spent, i)
    else:
        spent.joules[i] = table.idle_watts * pace.seconds
    state.now[i] = end


# Arrays one by one: numba takes longer to unpack tuples of them than the servers for a step.
@compiled
def _all_servers(
    seconds: float,
    prompt_speed: Floats,
    decode_speed: Floats,
    into: Floats,
    *fields: Any,  # noqa: ANN401  arrays and numbers
) -> None:
    """Let all servers work; watts of one board, shares of prompts and of decode, (3, n_servers).

    Args:
        fields: Of ``_Requests``, ``_State`` and ``_Table``.
    """
    requests, state, table = _Requests(*fields[:8]), _State(*fields[8:20]), _Table(*fields[20:])
    pace = _Pace(seconds, prompt_speed, decode_speed)
    spent = _Spent(into[0], into[1], into[2])
    into[:] = 0.0
    for i in range(len(state.now)):
        _one_step(requests, state, table, pace, spent, i)
        for row in into:
            row[i] /= seconds
        if prompt_speed[i] <= STOPPED or decode_speed[i] <= STOPPED:
            into[0, i] = table.idle_watts


@compiled
def _full_speed(
    seconds: float,
    full: Floats,
    into: Floats,
    watts: Floats,
    *fields: Any,  # noqa: ANN401  arrays and numbers
) -> None:
    """Watts of one board in many steps, (steps, n_servers); else as ``_all_servers``."""
    requests, state, table = _Requests(*fields[:8]), _State(*fields[8:20]), _Table(*fields[20:])
    pace = _Pace(seconds, full, full)
    spent = _Spent(into[0], into[1], into[2])
    for i in range(len(state.now)):
        for k in range(len(watts)):
            spent.joules[i] = 0.0
            _one_step(requests, state, table, pace, spent, i)
            watts[k, i] = spent.joules[i] / seconds


class CompiledServers(BatchingServers):
    """``BatchingServers`` with compiled steps; arguments and attributes are the same."""

    def __init__(
        self,
        requests: RowRequests,
        n_servers: int,
        begin_seconds: float = 0.0,
        times: ServerTimes | None = None,
    ) -> None:
        super().__init__(requests, n_servers, begin_seconds, times)
        own = self._times
        requests_of_servers = _Requests(
            self._arrival, self._prompt, self._output, self._prompt_seconds, self._prompt_watts,
            self._first, self._done, self._stop,
        )  # fmt: skip
        state = _State(
            self._now, self._head, self._under_way, self._prompt_left, self._batch, self._context,
            self._reserved, self._turns, self._ends_at, self._slot_of, self._next_end,
            self.work_seconds,
        )  # fmt: skip
        table = _Table(
            own.token_seconds_by_batch, own.token_seconds_per_context, own.prompt_tokens,
            own.decode_ratio, own.batch_ratio, own.tdp_watts, own.idle_watts, float(own.kv_tokens),
            own.work_seconds_per_token,
        )  # fmt: skip
        self._fields = (*requests_of_servers, *state, *table)

    def step(self, seconds: float, prompt_speed: Floats, decode_speed: Floats) -> StepDraw:
        """Let every server work for ``seconds``; see ``BatchingServers.step``."""
        if not seconds > 0:
            raise InputError("seconds", "a length above 0", seconds)
        into = np.empty((3, len(self._now)))
        _all_servers(float(seconds), prompt_speed, decode_speed, into, *self._fields)
        return StepDraw(into[0], into[1], into[2])

    def full_speed_watts(self, steps: int, seconds: float) -> Floats:
        """Watts of one board in each of some steps; see ``BatchingServers.full_speed_watts``."""
        n = len(self._now)
        watts = np.empty((steps, n))
        _full_speed(float(seconds), np.ones(n), np.zeros((3, n)), watts, *self._fields)
        return watts


def fastest_servers(
    requests: RowRequests,
    n_servers: int,
    begin_seconds: float = 0.0,
    times: ServerTimes | None = None,
) -> BatchingServers:
    """The compiled queues where numba is there, else the same in numpy."""
    made = CompiledServers if AVAILABLE else BatchingServers
    return made(requests, n_servers, begin_seconds, times)
