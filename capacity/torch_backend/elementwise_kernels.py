"""The element-wise kernels of a decoder layer, alone: the very ones that the stacks run."""

from __future__ import annotations

from typing import Any, Final

import torch

from capacity.bench.ports import KernelUnavailable
from capacity.kernels import Elementwise
from capacity.torch_backend import triton_kernels
from capacity.torch_backend.recorded_launch import Work

HEAD_DIM: Final = 128

KEY_SHARE: Final = 6
"""One of so many heads holds keys, and as many values: 32 query heads, 8 and 8 give 6."""


def work(kernel: Elementwise, copies: int, device: torch.device) -> Work:
    """One pass over one copy of random operands.

    Raises:
        KernelUnavailable: a rotation whose width is no whole number of heads, at least three.
    """
    makers = {"norm": _norm, "rotate": _rotation, "gate": _gate}
    return makers[kernel.op](kernel, copies, device)


def _norm(kernel: Elementwise, copies: int, device: torch.device) -> Work:
    shape = (kernel.tokens, kernel.width)
    x = [_normal(shape, device) for _ in range(copies)]
    residual = [_normal(shape, device) for _ in range(copies)]
    out = [torch.empty_like(part) for part in x]
    weight = torch.ones(kernel.width, dtype=torch.bfloat16, device=device)
    return lambda copy: triton_kernels.add_norm(x[copy], residual[copy], weight, out[copy])


def _gate(kernel: Elementwise, copies: int, device: torch.device) -> Work:
    both = [_normal((kernel.tokens, 2 * kernel.width), device) for _ in range(copies)]
    out = [_normal((kernel.tokens, kernel.width), device) for _ in range(copies)]
    return lambda copy: triton_kernels.gate(both[copy], out[copy])


def _rotation(kernel: Elementwise, copies: int, device: torch.device) -> Work:
    slots, rest = divmod(kernel.width, HEAD_DIM)
    if rest or slots < 3:
        raise KernelUnavailable(f"{kernel}: width is no multiple of {HEAD_DIM} from {3 * HEAD_DIM}")
    kv_heads = max(1, slots // KEY_SHARE)
    heads = slots - 2 * kv_heads
    qkv = [_normal((kernel.tokens, kernel.width), device) for _ in range(copies)]
    q = [_normal((kernel.tokens, heads, 1, HEAD_DIM), device) for _ in range(copies)]
    k = [_normal((kernel.tokens, kv_heads, 1, HEAD_DIM), device) for _ in range(copies)]
    v = [torch.empty_like(part) for part in k]
    exponent = torch.arange(0, HEAD_DIM, 2, device=device) / HEAD_DIM
    angles = 500000.0 ** (-exponent.float())

    def run(copy: int) -> None:
        triton_kernels.rotate_and_cache(qkv[copy], angles, q[copy], k[copy], v[copy])

    return run


def _normal(shape: tuple[int, ...], device: torch.device) -> Any:
    return torch.randn(shape, dtype=torch.bfloat16, device=device)
