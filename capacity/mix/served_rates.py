"""Rates of served language models from the serving model: ``RatePredictor`` over ``max_rate``.

A type or width that cannot hold the model, or lacks its number format, serves nothing there: that
is an answer and no error. An unknown model or GPU type is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Final

from capacity.language_models import find_language_model
from capacity.mix.mix_problem import Phase
from capacity.mix.predicted_rates import BoardRate, RateQuestion
from capacity.roofs import require_roofs
from wattpack.api.capacity_plan import MOST_TOKENS
from wattpack.errors import InputError

__all__ = ["LOWER_SHARE", "ServedRates"]

LOWER_SHARE: Final = 0.76
"""What hard tiers count on, over the mean. Assumed, not measured, as no interval of rates was: a
one-sided 90 % bound of a log-normal error whose median size is 12 %, the line that the serving
model is held to: exp(-1.28 x ln(1.12) / 0.674) = 0.81, and 6 % for the kernels' own."""

ANY_SECONDS: Final = 1e9
_ALL_REUSED: Final = 0.999
_UNSERVED: Final = frozenset({"tensor_parallel", "number_format"})
"""Fields of a deployment that cannot be: weights or heads that do not fit, no such products."""
_DATA: Final = ("language_models.yaml", "serving_constants.yaml", "roofs.csv")
_ROWS: Final = ("data/profiles", "reference/kernels")
"""Folders of measured rows and public tables; files there that no prediction reads count as well,
because which ones do is known only to the model, which takes seconds to load."""


class ServedRates:
    """Every question once: a fleet asks the same of each bucket in every plan."""

    def digest(self) -> str:
        """Of the data behind the answers: models, constants, roofs, measured and public rows."""
        return _digest()

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
        return _rate(question)

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
def _rate(question: RateQuestion) -> BoardRate | None:
    # Loading the serving model takes seconds and 100 MB, which most forecasters never need.
    from capacity.serving.deployment import Deployment
    from capacity.serving.service_level import LatencyLimits, RequestBucket, max_rate

    work = _work(question)
    if work is None:
        return None
    limits = LatencyLimits(
        _seconds(question.time_to_first_token_seconds, question.phase is not Phase.DECODE),
        _seconds(question.time_per_output_token_seconds, question.phase is not Phase.PREFILL),
    )
    try:
        served = Deployment(
            find_language_model(question.language_model),
            question.gpu_model,
            question.tensor_parallel,
            question.number_format,
            question.number_format,
            limit_watts=question.cap_watts,
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
    mean = found.requests_per_second
    return BoardRate(mean, LOWER_SHARE * mean, found.mean_watts)


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
