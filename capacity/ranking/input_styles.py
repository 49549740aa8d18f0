"""Operands a ranked kernel is tried with: random always, at several magnitudes.

A kernel that was made for one distribution, that computes in fewer bits than it was given, or whose
partial sums are narrow is right on standard normal operands and wrong on one of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from capacity.ranking.ranked_task import RankedTask

Draw = Callable[[tuple[int, ...]], Any]
"""Standard normal numbers of a shape, in double or single precision."""


@dataclass(frozen=True, slots=True)
class InputStyle:
    """One distribution of the operands.

    Attributes:
        make: From a draw and the task, the operands in order.
        climbing: Partial sums climb far above the result before they come back.
    """

    name: str
    make: Callable[[Draw, RankedTask], tuple[Any, ...]]
    climbing: bool = False


def _normal(draw: Draw, task: RankedTask) -> tuple[Any, ...]:
    return tuple(draw(shape) for shape in task.input_shapes)


def _scaled(exponents: tuple[int, ...]) -> Callable[[Draw, RankedTask], tuple[Any, ...]]:
    def make(draw: Draw, task: RankedTask) -> tuple[Any, ...]:
        return tuple(
            draw(shape) * 2.0 ** exponents[min(i, len(exponents) - 1)]
            for i, shape in enumerate(task.input_shapes)
        )

    return make


def _cancelling(draw: Draw, task: RankedTask) -> tuple[Any, ...]:
    """Sums that climb far and come back: partial results need all bits of the accumulator."""
    x, w = (draw(shape) for shape in task.input_shapes)
    half = x.shape[-1] // 2
    x = x * 0.125 + 1.0
    w = w * 0.125 + 1.0
    w[:, half : 2 * half] = -w[:, :half]
    return x, w


def _outliers(draw: Draw, task: RankedTask) -> tuple[Any, ...]:
    """A few large channels, as activations of language models have them."""
    x, w = (draw(shape) for shape in task.input_shapes)
    x[:, :: max(2, x.shape[1] // 4)] *= 64.0
    return x, w


def _offset_values(draw: Draw, task: RankedTask) -> tuple[Any, ...]:
    q, k, v = (draw(shape) for shape in task.input_shapes)
    return q, k, v + 0.5


OTHER_STYLES: Final = 0.25
"""Share of the timed runs whose operands are of another distribution than the normal one."""

NORMAL: Final = InputStyle("normal", _normal)


def styles(task: RankedTask) -> tuple[InputStyle, ...]:
    """The distributions of a task, the timed one first."""
    wide = task.number_format != "fp16"
    if task.name == "gemm":
        far = 20 if wide else 3
        return (
            NORMAL,
            InputStyle("large", _scaled((far, far if wide else 0))),
            InputStyle("small", _scaled((-far, -far if wide else 0))),
            InputStyle("cancelling", _cancelling, climbing=True),
            InputStyle("outliers", _outliers),
        )
    if task.name == "bandwidth":
        return NORMAL, InputStyle("large", _scaled((40,))), InputStyle("small", _scaled((-40,)))
    far = 20 if wide else 4
    return (
        NORMAL,
        InputStyle("sharp", _scaled((2, 0, 0))),
        InputStyle("large values", _scaled((0, 0, far))),
        InputStyle("small values", _scaled((0, 0, -far))),
        InputStyle("offset values", _offset_values),
    )


class TimedStyles:
    """Who is careful only while examined meets all the others while timed, too.

    They are dealt like cards, all of them before one comes again: drawn one by one, a kernel that
    is wrong on two of four got past 28 runs once in forty.

    Args:
        of_task: The distributions of a task, the timed one first.
        rng: Picks the runs and the order.
    """

    def __init__(self, of_task: Sequence[InputStyle], rng: random.Random) -> None:
        self._normal, *self._others = of_task
        self._rng = rng
        self._left: list[InputStyle] = []

    def of_a_round(self, runs: int) -> list[InputStyle]:
        """Of each run: mostly normal, the others at places that nobody can know."""
        others = max(1, round(OTHER_STYLES * runs))
        dealt = [self._dealt() for _ in range(others)]
        wanted = [*dealt, *[self._normal] * (runs - others)]
        self._rng.shuffle(wanted)
        return wanted

    def _dealt(self) -> InputStyle:
        if not self._left:
            self._left = self._rng.sample(self._others, len(self._others))
        return self._left.pop()
