"""What a pod sends to its gang at peak, as its annotations say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from scheduler_plugin.documents.link_groups import MAX_MEGABITS
from wattpack.errors import InputError
from wattpack.object_names import (
    GANG_ITERATION_BYTES_ANNOTATION,
    GANG_ITERATION_SECONDS_ANNOTATION,
    GANG_PEAK_BANDWIDTH_ANNOTATION,
)
from wattpack.quantities import parse_quantity

__all__ = ["peak_flow_megabits"]

BITS_PER_MEGABIT: Final = 10**6
LONGEST_SECONDS: Final = 86_400.0


def peak_flow_megabits(pod: Mapping[str, Any]) -> int:
    """Megabits a second, rounded up; 0 where nothing is said.

    The stated peak, else the mean over an iteration: who sends in bursts states the peak.

    Raises:
        InputError: naming the annotation that is none, or the one that is missing.
    """
    annotations = pod["metadata"].get("annotations") or {}
    if (text := annotations.get(GANG_PEAK_BANDWIDTH_ANNOTATION)) is not None:
        bits = parse_quantity(_field(GANG_PEAK_BANDWIDTH_ANNOTATION), text)
        return _bounded(-(-bits // BITS_PER_MEGABIT), GANG_PEAK_BANDWIDTH_ANNOTATION, text)
    names = (GANG_ITERATION_BYTES_ANNOTATION, GANG_ITERATION_SECONDS_ANNOTATION)
    if not any(name in annotations for name in names):
        return 0
    for name in names:
        if name not in annotations:
            raise InputError(_field(name), "a figure beside the other annotation", None)
    sent = parse_quantity(_field(names[0]), annotations[names[0]])
    seconds = _seconds(annotations[names[1]])
    megabits = math.ceil(8 * sent / seconds / BITS_PER_MEGABIT)
    return _bounded(megabits, names[0], annotations[names[0]])


def _seconds(text: object) -> float:
    try:
        seconds = float(str(text))
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= LONGEST_SECONDS:
        field = _field(GANG_ITERATION_SECONDS_ANNOTATION)
        raise InputError(field, f"seconds above 0, up to {LONGEST_SECONDS:.0f}", text)
    return seconds


def _bounded(megabits: int, annotation: str, text: object) -> int:
    if megabits > MAX_MEGABITS:
        raise InputError(_field(annotation), f"at most {MAX_MEGABITS} megabits a second", text)
    return megabits


def _field(annotation: str) -> str:
    return f"metadata.annotations.{annotation}"
