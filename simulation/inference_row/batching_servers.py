"""The queues of a row: prompts one by one, answers decoded together, exact between events.

    requests of a server (FIFO) ──> prompt, alone; decode waits ──> decode, all together ──> done

A server's events are: a request comes, a prompt is done, an answer is done. Between two of them
nothing changes but the number of tokens that every running answer has got, so each round of the
loop takes every server to its own next event; a step of a second needs a few rounds, whatever its
length, and what happens does not depend on where steps begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import ServerTimes, bloom_on_a100
from simulation.inference_row.client_arrivals import RowRequests
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = np.inf
TINY_SECONDS = 1e-9
TINY_TOKENS = 1e-6
STOPPED = 1e-9
"""Speed below which a server does nothing: its boards are dark."""


@dataclass(frozen=True, slots=True)
class StepDraw:
    """What the servers would have drawn in a step without a limit, each (n_servers,).

    Attributes:
        watts: Of one board, mean over the step.
        prompt_share: Share of the step spent on prompts.
        decode_share: Share of the step spent on answers.
    """

    watts: Floats
    prompt_share: Floats
    decode_share: Floats


class BatchingServers:
    """Servers and the requests that they will ever get.

    Attributes:
        first_seconds: When each request's first token came, NaN before, (n,).
        done_seconds: When each request was answered, NaN before, (n,).
        work_seconds: Work done by each server: prompts as full-speed seconds, tokens as
            ``ServerTimes.work_seconds_per_token``, (n_servers,).

    Args:
        requests: In order of arrival, with their servers.
        n_servers: Of the row.
        begin_seconds: When the row starts, empty.
        times: What a server takes and draws.
    """

    def __init__(
        self,
        requests: RowRequests,
        n_servers: int,
        begin_seconds: float = 0.0,
        times: ServerTimes | None = None,
    ) -> None:
        self.requests = requests
        self._times = times or bloom_on_a100()
        order = np.argsort(requests.server, kind="stable")
        self._listed = order  # by server, then arrival
        self._arrival = np.append(requests.arrival_seconds[order], NEVER)
        self._prompt = np.append(requests.prompt_tokens[order], 0.0)
        self._output = np.append(requests.output_tokens[order], 0.0)
        self._prompt_seconds = self._times.seconds_of_prompt(self._prompt)
        self._prompt_watts = self._times.watts_of_prompt(self._prompt)
        counts = np.bincount(requests.server, minlength=n_servers)
        self._stop = np.cumsum(counts).astype(np.int64)
        self._head = self._stop - counts  # next request that no slot has
        n = n_servers
        self._now = np.full(n, float(begin_seconds))
        self._under_way = np.full(n, -1, dtype=np.int64)  # whose prompt is processed
        self._prompt_left = np.zeros(n)
        self._batch = np.zeros(n, dtype=np.int64)
        self._context = np.zeros(n)  # tokens that the running answers attend to
        self._reserved = np.zeros(n)  # tokens of memory held by running requests
        self._turns = np.zeros(n)  # tokens that each running answer has got since the beginning
        self._ends_at = np.full((n, self._times.max_batch), NEVER)  # in turns
        self._slot_of = np.full((n, self._times.max_batch), -1, dtype=np.int64)
        self._next_end = np.full(n, NEVER)
        self._first = np.full(len(requests) + 1, np.nan)
        self._done = np.full(len(requests) + 1, np.nan)
        self.work_seconds = np.zeros(n)

    @property
    def first_seconds(self) -> Floats:
        """When each request's first token came, in the requests' order."""
        return self._in_order(self._first)

    @property
    def done_seconds(self) -> Floats:
        """When each request's last token came, in the requests' order."""
        return self._in_order(self._done)

    def tokens_seconds(self, which: Integers) -> tuple[Floats, Floats]:
        """When the first and the last token of some requests came, each as ``which``."""
        listed = self._place[which]
        return self._first[listed], self._done[listed]

    @cached_property
    def _place(self) -> Integers:
        """Where each request is listed."""
        place = np.empty(len(self.requests), dtype=np.int64)
        place[self._listed] = np.arange(len(place))
        return place

    def _in_order(self, listed: Floats) -> Floats:
        ordered = np.empty(len(self.requests))
        ordered[self._listed] = listed[:-1]
        return ordered

    @property
    def waiting(self) -> Integers:
        """Requests of each server that have come and are not under way, (n_servers,)."""
        here = np.searchsorted(self.requests.arrival_seconds, self._now.max(), side="right")
        come = np.bincount(self.requests.server[:here], minlength=len(self._now))
        begun = self._head - np.concatenate([[0], self._stop[:-1]])
        return np.asarray(np.maximum(0, come - begun), dtype=np.int64)

    def step(self, seconds: float, prompt_speed: Floats, decode_speed: Floats) -> StepDraw:
        """Let every server work for ``seconds``.

        Args:
            seconds: Length of the step.
            prompt_speed: Speed over full speed in prompts, 0 where a server is dark, (n_servers,).
            decode_speed: The same in decode, (n_servers,).

        Raises:
            InputError: for a length that is not positive.
        """
        if not seconds > 0:
            raise InputError("seconds", "a length above 0", seconds)
        n = len(self._now)
        end = self._now + seconds
        joules, in_prompts, in_decode = np.zeros(n), np.zeros(n), np.zeros(n)
        dark = (prompt_speed <= STOPPED) | (decode_speed <= STOPPED)
        self._now[dark] = end[dark]
        rows = np.flatnonzero(~dark)
        while len(rows):
            self._admit(rows)
            prompts = self._under_way[rows] >= 0
            decode = ~prompts & (self._batch[rows] > 0)
            token_seconds = self._token_seconds(rows, decode, decode_speed)
            spent = self._until_event(rows, prompts, token_seconds, prompt_speed, end)
            joules[rows] += spent * self._watts(rows, prompts, decode)
            in_prompts[rows] += np.where(prompts, spent, 0.0)
            in_decode[rows] += np.where(decode, spent, 0.0)
            self._now[rows] += spent
            self._decode(rows[decode], spent[decode] / token_seconds[decode])
            self._process(rows[prompts], (spent * prompt_speed[rows])[prompts])
            rows = rows[self._now[rows] < end[rows] - TINY_SECONDS]
        self._now = end
        watts = np.where(dark, self._times.idle_watts, joules / seconds)
        return StepDraw(watts, in_prompts / seconds, in_decode / seconds)

    def full_speed_watts(self, steps: int, seconds: float) -> Floats:
        """Watts of one board of each server in each of so many steps, (steps, n_servers)."""
        full = np.ones(len(self._now))
        return np.array([self.step(seconds, full, full).watts for _ in range(steps)])

    def _admit(self, rows: Integers) -> None:
        """Begin the prompt of the next request where one waits and fits."""
        head = self._head[rows]
        ready = (self._under_way[rows] < 0) & (self._room_seconds(rows) <= self._now[rows])
        chosen, which = rows[ready], head[ready]
        self._under_way[chosen] = which
        self._prompt_left[chosen] = self._prompt_seconds[which]
        self._reserved[chosen] += self._prompt[which] + self._output[which]
        self._head[chosen] += 1

    def _room_seconds(self, rows: Integers) -> Floats:
        """When the next request comes that could begin; never while there is no room, (rows,)."""
        head = self._head[rows]
        which = np.where(head < self._stop[rows], head, -1)
        need = self._prompt[which] + self._output[which]
        times = self._times
        fits = self._batch[rows] < times.max_batch
        fits &= self._reserved[rows] + need <= times.kv_tokens
        return np.where(fits, self._arrival[which], NEVER) - TINY_SECONDS

    def _token_seconds(self, rows: Integers, decode: Bools, speed: Floats) -> Floats:
        full = self._times.seconds_of_token(self._batch[rows], self._context[rows])
        return np.where(decode, full / speed[rows], 1.0)

    def _until_event(
        self,
        rows: Integers,
        prompts: Bools,
        token_seconds: Floats,
        prompt_speed: Floats,
        end: Floats,
    ) -> Floats:
        """Seconds until something changes at each server, at most until the step's end."""
        now = self._now[rows]
        of_prompt = self._prompt_left[rows] / prompt_speed[rows]
        of_answer = (self._next_end[rows] - self._turns[rows]) * token_seconds
        of_arrival = self._room_seconds(rows) + 2.0 * TINY_SECONDS - now
        event = np.where(prompts, of_prompt, np.minimum(of_answer, of_arrival))
        return np.clip(event, 0.0, end[rows] - now)

    def _watts(self, rows: Integers, prompts: Bools, decode: Bools) -> Floats:
        of_prompt = self._prompt_watts[self._under_way[rows]]
        of_decode = self._times.watts_of_decode(self._batch[rows], self._context[rows])
        idle = self._times.idle_watts
        return np.where(prompts, of_prompt, np.where(decode, of_decode, idle))

    def _decode(self, rows: Integers, tokens: Floats) -> None:
        self._turns[rows] += tokens
        made = tokens * self._batch[rows]
        self._context[rows] += made
        self.work_seconds[rows] += made * self._times.work_seconds_per_token
        ended = rows[self._turns[rows] >= self._next_end[rows] - TINY_TOKENS]
        if not len(ended):
            return
        slot = np.argmin(self._ends_at[ended], axis=1)
        which = self._slot_of[ended, slot]
        self._done[which] = self._now[ended]
        tokens_held = self._prompt[which] + self._output[which]
        self._reserved[ended] -= tokens_held
        self._context[ended] -= tokens_held
        self._batch[ended] -= 1
        self._ends_at[ended, slot] = NEVER
        self._next_end[ended] = self._ends_at[ended].min(axis=1)

    def _process(self, rows: Integers, full_speed_seconds: Floats) -> None:
        self._prompt_left[rows] -= full_speed_seconds
        self.work_seconds[rows] += full_speed_seconds
        ended = rows[self._prompt_left[rows] <= TINY_SECONDS]
        if not len(ended):
            return
        which = self._under_way[ended]
        self._first[which] = self._now[ended]
        slot = np.argmax(self._ends_at[ended] == NEVER, axis=1)
        # The prompt's end is the first token.
        ends = self._turns[ended] + self._output[which] - 1.0
        self._ends_at[ended, slot] = ends
        self._slot_of[ended, slot] = which
        self._next_end[ended] = np.minimum(self._next_end[ended], ends)
        self._batch[ended] += 1
        self._context[ended] += self._prompt[which] + 1.0
        self._under_way[ended] = -1
