"""Iteration time of a language model server as fits of end-to-end runs tell it.

The twin's servers follow step tables (``capacity.step_table``); these fits name the models that are
served, and tell how much of an iteration is not its kernels'. One iteration of a continuously
batched server takes

    base + prefill_tokens * prefill_seconds_per_token + context_tokens * context_seconds_per_token

where ``context_tokens`` is the KV-cache length summed over the decoding requests. In steady state
with ``batch`` requests of ``input`` and ``output`` tokens each iteration also carries
``batch * input / output`` prefill tokens; the fit (``capacity.fitting.iteration_times``) uses that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from capacity.gpu_profile import Provenance
from wattpack.errors import InputError, read_from
from wattpack.units import require_number


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """Uncapped iteration time of one language model on one GPU type at one parallelism.

    Attributes:
        gpu: Model name of the GPU profile.
        language_model: For example ``llama-3.1-70b``.
        precision: Weight precision behind the figures.
        tensor_parallel: GPUs that work as one server.
        base_seconds: Time of an iteration with no tokens (weights read once, launch gaps).
        prefill_seconds_per_token: Added by each prompt token in the iteration.
        context_seconds_per_token: Added by each token of KV cache that is read.
        provenance: measured, derived or assumed.
        source: Data file and rule.
        samples: End-to-end points behind the fit; 0 when derived.
        error_mape: Mean absolute relative error of the time per output token.
    """

    gpu: str
    language_model: str
    precision: str
    tensor_parallel: int
    base_seconds: float
    prefill_seconds_per_token: float
    context_seconds_per_token: float
    provenance: Provenance
    source: str
    samples: int
    error_mape: float

    def iteration_seconds(self, prefill_tokens: float, context_tokens: float) -> float:
        """Duration of one iteration without a cap.

        Args:
            prefill_tokens: Prompt tokens processed in it.
            context_tokens: KV-cache tokens read, summed over the decoding requests.
        """
        return (
            self.base_seconds
            + prefill_tokens * self.prefill_seconds_per_token
            + context_tokens * self.context_seconds_per_token
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def serving_from_dict(document: object, source: str = "") -> ServingTimes:
    """A checked entry.

    Raises:
        InputError: naming the field.
    """
    with read_from(source):
        return _serving_from_dict(document)


def _serving_from_dict(document: object) -> ServingTimes:
    if not isinstance(document, Mapping):
        raise InputError("serving", "a mapping", document)
    wanted = set(ServingTimes.__dataclass_fields__)
    for key in sorted(set(document) ^ wanted, key=str):
        expected = "a known key" if key in document else "a value"
        raise InputError(f"serving.{key}", expected, document.get(key))
    for key in ("gpu", "language_model", "precision", "source"):
        if not isinstance(document[key], str) or not document[key]:
            raise InputError(f"serving.{key}", "a non-empty text", document[key])
    if document["provenance"] not in get_args(Provenance):
        raise InputError(
            "serving.provenance", f"one of {get_args(Provenance)}", document["provenance"]
        )
    numbers = {
        key: require_number(f"serving.{key}", document[key], exclusive_minimum=0, maximum=60)
        for key in ("base_seconds", "prefill_seconds_per_token", "context_seconds_per_token")
    }
    return ServingTimes(
        gpu=document["gpu"],
        language_model=document["language_model"],
        precision=document["precision"],
        tensor_parallel=int(
            require_number(
                "serving.tensor_parallel",
                document["tensor_parallel"],
                minimum=1,
                maximum=1024,
            )
        ),
        provenance=document["provenance"],
        source=document["source"],
        samples=int(require_number("serving.samples", document["samples"], minimum=0)),
        error_mape=require_number(
            "serving.error_mape", document["error_mape"], minimum=0, maximum=10
        ),
        **numbers,
    )
