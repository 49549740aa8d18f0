"""Seconds of any iteration of one deployment, from kernels priced once on a grid.

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

Floats = npt.NDArray[np.float64]

CONTEXT_START: Final = 64
CONTEXT_RATIO: Final = 1.35
CONTEXT_NODES: Final = 26
"""Contexts of the grid in geometric steps: 64 to 116,000 tokens."""

CONTEXTS: Final[Floats] = np.asarray(
    CONTEXT_START * CONTEXT_RATIO ** np.arange(CONTEXT_NODES), dtype=np.float64
)

BATCHES: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
PROMPTS: Final = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
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
        pairs, prompt_attention: Query-key pairs of a causal prompt, rising, and its seconds.

    The surfaces hold seconds, joules or seconds that follow the clock, as ``PricedSteps`` says.
    """

    layers: int
    products: Floats
    outputs: Floats
    sums: Floats
    passes: Floats
    decode_attention: Floats
    pairs: Floats
    prompt_attention: Floats

    @property
    def largest_tokens(self) -> int:
        """New tokens of the largest iteration on the grid."""
        return len(self.products) - 1

    @property
    def largest_batch(self) -> int:
        """Decodes of the largest iteration on the grid."""
        return len(self.outputs) - 1

    def terms(self, iterations: Iterations) -> Floats:
        """The nine terms of each iteration, shape (n, 9)."""
        decodes = iterations.decodes
        tokens = np.minimum(decodes + iterations.prompt_tokens, self.largest_tokens)
        sequences = decodes + iterations.prompts
        products = self.products[tokens] + self.outputs[np.minimum(sequences, self.largest_batch)]
        prompted = iterations.prompt_tokens > 0
        return np.column_stack([
            np.where(prompted, 0.0, products),
            np.where(prompted, products, 0.0),
            self._decode_attention(decodes, iterations.context),
            self._prompt_attention(iterations.pairs, iterations.prompts),
            self.sums[tokens],
            self.passes[tokens],
            np.full(len(tokens), float(self.layers)),
            np.ones(len(tokens)),
            sequences.astype(np.float64),
        ])  # fmt: skip

    def _decode_attention(self, decodes: npt.NDArray[np.int64], context: Floats) -> Floats:
        rows = np.minimum(decodes, self.largest_batch)
        where = np.log(np.maximum(context, CONTEXT_START) / CONTEXT_START) / np.log(CONTEXT_RATIO)
        node = np.clip(where.astype(np.int64), 0, CONTEXT_NODES - 2)
        share = (context - CONTEXTS[node]) / (CONTEXTS[node + 1] - CONTEXTS[node])
        low, high = self.decode_attention[rows, node], self.decode_attention[rows, node + 1]
        return np.asarray(np.maximum(0.0, low + share * (high - low)))

    def _prompt_attention(self, pairs: Floats, prompts: npt.NDArray[np.int64]) -> Floats:
        """Prompts of one iteration are like each other: their pairs are shared out equally."""
        each = pairs / np.maximum(1, prompts)
        inside = np.interp(each, self.pairs, self.prompt_attention)
        beyond = np.maximum(1.0, each / self.pairs[-1])
        return np.asarray(np.where(pairs > 0, inside * beyond * np.maximum(1, prompts), 0.0))


@dataclass(frozen=True, slots=True)
class Iterations:
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
        joules: Of one GPU's board without a limit, beyond what idles.
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
    """The surfaces of a deployment: about 700 kernels, priced in one call.

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
    count: int


_SHAPES: Final = {
    "products": (len(TOKENS), 1),
    "sums": (len(TOKENS), 1),
    "passes": (len(TOKENS), 1),
    "outputs": (len(BATCHES), 1),
    "decode": (len(BATCHES), CONTEXT_NODES),
    "prompt": (len(PROMPTS), 1),
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
    for row, prompt in enumerate(PROMPTS):
        for kernel, count in share.attention(TokenGroup("prefill", 1, prompt, prompt)):
            yield _Cell("prompt", row, 0, kernel, count)


def _dense(layers: int, cells: Sequence[_Cell], values: Floats) -> StepCosts:
    nodes = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
    for cell, value in zip(cells, values.tolist(), strict=True):
        nodes[cell.surface][cell.row, cell.column] += cell.count * value
    tokens = np.arange(TOKENS[-1] + 1)
    batches = np.arange(BATCHES[-1] + 1)
    prompts = np.array(PROMPTS, dtype=np.float64)

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
        pairs=prompts * (prompts + 1) / 2,
        prompt_attention=nodes["prompt"][:, 0],
    )


def _surface(kernel: Kernel) -> str:
    if isinstance(kernel, Gemm):
        return "products"
    return "sums" if isinstance(kernel, Collective) else "passes"
