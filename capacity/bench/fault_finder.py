"""What was wrong with the board while a run was measured, judged from its rows alone.

Four faults, each with its own sign:

    busy neighbour   a run without gaps is slower than fast bursts, though nothing holds the board
    clock lock       a loaded board below its highest clock, though nothing holds it
    cap              a board that is held, at a draw below the limit that it tells
    MIG slice        memory and products both far below the board's type, at full clock

A process of another container is in no process list, so a neighbour has to be seen in the times:
a burst of 2 ms often falls into one time slice, a second of work never does. Measured beside a
process that multiplies all the time: 1.66 (median of 6 rows); alone: at most 1.009 (366 rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from capacity.bench.measurement_row import Flag, MeasurementRow
from capacity.kernels import Gemm
from capacity.roofs import find_roofs

Fault = Literal["busy_neighbour", "clock_lock", "cap", "mig_slice"]

SLOWER_WITHOUT_GAPS: Final = 1.04
"""Sustained time over the 10th percentile of the bursts of a row that had company."""

LEAST_ROWS: Final = 2
LEAST_ROW_SHARE: Final = 0.1
"""A neighbour that comes and goes touches some rows only; one odd row is no neighbour."""

LOCKED_CLOCK: Final = 0.95
"""Share of the highest clock, median. Sound boards that nothing holds: 1.00."""

HELD_BELOW: Final = 0.93
"""Mean draw of held rows over the told limit, median. Boards at their own limit: 0.98 to 1.00."""

SLICE: Final = 0.8
"""Share of the type's rates; boards of one type differ by 1 % (time)."""

LARGE_FLOPS: Final = 1e11
HELD_REASONS: Final = ~0x3
"""Any clock event reason but idle (0x1) and a clock setting (0x2): power, heat, hardware."""

_TOLD: Final[dict[Flag, Fault]] = {
    "shared_gpu": "busy_neighbour",
    "capped": "cap",
    "mig_slice": "mig_slice",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault and what speaks for it."""

    fault: Fault
    evidence: str


def find_faults(
    rows: Sequence[MeasurementRow], known: Iterable[MeasurementRow] = ()
) -> tuple[Finding, ...]:
    """The faults of the board that the rows were measured on, at most one finding each.

    Args:
        rows: Of one run.
        known: Rows of a sound board of the same type; without them the datasheet stands in.
    """
    found = {_TOLD[f]: "seen before the run" for row in rows for f in row.flags if f in _TOLD}
    # At rest a board lowers its clock, and what holds it in section caps was asked for.
    rows = [row for row in rows if row.section not in {"idle", "caps"}]
    sound = list(known)
    measured: dict[Fault, str] = {
        "busy_neighbour": _neighbour(rows),
        "clock_lock": _lock(rows, sound),
        "cap": _cap(rows),
        "mig_slice": _slice(rows, sound),
    }
    if measured["busy_neighbour"]:
        # A neighbour takes time and mixes its draw with ours: both signs below mean nothing then.
        measured |= {"cap": "", "mig_slice": ""}
    found |= {fault: evidence for fault, evidence in measured.items() if evidence}
    return tuple(Finding(fault, found[fault]) for fault in sorted(found))


def _neighbour(rows: Iterable[MeasurementRow]) -> str:
    ratios = [
        row.power.sustained_seconds / row.latency.p10_seconds
        for row in rows
        if row.power and not _held(row)
    ]
    slow = [ratio for ratio in ratios if ratio > SLOWER_WITHOUT_GAPS]
    if len(slow) < max(LEAST_ROWS, LEAST_ROW_SHARE * len(ratios)):
        return ""
    return f"{len(slow)} of {len(ratios)} rows ran {np.median(slow):.2f} times slower without gaps"


def _lock(rows: Iterable[MeasurementRow], sound: Sequence[MeasurementRow]) -> str:
    rows = list(rows)
    clocks = _free_clocks(rows)
    highest = _highest_clock(rows, sound)
    if not clocks or not highest or np.median(clocks) >= LOCKED_CLOCK * highest:
        return ""
    return f"{np.median(clocks):.0f} of {highest:.0f} MHz under load, not held"


def _highest_clock(rows: Sequence[MeasurementRow], sound: Sequence[MeasurementRow]) -> float:
    roofs = find_roofs(rows[0].identity.gpu_product) if rows else None
    return max(_free_clocks(sound), default=0.0) or (roofs.max_clock_mhz if roofs else 0.0)


def _free_clocks(rows: Iterable[MeasurementRow]) -> list[float]:
    """Clocks of windows in which nothing held the board."""
    return [row.sm_clock_mhz for row in rows if row.power and row.sm_clock_mhz and not _held(row)]


def _cap(rows: Iterable[MeasurementRow]) -> str:
    shares = [
        row.power.mean_watts / row.identity.power_limit_watts
        for row in rows
        if row.power and "throttled" in row.flags
    ]
    if not shares or np.median(shares) >= HELD_BELOW:
        return ""
    return f"held at {np.median(shares):.2f} of the limit that it tells"


def _slice(rows: Sequence[MeasurementRow], sound: Sequence[MeasurementRow]) -> str:
    shares = [
        _share(_best_stream(rows), _best_stream(sound), _roof(rows, "memory")),
        _share(_best_product(rows), _best_product(sound), _roof(rows, "products")),
    ]
    told = [share for share in shares if share is not None]
    if len(told) < len(shares) or max(told) >= SLICE:
        return ""
    return f"{told[0]:.2f} of the type's memory rate and {told[1]:.2f} of its products'"


def _share(own: float, sound: float, roof: float) -> float | None:
    """Own rate over a sound board's, over the roof where no sound board is known."""
    expected = sound or roof
    return own / expected if own and expected else None


def _best_stream(rows: Iterable[MeasurementRow]) -> float:
    """Bytes a second of the best large cold stream, 0 without one."""
    rates = (
        row.kernel.bytes_moved / row.latency.median_seconds
        for row in rows
        if row.kernel.kernel_class == "bandwidth"
        and row.cache_state == "cold"
        and row.kernel.bytes_moved > 2**28
    )
    return max(rates, default=0.0)


def _best_product(rows: Iterable[MeasurementRow]) -> float:
    """Operations a second of the best large bf16 product, 0 without one."""
    rates = (
        row.kernel.flops / row.latency.median_seconds
        for row in rows
        if isinstance(row.kernel, Gemm)
        and row.kernel.number_format == "bf16"
        and row.kernel.flops > LARGE_FLOPS
    )
    return max(rates, default=0.0)


def _roof(rows: Sequence[MeasurementRow], kind: Literal["memory", "products"]) -> float:
    """What sound boards reach of the datasheet: 0.92 of the memory, 0.82 of the products."""
    roofs = find_roofs(rows[0].identity.gpu_product) if rows else None
    if roofs is None:
        return 0.0
    if kind == "memory":
        return 0.92 * roofs.bytes_per_second
    return 0.82 * roofs.flops_per_second("bf16")


def _held(row: MeasurementRow) -> bool:
    return bool(row.throttle_reasons & HELD_REASONS)
