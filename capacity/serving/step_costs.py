"""What any iteration of a language model on some GPUs costs, from kernels priced once on a grid.

This is the one place where an iteration's kernels are counted and priced. ``ServingClock`` looks
single iterations up here; a ``StepTable`` is an excerpt that ships as data, for the twin's many
servers at once (``capacity.fitting.table_parts``).

An iteration is ``decodes`` sequences with one new token each beside prompt chunks. Its terms, each
multiplied by one of the engine's constants (``EngineConstants``), are the columns of ``terms``::

    products with / without prompts, decode attention, prompt attention, sums, passes,
    layers, 1, sequences

so the same surfaces serve every engine, and a fit of the constants is linear in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.decoder_kernels import DecoderShare, TokenGroup
from capacity.kernels import Attention, Collective, Gemm, Kernel, NumberFormat
from capacity.language_models import LanguageModel
from capacity.serving.kernel_prices import KernelPricer
from capacity.step_table import CHUNKS as PIECES
from capacity.step_table import PROMPTS as PIECE_PROMPTS

Floats = npt.NDArray[np.float64]

CONTEXT_START: Final = 64
CONTEXT_RATIO: Final = 1.35
CONTEXT_NODES: Final = 26
"""Contexts of the grid in geometric steps: 64 to 116,000 tokens."""

CONTEXTS: Final[Floats] = np.asarray(
    CONTEXT_START * CONTEXT_RATIO ** np.arange(CONTEXT_NODES), dtype=np.float64
)

BATCHES: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SMALLEST_CHUNK: Final = 16
CHUNKS: Final = tuple(SMALLEST_CHUNK * 2**i for i in range(12))
"""Tokens of a prompt in one iteration, 16 to 32,768 in octaves."""

BEFORE: Final = (0, 1024, 4096, 16384, 65536)
"""Tokens of the prompt that earlier iterations, or a cache, hold already. Time is linear between
them, and beyond."""

LEAST: Final = 1e-30
"""Stands for nothing where a logarithm follows."""

TOKENS: Final = tuple(
    sorted({*range(1, 5), 6, 8, 12, 16, *(int(16 * 2 ** (i / 3)) for i in range(34))})
)
"""New tokens of one iteration, 1 to 32,768 in thirds of octaves."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Priced surfaces of one model on one GPU type at one parallelism.

    Attributes:
        products: By new tokens, shape (largest_tokens + 1,); one layer stack without output layer.
        outputs: Output layer by sequences, shape (largest_batch + 1,).
        sums, passes: By new tokens.
        decode_attention: By decodes and context node, shape (largest_batch + 1, CONTEXT_NODES).
        prompt_attention: By tokens of a prompt in an iteration and those that came before, shape
            (len(CHUNKS), len(BEFORE)): a few tokens of a long prompt read all its keys, which a
            whole prompt of as many pairs does not.
        piece_attention: The same on the grid of ``capacity.step_table`` (``CHUNKS``, ``PROMPTS``),
            which ships: by tokens and the prompt's length.

    The surfaces hold seconds, joules or seconds that follow the clock, as ``PricedSteps`` says.
    """

    layers: int
    products: Floats
    outputs: Floats
    sums: Floats
    passes: Floats
    decode_attention: Floats
    prompt_attention: Floats
    piece_attention: Floats

    @property
    def largest_tokens(self) -> int:
        """New tokens of the largest iteration on the grid."""
        return len(self.products) - 1

    @property
    def largest_batch(self) -> int:
        """Decodes of the largest iteration on the grid."""
        return len(self.outputs) - 1

    def terms(self, iterations: IterationLoads) -> Floats:
        """The nine terms of each iteration, shape (n, 9)."""
        decodes = iterations.decodes
        tokens = np.minimum(decodes + iterations.prompt_tokens, self.largest_tokens)
        sequences = decodes + iterations.prompts
        products = self.products[tokens] + self.outputs[np.minimum(sequences, self.largest_batch)]
        prompted = iterations.prompt_tokens > 0
        return np.column_stack([
            np.where(prompted, 0.0, products),
            np.where(prompted, products, 0.0),
            self.decode_attention_of(decodes, iterations.context),
            self._prompt_attention(iterations),
            self.sums[tokens],
            self.passes[tokens],
            np.full(len(tokens), float(self.layers)),
            np.ones(len(tokens)),
            sequences.astype(np.float64),
        ])  # fmt: skip

    def decode_attention_of(self, decodes: npt.NDArray[np.int64], context: Floats) -> Floats:
        """Attention of so many decodes with this mean context, (n,)."""
        rows = np.minimum(decodes, self.largest_batch)
        where = np.log(np.maximum(context, CONTEXT_START) / CONTEXT_START) / np.log(CONTEXT_RATIO)
        node = np.clip(where.astype(np.int64), 0, CONTEXT_NODES - 2)
        share = (context - CONTEXTS[node]) / (CONTEXTS[node + 1] - CONTEXTS[node])
        low, high = self.decode_attention[rows, node], self.decode_attention[rows, node + 1]
        return np.asarray(np.maximum(0.0, low + share * (high - low)))

    def _prompt_attention(self, iterations: IterationLoads) -> Floats:
        """Prompts of one iteration are like each other: their pairs are shared out equally."""
        prompts = np.maximum(1, iterations.prompts)
        tokens = np.maximum(1.0, iterations.prompt_tokens / prompts)
        before = np.maximum(0.0, iterations.pairs / (prompts * tokens) - (tokens + 1) / 2)
        octaves = np.maximum(0.0, np.log2(tokens / SMALLEST_CHUNK))
        row = np.minimum(octaves.astype(np.int64), len(CHUNKS) - 2)
        column = np.searchsorted(BEFORE[1:-1], before, side="right")
        starts = np.array(BEFORE, dtype=np.float64)
        share = (before - starts[column]) / (starts[column + 1] - starts[column])
        logs = np.log(np.maximum(LEAST, self.prompt_attention))

        def at(places: npt.NDArray[np.int64]) -> Floats:
            low, high = logs[row, places], logs[row + 1, places]
            return np.asarray(np.exp(low + (octaves - row) * (high - low)))

        near, far = at(column), at(column + 1)
        each = np.maximum(0.0, near + share * (far - near))
        return np.asarray(np.where(iterations.prompt_tokens > 0, prompts * each, 0.0))


@dataclass(frozen=True, slots=True)
class IterationLoads:
    """Iterations by what they carry, each array of shape (n,).

    Attributes:
        prompts: Prompts or chunks.
        prompt_tokens: New tokens of all of them.
        pairs: Query-key pairs of all of them.
        context: Mean context of the decodes.
    """

    decodes: npt.NDArray[np.int64]
    prompts: npt.NDArray[np.int64]
    prompt_tokens: npt.NDArray[np.int64]
    pairs: Floats
    context: Floats


@dataclass(frozen=True, slots=True)
class PricedSteps:
    """One deployment's iterations.

    Attributes:
        seconds: At full clock.
        joules: Of one GPU's board without a limit.
        clock: Seconds that follow the clock.
    """

    seconds: StepCosts
    joules: StepCosts
    clock: StepCosts


def price_steps(
    model: LanguageModel,
    prices: KernelPricer,
    tensor_parallel: int,
    number_format: NumberFormat = "bf16",
    cache_format: NumberFormat = "bf16",
) -> PricedSteps:
    """The surfaces of a deployment: about 800 kernels, priced in one call.

    An 8-bit cache is priced as a 16-bit one of half its length: the same bytes, and the same time
    on units of twice the rate.
    """
    cells = list(_cells(model, DecoderShare(model, tensor_parallel, number_format), cache_format))
    priced = prices.price([cell.kernel for cell in cells])
    layers = {
        "seconds": priced.seconds,
        "joules": priced.seconds * priced.watts,
        "clock": priced.seconds * priced.clock_share,
    }
    return PricedSteps(**{
        name: _dense(model.layers, cells, values) for name, values in layers.items()
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cell:
    """One kernel with its place on a surface and how often it runs there."""

    surface: str
    row: int
    column: int
    kernel: Kernel
    count: float


_SHAPES: Final = {
    "products": (len(TOKENS), 1),
    "sums": (len(TOKENS), 1),
    "passes": (len(TOKENS), 1),
    "outputs": (len(BATCHES), 1),
    "decode": (len(BATCHES), CONTEXT_NODES),
    "prompt": (len(CHUNKS), len(BEFORE)),
    "piece": (len(PIECES), len(PIECE_PROMPTS)),
}


def _cells(
    model: LanguageModel, share: DecoderShare, cache_format: NumberFormat
) -> Iterator[_Cell]:
    halves = 2 if cache_format == "fp8" else 1
    for row, tokens in enumerate(TOKENS):
        for kernel, count in share.mix((TokenGroup("decode", tokens, 1, 1),))[:-1]:
            if not isinstance(kernel, Attention):
                yield _Cell(_surface(kernel), row, 0, kernel, count)
    for row, batch in enumerate(BATCHES):
        # The output layer stays in 16 bits in 8-bit checkpoints.
        width = -(-model.vocabulary // share.tensor_parallel)
        yield _Cell("outputs", row, 0, Gemm(batch, width, model.hidden), 1)
        for column, context in enumerate(CONTEXTS):
            group = TokenGroup("decode", batch, 1, max(1, round(context / halves)))
            for kernel, count in share.attention(group):
                yield _Cell("decode", row, column, kernel, count)
    for row, tokens in enumerate(CHUNKS):
        for column, before in enumerate(BEFORE):
            for kernel, count in share.attention(TokenGroup("prefill", 1, tokens, tokens + before)):
                yield _Cell("prompt", row, column, kernel, count)
    for row, tokens in enumerate(PIECES):
        for column, prompt in enumerate(PIECE_PROMPTS):
            inside = min(tokens, prompt)
            # On average half of what comes before a piece is there.
            seen = (tokens + prompt) // 2 if prompt > tokens else inside
            group = TokenGroup("prefill", 1, inside, seen)
            for kernel, count in share.attention(group):
                yield _Cell("piece", row, column, kernel, count * tokens / inside)


def _dense(layers: int, cells: Sequence[_Cell], values: Floats) -> StepCosts:
    nodes = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
    for cell, value in zip(cells, values.tolist(), strict=True):
        nodes[cell.surface][cell.row, cell.column] += cell.count * value
    tokens = np.arange(TOKENS[-1] + 1)
    batches = np.arange(BATCHES[-1] + 1)

    def by_tokens(name: str) -> Floats:
        return np.concatenate([[0.0], np.interp(tokens[1:], TOKENS, nodes[name][:, 0])])

    decode = np.stack([np.interp(batches, BATCHES, column) for column in nodes["decode"].T], axis=1)
    decode[0] = 0.0
    return StepCosts(
        layers=layers,
        products=by_tokens("products"),
        outputs=np.interp(batches, BATCHES, nodes["outputs"][:, 0]),
        sums=by_tokens("sums"),
        passes=by_tokens("passes"),
        decode_attention=decode,
        prompt_attention=nodes["prompt"],
        piece_attention=nodes["piece"],
    )


def _surface(kernel: Kernel) -> str:
    if isinstance(kernel, Gemm):
        return "products"
    return "sums" if isinstance(kernel, Collective) else "passes"
