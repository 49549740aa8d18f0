"""Language models as values: what a decoder weighs, what its cache weighs, what a step computes.

``find_language_model(name)`` reads ``capacity/data/language_models.yaml``; every figure there is a
fact of the model's public configuration. ``LanguageModel.step_mix`` turns a step into the kernels
that the capacity model prices (``capacity.kernels``), for one GPU of a tensor-parallel group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import yaml

from capacity.decoder_kernels import DecoderShare, TokenGroup
from capacity.kernels import FORMAT_BYTES, Kernel, NumberFormat, Phase
from wattpack.errors import InputError, read_from
from wattpack.near_names import one_of
from wattpack.units import require_number

MODELS_FILE: Final = "data/language_models.yaml"

EMBEDDING_BYTES: Final = 2
"""Embeddings and the output layer stay in 16 bits when the layers are quantised."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward layers of which each token visits ``per_token`` out of ``count``.

    Attributes:
        shared: Experts that every token visits besides.
        dense_layers: Leading layers with an ordinary feed-forward network.
    """

    count: int
    per_token: int
    intermediate: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Keys and values kept as one latent vector a token (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    query_rank: int
    kv_rank: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """``layers`` of the model see only the last ``tokens`` tokens."""

    tokens: int
    layers: int


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """One decoder.

    Attributes:
        head_dim: Of queries and keys; with latent attention the part without rotation.
        gated: Three matrices a feed-forward network (up, gate, down) instead of two.
        weight_bits: How the published checkpoint stores its layers.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    weight_bits: float
    source: str
    experts: Experts | None = None
    latent: LatentAttention | None = None
    window: SlidingWindow | None = None
    gated: bool = True
    tied_embeddings: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        if self.latent is None:
            width = (self.heads + 2 * self.kv_heads) * self.head_dim
            return self.hidden * width + self.heads * self.head_dim * self.hidden
        part = self.latent
        queries = part.query_rank * (self.hidden + self.heads * (self.head_dim + part.rope_dim))
        keys = self.hidden * (part.kv_rank + part.rope_dim)
        keys += part.kv_rank * self.heads * (self.head_dim + part.value_dim)
        return queries + keys + self.heads * part.value_dim * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """The embedding table and the output layer, which may be the same one."""
        return (1 if self.tied_embeddings else 2) * self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """All layers, without the embeddings."""
        return self._layers(lambda experts: experts.count)

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layer_parameters + self.embedding_parameters

    @property
    def active_parameters(self) -> int:
        """Those that take part in the arithmetic of one token: the table itself is only read."""
        return self._layers(lambda experts: experts.per_token) + self.vocabulary * self.hidden

    def weight_bytes(self, bits: float | None = None) -> float:
        """Memory of all weights with the layers stored in ``bits``, as published if None."""
        width = self.weight_bits if bits is None else bits
        require_number("bits", width, exclusive_minimum=0, maximum=64)
        return self.layer_parameters * width / 8 + self.embedding_parameters * EMBEDDING_BYTES

    def kv_bytes_per_token(
        self, cache_format: NumberFormat = "bf16", tensor_parallel: int = 1
    ) -> float:
        """What one more token adds on one GPU while it is inside every layer's window.

        Tensor parallelism divides the heads of keys and values; below one head a GPU, and for
        latent vectors at once, each GPU keeps its own copy.
        """
        return self._cache_width(tensor_parallel) * self.layers * FORMAT_BYTES[cache_format]

    def kv_bytes(
        self, tokens: float, cache_format: NumberFormat = "bf16", tensor_parallel: int = 1
    ) -> float:
        """Cache of one sequence of ``tokens`` on one GPU, sliding windows counted."""
        windowed = self.window.layers if self.window else 0
        kept = (self.layers - windowed) * tokens
        if self.window:
            kept += windowed * min(tokens, self.window.tokens)
        return self._cache_width(tensor_parallel) * kept * FORMAT_BYTES[cache_format]

    def step_mix(
        self,
        phase: Phase,
        batch: int,
        query_tokens: int,
        kv_tokens: int,
        *,
        tensor_parallel: int = 1,
        number_format: NumberFormat = "bf16",
    ) -> tuple[tuple[Kernel, int], ...]:
        """One GPU's kernels of a step in which all sequences are alike.

        Args:
            query_tokens: New tokens a sequence: 1 in decode, the prompt or chunk in prefill.
            kv_tokens: Context after the step.
            number_format: Of the matrix products; attention and cache stay in bf16.

        Raises:
            InputError: a size below 1, or a parallelism that does not divide the heads.
        """
        group = TokenGroup(phase, batch, query_tokens, kv_tokens)
        return self.batch_mix((group,), tensor_parallel, number_format)

    def batch_mix(
        self,
        groups: Sequence[TokenGroup],
        tensor_parallel: int = 1,
        number_format: NumberFormat = "bf16",
    ) -> tuple[tuple[Kernel, int], ...]:
        """One GPU's kernels of a step that carries several groups: decodes beside prompt chunks.

        Raises:
            InputError: as ``step_mix``, or no group at all.
        """
        return DecoderShare(self, tensor_parallel, number_format).mix(groups)

    def _layers(self, visited: Callable[[Experts], int]) -> int:
        """Parameters of the layers with as many routed experts as ``visited`` says."""
        matrices = 3 if self.gated else 2
        dense = matrices * self.hidden * self.intermediate
        if self.experts is None:
            return self.layers * (self.attention_parameters + dense)
        part = self.experts
        one = matrices * self.hidden * part.intermediate
        routed = (visited(part) + part.shared) * one + self.hidden * part.count
        sparse = self.layers - part.dense_layers
        return self.layers * self.attention_parameters + part.dense_layers * dense + sparse * routed

    def _cache_width(self, tensor_parallel: int) -> int:
        """Numbers a token and layer on one GPU."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * max(1, -(-self.kv_heads // tensor_parallel)) * self.head_dim


@lru_cache(maxsize=1)
def shipped_language_models() -> tuple[LanguageModel, ...]:
    """Every model in the table."""
    text = files("capacity").joinpath(MODELS_FILE).read_text("utf-8")
    return language_models_from_yaml(text, MODELS_FILE)


def language_models_from_yaml(text: str, source: str) -> tuple[LanguageModel, ...]:
    """The models of a document of the shape of ``capacity/data/language_models.yaml``.

    Raises:
        InputError: naming the file and the field: unknown or missing keys, sizes that are no
            positive integers, a name that is there twice.
    """
    with read_from(source):
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError("document", "YAML", str(error).splitlines()[0]) from error
        entries = document.get("models") if isinstance(document, Mapping) else None
        if not isinstance(entries, list):
            raise InputError("models", "a list of models", entries)
        models = tuple(_model(f"models[{index}]", entry) for index, entry in enumerate(entries))
        seen: set[str] = set()
        for model in models:
            for name in _names(model):
                if name in seen:
                    raise InputError("models", "each name and alias once", name)
                seen.add(name)
        return models


def find_language_model(name: str, models: Sequence[LanguageModel] | None = None) -> LanguageModel:
    """The model with this name or alias, in any case.

    Raises:
        InputError: naming the known models.
    """
    known = shipped_language_models() if models is None else models
    for model in known:
        if name.strip().lower() in _names(model):
            return model
    raise InputError("language_model", one_of(name, [m.name for m in known]), name)


def _names(model: LanguageModel) -> list[str]:
    return [name.lower() for name in (model.name, *model.aliases)]


_PARTS: Final[Mapping[str, type[Any]]] = {
    "experts": Experts,
    "latent": LatentAttention,
    "window": SlidingWindow,
}


def _model(place: str, entry: object) -> LanguageModel:
    values = dict(_checked(place, entry, LanguageModel))
    for name, kind in _PARTS.items():
        if values.get(name) is not None:
            path = f"{place}.{name}"
            values[name] = kind(**_whole_numbers(path, _checked(path, values[name], kind)))
    aliases = values.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InputError(f"{place}.aliases", "a list of names", aliases)
    values["aliases"] = tuple(aliases)
    sizes = {
        key: value
        for key, value in values.items()
        if key not in {*_PARTS, *_TEXTS, *_FLAGS, "aliases", "weight_bits"}
    }
    for key in _TEXTS:
        if not isinstance(values[key], str) or not values[key]:
            raise InputError(f"{place}.{key}", "a non-empty text", values[key])
    for key in _FLAGS:
        if not isinstance(values.get(key, True), bool):
            raise InputError(f"{place}.{key}", "true or false", values[key])
    bits = values["weight_bits"]
    require_number(f"{place}.weight_bits", bits, exclusive_minimum=0, maximum=64)
    model = LanguageModel(**{**values, **_whole_numbers(place, sizes)})
    if model.heads % model.kv_heads:
        raise InputError(f"{place}.kv_heads", f"a divisor of {model.heads}", model.kv_heads)
    return model


_TEXTS: Final = ("name", "source")
_FLAGS: Final = ("gated", "tied_embeddings")


def _checked(place: str, entry: object, kind: type[Any]) -> Mapping[str, Any]:
    """The entry's fields: every one that has no default, and no others."""
    if not isinstance(entry, Mapping):
        raise InputError(place, "a mapping", entry)
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    for key in sorted(set(entry) - known, key=str):
        raise InputError(f"{place}.{key}", "a known key", entry[key])
    for key in sorted(needed - set(entry)):
        raise InputError(f"{place}.{key}", "a value", None)
    return entry


def _whole_numbers(place: str, values: Mapping[str, Any]) -> dict[str, int]:
    for key, value in values.items():
        minimum = 0 if key in {"shared", "dense_layers"} else 1
        require_number(f"{place}.{key}", value, minimum=minimum, maximum=2**31)
        if not isinstance(value, int):
            raise InputError(f"{place}.{key}", "a whole number", value)
    return dict(values)
