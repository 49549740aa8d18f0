"""A GPU type as a price list for kernels: from measured rows if there are any, else a datasheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.catalogue.clock_response import Floats, roof_seconds
from capacity.kernels import Kernel, LaunchChain
from capacity.model.gpu_model import GpuModel
from capacity.model.launch_costs import LaunchCosts
from capacity.model.regulator import UNKNOWN_RESPONSE, Regulator
from capacity.model.roofline import SHARPNESS, TYPICAL_LOGS
from capacity.model.step_model import KernelDraws, KernelTimes
from capacity.profile_library import settable_watts
from capacity.roofs import Roofs, require_roofs
from wattpack.errors import InputError

REFERENCE_GPU: Final = "H200-SXM"
"""Whose draw the entries' shapes are of."""


@dataclass(frozen=True, slots=True)
class PricedGpu:
    """One GPU type.

    Attributes:
        gap_watts: Drawn while nothing runs between kernels, clocks up.
        basis: What times and draws come from.
    """

    roofs: Roofs
    limit_watts: float
    times: KernelTimes
    draws: KernelDraws
    regulator: Regulator
    launches: LaunchCosts
    gap_watts: float
    basis: Literal["measured", "datasheet"]

    def require_limit(self, limit_watts: float) -> None:
        """Pass limits that the type's board can be set to.

        Raises:
            InputError: for any other.
        """
        low, high = settable_watts(self.name, self.gap_watts, self.limit_watts)
        if not low <= limit_watts <= high:
            wanted = f"one from {low:.0f} to {high:.0f} W for {self.name}"
            raise InputError("limit_watts", wanted, limit_watts)

    @property
    def name(self) -> str:
        """Wattpack's name of the type."""
        return self.roofs.model


@lru_cache(maxsize=8)
def priced_gpu(name: str) -> PricedGpu:
    """The type by wattpack's or the driver's name.

    Raises:
        InputError: naming the known types.
    """
    roofs = require_roofs(name)
    if roofs.model in WHOLE_RUNS:
        return priced_board(GpuModel.from_rows(shipped_rows(WHOLE_RUNS[roofs.model])))
    return _of_datasheet(roofs)


def priced_board(model: GpuModel) -> PricedGpu:
    """The type as its own rows tell it."""
    steps = model.steps
    return PricedGpu(
        steps.roofs, model.limit_watts, model.times, model.draws, steps.regulator, steps.launches,
        steps.gap_watts, "measured",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _RooflineTimes:
    """Three typical constants on a datasheet's roofs."""

    roofs: Roofs
    launches: LaunchCosts

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        compute, memory = roof_seconds(kernels, self.roofs)
        busy = (compute**SHARPNESS + memory**SHARPNESS) ** (1 / SHARPNESS)
        empty = np.array([isinstance(kernel, LaunchChain) for kernel in kernels])
        start = np.where(empty, self.launches.graph_gap_seconds, np.exp(TYPICAL_LOGS[0]))
        return np.asarray(busy + start)


@dataclass(frozen=True, slots=True)
class _BorrowedDraws:
    """The reference's draws as shares of the limit: assumed for types that nobody measured."""

    reference: KernelDraws
    ratio: float

    def uncapped_watts(self, kernels: Sequence[Kernel]) -> Floats:
        return np.asarray(self.reference.uncapped_watts(kernels) * self.ratio)


def _of_datasheet(roofs: Roofs) -> PricedGpu:
    reference = priced_gpu(REFERENCE_GPU)
    ratio = roofs.default_limit_watts / reference.limit_watts
    return PricedGpu(
        roofs, roofs.default_limit_watts, _RooflineTimes(roofs, reference.launches),
        _BorrowedDraws(reference.draws, ratio), Regulator(*UNKNOWN_RESPONSE), reference.launches,
        reference.gap_watts * ratio, "datasheet",
    )  # fmt: skip
