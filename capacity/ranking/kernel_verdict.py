"""What the judge says of one kernel: refused for a named reason, or ranked, with what it doubts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Reason = Literal[
    "not_loadable",
    "raised",
    "died",
    "timeout",
    "memory",
    "wraps_library",
    "falls_back",
    "looks_around",
    "not_a_plain_array",
    "wrong_shape",
    "wrong_result",
    "precision_downgrade",
    "unfinished_result",
    "stale_result",
    "modified_inputs",
    "side_stream",
    "timers_disagree",
    "patched",
    "left_threads",
    "left_processes",
    "above_roof",
]

Doubt = Literal["faster_than_plausible", "nondeterministic", "unstable_time"]

PLAUSIBLE: Final = 1.1
"""A tuned library is rarely beaten by more; KernelBench distrusts the same 10 %."""


class KernelRefused(Exception):
    """The kernel may not be ranked.

    Args:
        reason: The rule that it broke.
        evidence: What was seen, with figures.
    """

    def __init__(self, reason: Reason, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason: Reason = reason
        self.evidence = evidence


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one run, by the judge's clock.

    Attributes:
        cache_state: ``cold`` if the operands of a round fill the cache three times over, ``warm``
            if all of them fit into half of it.
        device_seconds: Median of what the events in the kernel's process claim.
    """

    cache_state: Literal["cold", "warm"]
    median_seconds: float
    p10_seconds: float
    p90_seconds: float
    relative_std: float
    runs: int
    device_seconds: float


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """One shape of the task."""

    shape: str
    timings: tuple[Timing, ...]
    worst_error: float
    """Root mean square error over what rounding excuses, worst style."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of one kernel's trial.

    Attributes:
        reason: Why it was refused, None if it is ranked.
        source_sha256: Of the file that holds the kernel.
        device_minutes: How long its process held the device.
        seed: The operands' seed, drawn for this trial and told only now.
    """

    kernel: str
    source_sha256: str
    reason: Reason | None
    evidence: str
    shapes: tuple[ShapeResult, ...]
    doubts: tuple[Doubt, ...]
    device_minutes: float
    seed: int

    @property
    def refused(self) -> bool:
        """Whether it may not be ranked."""
        return self.reason is not None
