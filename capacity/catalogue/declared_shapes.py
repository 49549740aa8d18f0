"""``python -m capacity.catalogue.declared_shapes [--check]``: shapes of shipped entries anew.

The shape of a derived entry is what the capacity model says of it on the reference GPU, written
down so that ``catalogue_signature`` can hold it against a plant with other laws. Nobody sets one by
hand; to be run again when measured rows or a law of the model change.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from capacity.catalogue.catalogue_files import FOLDER, shipped_catalogue
from capacity.catalogue.draw_shape import draw_shape
from capacity.catalogue.priced_gpu import REFERENCE_GPU, priced_gpu
from capacity.catalogue.workload_model import price_cycle
from capacity.catalogue.workload_schema import DrawShape

DRIFT: Final = 0.03
"""Of the limit, and of the period: prices move a little with every measured row, which is no reason
for other files."""

_NAME: Final = re.compile(r"^  ([\w-]+):$")
_SHAPE: Final = re.compile(r"^    shape: \{.*\}$")


def derived_shapes() -> dict[str, DrawShape]:
    """What the model says of every entry whose shape was not measured."""
    gpu = priced_gpu(REFERENCE_GPU)
    return {
        name: draw_shape(price_cycle(entry, gpu), gpu)
        for name, entry in shipped_catalogue().items()
        if entry.evidence == "derived"
    }


def stale_shapes(shapes: Mapping[str, DrawShape]) -> list[str]:
    """Entries that declare another shape, or none."""
    entries = shipped_catalogue()
    return [name for name, shape in shapes.items() if _differs(shape, entries[name].shape)]


def _differs(shape: DrawShape, declared: DrawShape | None) -> bool:
    if declared is None:
        return True
    period = abs(declared.period_seconds / shape.period_seconds - 1)
    return max(abs(declared.level - shape.level), abs(declared.depth - shape.depth), period) > DRIFT


def rewritten(text: str, shapes: Mapping[str, DrawShape]) -> str:
    """A catalogue file with those shapes; every other byte stays."""
    lines, name = text.splitlines(), ""
    for i, line in enumerate(lines):
        if found := _NAME.match(line):
            name = found[1]
        elif _SHAPE.match(line) and name in shapes:
            shape = shapes[name]
            lines[i] = (
                f"    shape: {{level: {shape.level:.3f}, depth: {shape.depth:.3f}, "
                f"period_seconds: {shape.period_seconds:.4g}}}"
            )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the shapes, or with ``--check`` name the entries that declare another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    shapes = derived_shapes()
    if args.check:
        stale = stale_shapes(shapes)
        print(f"stale: {', '.join(stale)}" if stale else "shapes are what the model says")
        return int(bool(stale))
    for file in sorted(Path(str(files("capacity").joinpath(FOLDER))).glob("*.yaml")):
        file.write_text(rewritten(file.read_text("utf-8"), shapes), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
