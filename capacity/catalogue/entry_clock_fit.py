"""``python -m capacity.catalogue.entry_clock_fit [--check]``: every entry under clock locks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_clock import (
    CLOCKS_FILE,
    ClockResponse,
    EntryClocks,
    clocks_document,
    entry_clock,
)
from capacity.catalogue.entry_mix_fit import GPUS
from capacity.catalogue.entry_table import entry_table_text
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_model import Conditions, price_cycle
from capacity.catalogue.workload_schema import Workload
from capacity.model.clock_map import DRAW_EXPONENT

SHARES: Final = (0.85, 0.7, 0.55, 0.4)
"""Locked over sustained clock at which entries are priced: 790 to 1,680 of an H200's 1,980 MHz."""

DRIFT: Final = 0.05
"""Of a share between two fits: what the price model's own error is (docs/capacity.md)."""


def response_of(work: Workload, gpu: str) -> ClockResponse:
    """Least squares of both laws over ``SHARES``."""
    priced = priced_gpu(gpu)
    full = price_cycle(work, priced)
    locked = [price_cycle(work, priced, Conditions(clock_share=share)) for share in SHARES]
    shares = np.array(SHARES)
    longer = np.array([cycle.seconds / full.seconds for cycle in locked]) - 1
    slower = 1 / shares - 1
    saved = 1 - np.array([cycle.mean_watts / full.mean_watts for cycle in locked])
    moving = 1 - shares**DRAW_EXPONENT
    return ClockResponse(
        float(np.clip((longer @ slower) / (slower @ slower), 0.0, 1.0)),
        float(np.clip(1 - (saved @ moving) / (moving @ moving), 0.0, 1.0)),
    )


def fit_clocks() -> EntryClocks:
    """Of the whole catalogue."""
    catalogue = shipped_catalogue()
    return {gpu: {name: response_of(work, gpu) for name, work in catalogue.items()} for gpu in GPUS}


def text() -> str:
    """The file's content, one line an entry."""
    return entry_table_text(clocks_document(fit_clocks()))


def differs(name: str, gpu: str) -> bool:
    """Whether the shipped table tells another story than the entry's price."""
    old, new = entry_clock(name, gpu), response_of(shipped_catalogue()[name], gpu)
    return (
        old is None
        or abs(old.clock_bound - new.clock_bound) > DRIFT
        or abs(old.standing_share - new.standing_share) > DRIFT
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file, or with ``--check`` say whether it tells what the catalogue gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    file = Path(str(files("capacity").joinpath(CLOCKS_FILE)))
    if args.check:
        stale = any(differs(name, gpu) for gpu in GPUS for name in shipped_catalogue())
        print(f"{file.name} is {'stale' if stale else 'what the catalogue gives'}")
        return int(stale)
    file.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
