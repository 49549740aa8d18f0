"""What a GPU type could do at most: the datasheet's roofs, by product name."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

from wattpack.errors import InputError, read_from
from wattpack.near_names import one_of
from wattpack.units import require_number

ROOFS_FILE: Final = "data/roofs.csv"


@dataclass(frozen=True, slots=True)
class Roofs:
    """One GPU type.

    Attributes:
        model: wattpack's own name, for example ``H200-SXM``.
        architecture: NVIDIA's or AMD's generation name.
        memory_bytes: The driver's total, not the datasheet's: error correction inside GDDR6 takes
            a sixteenth of an L4, L40S, A10G, A40 or T4; a B300 offers 7 % less than is printed.
        peak_flops: Dense operations a second, by number format; absent formats have no unit.
        source: Where the figures were read, and which are from memory.
    """

    model: str
    architecture: str
    product_names: tuple[str, ...]
    multiprocessors: int
    memory_bytes: float
    bytes_per_second: float
    l2_bytes: float
    max_clock_mhz: float
    default_limit_watts: float
    link_bytes_per_second: float
    peak_flops: Mapping[str, float]
    source: str

    def flops_per_second(self, number_format: str) -> float:
        """The roof of a number format; 0 where the type has no unit for it."""
        return self.peak_flops.get(number_format, 0.0)


@lru_cache(maxsize=1)
def shipped_roofs() -> tuple[Roofs, ...]:
    """Every type in the table."""
    text = files("capacity").joinpath(ROOFS_FILE).read_text("utf-8")
    with read_from(ROOFS_FILE):
        return tuple(_roofs(row) for row in csv.DictReader(text.splitlines()))


def find_roofs(product: str) -> Roofs | None:
    """The type with this model or driver product name, None if the table has none."""
    wanted = product.strip().lower()
    for roofs in shipped_roofs():
        if wanted in {roofs.model.lower(), *(name.lower() for name in roofs.product_names)}:
            return roofs
    return None


def require_roofs(product: str) -> Roofs:
    """As ``find_roofs``.

    Raises:
        InputError: naming the known types.
    """
    roofs = find_roofs(product)
    if roofs is None:
        raise InputError("gpu", one_of(product, [r.model for r in shipped_roofs()]), product)
    return roofs


def asked_roofs(name: str) -> Roofs:
    """The type that a person means; a bare generation (H100) is its SXM board.

    Raises:
        InputError: as ``require_roofs``. What a driver says is never completed: ``find_roofs``.
    """
    return find_roofs(name) or find_roofs(f"{name.strip()}-SXM") or require_roofs(name)


def _roofs(row: Mapping[str, str]) -> Roofs:
    def number(name: str) -> float:
        return require_number(name, float(row[name]), exclusive_minimum=0)

    bf16 = number("bf16_dense_tflops") * 1e12
    peaks = {"bf16": bf16, "fp16": bf16}
    if row["fp8_dense_tflops"]:
        peaks["fp8"] = number("fp8_dense_tflops") * 1e12
    return Roofs(
        model=row["model"],
        architecture=row["architecture"],
        product_names=tuple(name for name in row["product_names"].split("|") if name),
        multiprocessors=int(number("multiprocessors")),
        memory_bytes=number("memory_mib") * 2**20,
        bytes_per_second=number("memory_gbs") * 1e9,
        l2_bytes=number("l2_mb") * 2**20,
        max_clock_mhz=number("max_clock_mhz"),
        default_limit_watts=number("default_limit_w"),
        link_bytes_per_second=number("link_gbs") * 1e9,
        peak_flops=peaks,
        source=row["source"],
    )
