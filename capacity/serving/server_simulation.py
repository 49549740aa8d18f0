"""One server, iteration by iteration: who is prefilled, who decodes, and how long each waits.

Iterations between two events (a prompt comes in, a sequence ends, the cache is full) are alike but
for the context that grows by one token a sequence, so they are taken in one stride. What an
iteration costs is asked of an ``IterationClock``; the log of strides prices energy afterwards.

Rules of the engine (``BatchingRules``): decodes come first, then prompts in order of arrival while
budget, cache and batch last. Requests that a full cache drives out start again at the queue's head
with what they had generated as part of their prompt.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capacity.serving.engine import BatchingRules
from capacity.serving.served_requests import (
    OpenLoop,
    Request,
    ServerRun,
    Size,
    StrideLog,
    Work,
)
from capacity.serving.serving_clock import Cost

Floats = npt.NDArray[np.float64]


class IterationClock(Protocol):
    """What an iteration costs."""

    def decode(self, decodes: int, context: float) -> Cost:
        """Without prompts; ``context`` is the mean of the decodes."""
        ...

    def prompt(self, decodes: int, context: float, prompts: int, tokens: int, pairs: float) -> Cost:
        """With prompt chunks of ``tokens`` and ``pairs`` in all."""
        ...


class BoardLimit(Protocol):
    """What a limit makes of an iteration."""

    def would_hold_seconds(self, cost: Cost, count: int) -> float:
        """Mean seconds of each of ``count`` equal iterations if they ran now."""
        ...

    def held_seconds(self, cost: Cost, count: int) -> float:
        """The same of iterations that do run."""
        ...

    def idle(self, seconds: float, watts: float) -> None:
        """Nothing ran."""
        ...


class NoLimit:
    """Full clock whatever it draws."""

    def would_hold_seconds(self, cost: Cost, count: int) -> float:
        """As they are."""
        return cost[0]

    def held_seconds(self, cost: Cost, count: int) -> float:
        """As they are."""
        return cost[0]

    def idle(self, seconds: float, watts: float) -> None:
        """Nothing to forget."""


def simulate(
    work: Work,
    clock: IterationClock,
    rules: BatchingRules,
    cache_tokens: int,
    way: tuple[float, float] = (0.0, 0.0),
    limit: BoardLimit | None = None,
) -> ServerRun:
    """Every request served once.

    Args:
        cache_tokens: Tokens that the key-value cache holds.
        way: Seconds a request and seconds a prompt token on the way into the queue.
        limit: The board's limit; none slows nothing.
    """
    server = ServerSimulation(clock, rules, cache_tokens, way, limit or NoLimit())
    return server.serve(work)


class ServerSimulation:
    """One server in the making: ``serve`` runs a whole load, ``offer`` and ``step`` go by hand.

    Attributes:
        now: Seconds that have passed on this server.
        done: Requests whose last token came, in that order.
        urgent: The queue is ordered by deadline instead of arrival.
        longest_stride: Iterations in one go, for whoever offers requests while it runs.
    """

    def __init__(
        self,
        clock: IterationClock,
        rules: BatchingRules,
        cache_tokens: int,
        way: tuple[float, float],
        limit: BoardLimit,
    ) -> None:
        self.clock = clock
        self.rules = rules
        self.capacity = cache_tokens
        self.way = way
        self.limit = limit
        self.now = 0.0
        self.previous_start = 0.0
        self.iteration = 0
        self.queue: deque[Request] = deque()
        self.running: list[tuple[int, int, Request]] = []
        self.order = 0
        self.sent = 0
        self.held = 0
        self.reserved = 0
        self.partial: Request | None = None
        self.waited = 0
        self.idle = 0.0
        self.preempted = 0
        self.log = StrideLog()
        self.done: list[Request] = []
        self.later: deque[Size] = deque()
        self.urgent = False
        self.longest_stride = 2**31

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.queue or self.running or self.partial)

    def next_seconds(self) -> float:
        """When its next iteration would begin; infinite without work."""
        if self.running or self.partial:
            return self.now
        if self.queue:
            return max(self.now, self._next_arrival())
        return math.inf

    def offer(self, time: float, size: Size, deadline: float = math.inf) -> Request:
        """A request that a client sends now, or later than any before it."""
        self._send(time, size)
        request = self.queue[-1]
        request.deadline = deadline
        return request

    def serve(self, work: Work) -> ServerRun:
        """Every request of the load, once."""
        if isinstance(work, OpenLoop):
            for time, size in zip(work.times, work.sizes, strict=True):
                self._send(time, size)
        else:
            for size in work.sizes[: work.concurrency]:
                self._send(0.0, size)
            self.later.extend(work.sizes[work.concurrency :])
        while self.busy:
            self.step()
            self.log.require_few()
        return self.outcome()

    def outcome(self) -> ServerRun:
        """What it did up to now."""
        return ServerRun(self.done, self.log, self.now, self.idle, self.preempted)

    def _send(self, time: float, size: Size) -> None:
        request = Request(time, size.prompt, size.output, self.sent, cached=size.cached)
        request.filled = request.reused = size.cached
        self.sent += 1
        request.arrived = time + self.way[0] + size.prompt * self.way[1]
        request.strides[0] = len(self.log.counts)
        self.queue.append(request)

    def step(self) -> None:
        """One prompt iteration, one stride of decodes, or a wait for the next request."""
        decodes = len(self.running)
        decided = self.previous_start if self.rules.scheduled_ahead and decodes else self.now
        chunks = self._admit(decided)
        if chunks:
            self._prompt_iteration(chunks)
        elif decodes:
            self._stride(self._length(decided))
        else:
            start = self._next_arrival()
            gap = max(0.0, start - self.now)
            self.idle += gap
            self.limit.idle(gap, 0.0)
            self.now = self.previous_start = max(self.now, start)
        self._finish()

    def _next_arrival(self) -> float:
        """Of whoever is first: short prompts do not overtake long ones on their way."""
        if self.urgent:
            return min(request.arrived for request in self.queue)
        return self.queue[0].arrived

    def _admit(self, decided: float) -> list[tuple[Request, int]]:
        """The prompts of the next iteration with the tokens that each may bring."""
        rules = self.rules
        budget = rules.token_budget - len(self.running)
        chunks: list[tuple[Request, int]] = []
        if self.partial is not None:
            chunk = min(self.partial.prompt - self.partial.filled, max(1, budget))
            chunks.append((self.partial, chunk))
            budget -= chunk
        if self.urgent and len(self.queue) > 1:
            self.queue = deque(sorted(self.queue, key=lambda one: _urgency(one, decided)))
        whole = rules.admission == "whole"
        used = self.reserved if whole else self.held + self._unfilled()
        count = len(self.running) + len(chunks)
        ready = 0
        for request in self.queue:
            if request.arrived > decided or count >= rules.largest_batch or budget <= 0:
                break
            rest = request.prompt - request.filled
            # The first prompt runs however long it is: decodes beside it never end for it.
            if rest > budget and not rules.chunked and chunks:
                break
            need = self._need(request) if whole else request.prompt
            if used + need > self.capacity and count:
                break
            chunk = min(rest, budget) if rules.chunked else rest
            chunks.append((request, chunk))
            budget -= chunk
            used += need
            count += 1
            ready += 1
        if ready and self._waits(chunks):
            return []
        for _ in range(ready):
            request = self.queue.popleft()
            self.reserved += self._need(request)
        return chunks

    def _unfilled(self) -> int:
        return self.partial.prompt - self.partial.filled if self.partial else 0

    def _need(self, request: Request) -> int:
        """Cache that a request holds when it ends."""
        return request.prompt + request.output - request.made

    def _waits(self, chunks: list[tuple[Request, int]]) -> bool:
        """Whether these prompts wait for more company."""
        rules = self.rules
        if not self.running or self.waited >= rules.wait_iterations:
            self.waited = 0
            return False
        filled = len(self.running) + sum(chunk for _, chunk in chunks)
        if filled >= rules.wait_fill * rules.token_budget:
            self.waited = 0
            return False
        return True

    def _length(self, decided: float) -> int:
        """Iterations until something changes, at least one."""
        decodes = len(self.running)
        stride = self.running[0][0] - self.iteration
        if self.rules.admission == "grown":
            room = (self.capacity - self.held) // decodes
            if room < 1:
                self._preempt()
                decodes = len(self.running)
                room = max(1, (self.capacity - self.held) // decodes)
                stride = self.running[0][0] - self.iteration
            stride = min(stride, room)
        if self.queue:
            head = self.queue[0]
            if head.arrived <= decided:
                if self.rules.wait_iterations:
                    stride = 1
                    self.waited += 1
            elif head.arrived <= self.now:
                stride = 1
            elif decodes < self.rules.largest_batch:
                stride = self._until(head.arrived, stride)
        return max(1, min(stride, self.longest_stride))

    def _until(self, arrival: float, most: int) -> int:
        """Iterations that end within the one during which somebody arrives.

        What one costs depends on how many there are: contexts grow, and so does what the limit
        takes. Too few are no harm, the rest is the next stride's.
        """
        gap = arrival - self.now
        _, one = self._decoded(1)
        stride = min(most, int(gap / self.limit.would_hold_seconds(one, 1)) + 1)
        while stride > 1:
            held = self.limit.would_hold_seconds(self._decoded(stride)[1], stride)
            fitting = int(gap / held) + 1
            if stride <= fitting:
                break
            stride = fitting
        return stride

    def _decoded(self, stride: int) -> tuple[float, Cost]:
        """Mean context of so many iterations, and what one of them costs at full clock."""
        decodes = len(self.running)
        context = self.held / decodes + (stride - 1) / 2
        return context, self.clock.decode(decodes, context)

    def _stride(self, stride: int) -> None:
        context, one = self._decoded(stride)
        self._record(stride, 0, 0, 0.0, context, one)
        self.held += len(self.running) * stride

    def _prompt_iteration(self, chunks: list[tuple[Request, int]]) -> None:
        decodes = len(self.running)
        tokens = sum(chunk for _, chunk in chunks)
        pairs = 0.0
        for request, chunk in chunks:
            pairs += chunk * (request.filled + (chunk + 1) / 2)
        context = self.held / decodes if decodes else 0.0
        one = self.clock.prompt(decodes, context, len(chunks), tokens, pairs)
        self._record(1, len(chunks), tokens, pairs, context, one)
        self.held += decodes + tokens
        self.partial = None
        for request, chunk in chunks:
            self.held += request.reused
            request.reused = 0
            request.filled += chunk
            if request.filled < request.prompt:
                self.partial = request
                continue
            self._start(request)

    def _start(self, request: Request) -> None:
        """Its prompt is done: the iteration made a token."""
        if request.made == 0:
            request.first = self.now
            request.strides[1] = len(self.log.counts)
        self.order += 1
        ends = self.iteration + request.output - request.made - 1
        heapq.heappush(self.running, (ends, self.order, request))

    def _record(
        self, count: int, prompts: int, tokens: int, pairs: float, context: float, cost: Cost
    ) -> None:
        log = self.log
        one = self.limit.held_seconds(cost, count)
        log.counts.append(count)
        log.decodes.append(len(self.running))
        log.prompts.append(prompts)
        log.tokens.append(tokens)
        log.pairs.append(pairs)
        log.contexts.append(context)
        log.seconds.append(one)
        log.free_seconds.append(cost[0])
        log.joules.append(cost[1])
        self.previous_start = self.now + (count - 1) * one
        self.now += count * one
        self.iteration += count
        log.ends.append(self.now)

    def _finish(self) -> None:
        while self.running and self.running[0][0] <= self.iteration:
            _, _, request = heapq.heappop(self.running)
            request.last = self.now
            request.strides[2] = len(self.log.counts)
            self.held -= request.prompt + request.output - request.made - 1
            self.reserved -= self._need(request)
            self.done.append(request)
            if self.later:
                self._send(self.now, self.later.popleft())

    def _preempt(self) -> None:
        """The youngest gives its cache back and will compute it again."""
        if len(self.running) < 2:
            return
        index = max(range(len(self.running)), key=lambda i: self.running[i][1])
        ends, _, request = self.running.pop(index)
        heapq.heapify(self.running)
        left = ends - self.iteration
        made = request.output - left
        self.held -= request.prompt + (made - request.made) - 1
        self.reserved -= self._need(request)
        request.prompt += made - request.made
        request.filled, request.made = 0, made
        self.queue.appendleft(request)
        self.preempted += 1


def _urgency(request: Request, decided: float) -> tuple[bool, float]:
    """Those that are here by deadline, then the others as they come."""
    late = request.arrived > decided
    return late, request.arrived if late else request.deadline
