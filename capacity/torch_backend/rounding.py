"""The bits of fixed products: how a GPU and its libraries round, as a short hash.

Inputs come from a counter and not from a random generator, whose numbers may change between
versions. Products tell the order in which a library adds, sums the order of a reduction, tf32 and
8-bit products how narrow operands are rounded. Two boards of one type under the same software
agree in every bit. A part that changes from one computation to the next says nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from capacity.bench.bench_identity import FINGERPRINT_PART_DIGITS, SILENT_PART

SHAPES: Final = ((64, 96, 4096), (512, 512, 512), (1, 2048, 8192))
GOLDEN: Final = 0.6180339887498949
REPEATS: Final = 2


def numeric_fingerprint(device: torch.device) -> str:
    """Four digits each: 16-bit products, sums, tf32 products, 8-bit products."""
    parts = (_products, _sums, _tf32_products, _narrow_products)
    return "".join(_digits(part, device) for part in parts)


def _digits(part: Callable[[torch.device], Iterator[Any]], device: torch.device) -> str:
    seen = {_digest(part(device)) for _ in range(REPEATS)}
    return seen.pop() if len(seen) == 1 else SILENT_PART


def _digest(values: Iterator[Any]) -> str:
    digest = hashlib.sha256()
    count = 0
    for value in values:
        digest.update(value.float().cpu().numpy().tobytes())
        count += 1
    return digest.hexdigest()[:FINGERPRINT_PART_DIGITS] if count else SILENT_PART


def _spread(rows: int, columns: int, device: torch.device) -> Any:
    """Numbers from -2 to 2 that no generator makes: fractions of multiples of the golden ratio."""
    counter = torch.arange(1, rows * columns + 1, dtype=torch.float64)
    fraction = torch.remainder(counter * GOLDEN, 1.0)
    return ((fraction - 0.5) * 4).float().view(rows, columns).to(device)


def _operands(device: torch.device) -> Iterator[tuple[Any, Any]]:
    for m, n, k in SHAPES:
        yield _spread(m, k, device), _spread(k, n, device)


def _products(device: torch.device) -> Iterator[Any]:
    for a, b in _operands(device):
        yield a.bfloat16() @ b.bfloat16()


def _sums(device: torch.device) -> Iterator[Any]:
    for a, _ in _operands(device):
        yield a.sum()
        yield a.sum(0)
        yield torch.exp(a).sum(1)
        yield torch.softmax(a, -1)


def _tf32_products(device: torch.device) -> Iterator[Any]:
    if device.type != "cuda":
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for a, b in _operands(device):
            yield a @ b
    finally:
        torch.set_float32_matmul_precision(before)


def _narrow_products(device: torch.device) -> Iterator[Any]:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
        return
    one = torch.ones((), dtype=torch.float32, device=device)
    for a, b in _operands(device):
        left, right = a.to(torch.float8_e4m3fn), b.T.contiguous().to(torch.float8_e4m3fn)
        rows = left.expand(16, -1).contiguous() if len(left) < 16 else left
        yield torch._scaled_mm(rows, right.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
