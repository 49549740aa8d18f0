"""Rates of served language models from the serving model: ``RatePredictor`` over ``max_rate``.

A type or width that cannot hold the model, or lacks its number format, serves nothing there: that
is an answer and no error. An unknown model or GPU type is an error. The lower rate is that of a
server on which everything lasts as long as the slowest of held-out runs (``time_bound``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

from capacity.catalogue.catalogue_files import find_workload, shipped_catalogue
from capacity.catalogue.startup_time import startup_time
from capacity.language_models import find_language_model
from capacity.mix.mix_problem import Phase
from capacity.mix.predicted_rates import BoardRate, RateMargin, RateQuestion
from capacity.roofs import require_roofs
from capacity.serving.time_bound import shipped_time_bound
from wattpack.api.capacity_question import MOST_TOKENS
from wattpack.errors import InputError

if TYPE_CHECKING:
    from capacity.serving.engine import EngineConstants

__all__ = ["ENGINE", "ServedRates"]

ANY_SECONDS: Final = 1e9
ENGINE: Final = "vllm"
"""Whose rules the servers of a plan follow."""

STARTED_AS: Final = "decoder-decode"
"""Catalogue entry with image, compilation and warm-up of a language model's server."""

_ALL_REUSED: Final = 0.999
_UNSERVED: Final = frozenset({"tensor_parallel", "number_format"})
"""Fields of a deployment that cannot be: weights or heads that do not fit, no such products."""
_DATA: Final = (
    "language_models.yaml",
    "serving_constants.yaml",
    "serving_errors.yaml",
    "roofs.csv",
)
_ROWS: Final = ("data/profiles", "reference/kernels")
"""Folders of measured rows and public tables; files there that no prediction reads count as well,
because which ones do is known only to the model, which takes seconds to load."""


class ServedRates:
    """Every question once: a fleet asks the same of each bucket in every plan."""

    def __init__(self, constants: EngineConstants | None = None) -> None:
        """Rates of an engine with these constants; the shipped ones if None."""
        self._constants = constants

    def digest(self) -> str:
        """Of the data behind the answers: models, constants, roofs, measured and public rows."""
        if self._constants is None:
            return _digest()
        return hashlib.sha256(f"{_digest()} {self._constants}".encode()).hexdigest()[:16]

    def require(self, language_model: str, gpu_models: Iterable[str]) -> None:
        """Pass what can be predicted.

        Raises:
            InputError: naming the model or GPU type that cannot.
        """
        try:
            find_language_model(language_model)
        except InputError as error:
            wanted = error.expected
            raise InputError("serving.languageModel", wanted, language_model) from error
        for name in gpu_models:
            try:
                require_roofs(name)
            except InputError as error:
                raise InputError("offers.gpuModel", error.expected, name) from error

    def rate(self, question: RateQuestion) -> BoardRate | None:
        """The largest rate within the limits; None: none is, or the model does not fit."""
        return _rate(question, self._constants)

    def margin(self) -> RateMargin:
        """What lower rates allow for."""
        bound = shipped_time_bound()
        return RateMargin(bound.factor, bound.confidence)

    def start_seconds(
        self, language_model: str, number_format: Literal["fp8", "bf16"], gpus: int
    ) -> float:
        """Mean of the start-up's parts, each board with its share of the weights."""
        from capacity.serving.deployment import LAYER_BITS

        model = find_language_model(language_model)
        weight_bytes = model.weight_bytes(min(LAYER_BITS[number_format], model.weight_bits)) / gpus
        server = find_workload(shipped_catalogue(), STARTED_AS)
        return startup_time(server, weight_bytes=weight_bytes).mean_seconds

    def kv_bytes(self, language_model: str, tokens: int) -> float:
        """KV cache of one request's prompt in 16 bits, over all boards of a replica."""
        return find_language_model(language_model).kv_bytes(tokens, "bf16", 1)


@lru_cache(maxsize=1)
def _digest() -> str:
    shipped = files("capacity")
    rows = [
        file
        for folder in _ROWS
        for file in sorted(shipped.joinpath(folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".gz")
    ]
    made = hashlib.sha256()
    for file in [*(shipped.joinpath("data", name) for name in _DATA), *rows]:
        made.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return made.hexdigest()[:16]


@lru_cache(maxsize=20_000)
def _rate(question: RateQuestion, constants: EngineConstants | None) -> BoardRate | None:
    # Loading the serving model takes seconds and 100 MB, which most forecasters never need.
    from capacity.serving.deployment import Deployment
    from capacity.serving.engine import find_engine
    from capacity.serving.request_mix import LatencyLimits, RequestBucket
    from capacity.serving.service_level import lower_rate, max_rate

    work = _work(question)
    if work is None:
        return None
    limits = LatencyLimits(
        _seconds(question.time_to_first_token_seconds, question.phase is not Phase.DECODE),
        _seconds(question.time_per_output_token_seconds, question.phase is not Phase.PREFILL),
    )
    engine = find_engine(ENGINE)
    try:
        served = Deployment(
            find_language_model(question.language_model),
            question.gpu_model,
            question.tensor_parallel,
            question.number_format,
            question.number_format,
            engine if constants is None else replace(engine, constants=constants),
            limit_watts=question.cap_watts,
            takes_watts=question.takes_watts,
        )
    except InputError as error:
        if error.field not in _UNSERVED:
            raise
        return None
    bucket = RequestBucket(*work)
    if served.users(bucket.prompt_tokens + bucket.output_tokens) < 1:
        return None
    found = max_rate(served, bucket, limits)
    if found is None:
        return None
    lower = lower_rate(served, bucket, limits, found, shipped_time_bound().factor)
    return BoardRate(found.requests_per_second, lower, found.mean_watts)


def _work(question: RateQuestion) -> tuple[int, int, float, float] | None:
    """Prompt, output, spread and share of the prompt in the cache; None: nothing to do."""
    prompt, output = question.input_tokens, question.output_tokens
    if question.phase is Phase.PREFILL:
        return prompt, 1, 0.0, 0.0
    if question.phase is Phase.DECODE:
        # The first token comes from the prefill; the cache of the prompt is handed over.
        return (min(prompt + 1, MOST_TOKENS), output - 1, 0.0, _ALL_REUSED) if output > 1 else None
    return prompt, output, 0.0, 0.0


def _seconds(limit: float | None, counts: bool) -> float:
    return limit if limit is not None and counts else ANY_SECONDS
