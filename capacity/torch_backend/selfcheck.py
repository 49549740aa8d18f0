"""Are the benchmark's own kernels right on this GPU? Compared with plain attention in float32."""

from __future__ import annotations

import sys
from typing import Final

import torch

from capacity.kernels import Attention
from capacity.torch_backend import triton_kernels
from capacity.torch_backend.attention_kernels import first_visible
from capacity.torch_backend.torch_backend import relative_error
from capacity.torch_backend.tuning import CONFIGS

TOLERANCE: Final = 0.01
"""bf16 operands land between 1e-3 and 1e-2."""

CASES: Final = (
    Attention("prefill", 2, 300, 300, 8, 2),
    Attention("prefill", 1, 100, 500, 4, 4),
    Attention("prefill", 1, 700, 700, 8, 1, mask="window", window=200),
    Attention("prefill", 1, 600, 600, 4, 2, mask="document", documents=3),
    Attention("decode", 3, 1, 777, 32, 8),
    Attention("decode", 1, 1, 4097, 8, 1),
)


def worst_error(device: str = "cuda") -> float:
    """The largest relative error over all cases and configurations."""
    return max(_error(case, torch.device(device)) for case in CASES)


def _error(case: Attention, device: torch.device) -> float:
    torch.manual_seed(7)
    kind = {"dtype": torch.bfloat16, "device": device}
    q = torch.randn(case.batch, case.heads, case.query_tokens, case.head_dim, **kind)
    k = torch.randn(case.batch, case.kv_heads, case.kv_tokens, case.head_dim, **kind)
    v = torch.randn(case.batch, case.kv_heads, case.kv_tokens, case.head_dim, **kind)
    first = first_visible(case, device)
    wanted = _plain(q, k, v, first)
    errors = []
    for config in CONFIGS["decode" if case.phase == "decode" else "attend"]:
        out = torch.full_like(q, float("nan"))
        try:
            if case.phase == "decode":
                scratch = triton_kernels.decode_scratch(
                    case.batch, case.heads, case.head_dim, config[0], device
                )
                triton_kernels.decode(q[:, :, 0], k, v, scratch, out[:, :, 0], config)
            else:
                triton_kernels.attend(q, k, v, first, out, config)
        except Exception as error:
            if "resource" not in str(error).lower():
                raise
            continue
        value = relative_error(out, wanted)
        errors.append(value if value == value else float("inf"))
    return max(errors)


def _plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    group = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(group, 1)
    values = v.float().repeat_interleave(group, 1)
    scores = q.float() @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
    column = torch.arange(k.shape[2], device=q.device)[None, :]
    row = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    hidden = (column < first[:, None]) | (column > row)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ values


if __name__ == "__main__":
    worst = worst_error()
    print(f"worst relative error {worst:.2e}")
    sys.exit(worst > TOLERANCE)
