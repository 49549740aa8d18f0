"""A decoder stack with random weights: the whole step that no single kernel row holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from capacity.kernels import DecoderStep
from capacity.torch_backend import triton_kernels
from capacity.torch_backend.attention_kernels import _level
from capacity.torch_backend.tuning import Config, TunedConfigs

LAYER_CACHES: Final = 4
"""Layers share this many key-value caches in turn: each is larger than L2 where it matters, and
256 sequences of 8,192 tokens would not fit otherwise."""

PREFILL_BACKENDS: Final = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocabulary")


class DecoderStack:
    """Weights of one model's share on one GPU, and steps that run through them."""

    def __init__(self, model: DecoderStep, device: torch.device, tuned: TunedConfigs) -> None:
        self._model = model
        self._device = device
        self._tuned = tuned
        qkv = (model.heads + 2 * model.kv_heads) * model.head_dim
        shapes = (
            (qkv, model.hidden),
            (model.hidden, model.heads * model.head_dim),
            (2 * model.intermediate, model.hidden),
            (model.hidden, model.intermediate),
        )
        self._layers = [tuple(self._weight(shape) for shape in shapes) for _ in range(model.layers)]
        self._output = self._weight((model.vocabulary, model.hidden))
        self._norm = torch.ones(model.hidden, dtype=torch.bfloat16, device=device)
        exponent = torch.arange(0, model.head_dim, 2, device=device) / model.head_dim
        self._angles = 500000.0 ** (-exponent.float())

    def fits(self, step: DecoderStep) -> bool:
        """Whether the step runs through these weights."""
        return all(getattr(step, name) == getattr(self._model, name) for name in _SIZES)

    def step(self, step: DecoderStep) -> tuple[Callable[[int], None], str]:
        """One forward pass over buffers made now, and what it is made of."""
        tokens = step.batch * step.query_tokens
        width = step.heads + 2 * step.kv_heads
        x = self._normal((tokens, step.hidden))
        buffers = {
            "residual": self._normal((tokens, step.hidden)),
            "x": x,
            "normed": torch.empty_like(x),
            "qkv": self._normal((tokens, width * step.head_dim)),
            "q": self._normal((step.batch, step.heads, step.query_tokens, step.head_dim)),
            "gate_up": self._normal((tokens, 2 * step.intermediate)),
            "gated": self._normal((tokens, step.intermediate)),
            "logits": self._normal((step.batch, step.vocabulary)),
        }
        shape = (step.batch, step.kv_heads, step.kv_tokens, step.head_dim)
        caches = [(self._normal(shape), self._normal(shape)) for _ in range(LAYER_CACHES)]
        attend, name = self._attention(step, caches, buffers["q"])

        def run(_: int) -> None:
            self._run(step, buffers, caches, attend)

        return run, f"stack:{name}"

    def _run(
        self,
        step: DecoderStep,
        buffers: dict[str, Any],
        caches: list[tuple[Any, Any]],
        attend: Callable[[Any, Any, Any], Any],
    ) -> None:
        x, residual, normed = buffers["x"], buffers["residual"], buffers["normed"]
        for index, (qkv_w, out_w, up_w, down_w) in enumerate(self._layers):
            k, v = caches[index % LAYER_CACHES]
            triton_kernels.add_norm(x, residual, self._norm, normed)
            torch.mm(normed, qkv_w.T, out=buffers["qkv"])
            triton_kernels.rotate_and_cache(buffers["qkv"], self._angles, buffers["q"], k, v)
            torch.mm(attend(buffers["q"], k, v), out_w.T, out=x)
            triton_kernels.add_norm(x, residual, self._norm, normed)
            torch.mm(normed, up_w.T, out=buffers["gate_up"])
            triton_kernels.gate(buffers["gate_up"], buffers["gated"])
            torch.mm(buffers["gated"], down_w.T, out=x)
        # Bounded: the residual would grow layer by layer and replay by replay otherwise.
        residual.mul_(0.01)
        last = normed.view(step.batch, step.query_tokens, step.hidden)[:, -1]
        torch.mm(last, self._output.T, out=buffers["logits"])

    def _attention(
        self, step: DecoderStep, caches: list[tuple[Any, Any]], q: Any
    ) -> tuple[Callable[[Any, Any, Any], Any], str]:
        """Attention whose result has the rows of the next product, (tokens, heads * head_dim)."""
        rows = step.batch * step.query_tokens
        if step.phase == "prefill":

            def prefill(q: Any, k: Any, v: Any) -> Any:
                with sdpa_kernel(PREFILL_BACKENDS, set_priority=True):
                    out = functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=step.heads != step.kv_heads
                    )
                return out.transpose(1, 2).reshape(rows, step.heads * step.head_dim)

            return prefill, "sdpa"
        out = torch.empty((step.batch, step.heads, step.head_dim), dtype=q.dtype, device=q.device)

        def with_config(config: Config) -> Callable[[int], None]:
            scratch = triton_kernels.decode_scratch(
                step.batch, step.heads, step.head_dim, config[0], q.device
            )

            def run(copy: int) -> None:
                k, v = caches[copy]
                triton_kernels.decode(q[:, :, 0], k, v, scratch, out, config)

            return run

        key = (
            step.head_dim,
            step.heads // step.kv_heads,
            _level(step.batch * step.kv_heads),
            _level(step.kv_tokens),
        )
        config = self._tuned.best("decode", key, with_config, copies=LAYER_CACHES)
        scratch = triton_kernels.decode_scratch(
            step.batch, step.heads, step.head_dim, config[0], q.device
        )

        def decode(q: Any, k: Any, v: Any) -> Any:
            triton_kernels.decode(q[:, :, 0], k, v, scratch, out, config)
            return out.view(rows, step.heads * step.head_dim)

        return decode, f"triton:{'x'.join(map(str, config))}"

    def _weight(self, shape: tuple[int, int]) -> Any:
        return self._normal(shape).mul_(shape[1] ** -0.5)

    def _normal(self, shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, dtype=torch.bfloat16, device=self._device)
