"""Inference engines: how they batch, which is known, and what they add to kernels, which is fitted.

One set of constants serves all engines: fitted on two engines' runs of other models it predicts a
model's runs better than an engine's own set does, which has only one or two models to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import yaml

from capacity.kernels import NumberFormat
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

CONSTANTS_FILE: Final = "data/serving_constants.yaml"

Floats = npt.NDArray[np.float64]

Admission = Literal["whole", "grown"]


@dataclass(frozen=True, slots=True)
class BatchingRules:
    """How an engine composes its iterations.

    Attributes:
        token_budget: New tokens that one iteration may carry.
        chunked: Prompts are cut to fill the budget; otherwise an iteration takes whole prompts.
        largest_batch: Sequences that may decode at once.
        admission: ``whole`` reserves cache for the prompt and all that will be generated;
            ``grown`` for what is there, and preempts the youngest when the cache is full.
        scheduled_ahead: The next iteration is composed before the present one has ended, so that
            a request waits for one iteration more.
        wait_iterations: Prompts wait for others up to this many iterations ...
        wait_fill: ... until they fill this share of the budget.
        stream_interval: Tokens that are handed to the client together; a sequence costs the host
            once an interval.
        memory_share: Of the GPU's memory that weights, activations and cache may take.
    """

    token_budget: int = 8192
    chunked: bool = True
    largest_batch: int = 512
    admission: Admission = "grown"
    scheduled_ahead: bool = False
    wait_iterations: int = 0
    wait_fill: float = 0.0
    stream_interval: int = 1
    memory_share: float = 0.9


@dataclass(frozen=True, slots=True)
class EngineConstants:
    """What kernels' predicted seconds are multiplied by, and what comes on top.

    Attributes:
        decode_products: Factor on 8-bit products of steps without prompts: what the engine's
            kernels gain or lose against the half-depth rule (see ``of_format``).
        prompt_products: The same of steps that carry prompt tokens.
        decode_attention, prompt_attention, sums, passes: Factors on these kernels.
        layer_seconds: Added a layer and step: launch gaps and small kernels.
        step_seconds: Added a step: scheduling, sampling.
        launch_layer_seconds: Host time a layer of steps that carry prompts, which no recorded
            graph holds; they take at least this.
        sequence_seconds: Added a step and sequence: sampling, detokenising, streaming.
        request_seconds: From sending a request to its place in the queue, and back.
        prompt_token_seconds: The same for each prompt token: tokenising.
    """

    decode_products: float = 1.0
    prompt_products: float = 1.15
    decode_attention: float = 1.0
    prompt_attention: float = 1.0
    sums: float = 1.0
    passes: float = 1.0
    layer_seconds: float = 4e-6
    step_seconds: float = 0.8e-3
    sequence_seconds: float = 1e-5
    launch_layer_seconds: float = 1.5e-4
    request_seconds: float = 15e-3
    prompt_token_seconds: float = 2e-6

    def as_array(self) -> Floats:
        """Shape (12,), in the order of the fields."""
        return np.array(astuple(self))

    def of_format(self, number_format: NumberFormat) -> EngineConstants:
        """The constants of a deployment whose products have this format.

        Every run that constants were fitted on has 8-bit products. Those of 16 bits are priced by
        rows of their own, which need no factor.
        """
        if number_format == "fp8":
            return self
        return replace(self, decode_products=1.0, prompt_products=1.0)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: how it batches by default, and what it adds."""

    name: str
    rules: BatchingRules
    constants: EngineConstants


RULES: Final[Mapping[str, BatchingRules]] = {
    # --max-num-batched-tokens of an API server on a large GPU; prompts are cut by default.
    "vllm": BatchingRules(8192, chunked=True, largest_batch=1024, admission="grown"),
    # PyTorch back end: overlap scheduler on, GUARANTEED_NO_EVICT, no chunks unless asked for.
    "trtllm": BatchingRules(
        8192, chunked=False, largest_batch=1024, admission="whole", scheduled_ahead=True
    ),
}
"""Defaults that the engines' documentation states."""


@lru_cache(maxsize=1)
def shipped_constants() -> EngineConstants:
    """Fitted on public runs of every engine together (``capacity/data/serving_constants.yaml``)."""
    text = files("capacity").joinpath(CONSTANTS_FILE).read_text("utf-8")
    with read_from(CONSTANTS_FILE):
        return constants_from(yaml.safe_load(text))


def constants_from(document: object) -> EngineConstants:
    """The constants of a document ``{constants: {NAME: value}}``.

    Raises:
        InputError: unknown or missing constant, a value that is not above 0.
    """
    entry = document.get("constants") if isinstance(document, Mapping) else None
    if not isinstance(entry, Mapping):
        raise InputError("constants", "a mapping of constants", entry)
    names = {field.name for field in fields(EngineConstants)}
    for key in sorted(set(entry) ^ names, key=str):
        expected = "a known constant" if key in entry else "a value"
        raise InputError(f"constants.{key}", expected, entry.get(key))
    values = {
        key: require_number(f"constants.{key}", value, exclusive_minimum=0, maximum=100)
        for key, value in entry.items()
    }
    return EngineConstants(**values)


@lru_cache(maxsize=4)
def find_engine(name: str) -> Engine:
    """The engine of this name with its default rules.

    Raises:
        InputError: naming the known ones.
    """
    rules = RULES.get(name)
    if rules is None:
        raise InputError("engine", f"one of {', '.join(sorted(RULES))}", name)
    return Engine(name, rules, shipped_constants())
