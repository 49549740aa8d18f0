"""A predictor of rates with an end: one plan's predictions must not keep all others waiting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from capacity.mix.predicted_rates import BoardRate, RateMargin, RatePredictor, RateQuestion
from wattpack.clock import Clock
from wattpack.errors import DeadlineExceededError
from wattpack.units import seconds_to_ns

__all__ = ["PREDICTION_SECONDS", "TimedPredictor"]

PREDICTION_SECONDS: Final = 120.0
"""Of one plan at a time: several hundred ordinary predictions. Those made are kept by whoever makes
them, so the next try goes on where this one stopped."""


class TimedPredictor:
    """Predicts until its time is over.

    Args:
        predictor: Who knows.
        clock: Time; it runs from now on.
        seconds: How long.
    """

    def __init__(
        self, predictor: RatePredictor, clock: Clock, seconds: float = PREDICTION_SECONDS
    ) -> None:
        self._predictor, self._clock, self._seconds = predictor, clock, seconds
        self._ends_ns = clock.monotonic_ns() + seconds_to_ns(seconds)
        self._made = 0

    def digest(self) -> str:
        """As the predictor's."""
        return self._predictor.digest()

    def require(self, language_model: str, gpu_models: Iterable[str]) -> None:
        """As the predictor's."""
        self._predictor.require(language_model, gpu_models)

    def margin(self) -> RateMargin:
        """As the predictor's."""
        return self._predictor.margin()

    def start_seconds(
        self, language_model: str, number_format: Literal["fp8", "bf16"], gpus: int
    ) -> float:
        """As the predictor's."""
        return self._predictor.start_seconds(language_model, number_format, gpus)

    def kv_bytes(self, language_model: str, tokens: int) -> float:
        """As the predictor's."""
        return self._predictor.kv_bytes(language_model, tokens)

    def rate(self, question: RateQuestion) -> BoardRate | None:
        """As the predictor's.

        Raises:
            DeadlineExceededError: the time is over.
        """
        if self._clock.monotonic_ns() >= self._ends_ns:
            words = f"{self._made} rates were predicted in {self._seconds:g} s, and more are asked"
            raise DeadlineExceededError(f"{words}; the next try goes on from there")
        found = self._predictor.rate(question)
        self._made += 1
        return found
