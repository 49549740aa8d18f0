"""Times that do not fall as the work grows.

A library can run fewer tokens as more by padding them, so what it takes for more is never less. A
smooth correction learned from some sixty kernels knows nothing of that: between two measured sizes
it falls back to the roofline and makes a product of 16 tokens 7 % faster than one of 4. Families of
kernels that differ in their size alone (tokens of a product, keys of attention) are therefore asked
on one ladder of sizes, and the nearest rising curve to the answers counts.

Source: isotonic regression by pooling adjacent violators (Barlow, Bartholomew, Bremner, Brunk,
"Statistical Inference under Order Restrictions", 1972). It keeps the order of two curves, so times
that rise with the batch still do once each batch's times rise with the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import Attention, Gemm, Kernel

Floats = npt.NDArray[np.float64]

AskLogSeconds = Callable[[Sequence[Kernel]], Floats]
"""Natural logarithms of the times of kernels, shape (n_kernels,)."""

TILE_ENDS: Final = tuple(64 * i for i in range(1, 9))
"""Tokens at which a row of tiles is full; one more starts another."""

SIZES: Final = tuple(
    sorted({
        *range(1, 17),
        *(round(2 ** (i / 8)) for i in range(33, 81)),
        *(round(2 ** (i / 4)) for i in range(41, 69)),
        *TILE_ENDS,
        *(size + 1 for size in TILE_ENDS),
    })
)  # fmt: skip
"""The ladder: every size to 16, eighths of octaves to 1024, quarters to 131,072, and both sides of
a full row of tiles."""

_LOG_SIZES: Final[Floats] = np.log(np.array(SIZES, dtype=np.float64))


def rising_log_seconds(kernels: Sequence[Kernel], ask: AskLogSeconds) -> Floats:
    """Logarithms of times that rise with the size of each family, shape (n_kernels,).

    Between two rungs of the ladder time is a power of the size; beyond the last it grows as asked.

    Args:
        kernels: Products or attention.
        ask: The model that may fall.
    """
    from scipy.optimize import isotonic_regression

    families: dict[Kernel, list[int]] = {}
    for row, kernel in enumerate(kernels):
        families.setdefault(_resized(kernel, 1), []).append(row)
    sizes = np.log([float(_size(kernel)) for kernel in kernels])
    beyond = np.flatnonzero(sizes > _LOG_SIZES[-1])
    ladders = [rung for family in families for rung in _ladder(family)]
    told = ask([*ladders, *(kernels[row] for row in beyond.tolist())])
    made = np.zeros(len(kernels))
    made[beyond] = told[len(ladders) :]
    curves = told[: len(ladders)].reshape(len(families), len(SIZES))
    for curve, rows in zip(curves, families.values(), strict=True):
        rising = np.asarray(isotonic_regression(curve).x)
        inside = np.interp(sizes[rows], _LOG_SIZES, rising)
        grown = made[rows] - curve[-1] + rising[-1]
        made[rows] = np.where(sizes[rows] > _LOG_SIZES[-1], np.maximum(grown, inside), inside)
    return made


def _size(kernel: Kernel) -> int:
    """What grows within a family: tokens; in decode the keys that the first new token sees."""
    if isinstance(kernel, Gemm):
        return kernel.m
    assert isinstance(kernel, Attention)
    if kernel.phase == "decode":
        return kernel.kv_tokens - kernel.query_tokens + 1
    return kernel.query_tokens


def _resized(kernel: Kernel, size: int) -> Kernel:
    if isinstance(kernel, Gemm):
        return replace(kernel, m=size)
    assert isinstance(kernel, Attention)
    if kernel.phase == "decode":
        return replace(kernel, kv_tokens=kernel.query_tokens - 1 + size)
    before = kernel.kv_tokens - kernel.query_tokens
    return replace(kernel, query_tokens=size, kv_tokens=before + size)


@lru_cache(maxsize=4096)
def _ladder(family: Kernel) -> tuple[Kernel, ...]:
    return tuple(_resized(family, size) for size in SIZES)
