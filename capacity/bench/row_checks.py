"""What a row that reads well may still not say: more than the roofs allow, another GPU's name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from capacity.bench.bench_identity import (
    FINGERPRINT_PART_DIGITS,
    SILENT_PART,
    BenchIdentity,
)
from capacity.bench.board_settings import BoardSetting
from capacity.bench.measurement_row import MeasurementRow, row_line
from capacity.bench.quality import above_roof
from capacity.roofs import Roofs, find_roofs
from wattpack.errors import InputError, read_from

LARGEST_DRAW: Final = 1.15
"""Mean draw over a window of a second as a share of the limit: a board that regulates stays at
1.00 +/- 0.06 of it (``h200_power_steps``); above this the row belongs to another board."""

LEAST_SHARE: Final = 0.75
"""Best share of the named GPU's memory roof that a whole board of that type reaches. Measured:
0.91 to 0.92 (H100, H200). An H100 under an H200's name is at 0.64; boards whose memories are
alike (B200 and B300) are not told apart by this."""


def require_possible(rows: Iterable[MeasurementRow]) -> None:
    """Nothing above the physical roof is accepted unless the row itself says so.

    Raises:
        InputError: naming the first impossible row.
    """
    for row in rows:
        with read_from(row_name(row)):
            _require_possible(row, find_roofs(row.identity.gpu_product))


def _require_possible(row: MeasurementRow, roofs: Roofs | None) -> None:
    if roofs and "above_peak" not in row.flags:
        cold = row.cache_state == "cold"
        for field, seconds in _times(row).items():
            if above_roof(row.kernel, cold, seconds, roofs):
                raise InputError(field, f"no less than the {roofs.model} can", seconds * 1e3)
    limit = row.identity.power_limit_watts
    if row.power and row.power.mean_watts > LARGEST_DRAW * limit:
        raise InputError(
            "power_w.mean", f"at most {LARGEST_DRAW} of {limit:g} W", row.power.mean_watts
        )


def _times(row: MeasurementRow) -> dict[str, float]:
    """Every time of a run that models read, by its field."""
    times = {"latency_ms.median": row.latency.median_seconds}
    if row.power:
        times["sustained_latency_ms"] = row.power.sustained_seconds
    return times


@dataclass(frozen=True, slots=True)
class RoofsUnknown:
    """Rows of a type that the table of roofs does not hold: nobody looked whether they can be true.

    Attributes:
        products: The names, as the rows carry them.
    """

    products: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"no roofs are known of {', '.join(self.products)}: neither the times nor the name of "
            "these rows could be held against a datasheet"
        )


def roofs_unknown(rows: Iterable[MeasurementRow]) -> RoofsUnknown | None:
    """What ``require_possible`` and ``require_own_name`` had to pass over; None if nothing."""
    products = sorted({row.identity.gpu_product for row in rows})
    unknown = tuple(product for product in products if find_roofs(product) is None)
    return RoofsUnknown(unknown) if unknown else None


def require_one_board(rows: Sequence[MeasurementRow]) -> None:
    """All rows are of one board under one set of versions and limits, each there once.

    Raises:
        InputError: naming the first row that differs or comes again.
    """
    lines = set()
    for row in rows:
        line = row_line(row)
        if line in lines:
            raise InputError("rows", "each row once", row_name(row))
        lines.add(line)
        first = rows[0].identity
        other = at_default(row, first)
        with read_from(row_name(row)):
            if other.gpu_uuid_hash != first.gpu_uuid_hash:
                raise InputError("gpu_uuid_hash", first.gpu_uuid_hash, other.gpu_uuid_hash)
            if other.gpu_product != first.gpu_product:
                raise InputError("gpu_product", first.gpu_product, other.gpu_product)
            if other.cache_key != first.cache_key:
                raise InputError("versions and limit", "those of the first row", other)
            require_one_fingerprint(first, other)


def setting_of(row: MeasurementRow) -> BoardSetting:
    """What held the board for this row alone; nothing outside of section ``caps``."""
    if row.section != "caps":
        return BoardSetting()
    lock = row.identity.sm_clock_lock_mhz
    return BoardSetting(None if lock else row.identity.power_limit_watts, lock)


def at_default(row: MeasurementRow, home: BenchIdentity) -> BenchIdentity:
    """The row's identity as if the board stood as in ``home``: section ``caps`` sets it itself."""
    if row.section != "caps":
        return row.identity
    return replace(
        row.identity,
        power_limit_watts=home.power_limit_watts,
        sm_clock_lock_mhz=home.sm_clock_lock_mhz,
    )


def require_own_name(rows: Sequence[MeasurementRow]) -> None:
    """The memory is about as fast as that of the GPU whose name the rows carry.

    Raises:
        InputError: for a slower board under a faster one's name; a faster one is above the roof
            (``require_possible``).
    """
    for product in {row.identity.gpu_product for row in rows}:
        roofs = find_roofs(product)
        share = best_memory_share([r for r in rows if r.identity.gpu_product == product], roofs)
        if roofs and share is not None and share < LEAST_SHARE:
            raise InputError(
                "gpu_product",
                f"a GPU that reaches {LEAST_SHARE} of its memory roof ({roofs.model})",
                f"{product} at {share:.2f}",
            )


def require_same_numbers(rows: Sequence[MeasurementRow], known: Sequence[MeasurementRow]) -> None:
    """Under the same software both boards round alike, and both carry one name.

    Raises:
        InputError: if the known rows are of another type, or only say that they are not.
    """
    if not rows or not known:
        return
    own, other = rows[0].identity, known[0].identity
    if own.gpu_product != other.gpu_product:
        raise InputError("gpu_product", own.gpu_product, other.gpu_product)
    same_software = (own.architecture, own.cuda, own.torch) == (
        other.architecture, other.cuda, other.torch,
    )  # fmt: skip
    if same_software:
        require_one_fingerprint(own, other)


def require_one_fingerprint(one: BenchIdentity, other: BenchIdentity) -> None:
    """Both round alike, where both say how they round.

    Raises:
        InputError: if they do not.
    """
    if not rounds_alike(one, other):
        raise InputError("numeric_fingerprint", one.numeric_fingerprint, other.numeric_fingerprint)


def rounds_alike(one: BenchIdentity, other: BenchIdentity) -> bool:
    """Whether no way of rounding that both tell differs."""
    pairs = zip(_parts(one), _parts(other), strict=False)
    return all(left == right or SILENT_PART in (left, right) for left, right in pairs)


def _parts(identity: BenchIdentity) -> list[str]:
    digits, step = identity.numeric_fingerprint, FINGERPRINT_PART_DIGITS
    return [digits[start : start + step] for start in range(0, len(digits), step)]


def best_memory_share(rows: Iterable[MeasurementRow], roofs: Roofs | None) -> float | None:
    """Best bandwidth of a stream that no cache holds, over the roof; None if none was measured."""
    if roofs is None:
        return None
    rates = [
        row.kernel.bytes_moved / row.latency.median_seconds
        for row in rows
        if row.kernel.kernel_class == "bandwidth"
        and row.cache_state == "cold"
        and row.kernel.bytes_moved > 8 * roofs.l2_bytes
    ]
    return max(rates) / roofs.bytes_per_second if rates else None


def row_name(row: MeasurementRow) -> str:
    """How a message names a row."""
    return f"{row.section} row {row.kernel} ({row.cache_state})"
