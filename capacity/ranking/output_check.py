"""Is the result right? From sums that the judge made where the arrays are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from capacity.ranking.kernel_verdict import KernelRefused
from capacity.ranking.ranked_task import Expected

RMS_LIMIT: Final = 0.75
"""Root mean square error over the rounding unit. One honest rounding of the result has 0.4, a
second one on the way 0.6; products of narrower operands or sums of narrower parts have more."""

WORST_LIMIT: Final = 12.0
"""The same for the worst element, over its own unit and the mean one."""

DOWNGRADE: Final = 0.1
"""A relative error below this is the right formula in too few bits; above, another result."""

TELLING: Final = 4.0
"""A lazy answer has to miss by this many times the limit, or the task cannot tell."""


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far one result is from the right one.

    Attributes:
        missing: Elements that are still poisoned or are no number.
        rms: Over the unit.
        worst: Over the unit.
        relative: Norm of the difference over the norm of the right result.
    """

    missing: int
    rms: float
    worst: float
    relative: float

    @property
    def right(self) -> bool:
        """Whether rounding excuses it."""
        return not self.missing and self.rms <= RMS_LIMIT and self.worst <= WORST_LIMIT


def output_error(result: Any, expected: Expected) -> OutputError:
    """The error of a result given in double precision."""
    gap = abs(result - expected.value)
    missing = int((~(gap < math.inf)).sum())
    if missing:
        return OutputError(missing, math.inf, math.inf, math.inf)
    unit_rms = float((expected.unit**2).mean()) ** 0.5
    gap_rms = float((gap**2).mean()) ** 0.5
    value_rms = float((expected.value**2).mean()) ** 0.5
    worst = float((gap / (expected.unit + unit_rms)).max())
    return OutputError(0, gap_rms / unit_rms, worst, gap_rms / max(value_rms, 1e-300))


def require_right(error: OutputError, elements: int, where: str) -> None:
    """Nothing happens if the result is right.

    Raises:
        KernelRefused: naming what is wrong with it.
    """
    if error.right:
        return
    if error.missing:
        share = error.missing / elements
        raise KernelRefused(
            "unfinished_result",
            f"{where}: {error.missing} elements ({share:.0%}) unwritten or no number when the "
            "kernel was said to have ended",
        )
    words = f"{where}: relative error {error.relative:.2g}, {error.rms:.1f} times what rounding"
    if error.relative < DOWNGRADE:
        raise KernelRefused("precision_downgrade", f"{words} in the task's format explains")
    raise KernelRefused("wrong_result", f"{words} explains")


def lazy_answers(expected: Expected, other: Expected) -> dict[str, OutputError]:
    """How answers without work would score: a task on which one of them passes judges nothing.

    Args:
        other: Of operands from another seed.
    """
    value = expected.value
    answers = {"zeros": value * 0, "the result of another seed": other.value}
    for axis, size in enumerate(value.shape):
        if size > 1:
            mean = value.mean(axis)
            answers[f"the mean along axis {axis}"] = (
                value * 0 + mean[(slice(None),) * axis + (None,)]
            )
    return {name: output_error(answer, expected) for name, answer in answers.items()}


def untold(expected: Expected, other: Expected) -> str | None:
    """The lazy answer that this task cannot tell from a right one; None if there is none."""
    for name, error in lazy_answers(expected, other).items():
        if error.rms < TELLING * RMS_LIMIT:
            return name
    return None
