"""What is trained, and how it is laid over GPUs: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from capacity.kernels import FORMAT_BYTES, NumberFormat
from capacity.language_models import LanguageModel
from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = ["OFFLOADS", "RECOMPUTES", "Offload", "ParallelLayout", "Recompute", "TrainingJob"]

Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "host", "nvme"]
RECOMPUTES: Final[tuple[Recompute, ...]] = get_args(Recompute)
OFFLOADS: Final[tuple[Offload, ...]] = get_args(Offload)

_MOST: Final = 2**31


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One training run of a decoder, dense or with experts.

    Attributes:
        global_batch: Sequences a step, over all replicas.
        number_format: Of the matrix products; weights and activations are kept in 16 bits.
        gradient_bytes: Of one gradient, also on the wire; 4 where sums are kept in fp32.
        optimizer_bits: Of each of the two moments (8 with block-wise quantised state); the
            master copy of the weights stays in fp32.
        activation_factor: Kept activations relative to a plain implementation.
        fused: Losses and norms in fused kernels: the logits are never kept as a whole.
        overlap: Gradients are summed while the backward pass still runs.
        offload_overlap: Share of the step under which offloaded updates hide: 0 for
            updates after the step, 1 where host and NVMe work all the time.
        training_tokens: Of the whole run, None if not known; bounds useful batch sizes.
        expert_imbalance: Tokens that visit the fullest rank's experts over the mean, where experts
            are dealt out; assumed (capacity factors of published runs are 1.0 to 1.25, Fedus et al.
            2021, arXiv 2101.03961, section 2.2).
    """

    model: LanguageModel
    global_batch: int
    sequence_tokens: int
    number_format: NumberFormat = "bf16"
    gradient_bytes: int = 4
    optimizer_bits: int = 32
    activation_factor: float = 1.0
    fused: bool = False
    overlap: bool = True
    offload_overlap: float = 0.0
    training_tokens: float | None = None
    expert_imbalance: float = 1.2

    def __post_init__(self) -> None:
        if self.model.latent is not None:
            raise InputError("model", "a decoder without latent attention", self.model.name)
        _whole("global_batch", self.global_batch)
        _whole("sequence_tokens", self.sequence_tokens)
        if self.number_format not in FORMAT_BYTES:
            raise InputError("number_format", f"one of {list(FORMAT_BYTES)}", self.number_format)
        for name, value, allowed in (
            ("gradient_bytes", self.gradient_bytes, (2, 4)),
            ("optimizer_bits", self.optimizer_bits, (8, 16, 32)),
        ):
            if value not in allowed:
                raise InputError(name, f"one of {allowed}", value)
        require_number("activation_factor", self.activation_factor, minimum=0.05, maximum=4)
        require_number("offload_overlap", self.offload_overlap, minimum=0, maximum=1)
        require_number("expert_imbalance", self.expert_imbalance, minimum=1, maximum=16)
        if self.training_tokens is not None:
            require_number("training_tokens", self.training_tokens, minimum=1e6, maximum=1e18)

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.global_batch * self.sequence_tokens

    @property
    def parameters_per_layer(self) -> float:
        """Mean over the layers, norms not counted."""
        return self.model.layer_parameters / self.model.layers

    @property
    def expert_parameters_per_layer(self) -> float:
        """Of them, what can be dealt out; mean over the layers."""
        part = self.model.experts
        if part is None:
            return 0.0
        matrices = 3 if self.model.gated else 2
        each = matrices * self.model.hidden * part.intermediate * part.count
        return each * (self.model.layers - part.dense_layers) / self.model.layers

    @property
    def visits_per_token(self) -> float:
        """Networks that a token passes in a layer, mean over the layers; 1 for a dense decoder."""
        part = self.model.experts
        if part is None:
            return 1.0
        sparse = (self.model.layers - part.dense_layers) / self.model.layers
        return sparse * (part.per_token + (part.shared > 0)) + 1 - sparse

    @property
    def table_parameters(self) -> int:
        """The embedding table; the output layer is another one of this size, or the same."""
        return self.model.vocabulary * self.model.hidden

    @property
    def flops(self) -> float:
        """Of one step without recomputation: 6 a parameter and token, and causal attention.

        Source: Narayanan et al. 2021 (arXiv 2104.04473), section 5.1, with attention halved.
        """
        model = self.model
        attention = 6.0 * model.layers * self.sequence_tokens * model.heads * model.head_dim
        return self.tokens * (6.0 * model.active_parameters + attention)


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """How the step is cut.

    Attributes:
        data: Replicas; ``tensor``, ``pipeline`` and ``context``: GPUs along each cut.
        micro_batch: Sequences that pass the pipeline together, per replica.
        recompute: What is computed again in the backward pass instead of kept: ``selective``
            is norms and activation functions, ``full`` all but each layer's input.
        zero_stage: What replicas share instead of copying: 1 optimiser state, 2 and gradients,
            3 and weights (Rajbhandari et al. 2020, arXiv 1910.02054).
        offload: Where the optimiser state lives and is updated.
        chunks: Model pieces a pipeline rank holds (interleaved schedule above 1).
        expert: Neighbouring replicas among which a layer's experts are dealt out.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    micro_batch: int = 1
    recompute: Recompute = "none"
    zero_stage: int = 0
    offload: Offload = "none"
    chunks: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "context", "micro_batch", "chunks", "expert"):
            _whole(name, getattr(self, name))
        if self.recompute not in RECOMPUTES:
            raise InputError("recompute", f"one of {RECOMPUTES}", self.recompute)
        if self.offload not in OFFLOADS:
            raise InputError("offload", f"one of {OFFLOADS}", self.offload)
        if self.zero_stage not in (0, 1, 2, 3):
            raise InputError("zero_stage", "0, 1, 2 or 3", self.zero_stage)

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Ranks that hold the same weights: over data and context."""
        return self.data * self.context

    def micro_batches(self, job: TrainingJob) -> int:
        """That pass one pipeline in a step; 0 if the global batch cannot be cut this way."""
        step = self.data * self.micro_batch
        return 0 if job.global_batch % step else job.global_batch // step

    def fits_shape(self, job: TrainingJob) -> bool:
        """Whether heads, widths, layers, sequence and batch can be cut this way."""
        model, split = job.model, self.tensor
        return (
            model.heads % split == 0
            and model.intermediate % split == 0
            and self.pipeline * self.chunks <= model.layers
            and job.sequence_tokens % (2 * self.context if self.context > 1 else 1) == 0
            and self.micro_batches(job) > 0
            and (self.chunks == 1 or self.micro_batches(job) % self.pipeline == 0)
            and (self.chunks == 1 or self.pipeline > 1)
            and self._deals_experts(job)
        )

    def _deals_experts(self, job: TrainingJob) -> bool:
        part = job.model.experts
        if part is None:
            return self.expert == 1
        widths = (part.intermediate, part.intermediate * max(1, part.shared))
        cut = all(width % self.tensor == 0 for width in widths)
        return cut and part.count % self.expert == 0 and self.replicas % self.expert == 0

    def __str__(self) -> str:
        cuts = f"dp {self.data} tp {self.tensor} pp {self.pipeline} cp {self.context}"
        cuts += f" ep {self.expert}" if self.expert > 1 else ""
        parts = [cuts, f"micro-batch {self.micro_batch}"]
        parts += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        parts += [f"ZeRO {self.zero_stage}"] if self.zero_stage else []
        parts += [f"optimiser in {self.offload}"] if self.offload != "none" else []
        parts += [f"{self.chunks} chunks"] if self.chunks > 1 else []
        return ", ".join(parts)


def _whole(name: str, value: object) -> None:
    require_number(name, value, minimum=1, maximum=_MOST)
    if not isinstance(value, int):
        raise InputError(name, "an integer", value)
