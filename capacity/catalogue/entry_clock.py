"""What a clock lock leaves of speed and draw of catalogue entries on GPU types.

Read from a table (``python -m capacity.catalogue.entry_clock_fit``), so that the controller needs
neither the kernel model nor the measured rows behind it. Both figures follow from the roofline and
an assumed law of draw (``capacity.model.clock_map``): no sweep of locks on a data-centre GPU is
published under a licence that permits use.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from capacity.model.clock_map import ClockMap, Floats, clock_map
from wattpack.errors import InputError
from wattpack.units import require_number

CLOCKS_FILE: Final = "data/entry_clocks.json"
SCHEMA: Final = "wattpack.io/entry-clocks/v1"


@dataclass(frozen=True, slots=True)
class ClockResponse:
    """One kind of work on one GPU type under a lock.

    Attributes:
        clock_bound: Share of the time at full clock that waits for the clock: near 1 for large
            products and for chains of dependent operations, near 0 where memory or the host binds.
        standing_share: Of the mean draw at full clock, that no clock lowers.
    """

    clock_bound: float
    standing_share: float

    def __post_init__(self) -> None:
        require_number("clock_bound", self.clock_bound, minimum=0, maximum=1)
        require_number("standing_share", self.standing_share, minimum=0, maximum=1)

    def speed(self, gpu: str, clock_share: Floats) -> Floats:
        """Relative to the full clock, in (0, 1], shape of ``clock_share``."""
        return clock_map(gpu).throughput(clock_share, self.clock_bound)

    def draw_watts(self, gpu: str, clock_share: Floats, open_watts: float) -> Floats:
        """Mean draw of work that draws ``open_watts`` at the full clock."""
        law = ClockMap(clock_map(gpu).provenance, self.standing_share)
        return law.draw_watts(clock_share, open_watts)


EntryClocks = dict[str, dict[str, ClockResponse]]
"""GPU type to entry to response."""


def entry_clock(entry: str, gpu: str) -> ClockResponse | None:
    """The shipped entry on the GPU type; None where nobody priced it there."""
    return _shipped().get(gpu, {}).get(entry)


@lru_cache(maxsize=1)
def _shipped() -> EntryClocks:
    text = files("capacity").joinpath(CLOCKS_FILE).read_text("utf-8")
    return clocks_from_document(json.loads(text), CLOCKS_FILE)


def clocks_from_document(document: dict[str, Any], source: str = "") -> EntryClocks:
    """The table that ``clocks_document`` wrote.

    Raises:
        InputError: another schema, or shares that are none.
    """
    if document.get("schema") != SCHEMA:
        raise InputError("schema", SCHEMA, document.get("schema"), source)
    return {
        gpu: {entry: ClockResponse(*figures) for entry, figures in entries.items()}
        for gpu, entries in document["types"].items()
    }


def clocks_document(clocks: EntryClocks) -> dict[str, Any]:
    """As plain values, rounded."""
    types = {
        gpu: {
            entry: [round(found.clock_bound, 3), round(found.standing_share, 3)]
            for entry, found in entries.items()
        }
        for gpu, entries in clocks.items()
    }
    return {"schema": SCHEMA, "types": types}
