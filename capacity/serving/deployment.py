"""One language model on some GPUs behind one engine: memory and single steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from capacity.decoder_kernels import DecoderShare
from capacity.kernels import NumberFormat
from capacity.language_models import LanguageModel
from capacity.model.regulator import Regulator
from capacity.profile_library import settable_watts
from capacity.serving.engine import BatchingRules, Engine, find_engine
from capacity.serving.kernel_prices import GpuPrices, shipped_prices
from capacity.serving.phase_pools import QueueEstimate
from capacity.serving.served_requests import ServerRun, Work
from capacity.serving.server_simulation import ServerSimulation
from capacity.serving.serving_clock import Governor, ServingClock
from capacity.serving.step_costs import PricedSteps, price_steps
from wattpack.errors import InputError
from wattpack.units import require_number

LAYER_BITS: Final = {"fp8": 8.0, "bf16": 16.0, "fp16": 16.0}

RUNTIME_BYTES: Final = 2.5e9
"""CUDA context, recorded graphs and communication buffers of one GPU. Assumed."""

ACTIVATION_ARRAYS: Final = 4
"""Hidden-size arrays of a step that live at once, beside both halves of the gate. Assumed."""

ACTIVATION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class ServedStep:
    """One iteration, back to back with itself; watts are of one GPU's board.

    Attributes:
        uncapped_seconds: At full clock.
        uncapped_watts: Mean draw without a limit.
    """

    seconds: float
    uncapped_seconds: float
    mean_watts: float
    uncapped_watts: float

    @property
    def joules(self) -> float:
        """Of one board."""
        return self.seconds * self.mean_watts


@dataclass(frozen=True, slots=True)
class Deployment:
    """What serves.

    Attributes:
        gpu: wattpack's or the driver's name of the type.
        limit_watts: Power limit of each board; the default one if None.
        takes_watts: Least and largest limit that a board takes; those of the shipped profile if
            None.
        rules: The engine's own if None.

    Raises:
        InputError: an unknown type, a limit that its boards cannot be set to, weights that do not
            fit, heads that cannot be divided.
    """

    model: LanguageModel
    gpu: str
    tensor_parallel: int = 1
    number_format: NumberFormat = "fp8"
    cache_format: NumberFormat = "fp8"
    engine: Engine = field(default_factory=lambda: find_engine("vllm"))
    limit_watts: float | None = None
    rules: BatchingRules | None = None
    takes_watts: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.number_format not in LAYER_BITS or self.cache_format not in LAYER_BITS:
            formats = f"{self.number_format}, {self.cache_format}"
            raise InputError("number_format", f"one of {sorted(LAYER_BITS)}", formats)
        if self.limit_watts is not None:
            low, high = self.settable_watts
            require_number("limit_watts", self.limit_watts, minimum=low, maximum=high, unit="W")
        DecoderShare(self.model, self.tensor_parallel, self.number_format)
        roofs = self.prices.roofs
        if roofs.flops_per_second(self.number_format) <= 0:
            known = [name for name in LAYER_BITS if roofs.flops_per_second(name) > 0]
            wanted = f"one that {roofs.model} has ({', '.join(known)})"
            raise InputError("number_format", wanted, self.number_format)
        if self.cache_tokens < 1:
            needed = f"{self.weight_bytes_per_gpu / 1e9:.0f} GB of weights a GPU"
            fits = f"enough GPUs for {self.model.name} on {roofs.model} ({needed})"
            raise InputError("tensor_parallel", fits, self.tensor_parallel)

    @property
    def prices(self) -> GpuPrices:
        """Kernels of the GPU type."""
        return shipped_prices(self.gpu)

    @property
    def batching(self) -> BatchingRules:
        """In force."""
        return self.engine.rules if self.rules is None else self.rules

    @property
    def limit(self) -> float:
        """Of each board, watts."""
        return self.prices.limit_watts if self.limit_watts is None else self.limit_watts

    @property
    def settable_watts(self) -> tuple[float, float]:
        """Least and largest limit that a board takes."""
        if self.takes_watts is not None:
            return self.takes_watts
        prices = self.prices
        return settable_watts(prices.roofs.model, prices.gap_watts, prices.limit_watts)

    @property
    def steps(self) -> PricedSteps:
        """Priced surfaces, kept for the process."""
        return _priced(
            self.model,
            self.prices.roofs.model,
            self.tensor_parallel,
            self.number_format,
            self.cache_format,
        )

    @property
    def weight_bytes_per_gpu(self) -> float:
        """Weights with the layers in the deployment's number format, or fewer bits as published."""
        bits = min(LAYER_BITS[self.number_format], self.model.weight_bits)
        return self.model.weight_bytes(bits) / self.tensor_parallel

    @property
    def cache_bytes_per_gpu(self) -> float:
        """Left for keys and values beside weights, activations and the runtime."""
        arrays = 2 * self.model.intermediate / self.tensor_parallel
        arrays += ACTIVATION_ARRAYS * self.model.hidden
        held = self.batching.token_budget * arrays * ACTIVATION_BYTES + RUNTIME_BYTES
        usable = self.batching.memory_share * self.prices.roofs.memory_bytes
        return usable - self.weight_bytes_per_gpu - held

    @property
    def cache_tokens(self) -> int:
        """Tokens whose keys and values fit."""
        token = self.model.kv_bytes_per_token(self.cache_format, self.tensor_parallel)
        return max(0, int(self.cache_bytes_per_gpu / token))

    def users(self, context: int) -> int:
        """How many sequences of this length fit at once: floor((memory - weights) / KV of one)."""
        each = self.model.kv_bytes(context, self.cache_format, self.tensor_parallel)
        return max(0, int(self.cache_bytes_per_gpu / each))

    def step(self, prefill_tokens: int, decode_batch: int, context: float) -> ServedStep:
        """An iteration with one prompt chunk, decodes of a mean context, or both, for seconds.

        Raises:
            InputError: nothing to do, or a negative size.
        """
        require_number("prefill_tokens", prefill_tokens, minimum=0, maximum=2**30)
        require_number("decode_batch", decode_batch, minimum=0, maximum=2**20)
        require_number("context", context, minimum=0, maximum=2**30)
        if prefill_tokens + decode_batch == 0:
            raise InputError("decode_batch", "prompt tokens or decodes", 0)
        clock = self.clock()
        if prefill_tokens:
            pairs = prefill_tokens * (prefill_tokens + 1) / 2
            cost = clock.prompt(decode_batch, context, 1, prefill_tokens, pairs)
        else:
            cost = clock.decode(decode_batch, context)
        free, joules, clocked = cost
        governor = self.governor()
        uncapped = joules / free
        held = self.regulator.held_share * self.limit
        return ServedStep(
            free + governor.depth(uncapped) * clocked, free, min(uncapped, held), uncapped
        )

    @property
    def regulator(self) -> Regulator:
        """Of the board."""
        return self.prices.regulator

    @property
    def queue_estimate(self) -> QueueEstimate:
        """What a router assumes of one server."""
        clock = self.clock()
        return QueueEstimate(
            lambda tokens: clock.prompt(0, 0.0, 1, max(2, tokens), tokens * tokens / 2)[0],
            clock.decode(32, 1024.0)[0],
        )

    def clock(self) -> ServingClock:
        """What iterations cost; without a state, and kept: one question runs a dozen servers."""
        return _clock(self)

    def governor(self) -> Governor:
        """The limit in force."""
        return Governor.of(self.prices, self.limit)

    def simulation(self) -> ServerSimulation:
        """A fresh server."""
        constants = self.engine.constants
        way = (constants.request_seconds, constants.prompt_token_seconds)
        return ServerSimulation(
            self.clock(), self.batching, self.cache_tokens, way, self.governor()
        )

    def serve(self, work: Work) -> ServerRun:
        """The engine serves these requests."""
        return self.simulation().serve(work)


@lru_cache(maxsize=8)
def _clock(deployment: Deployment) -> ServingClock:
    constants = deployment.engine.constants.of_format(deployment.number_format)
    interval = deployment.batching.stream_interval
    spread = replace(constants, sequence_seconds=constants.sequence_seconds / interval)
    return ServingClock(deployment.steps, spread, deployment.prices.gap_watts)


@lru_cache(maxsize=128)
def _priced(
    model: LanguageModel,
    gpu: str,
    tensor_parallel: int,
    number_format: NumberFormat,
    cache_format: NumberFormat,
) -> PricedSteps:
    prices = shipped_prices(gpu)
    return price_steps(model, prices, tensor_parallel, number_format, cache_format)
