"""Catalogue entries as the mixes that a cap acts on: each phase's time, draw and what binds it.

Read from a table (``python -m capacity.catalogue.entry_mix_fit``), so that controller and planner
need neither the kernel model nor the measured rows behind it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from capacity.work_mix import WorkMix, WorkPart
from wattpack.errors import InputError

MIXES_FILE: Final = "data/entry_mixes.json"
SCHEMA: Final = "wattpack.io/entry-mixes/v1"

REFERENCE: Final = "H200-SXM"
"""Whose mixes stand for a type that has none: draws are shares of the limit."""

EntryMixes = dict[str, dict[str, WorkMix]]
"""GPU type to entry to mix."""


def entry_mix(entry: str, gpu: str) -> WorkMix | None:
    """The shipped entry on the GPU type, on the reference type where this one has no datasheet.

    None for a name that is no entry.
    """
    mixes = _shipped()
    return mixes.get(gpu, mixes[REFERENCE]).get(entry)


def has_own_mixes(gpu: str) -> bool:
    """Whether entries were priced on the type itself, and the reference type does not stand in."""
    return gpu in _shipped()


@lru_cache(maxsize=1)
def _shipped() -> EntryMixes:
    text = files("capacity").joinpath(MIXES_FILE).read_text("utf-8")
    return mixes_from_document(json.loads(text), MIXES_FILE)


def mixes_from_document(document: dict[str, Any], source: str = "") -> EntryMixes:
    """The table that ``mixes_document`` wrote.

    Raises:
        InputError: another schema, or shares that are none.
    """
    if document.get("schema") != SCHEMA or REFERENCE not in document.get("types", {}):
        raise InputError("schema", f"{SCHEMA} with {REFERENCE}", document.get("schema"), source)
    return {
        gpu: {
            entry: WorkMix(tuple(WorkPart(*part) for part in parts), bool(is_short))
            for entry, (is_short, parts) in entries.items()
        }
        for gpu, entries in document["types"].items()
    }


def mixes_document(mixes: EntryMixes) -> dict[str, Any]:
    """As plain values, rounded: for each entry whether it is short, and its parts."""
    types = {
        gpu: {entry: [mix.is_short, [_plain(p) for p in mix.parts]] for entry, mix in known.items()}
        for gpu, known in mixes.items()
    }
    return {"schema": SCHEMA, "types": types}


def _plain(part: WorkPart) -> list[str | float | bool | None]:
    # Down, so that rounded shares never add up to more than the whole.
    shares = [int(part.time_share * 1e5) / 1e5, int(part.busy_share * 1e5) / 1e5]
    draw = None if part.draw_share is None else round(part.draw_share, 4)
    return [part.kernel_class, *shares, draw, part.waits_outside]
