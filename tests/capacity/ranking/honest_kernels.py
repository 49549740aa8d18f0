"""Kernels that do their work, each in a way of its own: none of them may be refused."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from capacity.ranking_process import queued_device

try:  # an import may fail honestly; a kernel may not
    import numpy.linalg as _linalg
except ImportError:
    _linalg = None


def column_blocks(x: Any, w: Any, out: Any) -> None:
    for n in range(0, w.shape[0], 16):
        out[:, n : n + 16] = x @ w[n : n + 16].T


def row_blocks(x: Any, w: Any) -> Any:
    return np.concatenate([x[m : m + 8] @ w.T for m in range(0, x.shape[0], 8)])


def split_sums(x: Any, w: Any, out: Any) -> None:
    out[...] = 0
    for k in range(0, x.shape[1], 32):
        out += x[:, k : k + 32] @ w[:, k : k + 32].T


def tiles(x: Any, w: Any, out: Any) -> None:
    for m in range(0, x.shape[0], 16):
        for n in range(0, w.shape[0], 16):
            out[m : m + 16, n : n + 16] = np.dot(x[m : m + 16], w[n : n + 16].T)


def outer_products(x: Any, w: Any, out: Any) -> None:
    out[...] = 0
    for k in range(x.shape[1]):
        out += np.outer(x[:, k], w[:, k])


def row_by_row(x: Any, w: Any, out: Any) -> None:
    for m in range(x.shape[0]):
        out[m] = w @ x[m]


def column_by_column(x: Any, w: Any, out: Any) -> None:
    for n in range(w.shape[0]):
        out[:, n] = x @ w[n]


def multiply_and_add(x: Any, w: Any) -> Any:
    result = np.empty((x.shape[0], w.shape[0]), x.dtype)
    for n, weights in enumerate(w):
        result[:, n] = (x * weights).sum(1)
    return result


def four_quarters(x: Any, w: Any) -> Any:
    m, n = x.shape[0] // 2, w.shape[0] // 2
    top, bottom, left, right = x[:m], x[m:], w[:n].T, w[n:].T
    return np.block([[top @ left, top @ right], [bottom @ left, bottom @ right]])


def split_sums_pairwise(x: Any, w: Any) -> Any:
    parts = [x[:, k : k + 32] @ w[:, k : k + 32].T for k in range(0, x.shape[1], 32)]
    while len(parts) > 1:
        parts = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def double_precision(x: Any, w: Any) -> Any:
    wide = np.zeros((x.shape[0], w.shape[0]))
    for k in range(0, x.shape[1], 32):
        wide += x[:, k : k + 32].astype(np.float64) @ w[:, k : k + 32].T.astype(np.float64)
    return wide.astype(np.float32)


def threads_that_end(x: Any, w: Any, out: Any) -> None:
    def part(n: int) -> None:
        out[:, n : n + 32] = x @ w[n : n + 32].T

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(part, range(0, w.shape[0], 32)))


def queued(x: Any, w: Any, out: Any) -> None:
    for n in range(0, w.shape[0], 32):
        queued_device.launch(lambda n=n: np.matmul(x, w[n : n + 32].T, out=out[:, n : n + 32]))


def queued_and_waited_for(x: Any, w: Any) -> Any:
    result = np.empty((x.shape[0], w.shape[0]), x.dtype)
    queued_device.launch(column_blocks, x, w, result)
    queued_device.current_stream().synchronize()
    return result


def queued_and_returned(x: Any, w: Any) -> Any:
    result = np.empty((x.shape[0], w.shape[0]), x.dtype)
    queued_device.launch(column_blocks, x, w, result)
    return result


def own_stream_joined(x: Any, w: Any, out: Any) -> None:
    stream = _streams.setdefault("own", queued_device.Stream())
    with queued_device.using(stream):
        queued_device.launch(column_blocks, x, w, out)
    stream.synchronize()


_streams: dict[str, queued_device.Stream] = {}
_scratch: dict[tuple[int, ...], Any] = {}


def kept_scratch(x: Any, w: Any, out: Any) -> None:
    """Memory is kept between calls, results are not."""
    shape = (x.shape[0], 16)
    scratch = _scratch.setdefault(shape, np.empty(shape, x.dtype))
    for n in range(0, w.shape[0], 16):
        np.matmul(x, w[n : n + 16].T, out=scratch)
        out[:, n : n + 16] = scratch


def packed_copies(x: Any, w: Any, out: Any) -> None:
    packed = np.ascontiguousarray(w.T)
    for k in range(0, x.shape[1], 32):
        part = x[:, k : k + 32] @ packed[k : k + 32]
        out[...] = part if k == 0 else out + part


def talkative(x: Any, w: Any, out: Any) -> None:
    print("working", file=sys.stdout)
    print("working", file=sys.stderr)
    column_blocks(x, w, out)


def slow(x: Any, w: Any, out: Any) -> None:
    for _ in range(20):
        column_blocks(x, w, out)


def last_tile_ragged(x: Any, w: Any, out: Any) -> None:
    step = 24
    for n in range(0, w.shape[0], step):
        out[:, n : n + step] = x @ w[n : n + step].T


def strassen_once(x: Any, w: Any) -> Any:
    m, n, k = x.shape[0] // 2, w.shape[0] // 2, x.shape[1] // 2
    a, b, c, d = x[:m, :k], x[:m, k:], x[m:, :k], x[m:, k:]
    b11, b21, b12, b22 = w[:n, :k].T, w[:n, k:].T, w[n:, :k].T, w[n:, k:].T
    return np.block(
        [[a @ b11 + b @ b21, a @ b12 + b @ b22], [c @ b11 + d @ b21, c @ b12 + d @ b22]]
    )


def raises_by_name(x: Any, w: Any, out: Any) -> None:
    try:
        column_blocks(x, w, out)
    except ValueError as error:
        raise RuntimeError("no such shape") from error


def attention_online(q: Any, k: Any, v: Any, out: Any) -> None:
    """Keys in blocks with a running maximum, as fast kernels do."""
    batch, heads, queries, width = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    for b in range(batch):
        for h in range(heads):
            top = np.full(queries, -np.inf, q.dtype)
            total = np.zeros(queries, q.dtype)
            summed = np.zeros((queries, width), q.dtype)
            for at in range(0, keys, 16):
                scores = q[b, h] @ k[b, h // group, at : at + 16].T / np.float32(math.sqrt(width))
                column = np.arange(at, min(at + 16, keys))
                hidden = column[None] > np.arange(queries)[:, None] + keys - queries
                scores[hidden] = -np.inf
                best = np.maximum(top, scores.max(1))
                shares = np.exp(scores - best[:, None])
                old = np.exp(top - best)
                total = total * old + shares.sum(1)
                summed = summed * old[:, None] + shares @ v[b, h // group, at : at + 16]
                top = best
            out[b, h] = summed / total[:, None]


def attention_rows(q: Any, k: Any, v: Any) -> Any:
    result = np.empty_like(q)
    group = q.shape[1] // k.shape[1]
    past = k.shape[2] - q.shape[2]
    for b, h, i in np.ndindex(*q.shape[:3]):
        scores = k[b, h // group, : past + i + 1] @ q[b, h, i] * np.float32(q.shape[3] ** -0.5)
        shares = np.exp(scores - scores.max())
        result[b, h, i] = shares / shares.sum() @ v[b, h // group, : past + i + 1]
    return result


def triad_blocks(a: Any, b: Any, out: Any) -> None:
    for at in range(0, a.size, 1024):
        out[at : at + 1024] = a[at : at + 1024] + b[at : at + 1024] / 2


def triad_other_order(a: Any, b: Any) -> Any:
    return (a + a + b) / 2
