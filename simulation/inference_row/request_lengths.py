"""How long prompts and answers are: even in the published ranges, or drawn from real requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.traces import TraceName, shipped_trace

__all__ = ["AZURE", "LENGTHS", "PUBLISHED", "LengthsName", "RequestLengths"]

Floats = NDArray[np.float64]
LengthsName = Literal["published", "azure"]

LEAST_OUTPUT: Final = 2.0
"""So that there is a time between tokens."""

TRACE_OF_CLASS: Final[dict[str, TraceName]] = {
    "summarise": "code",
    "chat-low": "conversation",
    "search": "conversation",
    "chat-high": "conversation",
}
"""Long prompts with short answers stand for summaries, conversations for the rest. Assumed."""


class RequestLengths(Protocol):
    """Lengths of the requests of each class of ``POLCA_CLASSES``."""

    def drawn(self, k: int, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Tokens of prompts and of answers of n requests of a class, (n,) each."""
        ...

    def prompts(self, k: int) -> Floats:
        """Prompts of which a class's are a fair sample, tokens."""
        ...

    def mean_output(self, k: int) -> float:
        """Tokens of a class's mean answer."""
        ...


@dataclass(frozen=True, slots=True)
class EvenLengths:
    """Even in the ranges of POLCA's workloads."""

    def drawn(self, k: int, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Each drawn for itself."""
        one = POLCA_CLASSES[k]
        prompt = rng.integers(*one.prompt_tokens, n, endpoint=True)
        output = rng.integers(*one.output_tokens, n, endpoint=True)
        return prompt.astype(np.float64), output.astype(np.float64)

    def prompts(self, k: int) -> Floats:
        """From the shortest to the longest."""
        return np.linspace(*POLCA_CLASSES[k].prompt_tokens, 101, dtype=np.float64)

    def mean_output(self, k: int) -> float:
        """The middle of the range."""
        return sum(POLCA_CLASSES[k].output_tokens) / 2.0


@dataclass(frozen=True, slots=True)
class AzureLengths:
    """Of the requests of Azure's traces of 2023, each prompt with its own answer."""

    def _pairs(self, k: int) -> tuple[Floats, Floats]:
        trace = shipped_trace(TRACE_OF_CLASS[POLCA_CLASSES[k].name])
        return trace.prompt_tokens, np.maximum(trace.output_tokens, LEAST_OUTPUT)

    def drawn(self, k: int, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Requests of the trace, with replacement."""
        prompts, outputs = self._pairs(k)
        which = rng.integers(0, len(prompts), n)
        return np.maximum(prompts[which], 1.0), outputs[which]

    def prompts(self, k: int) -> Floats:
        """All of the trace."""
        return self._pairs(k)[0]

    def mean_output(self, k: int) -> float:
        """Of the trace."""
        return float(self._pairs(k)[1].mean())


PUBLISHED: Final = EvenLengths()
AZURE: Final = AzureLengths()
LENGTHS: Final[dict[LengthsName, RequestLengths]] = {"published": PUBLISHED, "azure": AZURE}
