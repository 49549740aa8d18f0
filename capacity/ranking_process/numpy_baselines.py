"""The tuned library's own ways: what other people's kernels are ranked against on a processor."""

from __future__ import annotations

from typing import Any

import numpy as np


def gemm_out(x: Any, w: Any, out: Any) -> None:
    """BLAS into the result."""
    np.matmul(x, w.T, out=out)


def gemm_returned(x: Any, w: Any) -> Any:
    """BLAS into new memory."""
    return x @ w.T


def gemm_transposed(x: Any, w: Any, out: Any) -> None:
    """The other layout: the transposed product into the transposed result."""
    np.matmul(w, x.T, out=out.T)


def attention_batched(q: Any, k: Any, v: Any) -> Any:
    """One product over all heads."""
    batch, heads, queries, width = q.shape
    groups = k.shape[1]
    rows = q.reshape(batch, groups, heads // groups * queries, width)
    shares = _shares(rows @ k.swapaxes(-1, -2), width, queries)
    return (shares @ v).reshape(q.shape)


def attention_by_head(q: Any, k: Any, v: Any, out: Any) -> None:
    """Head by head, so that scores stay in the cache."""
    batch, heads, queries, width = q.shape
    group = heads // k.shape[1]
    for sequence in range(batch):
        for head in range(heads):
            scores = q[sequence, head] @ k[sequence, head // group].T
            np.matmul(_shares(scores, width, queries), v[sequence, head // group],
                      out=out[sequence, head])  # fmt: skip


def _shares(scores: Any, width: int, queries: int) -> Any:
    """Softmax over the keys that a query sees (causal), scaled."""
    keys = scores.shape[-1]
    scores *= np.float32(width**-0.5)
    if queries > 1:
        hidden = np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries
        scores[..., np.tile(hidden, (scores.shape[-2] // queries, 1))] = -np.inf
    np.exp(scores - scores.max(-1, keepdims=True), out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def triad_in_place(a: Any, b: Any, out: Any) -> None:
    """Two passes over the result."""
    np.multiply(b, np.float32(0.5), out=out)
    np.add(a, out, out=out)


def triad_returned(a: Any, b: Any) -> Any:
    """New memory."""
    return a + b * np.float32(0.5)
