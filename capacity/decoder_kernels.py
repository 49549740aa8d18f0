"""A decoder's step as the kernels that one GPU of a tensor-parallel group runs.

Products and passes over memory see all tokens of the step at once; attention runs per group of like
sequences. Three kinds of layer are written as kernels that the capacity model knows:

- experts: one product over the weights of all experts that the tokens are expected to visit, each
  visited by its share of the tokens (a grouped product: same operations, same weights);
- latent attention in decode: the absorbed form, every head against one shared latent vector;
- sliding windows: attention with mask ``window`` in prefill, a short context in decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from capacity.kernels import Attention, Collective, Elementwise, Gemm, Kernel, NumberFormat, Phase
from wattpack.errors import InputError
from wattpack.units import require_number

if TYPE_CHECKING:
    from capacity.language_models import LanguageModel

ELEMENT_BYTES: Final = 2
"""Of what the GPUs of a group exchange: 16 bits."""


@dataclass(frozen=True, slots=True)
class TokenGroup:
    """Sequences of one phase that are all alike in one step.

    Attributes:
        query_tokens: New tokens a sequence.
        kv_tokens: Its context after the step.
    """

    phase: Phase
    batch: int
    query_tokens: int
    kv_tokens: int

    @property
    def tokens(self) -> int:
        """New tokens of the group."""
        return self.batch * self.query_tokens


@dataclass(frozen=True, slots=True)
class DecoderShare:
    """What one of ``tensor_parallel`` GPUs computes of a model.

    Attributes:
        expert_parallel: GPUs among which the experts are dealt out, each with tokens of its own:
            a GPU holds fewer experts, which as many tokens visit.
        visits_factor: Of this GPU's experts, relative to an even deal.

    Raises:
        InputError: heads, widths or experts that the parallelism does not divide.
    """

    model: LanguageModel
    tensor_parallel: int
    number_format: NumberFormat
    expert_parallel: int = 1
    visits_factor: float = 1.0

    def __post_init__(self) -> None:
        require_number("tensor_parallel", self.tensor_parallel, minimum=1, maximum=1024)
        experts = self.model.experts.count if self.model.experts else 1
        if experts % self.expert_parallel:
            raise InputError("expert_parallel", f"a divisor of {experts}", self.expert_parallel)
        widths = (self.model.heads, self.model.intermediate)
        if any(width % self.tensor_parallel for width in widths):
            raise InputError(
                "tensor_parallel",
                f"a divisor of {self.model.name}'s {widths}",
                self.tensor_parallel,
            )

    def mix(self, groups: Sequence[TokenGroup]) -> tuple[tuple[Kernel, int], ...]:
        """All kernels of one step with how often each runs."""
        if not groups:
            raise InputError("groups", "at least one group of sequences", 0)
        tokens = sum(group.tokens for group in groups)
        outputs = sum(group.batch for group in groups)
        return (
            *self._projections(tokens),
            *(part for group in groups for part in self.attention(group)),
            *self._feed_forward(tokens),
            *self._exchanges(tokens),
            (self._gemm(outputs, self._split(self.model.vocabulary), self.model.hidden), 1),
        )

    def _projections(self, tokens: int) -> Iterator[tuple[Kernel, int]]:
        model = self.model
        heads = self._split(model.heads)
        layers = model.layers
        if model.latent is None:
            width = (heads + 2 * self._kv_heads) * model.head_dim
            yield self._gemm(tokens, width, model.hidden), layers
            yield self._gemm(tokens, model.hidden, heads * model.head_dim), layers
            yield Elementwise("rotate", tokens, width), layers
            return
        part = model.latent
        down = part.query_rank + part.kv_rank + part.rope_dim
        yield self._gemm(tokens, down, model.hidden), layers
        query_width = heads * (model.head_dim + part.rope_dim)
        yield self._gemm(tokens, query_width, part.query_rank), layers
        key_width = heads * (model.head_dim + part.value_dim)
        yield self._gemm(tokens, key_width, part.kv_rank), layers
        yield self._gemm(tokens, model.hidden, heads * part.value_dim), layers
        yield Elementwise("rotate", tokens, query_width + down), layers

    def attention(self, group: TokenGroup) -> tuple[tuple[Kernel, int], ...]:
        """The attention of one group in all layers."""
        model = self.model
        if model.latent is not None:
            return ((self._latent_attention(group), model.layers),)
        if model.window is None:
            return ((self._plain_attention(group, 0), model.layers),)
        seen = self._plain_attention(group, model.window.tokens)
        full = self._plain_attention(group, 0)
        return ((full, model.layers - model.window.layers), (seen, model.window.layers))

    def _plain_attention(self, group: TokenGroup, window: int) -> Attention:
        keys = group.kv_tokens
        masked = 0 < window < keys and group.phase == "prefill"
        if group.phase == "decode" and window:
            keys = min(keys, window)
        return Attention(
            group.phase,
            group.batch,
            group.query_tokens,
            keys,
            self._split(self.model.heads),
            self._kv_heads,
            self.model.head_dim,
            mask="window" if masked else "causal",
            window=window if masked else 0,
        )

    def _latent_attention(self, group: TokenGroup) -> Attention:
        part = self.model.latent
        assert part is not None
        heads = self._split(self.model.heads)
        if group.phase == "prefill":
            width = (self.model.head_dim + part.rope_dim + part.value_dim) // 2
            kv_heads = heads
        else:
            # One latent vector serves as key and value: half its width, twice the heads, read once
            # as each, are the same operations and bytes.
            width, heads, kv_heads = (part.kv_rank + part.rope_dim) // 2, 2 * heads, 1
        return Attention(
            group.phase, group.batch, group.query_tokens, group.kv_tokens, heads, kv_heads, width
        )

    def _feed_forward(self, tokens: int) -> Iterator[tuple[Kernel, int]]:
        model = self.model
        if model.experts is None:
            yield from self._network(tokens, tokens, model.intermediate, 1, model.layers)
            return
        part = model.experts
        sparse = model.layers - part.dense_layers
        if part.dense_layers:
            dense = self._network(tokens, tokens, model.intermediate, 1, part.dense_layers)
            yield from dense
        if part.shared:
            width = part.shared * part.intermediate
            yield from self._network(tokens, tokens, width, 1, sparse)
        visits = round(tokens * part.per_token * self.visits_factor)
        held = part.count // self.expert_parallel
        missed = (1 - part.per_token / part.count) ** (tokens * self.expert_parallel)
        visited = max(min(part.per_token, held), round(held * (1 - missed)))
        each = max(1, round(visits / visited))
        yield from self._network(each, visits, part.intermediate, visited, sparse)
        yield self._gemm(tokens, part.count, model.hidden), sparse

    def _network(
        self, rows: int, visits: int, intermediate: int, networks: int, layers: int
    ) -> Iterator[tuple[Kernel, int]]:
        """``networks`` gated or plain networks, each over ``rows`` of the ``visits`` in all."""
        width = self._split(intermediate)
        gates = 2 if self.model.gated else 1
        yield self._gemm(rows, gates * width * networks, self.model.hidden), layers
        yield self._gemm(rows, self.model.hidden * networks, width), layers
        yield Elementwise("gate", visits, width), layers

    def _exchanges(self, tokens: int) -> Iterator[tuple[Kernel, int]]:
        """Two sums over the group a layer, and two norms with the residual."""
        model = self.model
        yield Elementwise("norm", tokens, model.hidden), 2 * model.layers
        if self.tensor_parallel > 1:
            message = ELEMENT_BYTES * tokens * model.hidden
            yield Collective("all_reduce", message, self.tensor_parallel), 2 * model.layers

    def _gemm(self, m: int, n: int, k: int) -> Gemm:
        return Gemm(m, n, k, self.number_format)

    def _split(self, width: int) -> int:
        return -(-width // self.tensor_parallel)

    @property
    def _kv_heads(self) -> int:
        return max(1, self.model.kv_heads // self.tensor_parallel)
