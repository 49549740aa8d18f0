"""Which few shapes to measure so that a model fitted on them knows the rest.

Points are chosen by the greedy mode of a determinantal point process: each next point is the one
that adds most volume to those chosen, in the space of what the roofline model sees. Source: Chen
et al., "Fast greedy MAP inference for determinantal point process" (NeurIPS 2018), algorithm 1;
the idea for few-shot designs: Nouy and Michel, "Weighted least squares with determinantal and
volume sampling" (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import Attention, Gemm
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]

LENGTH_SCALE: Final = 1.0
"""Distance, in standard deviations of the features, over which two shapes tell the same."""


def gemm_features(shapes: Sequence[Gemm]) -> Floats:
    """What decides a product's time before anything is measured, shape (n, 6), standardised."""
    sizes = np.array([(s.m, s.n, s.k) for s in shapes], dtype=np.float64)
    work = np.array([(s.flops, s.bytes_moved) for s in shapes])
    tiles = np.ceil(sizes[:, 0] / 128) * np.ceil(sizes[:, 1] / 128)
    logs = np.log(np.column_stack([sizes, work[:, 0] / work[:, 1], work[:, 1], tiles]))
    return _standardised(logs)


def attention_features(shapes: Sequence[Attention]) -> Floats:
    """The same for attention, shape (n, 6)."""
    columns = [
        (s.batch, s.query_tokens, s.kv_tokens, s.heads, s.heads / s.kv_heads, s.visible_pairs)
        for s in shapes
    ]
    return _standardised(np.log(np.array(columns, dtype=np.float64)))


def diverse_subset(
    features: Floats,
    count: int,
    length_scale: float = LENGTH_SCALE,
    *,
    odd_turns: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """Indices of ``count`` rows that span the features best, in the order of their worth.

    Args:
        features: Standardised features, shape (n, d).
        count: How many; every prefix of the answer is itself the answer for fewer.
        odd_turns: Rows that every second choice is made of, the others being left for the rest,
            shape (n,); by default each choice is among all.

    Raises:
        InputError: if there are fewer rows than asked for.
    """
    rows = len(features)
    if not 0 < count <= rows:
        raise InputError("count", f"1 to {rows}", count)
    gains = np.ones(rows)
    projections = np.zeros((count, rows))
    chosen: list[int] = []
    for step in range(count):
        open_now = gains if odd_turns is None else np.where(odd_turns == step % 2, gains, -np.inf)
        best = int(np.argmax(open_now))
        chosen.append(best)
        gap = ((features - features[best]) ** 2).sum(axis=1)
        column = np.exp(-gap / (2 * length_scale**2 * features.shape[1]))
        known = projections[:step].T @ projections[:step, best]
        projections[step] = (column - known) / np.sqrt(max(gains[best], 1e-12))
        gains = gains - projections[step] ** 2
        gains[chosen] = -np.inf
    return np.array(chosen, dtype=np.int64)


def _standardised(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
