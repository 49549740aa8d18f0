"""Time and energy of single iterations for the simulation, under one limit.

A board regulates its mean draw over about a second, longer than an iteration: what slows an
iteration is the draw of the last second, not its own (``Governor``). A prompt between decodes runs
at full clock; prompts without end are held.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.regulator import Regulator
from capacity.serving.engine import EngineConstants
from capacity.serving.kernel_prices import KernelPricer
from capacity.serving.step_costs import (
    BEFORE,
    CHUNKS,
    CONTEXT_NODES,
    CONTEXT_RATIO,
    CONTEXT_START,
    CONTEXTS,
    LEAST,
    SMALLEST_CHUNK,
    PricedSteps,
    StepCosts,
)

REGULATOR_SECONDS: Final = 1.0
"""Own recordings of H200 steps: a busy board corrects its clock once a second."""

_LOG_RATIO: Final = math.log(CONTEXT_RATIO)
_NODES: Final[list[float]] = CONTEXTS.tolist()

Cost = tuple[float, float, float]
"""Seconds at full clock, joules without a limit, and seconds that follow the clock."""


@dataclass(slots=True)
class Governor:
    """One board's limit in force over a run.

    Attributes:
        watts: Mean of the last second as it would be without a limit.
    """

    regulator: Regulator
    limit_watts: float
    free_watts: float
    watts: float = 0.0

    @classmethod
    def of(cls, prices: KernelPricer, limit_watts: float) -> Governor:
        """The limit over prices, which may hold the default limit's slowing already."""
        free = prices.limit_watts if prices.held_at_default else math.inf
        return cls(prices.regulator, limit_watts, free)

    def depth(self, watts: float) -> float:
        """How far the clock falls for this draw."""
        depth = self._depth(watts, self.limit_watts)
        if math.isfinite(self.free_watts):
            depth -= self._depth(watts, self.free_watts)
        return max(0.0, depth)

    def would_hold_seconds(self, cost: Cost, count: int) -> float:
        """Mean seconds of each of ``count`` equal iterations if they ran now."""
        seconds, joules, clock = cost
        now = joules / seconds
        time = count * seconds / REGULATOR_SECONDS
        share = (1 - math.exp(-time)) / time if time > 1e-9 else 1.0
        return seconds + self.depth(now + (self.watts - now) * share) * clock

    def held_seconds(self, cost: Cost, count: int) -> float:
        """The same of iterations that do run."""
        held = self.would_hold_seconds(cost, count)
        self._drew(count * cost[0], cost[1] / cost[0])
        return held

    def idle(self, seconds: float, watts: float) -> None:
        """Nothing ran."""
        self._drew(seconds, watts)

    def _drew(self, seconds: float, watts: float) -> None:
        self.watts = watts + (self.watts - watts) * math.exp(-seconds / REGULATOR_SECONDS)

    def _depth(self, watts: float, limit: float) -> float:
        excess = watts / (self.regulator.held_share * limit) - 1
        return self.regulator.reach * excess**self.regulator.bend if excess > 0 else 0.0


class ServingClock:
    """Look-ups in plain lists: the simulation asks for single iterations, a million a minute."""

    def __init__(self, priced: PricedSteps, constants: EngineConstants, gap_watts: float) -> None:
        self._layers = [
            _Layer(priced.seconds, constants, 1.0),
            _Layer(priced.joules, constants, gap_watts),
            _Layer(priced.clock, constants, 0.0),
        ]
        self._launch = constants.launch_layer_seconds * priced.seconds.layers
        self._gap_watts = gap_watts

    def decode(self, decodes: int, context: float) -> Cost:
        """An iteration without prompts; ``context`` is the mean of the decodes."""
        node, share = _node(context)
        a, b, c = self._layers
        return (
            a.decode[min(decodes, a.largest_batch)] + a.attention(decodes, node, share),
            b.decode[min(decodes, b.largest_batch)] + b.attention(decodes, node, share),
            c.decode[min(decodes, c.largest_batch)] + c.attention(decodes, node, share),
        )

    def prompt(self, decodes: int, context: float, prompts: int, tokens: int, pairs: float) -> Cost:
        """An iteration with prompt chunks of ``tokens`` and ``pairs`` in all.

        Chunks of one token each (prompts computed elsewhere) are decodes.
        """
        if tokens == prompts:
            seen = (decodes * context + pairs) / (decodes + prompts)
            return self.decode(decodes + prompts, seen)
        node, share = _node(context)
        chunk = _chunk(tokens / prompts, pairs / tokens)
        made = []
        for layer in self._layers:
            value = layer.prompt[min(decodes + tokens, layer.largest_tokens)]
            value += layer.sequence[min(decodes + prompts, layer.largest_batch)]
            value += prompts * layer.chunk_attention(*chunk)
            made.append(value + (layer.attention(decodes, node, share) if decodes else 0.0))
        seconds, joules, clock = made
        wait = max(0.0, self._launch - seconds)
        return seconds + wait, joules + wait * self._gap_watts, clock


class _Layer:
    """Seconds, joules or clock seconds of iterations."""

    def __init__(self, costs: StepCosts, constants: EngineConstants, overhead: float) -> None:
        sequences = np.arange(costs.largest_batch + 1)
        self.largest_batch = costs.largest_batch
        self.largest_tokens = costs.largest_tokens
        fixed = constants.layer_seconds * costs.layers + constants.step_seconds
        shared = constants.sums * costs.sums + constants.passes * costs.passes + overhead * fixed
        each = overhead * constants.sequence_seconds * sequences.astype(np.float64)
        products = costs.products[: costs.largest_batch + 1] + costs.outputs
        decode = constants.decode_products * products + shared[: costs.largest_batch + 1] + each
        self.decode: list[float] = decode.tolist()
        self.prompt: list[float] = (constants.prompt_products * costs.products + shared).tolist()
        self.sequence: list[float] = (constants.prompt_products * costs.outputs + each).tolist()
        self.rows: list[list[float]] = (
            constants.decode_attention * costs.decode_attention
        ).tolist()
        priced = np.maximum(LEAST, constants.prompt_attention * costs.prompt_attention)
        self.chunk_logs: list[list[float]] = np.log(priced).tolist()

    def attention(self, decodes: int, node: int, share: float) -> float:
        row = self.rows[min(decodes, self.largest_batch)]
        value = row[node] + share * (row[node + 1] - row[node])
        return value if value > 0 else 0.0

    def chunk_attention(self, row: int, octave: float, column: int, share: float) -> float:
        """As ``StepCosts`` does for many: a power law in tokens, a line in those before."""
        low, high = self.chunk_logs[row], self.chunk_logs[row + 1]
        near = math.exp(low[column] + octave * (high[column] - low[column]))
        column += 1
        far = math.exp(low[column] + octave * (high[column] - low[column]))
        value = near + share * (far - near)
        return value if value > 0 else 0.0


def _chunk(tokens: float, mean_keys: float) -> tuple[int, float, int, float]:
    """Row, column, and how far beyond them a chunk lies; its tokens see so many keys on average."""
    octaves = max(0.0, math.log2(tokens / SMALLEST_CHUNK))
    row = min(int(octaves), len(CHUNKS) - 2)
    before = max(0.0, mean_keys - (tokens + 1) / 2)
    column = bisect_right(BEFORE, before, 1, len(BEFORE) - 1) - 1
    start = BEFORE[column]
    return row, octaves - row, column, (before - start) / (BEFORE[column + 1] - start)


def _node(context: float) -> tuple[int, float]:
    if context <= CONTEXT_START:
        return 0, 0.0
    node = min(int(math.log(context / CONTEXT_START) / _LOG_RATIO), CONTEXT_NODES - 2)
    return node, (context - _NODES[node]) / (_NODES[node + 1] - _NODES[node])
