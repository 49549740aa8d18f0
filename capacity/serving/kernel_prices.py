"""What each kernel of a decoder step takes and draws on one GPU type, fitted once a process.

Types with own rows (H200, H100) are priced by the model of those rows, at full clock, with their
draws and their regulator. Others take times of products and attention from the shipped tables of
the type, or of its kin where there are none, and the H200's draws as shares of the limit (assumed).
Sums over GPUs come from the faster of two shipped implementations.

The tables hold no 8-bit products inside a graph. There, one is priced as the 16-bit product of half
its depth: on units of twice the rate it needs the same time, and its operands have the same bytes.
What an engine gains or loses against either price is one of its fitted constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import numpy as np

from capacity.catalogue.priced_gpu import PricedGpu, priced_board, priced_gpu
from capacity.kernels import Attention, Collective, Elementwise, Gemm, Kernel
from capacity.model.gpu_model import GpuModel
from capacity.model.kernel_samples import Floats, TimeSamples
from capacity.model.reference_kernels import (
    ATTENTION_GPUS,
    COLLECTIVE_GPUS,
    GEMM_GPUS,
    reference_all_reduces,
    reference_attention,
    reference_gemms,
)
from capacity.model.regulator import Regulator, memory_shares
from capacity.model.time_model import TimeModel, fit_time_model
from capacity.roofs import Roofs

TABLE_ROWS: Final = 1500
"""Of a table for each fit: 4.2 % held-out error after 3 s; 4,500 rows give 3.1 % after 5 s."""

KIN_ROWS: Final = 500
"""Of each other type's table where the type has none of its own."""

STREAM_SHARE: Final = 0.8
STREAM_SECONDS: Final = 2e-6
"""Passes over memory inside a graph: share of the datasheet's bandwidth and least time. Assumed;
own H200 and H100 rows give 0.75 to 0.85 and 1.5 to 3 us."""

EXCHANGE_SHARE: Final = 0.5
"""Draw over limit while GPUs exchange results; assumed as in training steps (POLCA, arXiv
2308.12908, dips to half of TDP): no row of a collective holds a draw."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Kernels priced, each array of shape (n_kernels,).

    Attributes:
        seconds: One run at full clock.
        watts: Mean draw of the board meanwhile, without a limit.
        clock_share: Share of the seconds that follows the clock.
    """

    seconds: Floats
    watts: Floats
    clock_share: Floats


class KernelPricer(Protocol):
    """A GPU type as a price list.

    Attributes:
        limit_watts: Default limit.
        gap_watts: Draw while nothing runs between kernels.
        held_at_default: Seconds were measured under the default limit, and hold its slowing.
    """

    @property
    def roofs(self) -> Roofs:
        """Datasheet."""
        ...

    @property
    def limit_watts(self) -> float:
        """Default limit."""
        ...

    @property
    def gap_watts(self) -> float:
        """Draw between kernels."""
        ...

    @property
    def regulator(self) -> Regulator:
        """Response to a limit."""
        ...

    @property
    def held_at_default(self) -> bool:
        """Whether seconds hold the default limit."""
        ...

    def price(self, kernels: Sequence[Kernel]) -> Prices:
        """Every kernel that a decoder's share is made of."""
        ...


@dataclass(frozen=True, slots=True)
class GpuPrices:
    """One GPU type.

    Attributes:
        tables: Times from tables; None where the type's own rows tell them.
        sums: Measured all-reduces by number of GPUs: bytes and seconds, rising.
    """

    gpu: PricedGpu
    tables: TimeModel | None
    sums: dict[int, tuple[Floats, Floats]]

    @property
    def roofs(self) -> Roofs:
        """The datasheet."""
        return self.gpu.roofs

    @property
    def limit_watts(self) -> float:
        """Default limit."""
        return self.gpu.limit_watts

    @property
    def gap_watts(self) -> float:
        """Draw while nothing runs between kernels."""
        return self.gpu.gap_watts

    @property
    def regulator(self) -> Regulator:
        """How the board slows at its limit."""
        return self.gpu.regulator

    @property
    def held_at_default(self) -> bool:
        """The tables were measured under the default limit."""
        return self.tables is not None

    def price(self, kernels: Sequence[Kernel]) -> Prices:
        """Seconds, watts and clock shares, each of shape (n_kernels,)."""
        seconds, watts = np.empty(len(kernels)), np.empty(len(kernels))
        shares = np.zeros(len(kernels))
        sums = [i for i, kernel in enumerate(kernels) if isinstance(kernel, Collective)]
        for index in sums:
            seconds[index] = self._sum_seconds(kernels[index])
            watts[index] = EXCHANGE_SHARE * self.limit_watts
        rest = sorted(set(range(len(kernels))) - set(sums))
        if rest:
            others = [kernels[index] for index in rest]
            seconds[rest] = self._seconds(others)
            watts[rest] = self.gpu.draws.uncapped_watts(others)
            memory = memory_shares(others, seconds[rest], self.roofs)
            shares[rest] = self.regulator.clock_sensitivity(memory)
        return Prices(seconds, watts, shares)

    def _seconds(self, kernels: Sequence[Kernel]) -> Floats:
        if self.tables is None:
            return self.gpu.times.seconds(kernels)
        made = np.empty(len(kernels))
        modelled = []
        for index, kernel in enumerate(kernels):
            if isinstance(kernel, Elementwise):
                rate = STREAM_SHARE * self.roofs.bytes_per_second
                made[index] = STREAM_SECONDS + kernel.bytes_moved / rate
            else:
                modelled.append(index)
        if modelled:
            made[modelled] = self.tables.seconds([_as_measured(kernels[i]) for i in modelled])
        return made

    def _sum_seconds(self, kernel: Kernel) -> float:
        assert isinstance(kernel, Collective)
        if kernel.gpus not in self.sums:
            # No table goes beyond one host of eight, or knows the type: the links' own rate.
            return 20e-6 + kernel.bytes_moved / (0.7 * self.roofs.link_bytes_per_second)
        sizes, seconds = self.sums[kernel.gpus]
        inside = np.interp(np.log(kernel.message_bytes), np.log(sizes), np.log(seconds))
        return float(np.exp(inside)) * max(1.0, kernel.message_bytes / float(sizes[-1]))


@lru_cache(maxsize=8)
def shipped_prices(gpu: str) -> GpuPrices:
    """Prices of a GPU type from what is shipped; seconds of work, kept for the process.

    Raises:
        InputError: a type whose datasheet is not known.
    """
    priced = priced_gpu(gpu)
    name = priced.name
    sums = _measured_sums(name)
    if priced.basis == "measured":
        return GpuPrices(priced, None, sums)
    own = list(_tables(name, TABLE_ROWS))
    missing = {Gemm, Attention} - {type(table.kernels[0]) for table in own}
    kin = [
        table
        for other in GEMM_GPUS
        if other != name
        for table in _tables(other, KIN_ROWS)
        if type(table.kernels[0]) in missing
    ]
    joined = TimeSamples(
        name,
        tuple(kernel for table in own for kernel in table.kernels),
        np.concatenate([np.zeros(0), *(table.seconds for table in own)]),
    )
    return GpuPrices(priced, fit_time_model(joined, priced.roofs, kin), sums)


def board_prices(model: GpuModel) -> GpuPrices:
    """Prices of a GPU type from the model of its own rows."""
    return GpuPrices(priced_board(model), None, _measured_sums(model.gpu))


def _tables(gpu: str, rows: int) -> Iterable[TimeSamples]:
    if gpu in GEMM_GPUS:
        wide = reference_gemms(gpu)
        kept = [i for i, k in enumerate(wide.kernels) if _is_16_bit(k)]
        yield _thinned(wide.take(kept), rows)
    if gpu in ATTENTION_GPUS:
        attention = reference_attention(gpu)
        yield _thinned(attention.of_class("attention_decode"), rows)
        yield _thinned(attention.of_class("attention_prefill"), rows)


def _thinned(table: TimeSamples, rows: int) -> TimeSamples:
    """A fixed random part: tables are grids, where every n-th row would miss whole sizes."""
    if len(table) <= rows:
        return table
    chosen = np.random.default_rng(len(table)).choice(len(table), rows, replace=False)
    return table.take(np.sort(chosen))


def _is_16_bit(kernel: Kernel) -> bool:
    return isinstance(kernel, Gemm) and kernel.number_format == "bf16"


def _as_measured(kernel: Kernel) -> Kernel:
    """The 16-bit kernel that stands for this one."""
    if isinstance(kernel, Gemm) and kernel.number_format == "fp8":
        return Gemm(kernel.m, kernel.n, max(1, kernel.k // 2))
    return kernel


def _measured_sums(gpu: str) -> dict[int, tuple[Floats, Floats]]:
    if gpu not in COLLECTIVE_GPUS:
        return {}
    return {gpus: _faster_sums(gpu, gpus) for gpus in (2, 4, 8)}


def _faster_sums(gpu: str, gpus: int) -> tuple[Floats, Floats]:
    """NCCL or the engine's own kernel, whichever is faster at each message."""
    best: dict[int, float] = {}
    for implementation in ("nccl", "vllm_graph"):
        table = reference_all_reduces(gpu, implementation)
        for kernel, seconds in zip(table.kernels, table.seconds, strict=True):
            if isinstance(kernel, Collective) and kernel.gpus == gpus:
                size = kernel.message_bytes
                best[size] = min(best.get(size, np.inf), float(seconds))
    sizes = sorted(best)
    return np.array(sizes, dtype=np.float64), np.array([best[size] for size in sizes])
