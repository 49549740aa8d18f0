"""Whether a served decoder computes what a plain one does: chunks, decodes and neighbours included.

The plain one sees the whole sequence at once, keeps no cache and uses no kernel of this package.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import functional

from capacity.torch_backend.served_decoder import Decode, PromptPart, ServedDecoder

PROMPTS: Final = ((3, 40), (100, 97), (300, 130))
"""First place and length of each sequence."""

CUT: Final = 33
"""Tokens of each prompt's first part."""

DECODES: Final = 3


def worst_error(decoder: ServedDecoder) -> float:
    """Largest relative error of a sequence's logits after prompts in parts and some decodes."""
    answers: list[list[int]] = [[] for _ in PROMPTS]
    decoder.run([], [PromptPart(start, 0, CUT) for start, _ in PROMPTS[:2]])
    decoder.run([], [PromptPart(PROMPTS[2][0], 0, PROMPTS[2][1])])
    answers[2].append(int(decoder.next_ids[PROMPTS[2][0]]))
    # The rest of two prompts beside the third's decode.
    third = Decode(PROMPTS[2][0], PROMPTS[2][1] + 1)
    made = decoder.run(
        [third], [PromptPart(start, CUT, length - CUT) for start, length in PROMPTS[:2]]
    )
    answers[2].append(made[0])
    for answer, token in zip(answers, made[1:], strict=False):
        answer.append(token)
    for _ in range(DECODES):
        made = decoder.run(
            [
                Decode(start, length + len(answer))
                for (start, length), answer in zip(PROMPTS, answers, strict=True)
            ],
            [],
        )
        for answer, token in zip(answers, made, strict=True):
            answer.append(token)
    served = decoder.logits[: len(PROMPTS)].double()
    return max(
        _error(row, plain_logits(decoder, length, answer[:-1]).double())
        for row, (_, length), answer in zip(served, PROMPTS, answers, strict=True)
    )


def plain_logits(decoder: ServedDecoder, prompt_tokens: int, answer: list[int]) -> Any:
    """Logits after a prompt and the tokens of its answer so far, shape (vocabulary,)."""
    shape = decoder.shape
    told = torch.tensor(answer, dtype=torch.int64, device=decoder.prompt_ids.device)
    ids = torch.cat([decoder.prompt_ids[:prompt_tokens], told])
    x = decoder.embedding[ids].float()
    n, heads, kv, dim = len(ids), shape.heads, shape.kv_heads, shape.head_dim
    angles = torch.arange(n, device=x.device)[:, None, None] * decoder.angles
    for weights in decoder.weights:
        qkv_w, out_w, up_w, down_w = (weight.float() for weight in weights)
        qkv = (_normed(x) @ qkv_w.T).view(n, heads + 2 * kv, dim)
        q = _rotated(qkv[:, :heads], angles).transpose(0, 1)
        k = _rotated(qkv[:, heads : heads + kv], angles).transpose(0, 1)
        v = qkv[:, heads + kv :].transpose(0, 1)
        attended = functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True, enable_gqa=True
        )[0]
        x = x + attended.transpose(0, 1).reshape(n, -1) @ out_w.T
        left, right = (_normed(x) @ up_w.T).chunk(2, dim=1)
        x = x + (functional.silu(left) * right) @ down_w.T
    return _normed(x[-1:])[0] @ decoder.output.float().T


def _normed(x: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)


def _rotated(x: Any, angles: Any) -> Any:
    left, right = x.chunk(2, dim=2)
    cos, sin = torch.cos(angles), torch.sin(angles)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=2)


def _error(value: Any, wanted: Any) -> float:
    return float((value - wanted).norm() / wanted.norm())
