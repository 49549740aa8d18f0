"""The implementations that compete for one attention point; the fastest is the one reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from capacity.kernels import Attention
from capacity.torch_backend import triton_kernels
from capacity.torch_backend.recorded_launch import Work
from capacity.torch_backend.tuning import TunedConfigs

_LIBRARIES = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def implementations(
    kernel: Attention, copies: int, device: torch.device, tuned: TunedConfigs
) -> Iterator[tuple[str, Work]]:
    """Named ways to run the kernel over the same operands."""
    operands = [_operands(kernel, device) for _ in range(copies)]
    libraries = kernel.mask == "causal" or kernel.mask == "full"
    if device.type == "cuda" and libraries:
        for name, backend in _LIBRARIES.items():
            yield name, _library(kernel, backend, operands)
    if kernel.phase == "decode":
        yield from _triton_decode(kernel, operands, device, tuned)
    elif not libraries or kernel.kv_tokens <= 4096:
        yield from _triton_prefill(kernel, operands, device, tuned)


def first_visible(kernel: Attention, device: torch.device) -> Any:
    """The first key that each query may see, int32, shape (query_tokens,)."""
    rows = torch.arange(kernel.query_tokens, device=device)
    position = rows + kernel.kv_tokens - kernel.query_tokens
    if kernel.mask == "window":
        first = (position - kernel.window + 1).clamp(min=0)
    elif kernel.mask == "document":
        length = -(-kernel.query_tokens // kernel.documents)
        first = rows // length * length
    else:
        first = torch.zeros_like(rows)
    return first.to(torch.int32)


def _operands(kernel: Attention, device: torch.device) -> tuple[Any, Any, Any, Any]:
    kind = {"dtype": torch.bfloat16, "device": device}
    q = torch.randn(kernel.batch, kernel.heads, kernel.query_tokens, kernel.head_dim, **kind)
    k = torch.randn(kernel.batch, kernel.kv_heads, kernel.kv_tokens, kernel.head_dim, **kind)
    v = torch.randn(kernel.batch, kernel.kv_heads, kernel.kv_tokens, kernel.head_dim, **kind)
    return q, k, v, torch.full_like(q, float("nan"))


def _library(kernel: Attention, backend: Any, operands: list[Any]) -> Work:
    causal = kernel.mask == "causal" and kernel.query_tokens > 1
    shared = kernel.heads != kernel.kv_heads

    def run(copy: int) -> None:
        q, k, v, _ = operands[copy]
        with sdpa_kernel(backend):
            functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    return run


def _triton_prefill(
    kernel: Attention, operands: list[Any], device: torch.device, tuned: TunedConfigs
) -> Iterator[tuple[str, Work]]:
    first = first_visible(kernel, device)

    def with_config(config: tuple[int, ...]) -> Work:
        def run(copy: int) -> None:
            q, k, v, out = operands[copy]
            triton_kernels.attend(q, k, v, first, out, config)

        return run

    key = (kernel.head_dim, kernel.query_tokens > 2048)
    config = tuned.best("attend", key, with_config, copies=len(operands))
    yield f"triton:{'x'.join(map(str, config))}", with_config(config)


def _triton_decode(
    kernel: Attention, operands: list[Any], device: torch.device, tuned: TunedConfigs
) -> Iterator[tuple[str, Work]]:
    def with_config(config: tuple[int, ...]) -> Work:
        scratch = triton_kernels.decode_scratch(
            kernel.batch, kernel.heads, kernel.head_dim, config[0], device
        )

        def run(copy: int) -> None:
            q, k, v, out = operands[copy]
            triton_kernels.decode(q[:, :, 0], k, v, scratch, out[:, :, 0], config)

        return run

    pairs = kernel.batch * kernel.kv_heads
    key = (kernel.head_dim, kernel.heads // kernel.kv_heads, _level(pairs), _level(kernel.kv_tokens))
    config = tuned.best("decode", key, with_config, copies=len(operands))
    yield f"triton:{'x'.join(map(str, config))}", with_config(config)


def _level(size: int) -> int:
    """Sizes within a factor of four share a configuration."""
    return (size.bit_length() + 1) // 2
