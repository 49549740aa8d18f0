"""Requests that are graphs of model calls (agents, text-to-SQL) under one end-to-end deadline.

``RequestGraph.deadlines`` splits the deadline over the stages in proportion to the longest path:
a stage should end by the share of the whole that lies on the longest way up to its own end. What a
stage leaves over is the next one's, since deadlines are absolute. ``serve_graphs`` runs graphs on
servers of any speed: above, a call goes to the server that would end it first; below, each server
takes the call with the earliest stage deadline (HexGen-Text2SQL, arXiv 2505.05286).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from capacity.serving.served_requests import Request, Size
from capacity.serving.server_simulation import ServerSimulation
from wattpack.errors import InputError

LONGEST_STRIDE = 8
"""Iterations between looks at what other servers finished: about a quarter of a second ..."""
LOOKS_A_CALL = 128
"""... and at most so many within the longest call."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One model call, or a tool's time, when all that it waits for is done.

    Attributes:
        size: Of the call; None: something else works for ``seconds``.
    """

    name: str
    size: Size | None
    after: tuple[str, ...] = ()
    seconds: float = 0.0

    def expected(self, call_seconds: Callable[[Size], float]) -> float:
        """Seconds of it without a queue."""
        return self.seconds if self.size is None else call_seconds(self.size)


@dataclass(frozen=True, slots=True)
class RequestGraph:
    """Stages in an order in which they could run.

    Raises:
        InputError: no stage, a name twice, or a stage that waits for a later or unknown one.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("stages", "at least one", 0)
        known: set[str] = set()
        for stage in self.stages:
            if stage.name in known:
                raise InputError(f"stages.{stage.name}", "each name once", stage.name)
            for name in stage.after:
                if name not in known:
                    raise InputError(f"stages.{stage.name}.after", "an earlier stage", name)
            known.add(stage.name)

    def deadlines(self, seconds: float, expected: Callable[[Size], float]) -> Mapping[str, float]:
        """When each stage should end, from the graph's start, for ``seconds`` in all.

        Args:
            expected: Seconds of a call on a server without a queue.
        """
        ends = self.expected_ends(expected)
        longest = max(ends.values())
        return {name: seconds * end / longest for name, end in ends.items()}

    def expected_ends(self, expected: Callable[[Size], float]) -> Mapping[str, float]:
        """When each stage ends without any queue, from the graph's start."""
        ends: dict[str, float] = {}
        for stage in self.stages:
            begins = max((ends[name] for name in stage.after), default=0.0)
            ends[stage.name] = begins + stage.expected(expected)
        return ends


@dataclass(frozen=True, slots=True)
class Dispatch:
    """How calls meet servers: in turn and first come, or balanced and by urgency."""

    balanced: bool
    urgent: bool


@dataclass(slots=True)
class _Run:
    graph: RequestGraph
    start: float
    deadlines: Mapping[str, float]
    left: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    ends: float = 0.0


def serve_graphs(
    servers: Sequence[ServerSimulation],
    graphs: Sequence[tuple[float, RequestGraph]],
    dispatch: Dispatch,
    deadline_seconds: float,
    expected: Callable[[Size], float],
) -> list[float]:
    """Seconds from start to end of each graph, in their order.

    Args:
        servers: Fresh ones; they may differ.
        graphs: Start times, rising, and graphs.
        expected: As in ``RequestGraph.deadlines``.
    """
    work = _Work(servers, dispatch)
    outputs = (s.size.output for _, g in graphs for s in g.stages if s.size is not None)
    longest = max(outputs, default=0)
    for server in servers:
        server.urgent = dispatch.urgent
        server.longest_stride = max(LONGEST_STRIDE, longest // LOOKS_A_CALL)
    runs = [_Run(g, t, g.deadlines(deadline_seconds, expected)) for t, g in graphs]
    waiting = list(reversed(runs))
    while waiting or work.tools or any(server.busy for server in servers):
        soonest = min(servers, key=lambda one: one.next_seconds())
        start = waiting[-1].start if waiting else math.inf
        if work.tools and work.tools[0][0] <= min(start, soonest.next_seconds()):
            work.tool_ended()
            continue
        if start <= soonest.next_seconds():
            run = waiting.pop()
            run.left = {stage.name for stage in run.graph.stages}
            work.release(run, run.start)
            continue
        known = len(soonest.done)
        soonest.step()
        for request in soonest.done[known:]:
            work.finished(request)
    return [run.ends - run.start for run in runs]


class _Work:
    """Calls and tools under way, and where the next call goes."""

    def __init__(self, servers: Sequence[ServerSimulation], dispatch: Dispatch) -> None:
        self.servers = servers
        self.dispatch = dispatch
        self.calls: dict[int, tuple[_Run, str]] = {}
        self.turn = 0
        self.tools: list[tuple[float, int, _Run, str]] = []
        self.order = 0

    def release(self, run: _Run, now: float) -> None:
        """Send every call that waits for nothing any more."""
        if not run.left:
            return
        for stage in run.graph.stages:
            if stage.name in run.left and run.done.issuperset(stage.after):
                run.left.remove(stage.name)
                if stage.size is None:
                    self.order += 1
                    heapq.heappush(self.tools, (now + stage.seconds, self.order, run, stage.name))
                    continue
                server = self._server(stage.size)
                sent = server.offer(now, stage.size, run.start + run.deadlines[stage.name])
                self.calls[id(sent)] = (run, stage.name)

    def finished(self, request: Request) -> None:
        """Note the end of a call and send what waited for it."""
        run, name = self.calls.pop(id(request))
        self._ended(run, name, request.last)

    def tool_ended(self) -> None:
        """The same of the tool that ends first."""
        time, _, run, name = heapq.heappop(self.tools)
        self._ended(run, name, time)

    def _ended(self, run: _Run, name: str, time: float) -> None:
        run.done.add(name)
        run.ends = max(run.ends, time)
        self.release(run, time)

    def _server(self, size: Size) -> ServerSimulation:
        if not self.dispatch.balanced:
            self.turn += 1
            return self.servers[self.turn % len(self.servers)]
        if len(self.servers) == 1:
            return self.servers[0]
        return min(self.servers, key=lambda one: _seconds_to_end(one, size))


def _seconds_to_end(server: ServerSimulation, size: Size) -> float:
    """Of a call that is sent to this server now: prompts ahead of it, its own, its tokens.

    Every call beside it brings a prompt of its own in the time that its tokens take, which stalls
    all others: without that term the fastest server drowns.
    """
    queued = sum(one.prompt - one.filled for one in server.queue)
    own = size.prompt - size.cached
    prompt = server.clock.prompt(0, 0.0, 1, max(2, own), own * size.prompt / 2)[0]
    batch = len(server.running) + len(server.queue) + 1
    context = size.prompt + size.output / 2
    stall = batch * prompt / size.output
    token = server.clock.decode(batch, context)[0] + stall
    return prompt * (1 + queued / max(1, own)) + size.output * token
