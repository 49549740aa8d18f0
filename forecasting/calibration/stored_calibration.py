"""A pool's calibration as plain numbers and texts, and back: it outlives the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Final

from forecasting.calibration.feedback import Feedback
from forecasting.calibration.pooled import PooledCalibration
from forecasting.calibration.score_sketch import ScoreSketch
from forecasting.calibration.stored_fields import Fields
from forecasting.series_source import Floats
from wattpack.errors import InputError

VERSION: Final = 6
"""Of the stored form and of what its numbers mean."""


def calibration_to_json(kept: PooledCalibration) -> dict[str, object]:
    """What ``calibration_from_json`` reads, of plain numbers, texts, lists and dicts."""
    return {
        "version": VERSION,
        "levels": list(kept.levels),
        "unit": kept.unit,
        "feedback": asdict(kept.feedback),
        "sketch": kept.sketch.to_json(),
        "windows": kept.windows,
        "drift": kept.drift.tolist(),
        "own": {name: row.tolist() for name, row in kept.own.items()},
        "tops": {name: row.tolist() for name, row in kept.tops.items()},
        "ignored": kept.ignored,
        "until_seconds": kept.until_seconds,
    }


def calibration_from_json(document: object) -> PooledCalibration:
    """The state that was written.

    Raises:
        InputError: another version's, or damaged; start anew then.
    """
    field_of = Fields(document, "calibration")
    field_of.version(VERSION)
    levels = field_of.numbers("levels", (None,))
    feedback = field_of.inner("feedback")
    unit = field_of.text("unit")
    if unit not in ("spread", "change"):
        raise InputError("calibration.unit", "spread or change", unit)
    return PooledCalibration(
        levels=tuple(levels.tolist()),
        feedback=Feedback(**{f.name: feedback.number(f.name) for f in fields(Feedback)}),
        sketch=ScoreSketch.from_json(field_of.inner("sketch"), len(levels)),
        windows=field_of.number("windows"),
        drift=field_of.numbers("drift", (len(levels),)),
        own=_rows(field_of.inner("own"), len(levels)),
        tops=_rows(field_of.inner("tops"), 1 + len(levels)),
        ignored=field_of.whole("ignored"),
        unit="spread" if unit == "spread" else "change",
        until_seconds=field_of.whole("until_seconds"),
    )


def _rows(stored: Fields, width: int) -> Mapping[str, Floats]:
    """Numbers of each series."""
    return MappingProxyType({name: stored.numbers(name, (width,)) for name in stored})
