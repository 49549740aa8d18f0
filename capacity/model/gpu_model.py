"""Everything that one GPU's own rows tell, as one model: times, draws, and steps at any limit.

``GpuModel.from_rows`` takes what ``wattpack bench run`` wrote for one board (launch, bandwidth,
gemm and attention sections; steps are never fitted on) and, where wanted, times of other types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import (
    DecoderStep,
    Elementwise,
    Idle,
    Kernel,
    LaunchChain,
    LaunchMode,
    MemoryStream,
)
from capacity.model.element_times import ElementTimes
from capacity.model.hold_outs import out_of_fold
from capacity.model.kernel_samples import Floats, Indices, TimeSamples, power_samples
from capacity.model.launch_costs import LaunchCosts
from capacity.model.power_model import PowerModel, fit_power_model
from capacity.model.regulator import Regulator, burst_was_free, memory_shares
from capacity.model.step_model import KernelMix, StepModel, StepPrediction, mix_of
from capacity.model.stream_times import StreamTimes
from capacity.model.time_model import TimeModel, fit_time_model
from capacity.roofs import Roofs, require_roofs
from wattpack.errors import InputError

FITTED_SECTIONS: Final = frozenset(("launch", "bandwidth", "elementwise", "gemm", "attention"))
"""Of a run. Validation, steps and repeats are what a fit is judged on."""

PASSES: Final = (MemoryStream, Elementwise)
"""Passes over memory have a table of times and no model."""

FREEING_TURNS: Final = 20
"""A throttled burst's time at full clock is a fixed point: its draw depends on it."""


@dataclass(frozen=True, slots=True)
class CompositeTimes:
    """Times of every kernel that a step is made of, each from its own kind of rows."""

    modelled: TimeModel
    streams: StreamTimes
    elements: ElementTimes
    launches: LaunchCosts

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """At full clock, shape (n_kernels,).

        Raises:
            InputError: a whole step, which is a mix and no kernel.
        """
        made = np.empty(len(kernels))
        rest: list[int] = []
        for index, kernel in enumerate(kernels):
            if isinstance(kernel, DecoderStep | Idle):
                raise InputError(f"kernels[{index}]", "a single kernel", kernel.kernel_class)
            if isinstance(kernel, MemoryStream):
                made[index] = self.streams.seconds_of([kernel])[0]
            elif isinstance(kernel, Elementwise):
                made[index] = self.elements.seconds_of([kernel])[0]
            elif isinstance(kernel, LaunchChain):
                made[index] = self.launches.chain_seconds(kernel)
            else:
                rest.append(index)
        if rest:
            made[rest] = self.modelled.seconds([kernels[index] for index in rest])
        return made


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU type as its rows show it.

    Attributes:
        gpu: wattpack's name of the type.
        limit_watts: The limit that the rows were measured under.
    """

    gpu: str
    limit_watts: float
    times: CompositeTimes
    draws: PowerModel
    steps: StepModel

    @classmethod
    def from_rows(cls, rows: Sequence[MeasurementRow], others: Sequence[TimeSamples] = ()) -> Self:
        """The model of the board that the rows were measured on.

        Args:
            others: Times of other GPU types, whose residuals help where own rows are few.

        Raises:
            InputError: rows of several GPU types or limits, or a section that is missing.
        """
        fitted = kernel_rows(rows)
        roofs, limit = _one_board(fitted)
        launches = LaunchCosts.from_rows(fitted)
        streams = StreamTimes.from_rows(fitted)
        timed, powered = timed_rows(fitted), powered_rows(fitted)
        bursts = np.array([row.latency.median_seconds for row in timed])
        elements = ElementTimes.from_rows(fitted, streams)
        early = CompositeTimes(fit_times(timed, bursts, others), streams, elements, launches)
        draws = fit_draws(powered, early)
        alone = [row for row in powered if not isinstance(row.kernel, PASSES)]
        uncapped = draws.uncapped_watts([row.kernel for row in alone])
        regulator = Regulator.from_rows(alone, uncapped, roofs)
        freed = _free_seconds(timed, draws, regulator, roofs)
        times = CompositeTimes(fit_times(timed, freed, others), streams, elements, launches)
        gap_watts = min(row.power.mean_watts for row in powered if row.power)
        ratio = _p95_ratio(powered, early)
        steps = StepModel(times, draws, regulator, launches, roofs, gap_watts, ratio)
        return cls(roofs.model, limit, times, draws, steps)

    def free_seconds(self, rows: Sequence[MeasurementRow]) -> Floats:
        """Times at full clock of rows, those that a burst told wrongly put right."""
        return _free_seconds(rows, self.draws, self.steps.regulator, self.steps.roofs)

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """One run of each kernel at full clock, shape (n_kernels,)."""
        return self.times.seconds(kernels)

    def uncapped_watts(self, kernels: Sequence[Kernel]) -> Floats:
        """What each kernel alone would draw without a limit, shape (n_kernels,)."""
        return self.draws.uncapped_watts(kernels)

    def step(
        self, step: Kernel | KernelMix, limit_watts: float | None = None, mode: LaunchMode = "graph"
    ) -> StepPrediction:
        """A whole step, or any mix of kernels, back to back with itself.

        Args:
            limit_watts: The rows' own limit if None.
        """
        mix = step if isinstance(step, Sequence) else mix_of(step)
        limit = self.limit_watts if limit_watts is None else limit_watts
        return self.steps.predict(mix, limit, mode)


def kernel_rows(rows: Iterable[MeasurementRow]) -> list[MeasurementRow]:
    """The rows that a model may be fitted on."""
    return [row for row in rows if row.section in FITTED_SECTIONS]


def timed_rows(rows: Iterable[MeasurementRow]) -> list[MeasurementRow]:
    """Cold products and attention; where the regulator disturbed a burst, its time is mended."""
    return [row for row in rows if _is_timed(row)]


def powered_rows(rows: Iterable[MeasurementRow]) -> list[MeasurementRow]:
    """Rows with a draw that nothing speaks against."""
    return [row for row in rows if row.ok and row.power is not None]


def fit_times(
    rows: Sequence[MeasurementRow], seconds: Floats, others: Sequence[TimeSamples] = ()
) -> TimeModel:
    """Times of products and attention, from rows of one board with these times at full clock."""
    roofs, _ = _one_board(rows)
    own = TimeSamples(roofs.model, tuple(row.kernel for row in rows), seconds)
    return fit_time_model(own, roofs, others)


def fit_draws(rows: Sequence[MeasurementRow], times: CompositeTimes) -> PowerModel:
    """Draws without a limit, from rows of one board."""
    return fit_power_model(power_samples(rows), times.seconds)


def held_out_draws(rows: Sequence[MeasurementRow], times: CompositeTimes) -> Floats:
    """Draw of each row without a limit, from fits that saw no row of its family."""
    kernels = [row.kernel for row in rows]

    def predict(fitted: Indices, held: Indices) -> Floats:
        draws = fit_draws([rows[index] for index in fitted.tolist()], times)
        return draws.uncapped_watts([kernels[index] for index in held.tolist()])

    return out_of_fold(kernels, predict)


def _one_board(rows: Sequence[MeasurementRow]) -> tuple[Roofs, float]:
    boards = {(row.identity.gpu_product, row.identity.power_limit_watts) for row in rows}
    if len(boards) != 1:
        raise InputError("rows", "kernel rows of one GPU type under one limit", sorted(boards))
    product, limit = boards.pop()
    return require_roofs(product), limit


def _is_timed(row: MeasurementRow) -> bool:
    believed = not set(row.flags) - {"throttled", "unstable_time"}
    steady = "unstable_time" not in row.flags or not burst_was_free(row)
    modelled = not isinstance(row.kernel, (*PASSES, LaunchChain))
    return believed and steady and modelled and row.cache_state == "cold"


def _p95_ratio(rows: Sequence[MeasurementRow], times: CompositeTimes) -> float:
    """Instantaneous over predicted draw that 95 % of held-out samples keep below.

    Only rows that the limit does not touch: at the limit the regulator sets the draw.
    """
    predicted = held_out_draws(rows, times)
    ratios = [
        np.array(row.power.instant_watts) / watts
        for row, watts in zip(rows, predicted, strict=True)
        if row.power and "throttled" not in row.flags
    ]
    return float(np.quantile(np.concatenate(ratios), 0.95))


def _free_seconds(
    rows: Sequence[MeasurementRow], draws: PowerModel, regulator: Regulator, roofs: Roofs
) -> Floats:
    """Times at full clock: of the burst, or of a throttled burst less the regulator's stretch."""
    seconds = np.array([row.latency.median_seconds for row in rows])
    held = np.array([not burst_was_free(row) for row in rows], dtype=np.bool_)
    if not held.any():
        return seconds
    kernels = [row.kernel for row, is_held in zip(rows, held, strict=True) if is_held]
    sustained = np.array([
        row.power.sustained_seconds if row.power else row.latency.median_seconds
        for row, is_held in zip(rows, held, strict=True) if is_held
    ])  # fmt: skip
    limit = rows[0].identity.power_limit_watts
    uncapped = draws.uncapped_watts(kernels)
    free = sustained
    for _ in range(FREEING_TURNS):
        free = sustained / regulator.stretch(uncapped, memory_shares(kernels, free, roofs), limit)
    seconds[held] = free
    return seconds
