"""A predictor of rates whose answers can be read off."""

from __future__ import annotations

from collections.abc import Iterable

from capacity.mix.predicted_rates import BoardRate, RateMargin, RateQuestion
from wattpack.errors import InputError


class FlatPredictor:
    """Serves 4 requests a second a board at the cap of 700 W, in proportion to the cap."""

    def digest(self) -> str:
        return "flat"

    def require(self, language_model: str, gpu_models: Iterable[str]) -> None:
        if language_model != "llama-3.1-8b":
            raise InputError("serving.languageModel", "llama-3.1-8b", language_model)

    def rate(self, question: RateQuestion) -> BoardRate | None:
        mean = 4.0 * question.tensor_parallel * question.cap_watts / 700.0
        return BoardRate(mean, 0.9 * mean, 0.9 * question.cap_watts * question.tensor_parallel)

    def margin(self) -> RateMargin:
        return RateMargin(1 / 0.9, 0.95)

    def start_seconds(self, language_model: str, number_format: str, gpus: int) -> float:
        return 0.0

    def kv_bytes(self, language_model: str, tokens: int) -> float:
        return 1e5 * tokens
