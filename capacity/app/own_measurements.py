"""``--measurements FILE``: own runs correct an engine's constants; the answer says how well."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capacity.catalogue.serving_measurement import parse_measurements
from capacity.kernels import NumberFormat
from wattpack.documents import read_text

if TYPE_CHECKING:
    from capacity.serving.measured_runs import Correction


def add_measurements(parser: argparse._ActionsContainer) -> None:
    """The flag."""
    parser.add_argument(
        "--measurements", type=Path, nargs="+", metavar="FILE",
        help="rows of own runs (`wattpack bench import --out`) of this engine and these formats: "
        "the engine's constants are corrected by them where that is better on runs held out",
    )  # fmt: skip


def correction_of(
    files: list[Path] | None, engine: str, number_format: NumberFormat, cache_format: NumberFormat
) -> Correction | None:
    """What the files' runs change; None without files.

    Raises:
        InputError: naming file and line, or the run that cannot have been.
    """
    if not files:
        return None
    # The serving model takes seconds to load, which a plan without own runs may not need.
    from capacity.serving.measured_runs import correct, runs_of

    rows = [row for file in files for row in parse_measurements(read_text(file), str(file))]
    return correct(runs_of(rows, engine, number_format, cache_format))


def correction_json(made: Correction) -> dict[str, Any]:
    """Errors before and after, and the constants in force."""
    return {
        "runs": made.runs,
        "isUsed": made.is_used,
        "isHeldOut": made.is_held_out,
        "tpotErrorBefore": round(made.tpot_before, 4),
        "tpotErrorAfter": round(made.tpot_after, 4),
        "ttftErrorBefore": round(made.ttft_before, 4),
        "ttftErrorAfter": round(made.ttft_after, 4),
        "constants": {name: float(f"{v:.4g}") for name, v in asdict(made.constants).items()},
    }


def correction_line(made: Correction) -> str:
    """The same for people."""
    used = "used" if made.is_used else "not used, since the shipped constants are no worse"
    if made.is_held_out:
        judged = f"{made.runs} own runs, median error on runs held out"
    else:
        judged = "one run: not held out, error on itself (other loads may err more)"
    return (
        f"{judged}: time per token {made.tpot_before:.1%} → "
        f"{made.tpot_after:.1%}, first token {made.ttft_before:.1%} → {made.ttft_after:.1%}; {used}"
    )
