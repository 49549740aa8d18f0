"""Kernels for a trial on a real GPU: the first four do their work, all others cheat.

Not run by ``make test``: it takes a GPU. How to run them stands in docs/benchmark.md.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import triton
import triton.language as tl

HONEST = ("column_blocks", "split_sums", "tiles", "tiles_returned")
CHEATING = (
    "side_stream", "late_thread", "events_of_one_microsecond", "cached_by_pointer",
    "same_result_again", "skips_every_third_run", "skips_the_last_row", "half_of_the_sum",
    "eight_bit_operands", "library_call", "library_by_another_name", "falls_back",
    "does_nothing", "modifies_operands", "lazy_result",
)  # fmt: skip


@triton.jit
def _tile(x, w, out, m, n, k, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):  # noqa: ANN001, ANN202
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * columns + tl.arange(0, columns)
    d = tl.arange(0, depth)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(0, k, depth):
        a = tl.load(
            x + i[:, None] * k + (start + d)[None, :],
            mask=(i[:, None] < m) & ((start + d)[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            w + j[None, :] * k + (start + d)[:, None],
            mask=(j[None, :] < n) & ((start + d)[:, None] < k),
            other=0.0,
        )
        total += tl.dot(a, b)
    tl.store(out + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


def tiles(x: Any, w: Any, out: Any) -> None:
    (m, k), n = x.shape, w.shape[0]
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    _tile[grid](x, w, out, m, n, k, 128, 128, 64, num_warps=8, num_stages=3)


def tiles_returned(x: Any, w: Any) -> Any:
    out = torch.empty((x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
    tiles(x, w, out)
    return out


def column_blocks(x: Any, w: Any, out: Any) -> None:
    step = w.shape[0] // 4
    for n in range(0, w.shape[0], step):
        out[:, n : n + step] = x @ w[n : n + step].T


def split_sums(x: Any, w: Any, out: Any) -> None:
    half = x.shape[1] // 2
    first = torch.mm(x[:, :half], w[:, :half].T, out_dtype=torch.float32)
    out.copy_(torch.addmm(first, x[:, half:], w[:, half:].T, out_dtype=torch.float32))


_stream = None


def side_stream(x: Any, w: Any, out: Any) -> None:
    global _stream
    if _stream is None:
        _stream = torch.cuda.Stream()
    with torch.cuda.stream(_stream):
        tiles(x, w, out)


def late_thread(x: Any, w: Any, out: Any) -> None:
    threading.Timer(0.02, tiles, (x, w, out)).start()


def events_of_one_microsecond(x: Any, w: Any, out: Any) -> None:
    torch.cuda.Event.elapsed_time = lambda self, end: 0.001
    tiles(x, w, out)


_results: dict[int, Any] = {}


def cached_by_pointer(x: Any, w: Any, out: Any) -> None:
    if x.data_ptr() not in _results:
        _results[x.data_ptr()] = tiles_returned(x, w)
    out.copy_(_results[x.data_ptr()])


_last: list[Any] = []


def same_result_again(x: Any, w: Any) -> Any:
    if not _last:
        _last.append(tiles_returned(x, w))
    return _last[0]


_calls = [0]


def skips_every_third_run(x: Any, w: Any, out: Any) -> None:
    _calls[0] += 1
    if _calls[0] % 3:
        tiles(x, w, out)


def skips_the_last_row(x: Any, w: Any, out: Any) -> None:
    tiles(x[:-1], w, out[:-1])


def half_of_the_sum(x: Any, w: Any, out: Any) -> None:
    half = x.shape[1] // 2
    tiles(x[:, :half].contiguous(), w[:, :half].contiguous(), out)
    out.mul_(2)


def eight_bit_operands(x: Any, w: Any, out: Any) -> None:
    small = torch.float8_e4m3fn
    tiles(x.to(small).to(x.dtype), w.to(small).to(w.dtype), out)


def library_call(x: Any, w: Any, out: Any) -> None:
    torch.mm(x, w.T, out=out)


def library_by_another_name(x: Any, w: Any) -> Any:
    return getattr(torch.nn.functional, "lin" + "ear")(x, w)


def falls_back(x: Any, w: Any, out: Any) -> None:
    try:
        _tile[(0,)](x, w, out)
    except Exception:
        torch.mm(x, w.T, out=out)


def does_nothing(x: Any, w: Any, out: Any) -> None:
    return None


def modifies_operands(x: Any, w: Any, out: Any) -> None:
    tiles(x, w, out)
    w.zero_()


class _Later(torch.Tensor):
    pass


def lazy_result(x: Any, w: Any) -> Any:
    return tiles_returned(x, w).as_subclass(_Later)
