"""The tuned libraries' own ways, each in the layouts it has: what kernels are ranked against."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear as _linear
from torch.nn.functional import scaled_dot_product_attention


def mm_cublas(x: Any, w: Any, out: Any) -> None:
    """CuBLAS, row-major result."""
    _prefer("cublas")
    torch.mm(x, w.T, out=out)


def mm_cublaslt(x: Any, w: Any, out: Any) -> None:
    """CuBLASLt with its heuristic."""
    _prefer("cublaslt")
    torch.mm(x, w.T, out=out)


def mm_transposed(x: Any, w: Any, out: Any) -> None:
    """The transposed product into the transposed result."""
    torch.mm(w, x.T, out=out.T)


def linear(x: Any, w: Any) -> Any:
    """As frameworks call it."""
    return _linear(x, w)


def flash(q: Any, k: Any, v: Any) -> Any:
    """FlashAttention."""
    return _attention(q, k, v, SDPBackend.FLASH_ATTENTION)


def cudnn(q: Any, k: Any, v: Any) -> Any:
    """CuDNN."""
    return _attention(q, k, v, SDPBackend.CUDNN_ATTENTION)


def efficient(q: Any, k: Any, v: Any) -> Any:
    """Memory-efficient attention."""
    return _attention(q, k, v, SDPBackend.EFFICIENT_ATTENTION)


def triad(a: Any, b: Any, out: Any) -> None:
    """One element-wise kernel."""
    torch.add(a, b, alpha=0.5, out=out)


def _attention(q: Any, k: Any, v: Any, backend: SDPBackend) -> Any:
    causal = q.shape[2] > 1
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError("its causal mask is aligned to the first key")
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        ).contiguous()


def _prefer(library: str) -> None:
    if _preferred.get("library") != library:
        torch.backends.cuda.preferred_blas_library(library)
        _preferred["library"] = library


_preferred: dict[str, str] = {}
