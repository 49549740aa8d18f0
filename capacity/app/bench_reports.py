"""What ``wattpack bench check`` and ``profile`` say about rows that were measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from capacity.bench.bench_identity import SIMULATED_DRIVER
from capacity.bench.fault_finder import find_faults
from capacity.bench.known_numbers import require_known_numbers
from capacity.bench.launch_bound import transition_batch
from capacity.bench.measured_profile import measured_profile
from capacity.bench.measurement_row import MeasurementRow, content_sha256, read_rows
from capacity.bench.row_checks import (
    require_one_board,
    require_own_name,
    require_possible,
    require_same_numbers,
    roofs_unknown,
)
from capacity.profile_book import SIMULATED_ANNOTATION
from capacity.profile_library import gpu_profile_object, shipped_library
from wattpack.errors import InputError, read_from

FINGERPRINT_ANNOTATION = "wattpack.io/numeric-fingerprint"
LAUNCH_BOUND_ANNOTATION = "wattpack.io/launch-bound-batch"


def check(args: argparse.Namespace) -> int:
    """0 if nothing speaks against the rows, 1 with the faults found or if roofs are not known.

    Raises:
        InputError: for rows that cannot be true.
    """
    rows = _rows_of_one_board(args.rows)
    known = _rows_of_one_board([args.known]) if args.known else []
    require_same_numbers(rows, known)
    findings = find_faults(rows, known)
    bad = sum(not row.ok for row in rows)
    who = rows[0].identity
    print(f"{who.gpu_product}, board {who.gpu_uuid_hash}: {len(rows)} rows, {bad} flagged")
    for finding in findings:
        print(f"{finding.fault}: {finding.evidence}")
    unknown = roofs_unknown(rows)
    if unknown:
        print(f"roofs_unknown: {unknown}")
    return 1 if findings or unknown else 0


def profile(args: argparse.Namespace) -> int:
    """Print a GPUProfile object.

    Raises:
        InputError: for rows that cannot be true, are of a faulty board, or of another type.
    """
    rows = _rows_of_one_board(args.rows)
    body = profile_object(rows, args.gpu, allow_simulated=args.allow_simulated)
    text = json.dumps(body, indent=2) if args.json else yaml.safe_dump(body, sort_keys=False)
    print(text.rstrip())
    return 0


def profile_object(
    rows: Sequence[MeasurementRow], gpu: str | None = None, *, allow_simulated: bool = False
) -> dict[str, Any]:
    """The GPUProfile object that rows of one board give.

    Args:
        gpu: The profile to fill; the rows' own type if None.
        allow_simulated: Make an object of simulated rows, marked so that no reader takes it.

    Raises:
        InputError: for rows of a faulty board, of another type or of one without a profile, and
            for simulated ones.
    """
    is_simulated = any(row.identity.is_simulated for row in rows)
    if is_simulated and not allow_simulated:
        raise InputError("driver", "rows of a real board, or --allow-simulated", SIMULATED_DRIVER)
    for finding in find_faults(rows):
        raise InputError("rows", f"a sound board, no {finding.fault}", finding.evidence)
    shipped = shipped_library().find(gpu or rows[0].identity.gpu_product)
    body = gpu_profile_object(measured_profile(rows, shipped), content_sha256(rows))
    annotations = {FINGERPRINT_ANNOTATION: rows[0].identity.numeric_fingerprint}
    annotations[SIMULATED_ANNOTATION] = "true" if is_simulated else ""
    annotations[LAUNCH_BOUND_ANNOTATION] = _launch_bound_batch(rows)
    body["metadata"]["annotations"] = {k: v for k, v in annotations.items() if v}
    return body


def _launch_bound_batch(rows: Sequence[MeasurementRow]) -> str:
    """Up to which batch a small stack waits for its host; with a > where no end was found."""
    batch = transition_batch(rows)
    if batch is None:
        return ""
    largest = max(getattr(row.kernel, "batch", 0) for row in rows if row.section == "transition")
    return f">{largest}" if batch == float("inf") else f"{batch:.0f}"


def _rows_of_one_board(files: Sequence[Path]) -> list[MeasurementRow]:
    rows = [row for file in files for row in read_rows(file)]
    with read_from(", ".join(map(str, files))):
        if not rows:
            raise InputError("rows", "at least one row", 0)
        require_sound_board(rows)
    return rows


def require_sound_board(rows: Sequence[MeasurementRow]) -> None:
    """Rows that may be true, of one board that is what its name says.

    Raises:
        InputError: naming the row.
    """
    require_one_board(rows)
    require_possible(rows)
    require_own_name(rows)
    require_known_numbers(rows[0].identity)
