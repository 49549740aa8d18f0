"""The same queues server by server, compiled: a hundred times faster, the same to the last bit.

``BatchingServers`` stays the form to read and the oracle; a test holds each against the other.
Without numba (extra ``simulation``) the numpy form runs.

A server is one record, a request is another: numba counts references of every array that it hands
on, and with an array for each column that took longer than the queues themselves.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import TABLE_PROMPT_TOKENS, ServerTimes
from simulation.inference_row.batching_servers import (
    STOPPED,
    TINY_SECONDS,
    TINY_TOKENS,
    BatchingServers,
    Floats,
    Integers,
    StepDraw,
)
from simulation.inference_row.client_arrivals import RowRequests
from wattpack.compiled import AVAILABLE, compiled
from wattpack.errors import InputError

Record = Any
"""One of the below, as a compiled function has it."""

Records = NDArray[np.void]

REQUEST: Final = np.dtype(
    [
        (name, np.float64)
        for name in (
            "arrival", "prompt", "output", "prompt_seconds", "prompt_watts", "first", "done",
        )
    ]
)  # fmt: skip
"""By server, then arrival; the last one never comes."""

SERVER: Final = np.dtype(
    [(name, np.int64) for name in ("head", "stop", "under_way", "batch")]
    + [
        (name, np.float64)
        for name in (
            "now", "prompt_left", "context", "reserved", "turns", "next_end", "work_seconds",
        )
    ]
)  # fmt: skip
"""``stop`` is where the server's requests end."""

CONSTANTS: Final = np.dtype(
    [
        (name, np.float64)
        for name in (
            "token_seconds_per_context", "tdp_watts", "idle_watts", "kv_tokens",
            "work_seconds_per_token", "table_prompt_tokens", "tiny_seconds", "tiny_tokens",
            "stopped",
        )
    ]
)  # fmt: skip
"""Of ``ServerTimes``, the prompts that its times by batch were measured with, and what counts as
nothing: a kernel that is kept on disk would not see these change in their own files."""

NEVER: Final = np.inf


class _Slots(NamedTuple):
    """Answers under way, (n_servers, max_batch) each."""

    ends_at: Floats
    slot_of: Integers


class _Tables(NamedTuple):
    """Of ``ServerTimes``: token seconds and draw by batch, (2, b); draw by prompt, (2, p)."""

    by_batch: Floats
    by_prompt: Floats


@compiled
def _decode_watts(tables: _Tables, constants: Record, batch: int, context: float) -> float:
    mean = context / batch
    x, y = tables.by_prompt[0], tables.by_prompt[1]
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
    return float(constants.tdp_watts * alone * tables.by_batch[1, batch])


@compiled
def _room_seconds(requests: Records, server: Record, constants: Record, slots: int) -> float:
    """When the next request comes that could begin; never while there is no room."""
    if server.head >= server.stop or server.batch >= slots:
        return NEVER
    waits = requests[server.head]
    if server.reserved + (waits.prompt + waits.output) > constants.kv_tokens:
        return NEVER
    return float(waits.arrival - constants.tiny_seconds)


@compiled
def _admit(requests: Records, server: Record) -> None:
    begun = requests[server.head]
    server.under_way = server.head
    server.prompt_left = begun.prompt_seconds
    server.reserved += begun.prompt + begun.output
    server.head += 1


@compiled
def _prompt_done(requests: Records, server: Record, slots: _Slots, i: int) -> None:
    request = requests[server.under_way]
    request.first = server.now
    slot = 0
    while slots.ends_at[i, slot] != NEVER:
        slot += 1
    ends = server.turns + request.output - 1.0
    slots.ends_at[i, slot] = ends
    slots.slot_of[i, slot] = server.under_way
    server.next_end = min(server.next_end, ends)
    server.batch += 1
    server.context += request.prompt + 1.0
    server.under_way = -1


@compiled
def _answer_done(requests: Records, server: Record, slots: _Slots, i: int) -> None:
    ends_at = slots.ends_at[i]
    slot = np.argmin(ends_at)
    request = requests[slots.slot_of[i, slot]]
    request.done = server.now
    held = request.prompt + request.output
    server.reserved -= held
    server.context -= held
    server.batch -= 1
    ends_at[slot] = NEVER
    server.next_end = ends_at.min()


@compiled
def _token_seconds(tables: _Tables, constants: Record, server: Record, speed: float) -> float:
    base = tables.by_batch[0, server.batch]
    beyond = server.context - constants.table_prompt_tokens * server.batch
    full = max(0.9 * base, base + constants.token_seconds_per_context * beyond)
    return float(full / speed)


@compiled
def _go_on_with_prompt(
    requests: Records, server: Record, slots: _Slots, constants: Record, seconds: float, i: int
) -> None:
    """Full-speed seconds of the prompt under way are done."""
    server.prompt_left -= seconds
    server.work_seconds += seconds
    if server.prompt_left <= constants.tiny_seconds:
        _prompt_done(requests, server, slots, i)


@compiled
def _go_on_with_answers(
    requests: Records, server: Record, slots: _Slots, constants: Record, turns: float, i: int
) -> None:
    """Every running answer gets so many tokens."""
    server.turns += turns
    made = turns * server.batch
    server.context += made
    server.work_seconds += made * constants.work_seconds_per_token
    if server.turns >= server.next_end - constants.tiny_tokens:
        _answer_done(requests, server, slots, i)


class _Pace(NamedTuple):
    """Of one server: until when it works, and its speeds."""

    end: float
    prompt_speed: float
    decode_speed: float


@compiled
def _one_server(  # noqa: PLR0913
    requests: Records, server: Record, slots: _Slots, tables: _Tables, constants: Record,
    pace: _Pace, i: int,
) -> tuple[float, float, float]:  # fmt: skip
    """Work to the end, event by event; joules of a board, seconds in prompts and in decode."""
    joules = in_prompts = in_decode = 0.0
    most = slots.ends_at.shape[1]
    while server.now < pace.end - constants.tiny_seconds:
        room = NEVER
        if server.under_way < 0:
            room = _room_seconds(requests, server, constants, most)
            if room <= server.now:
                _admit(requests, server)
        left = pace.end - server.now
        if server.under_way >= 0:
            watts = requests[server.under_way].prompt_watts
            seconds = min(max(server.prompt_left / pace.prompt_speed, 0.0), left)
            in_prompts += seconds
            server.now += seconds
            _go_on_with_prompt(requests, server, slots, constants, seconds * pace.prompt_speed, i)
        elif server.batch == 0:
            watts = constants.idle_watts
            seconds = min(max(room + 2.0 * constants.tiny_seconds - server.now, 0.0), left)
            server.now += seconds
        else:
            each = _token_seconds(tables, constants, server, pace.decode_speed)
            of_answer = (server.next_end - server.turns) * each
            of_arrival = room + 2.0 * constants.tiny_seconds - server.now
            seconds = min(max(min(of_answer, of_arrival), 0.0), left)
            watts = _decode_watts(tables, constants, server.batch, server.context)
            in_decode += seconds
            server.now += seconds
            _go_on_with_answers(requests, server, slots, constants, seconds / each, i)
        joules += seconds * watts
    return joules, in_prompts, in_decode


@compiled
def _all_servers(  # noqa: PLR0913
    seconds: float, prompt_speed: Floats, decode_speed: Floats, into: Floats, requests: Records,
    servers: Records, ends_at: Floats, slot_of: Integers, by_batch: Floats, by_prompt: Floats,
    all_constants: Records,
) -> None:  # fmt: skip
    """Let all servers work; watts of one board, shares of prompts and of decode, (3, n_servers)."""
    slots, tables = _Slots(ends_at, slot_of), _Tables(by_batch, by_prompt)
    constants = all_constants[0]
    for i in range(len(servers)):
        server = servers[i]
        end = server.now + seconds
        into[0, i], into[1, i], into[2, i] = constants.idle_watts, 0.0, 0.0
        if prompt_speed[i] > constants.stopped and decode_speed[i] > constants.stopped:
            pace = _Pace(end, prompt_speed[i], decode_speed[i])
            spent = _one_server(requests, server, slots, tables, constants, pace, i)
            for row in range(3):
                into[row, i] = spent[row] / seconds
        server.now = end


@compiled
def _full_speed(  # noqa: PLR0913
    seconds: float, watts: Floats, requests: Records, servers: Records,
    slot_arrays: tuple[Floats, Integers], tables: tuple[Floats, Floats], all_constants: Records,
) -> None:  # fmt: skip
    """Watts of one board in many steps, (steps, n_servers)."""
    slots, constants = _Slots(*slot_arrays), all_constants[0]
    listed = _Tables(*tables)
    for i in range(len(servers)):
        server = servers[i]
        for k in range(len(watts)):
            pace = _Pace(server.now + seconds, 1.0, 1.0)
            spent = _one_server(requests, server, slots, listed, constants, pace, i)
            watts[k, i] = spent[0] / seconds
            server.now = pace.end


def _attribute(column: str) -> str:
    """Of ``BatchingServers``, by a record's column."""
    return column if column == "work_seconds" else f"_{column}"


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
        self._request_records = np.zeros(len(self._arrival), dtype=REQUEST)
        self._server_records = np.zeros(n_servers, dtype=SERVER)
        for records in (self._request_records, self._server_records):
            for name in records.dtype.names or ():
                records[name] = getattr(self, _attribute(name))
        here = {
            "table_prompt_tokens": TABLE_PROMPT_TOKENS,
            "tiny_seconds": TINY_SECONDS,
            "tiny_tokens": TINY_TOKENS,
            "stopped": STOPPED,
        }
        self._constants = np.zeros(1, dtype=CONSTANTS)
        for name in CONSTANTS.names or ():
            self._constants[name] = here[name] if name in here else getattr(own, name)
        self._by_batch = np.array([own.token_seconds_by_batch, own.batch_ratio])
        self._by_prompt = np.array([own.prompt_tokens, own.decode_ratio])
        self._show_records()

    def _show_records(self) -> None:
        """The columns that ``BatchingServers`` looks at are those of the records."""
        for records in (self._request_records, self._server_records):
            for name in records.dtype.names or ():
                setattr(self, _attribute(name), records[name])

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has columns of its own records.
        self.__dict__.update(state)
        self._show_records()

    def step(self, seconds: float, prompt_speed: Floats, decode_speed: Floats) -> StepDraw:
        """Let every server work for ``seconds``; see ``BatchingServers.step``."""
        if not seconds > 0:
            raise InputError("seconds", "a length above 0", seconds)
        into = np.empty((3, len(self._server_records)))
        _all_servers(
            float(seconds), prompt_speed, decode_speed, into, self._request_records,
            self._server_records, self._ends_at, self._slot_of, self._by_batch, self._by_prompt,
            self._constants,
        )  # fmt: skip
        return StepDraw(into[0], into[1], into[2])

    def full_speed_watts(self, steps: int, seconds: float) -> Floats:
        """Watts of one board in each of some steps; see ``BatchingServers.full_speed_watts``."""
        watts = np.empty((steps, len(self._server_records)))
        _full_speed(
            float(seconds), watts, self._request_records, self._server_records,
            (self._ends_at, self._slot_of), (self._by_batch, self._by_prompt), self._constants,
        )  # fmt: skip
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
