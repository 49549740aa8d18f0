"""Where operands and results lie in the one piece of memory that judge and kernel share.

The kernel's process is told this layout and nothing else: neither seeds nor right results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from capacity.kernels import FORMAT_BYTES, NumberFormat
from capacity.ranking.ranked_task import RankedTask, Shape

ALIGNMENT: Final = 512


@dataclass(frozen=True, slots=True)
class Place:
    """One array: byte offset and shape."""

    offset: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Slot:
    """Operands and result of one run."""

    operands: tuple[Place, ...]
    result: Place


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """All slots of one shape; results lie together at the end, so that one copy takes them all.

    Attributes:
        results_at: First byte of the results.
        nbytes: Of everything.
    """

    number_format: NumberFormat
    slots: tuple[Slot, ...]
    results_at: int
    nbytes: int

    def as_dict(self) -> dict[str, Any]:
        """For the kernel's process."""
        return {
            "number_format": self.number_format,
            "slots": [
                {
                    "operands": [[place.offset, list(place.shape)] for place in slot.operands],
                    "result": [slot.result.offset, list(slot.result.shape)],
                }
                for slot in self.slots
            ],
        }


def operand_bytes(task: RankedTask) -> int:
    """Of one slot's operands."""
    return sum(_bytes(shape, task.number_format) for shape in task.input_shapes)


def slot_bytes(task: RankedTask) -> int:
    """Of one slot."""
    return operand_bytes(task) + _bytes(task.output_shape, task.number_format)


def slot_layout(task: RankedTask, slots: int) -> SlotLayout:
    """Operands of all slots, then their results."""
    at = 0
    operands: list[tuple[Place, ...]] = []
    for _ in range(slots):
        places = []
        for shape in task.input_shapes:
            places.append(Place(at, shape))
            at += _bytes(shape, task.number_format)
        operands.append(tuple(places))
    results_at = at
    size = _bytes(task.output_shape, task.number_format)
    made = tuple(
        Slot(places, Place(results_at + i * size, task.output_shape))
        for i, places in enumerate(operands)
    )
    return SlotLayout(task.number_format, made, results_at, results_at + slots * size)


def _bytes(shape: Shape, number_format: NumberFormat) -> int:
    size = math.prod(shape) * FORMAT_BYTES[number_format]
    return -(-size // ALIGNMENT) * ALIGNMENT
