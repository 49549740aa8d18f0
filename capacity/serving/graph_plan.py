"""How many requests that are graphs of calls some servers answer within one end-to-end deadline.

Requests of one graph come as a Poisson process, their lengths spread as everywhere. Calls meet
servers balanced and by urgency (``request_graph``), and first come in turn beside it, which is what
a plain round-robin router does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np

from capacity.catalogue.request_stages import RequestStage, waits_for
from capacity.serving.deployment import Deployment
from capacity.serving.open_runs import WARM_UP, arrivals, grows
from capacity.serving.request_graph import Dispatch, RequestGraph, Stage, serve_graphs
from capacity.serving.request_mix import USUAL_SPREAD
from capacity.serving.run_energy import fleet_joules
from capacity.serving.served_requests import Size
from capacity.serving.service_level import latency_summary
from wattpack.errors import InputError
from wattpack.units import require_number

SEED: Final = 11
DEADLINES: Final = 8
"""A run lasts so many of them, so that a queue which grows shows ..."""

FEWEST_GRAPHS: Final = 150
MOST_GRAPHS: Final = 2_000
"""... within these bounds: 95 % of 150 are known to about 2 %."""

MOST_PLAYED_CALLS: Final = 6_000
LEAST_PLAYED: Final = 40
"""Graphs of many calls are played fewer times, down to so many: 95 % are then known to 3.5 %."""

RATE_STEPS: Final = 7
TYPICAL_BATCH: Final = 8
"""Decodes beside a call where its time without a queue is told: deadlines are split by it."""

MOST_CALLS: Final = 256
MOST_SERVERS: Final = 64

BY_URGENCY: Final = Dispatch(balanced=True, urgent=True)
FIRST_COME: Final = Dispatch(balanced=False, urgent=False)


@dataclass(frozen=True, slots=True)
class GraphQuestion:
    """Servers, the graph and its deadline.

    Attributes:
        spread: Lengths of calls are uniform between (1 - spread) and 1 times the stated ones.
        attainment: Share of requests that has to end in time.

    Raises:
        InputError: no server or too many, a call that fits no cache, no deadline.
    """

    servers: tuple[Deployment, ...]
    graph: RequestGraph
    deadline_seconds: float
    spread: float = USUAL_SPREAD
    attainment: float = 0.95

    def __post_init__(self) -> None:
        require_number("servers", len(self.servers), minimum=1, maximum=MOST_SERVERS)
        require_number("deadline_seconds", self.deadline_seconds, exclusive_minimum=0)
        require_number("spread", self.spread, minimum=0, maximum=0.99)
        calls = [stage for stage in self.graph.stages if stage.size is not None]
        if not 1 <= len(calls) <= MOST_CALLS:
            raise InputError("stages", f"1 to {MOST_CALLS} calls of a model", len(calls))
        for server in self.servers:
            for stage in calls:
                assert stage.size is not None
                tokens = stage.size.prompt + stage.size.output
                if server.users(tokens) < 1:
                    fits = f"at most {server.cache_tokens} tokens, which the cache holds"
                    raise InputError(f"stages.{stage.name}", fits, tokens)


@dataclass(frozen=True, slots=True)
class StageShare:
    """What a stage may take of the deadline.

    Attributes:
        expected_seconds: Of it on a server with ``TYPICAL_BATCH`` others and no queue.
        deadline_seconds: From the request's start to the stage's end.
    """

    name: str
    expected_seconds: float
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class GraphRate:
    """The largest rate within the deadline; watts and joules are of all servers.

    Attributes:
        seconds: From first call to last token: mean, median, 95th and 99th percentile.
    """

    requests_per_second: float
    seconds: tuple[float, float, float, float]
    mean_watts: float
    joules_per_request: float
    joules_per_token: float


@dataclass(frozen=True, slots=True)
class GraphAnswer:
    """The graph on these servers.

    Attributes:
        expected_seconds: Of the longest path without queues.
        by_urgency, first_come: None where no rate keeps the deadline.
    """

    stages: tuple[StageShare, ...]
    expected_seconds: float
    by_urgency: GraphRate | None
    first_come: GraphRate | None


def graph_of(stages: Sequence[RequestStage]) -> RequestGraph:
    """The graph: a stage of several calls becomes as many, and whoever waits for it, for all.

    Raises:
        InputError: as ``RequestGraph``.
    """
    copies: dict[str, tuple[str, ...]] = {}
    made: list[Stage] = []
    for stage, after in zip(stages, waits_for(stages), strict=True):
        known = tuple(copy for name in after for copy in copies.get(name, (name,)))
        names = tuple(f"{stage.name}-{k + 1}" for k in range(stage.calls))
        copies[stage.name] = names if stage.calls > 1 else (stage.name,)
        size = None
        if stage.prompt_tokens is not None and stage.output_tokens is not None:
            size = Size(stage.prompt_tokens, stage.output_tokens, stage.cached_tokens)
        seconds = stage.seconds or 0.0
        made += [Stage(name, size, known, seconds) for name in copies[stage.name]]
    return RequestGraph(tuple(made))


def plan_graph(
    question: GraphQuestion, progress: Callable[[int, int], None] = lambda done, total: None
) -> GraphAnswer:
    """How the deadline is split, and the largest rates with either dispatch.

    Args:
        progress: Told how many runs are played, and of how many.
    """
    runs, played = 2 * (1 + RATE_STEPS), count()

    def tell() -> None:
        progress(next(played), runs)

    expected = _expected(question)
    due = question.graph.deadlines(question.deadline_seconds, expected)
    shares = tuple(
        StageShare(stage.name, stage.expected(expected), due[stage.name])
        for stage in question.graph.stages
    )
    whole = max(question.graph.expected_ends(expected).values())
    urgent, in_turn = (_largest(question, way, tell) for way in (BY_URGENCY, FIRST_COME))
    return GraphAnswer(shares, whole, urgent, in_turn)


def _expected(question: GraphQuestion) -> Callable[[Size], float]:
    """Of a call on the first server."""
    clock = question.servers[0].clock()

    def seconds(size: Size) -> float:
        computed = max(2, size.prompt - size.cached)
        pairs = computed * (size.cached + computed / 2)
        prompt = clock.prompt(0, 0.0, 1, computed, pairs)[0]
        context = size.prompt + size.output / 2
        return prompt + size.output * clock.decode(TYPICAL_BATCH, context)[0]

    return seconds


def _largest(
    question: GraphQuestion, dispatch: Dispatch, tell: Callable[[], None]
) -> GraphRate | None:
    """Found between none and twice what a burst of requests is answered at."""
    low, best = 0.0, None
    tell()
    rate = _Run(question, dispatch, 1e6, _played(question.graph, 0.0)).answered_per_second
    high = 2 * rate
    for _ in range(RATE_STEPS):
        tell()
        wanted = DEADLINES * question.deadline_seconds * rate
        run = _Run(question, dispatch, rate, _played(question.graph, wanted))
        if run.keeps:
            low, best = rate, run
        else:
            high = rate
        rate = (low + high) / 2
    return best.rate() if best is not None else None


def _played(graph: RequestGraph, wanted: float) -> int:
    """Graphs of one run: as many as are wanted, within bounds."""
    calls = sum(stage.size is not None for stage in graph.stages)
    most = max(LEAST_PLAYED, min(MOST_GRAPHS, MOST_PLAYED_CALLS // calls))
    return min(most, max(FEWEST_GRAPHS, math.ceil(min(wanted, MOST_GRAPHS))))


class _Run:
    """One rate, played."""

    def __init__(
        self, question: GraphQuestion, dispatch: Dispatch, rate: float, count: int
    ) -> None:
        self.question = question
        self.requests_per_second = rate
        self.simulations = [server.simulation() for server in question.servers]
        starts = arrivals(count, rate)
        graphs = list(zip(starts, _drawn(question, count), strict=True))
        self.taken = serve_graphs(
            self.simulations, graphs, dispatch, question.deadline_seconds, _expected(question)
        )
        self.end = max(start + taken for start, taken in zip(starts, self.taken, strict=True))

    @property
    def answered_per_second(self) -> float:
        return len(self.taken) / self.end

    @property
    def counted(self) -> list[float]:
        """Times of those that came after the servers had begun to work."""
        return self.taken[int(WARM_UP * len(self.taken)) :]

    @property
    def keeps(self) -> bool:
        """Whether enough end in time, and would go on to."""
        in_time = np.mean(np.array(self.counted) <= self.question.deadline_seconds)
        return bool(in_time >= self.question.attainment) and not grows(self.taken)

    def rate(self) -> GraphRate:
        """What it showed."""
        outcomes = (simulation.outcome() for simulation in self.simulations)
        fleet = zip(self.question.servers, outcomes, strict=True)
        joules = fleet_joules(fleet, self.end)
        tokens = sum(one.output for simulation in self.simulations for one in simulation.done)
        return GraphRate(
            self.requests_per_second,
            latency_summary(self.counted),
            joules / self.end,
            joules / len(self.taken),
            joules / tokens,
        )


def _drawn(question: GraphQuestion, count: int) -> list[RequestGraph]:
    """The same graphs at every rate."""
    draw = np.random.default_rng(SEED)
    made = []
    for _ in range(count):
        shares = draw.uniform(1 - question.spread, 1, (len(question.graph.stages), 2)).tolist()
        stages = [
            replace(stage, size=_scaled(stage.size, *share)) if stage.size else stage
            for stage, share in zip(question.graph.stages, shares, strict=True)
        ]
        made.append(RequestGraph(tuple(stages)))
    return made


def _scaled(size: Size, prompt: float, output: float) -> Size:
    """Of a prompt, what earlier calls left keeps its share."""
    tokens = max(1, round(prompt * size.prompt))
    cached = min(tokens - 1, round(prompt * size.cached))
    return Size(tokens, max(1, round(output * size.output)), cached)
