"""``python -m capacity.catalogue.entry_mix_fit [--check]``: every entry's mix on GPU types."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_mix import (
    MIXES_FILE,
    EntryMixes,
    entry_mix,
    mixes_document,
)
from capacity.catalogue.entry_table import entry_table_text
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_model import (
    REGULATION_SECONDS,
    Conditions,
    PhasePrice,
    price_cycle,
)
from capacity.catalogue.workload_schema import Workload
from capacity.work_mix import WorkMix, WorkPart

GPUS: Final = ("H200-SXM", "H100-SXM", "B200-SXM", "A100-SXM", "L40S", "A40")
"""Types that have a shipped profile and a datasheet."""

NO_LIMIT_WATTS: Final = 1e5
"""Beyond every board: the draw that the work asks for."""

DRIFT: Final = 0.05
"""Of a share between two fits: what the price model's own error is (docs/capacity.md)."""

_COMPUTE_CLASS: Final = {"Serving": "prefill", "Training": "training", "Batch": "batch"}
_OUTSIDE: Final = frozenset({"host", "storage", "network", "deadline"})


def mix_of(work: Workload, gpu: str) -> WorkMix:
    """The entry's phases as parts, at the draw that no limit holds."""
    priced = priced_gpu(gpu)
    cycle = price_cycle(work, priced, Conditions(limit_watts=NO_LIMIT_WATTS))
    parts = tuple(
        WorkPart(
            kernel_class=_class_of(phase, work),
            time_share=phase.seconds / cycle.seconds,
            busy_share=min(1.0, phase.busy_seconds / phase.seconds),
            draw_share=phase.uncapped_watts / priced.limit_watts,
            waits_outside=phase.binds in _OUTSIDE,
        )
        for phase in cycle.phases
    )
    return WorkMix(parts, is_short=cycle.seconds < REGULATION_SECONDS)


def fit_mixes() -> EntryMixes:
    """Of the whole catalogue."""
    catalogue = shipped_catalogue()
    return {gpu: {name: mix_of(work, gpu) for name, work in catalogue.items()} for gpu in GPUS}


def text() -> str:
    """The file's content, one line an entry."""
    return entry_table_text(mixes_document(fit_mixes()))


def is_stale() -> bool:
    """Whether the shipped table tells another story than the catalogue's prices."""
    return any(
        _differs(entry_mix(name, gpu), mix)
        for gpu, entries in fit_mixes().items()
        for name, mix in entries.items()
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file, or with ``--check`` say whether it tells what the catalogue gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    file = Path(str(files("capacity").joinpath(MIXES_FILE)))
    if args.check:
        stale = is_stale()
        print(f"{file.name} is {'stale' if stale else 'what the catalogue gives'}")
        return int(stale)
    file.write_text(text(), "utf-8")
    return 0


def _class_of(phase: PhasePrice, work: Workload) -> str:
    """Kernels that memory or launches hold up bear a cap as decoding does."""
    return _COMPUTE_CLASS[work.kind] if phase.binds == "compute" else "decode"


def _differs(old: WorkMix | None, new: WorkMix) -> bool:
    if old is None or len(old.parts) != len(new.parts):
        return True
    pairs = zip(old.parts, new.parts, strict=True)
    return any(
        (a.kernel_class, a.waits_outside) != (b.kernel_class, b.waits_outside)
        or abs(a.time_share - b.time_share) > DRIFT
        or abs(a.busy_share - b.busy_share) > DRIFT
        or abs((a.draw_share or 0.0) - (b.draw_share or 0.0)) > DRIFT
        for a, b in pairs
    )


if __name__ == "__main__":
    sys.exit(main())
