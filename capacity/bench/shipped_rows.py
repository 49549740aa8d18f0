"""The measured rows that ship with wattpack: ``capacity/data/profiles``, one file a run."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Final

from capacity.bench.measurement_row import MeasurementRow, read_rows

FOLDER: Final = "data/profiles"
SUFFIX: Final = ".jsonl.gz"

WHOLE_RUNS: Final = {"H200-SXM": "h200", "H100-SXM": "h100"}
"""Types with rows of a whole benchmark, and the name of the run."""


def shipped_runs() -> tuple[str, ...]:
    """Names of all runs, sorted; none where the folder was left out."""
    folder = files("capacity").joinpath(FOLDER)
    if not folder.is_dir():
        return ()
    names = (file.name for file in folder.iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)))


def shipped_rows(run: str) -> list[MeasurementRow]:
    """The rows of one run, for example ``h200``."""
    with as_file(files("capacity").joinpath(FOLDER, f"{run}{SUFFIX}")) as file:
        return read_rows(file)
