"""Step tables of every GPU type and language model that is served, from own rows.

::

    kernel rows ─► GpuModel ─► parts of an iteration ─┐
    whole steps (never fitted on) ─► errors            ├─► StepTable, types with own rows
    end-to-end runs ─► host_seconds of each engine ────┘
                                                       └─► scaled to the other types

What end-to-end runs take beyond the kernels of the table is the host's: 2-3 ms an iteration in the
runs of the 70B model, 0.5-0.9 ms in those of the 8B. It draws what a board draws between kernels:
old, host-bound runs (ML.ENERGY v2: 8B at batch 64, 35 ms an iteration where kernels take 10) drew
140-177 W besides their kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from capacity.bench import measurement_row
from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.shipped_rows import WHOLE_RUNS
from capacity.fitting.curves import Curve, fit_curve, zeus_points
from capacity.fitting.iteration_times import GpuSpeed
from capacity.fitting.table_parts import table_parts
from capacity.kernels import DecoderStep, NumberFormat, Phase
from capacity.language_models import find_language_model
from capacity.model.gpu_model import GpuModel
from capacity.model.model_errors import ModelErrors, held_out_errors
from capacity.model.step_model import StepPrediction
from capacity.serving.kernel_prices import board_prices
from capacity.serving.step_costs import price_steps
from capacity.serving_times import ServingTimes
from capacity.step_library import SCHEMA, step_library_from_dict, table_as_dict
from capacity.step_table import (
    GRIDS,
    SWEPT_CAPS,
    Floats,
    HeldBoard,
    IterationWork,
    StepErrors,
    StepPart,
    StepTable,
)

RUNS: Final = WHOLE_RUNS
"""GPU types with a full run of the kernel benchmark and one of whole steps, by file stem."""

REFERENCE_GPU: Final = "H200-SXM"
"""Whose tables are scaled to types without own rows."""

UNTOUCHED: Final = 0.95
"""Draws below this share of the limit say what the work draws; the others what the board holds."""

POINTS: Final = tuple((batch, tokens) for tokens in (1024.0, 4096.0) for batch in (1, 8, 32, 64))
"""Batch and prompt length at which end-to-end runs and tables are compared."""

OUTPUT_TOKENS: Final = 1024.0


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU type with own rows: the model of its kernels, and what it errs on whole steps.

    Attributes:
        errors: Of all steps; ``phase_errors`` those of each phase.
        steps: The measured steps with what the model says of them at the default limit.
    """

    model: GpuModel
    errors: StepErrors
    phase_errors: Mapping[Phase, StepErrors]
    held: HeldBoard
    steps: tuple[tuple[MeasurementRow, StepPrediction], ...]

    def of_phase(self, phase: Phase) -> list[tuple[MeasurementRow, StepPrediction]]:
        """The steps of one phase."""
        return [pair for pair in self.steps if getattr(pair[0].kernel, "phase", "") == phase]


def build_tables(
    boards: Mapping[str, Board],
    serving: Sequence[ServingTimes],
    speeds: Mapping[str, GpuSpeed],
    limits: Mapping[str, float],
) -> list[StepTable]:
    """One table for each entry of ``serving``.

    Args:
        boards: The types with own rows.
        speeds: Matrix throughput and memory bandwidth, by GPU type.
        limits: Default limits, watts, by GPU type.
    """
    own = {gpu: [_own_table(boards[gpu], entry) for entry in serving if entry.gpu == gpu]
           for gpu in RUNS}  # fmt: skip
    hosts = _host_seconds([table for tables in own.values() for table in tables], serving)
    rule = _transfer_error(boards, speeds)
    made = []
    for entry in serving:
        if entry.gpu in RUNS:
            table = next(t for t in own[entry.gpu] if t.key == _key(entry))
        else:
            limit = limits[entry.gpu]
            table = scaled_table(_own_table(boards[REFERENCE_GPU], entry), entry, speeds, limit)
            table = replace(table, errors=rule)
        made.append(replace(table, host_seconds=hosts[entry.language_model]))
    return made


def end_to_end_errors(
    tables: Sequence[StepTable], serving: Sequence[ServingTimes]
) -> dict[str, float]:
    """Mean relative error of iterations against end-to-end runs, by GPU type and language model.

    The host's time is that of the other types with own rows; a model that was run on one type only
    cannot be held out.
    """
    known = {_key(entry): entry for entry in serving if entry.provenance == "measured"}
    left = {
        table.key: float(np.median(_measured_seconds(known[table.key]) - _kernel_seconds(table)))
        for table in tables
        if table.key in known
    }
    errors: dict[str, list[float]] = {}
    for table in tables:
        others = [
            seconds
            for (gpu, model, _), seconds in left.items()
            if model == table.language_model and gpu in RUNS and gpu != table.gpu
        ]
        if table.key in left and others:
            held_out = _kernel_seconds(table) + max(0.0, float(np.mean(others)))
            name = f"end_to_end_time_error_{table.gpu}_{table.language_model}".lower()
            wrong = np.abs(held_out / _measured_seconds(known[table.key]) - 1)
            errors.setdefault(name, []).append(float(wrong.mean()))
    return {name: round(float(np.mean(values)), 4) for name, values in errors.items()}


def _kernel_seconds(table: StepTable) -> Floats:
    """At the points of comparison, without the host."""
    return _table_seconds(replace(table, host_seconds=0.0))


def tables_document(
    folder: Path, tables: Sequence[StepTable], serving: Sequence[ServingTimes]
) -> dict[str, Any]:
    """The whole file as plain values, checked by the loader."""
    document = {
        "schema": SCHEMA,
        "rows_sha256": _rows_sha256(folder),
        "checks": end_to_end_errors(tables, serving),
        "grids": {name: [list(axis) for axis in axes] for name, axes in GRIDS.items()},
        "tables": [table_as_dict(table) for table in tables],
    }
    step_library_from_dict(document, "capacity.fitting.step_tables")
    return document


@lru_cache(maxsize=4)
def board_of(gpu: str, folder: Path, sweep: Path) -> Board:
    """The model of a type with own rows, and its errors on whole steps that it did not see.

    Args:
        sweep: The file of power-limit sweeps.
    """
    swept = fit_curve(zeus_points(sweep))
    model = model_of(gpu, folder)
    response = held_out_errors(read_rows(folder, RUNS[gpu]))
    steps = tuple(
        (row, model.step(row.kernel))
        for row in step_rows(folder, RUNS[gpu])
        if isinstance(row.kernel, DecoderStep) and row.ok and row.power is not None
    )
    phases: tuple[Phase, ...] = ("prefill", "decode")
    by_phase = {
        phase: [pair for pair in steps if getattr(pair[0].kernel, "phase", "") == phase]
        for phase in phases
    }
    return Board(
        model,
        _step_errors(model, steps, response),
        {phase: _step_errors(model, pairs, response) for phase, pairs in by_phase.items()},
        _held_board(model, swept),
        steps,
    )


@lru_cache(maxsize=4)
def model_of(gpu: str, folder: Path) -> GpuModel:
    """The model of a type with own rows."""
    return GpuModel.from_rows(read_rows(folder, RUNS[gpu]))


def step_rows(folder: Path, stem: str) -> list[MeasurementRow]:
    """The whole steps of a type; another run may hold those that one lacks."""
    return [row for file in _step_files(folder, stem) for row in read_rows(folder, file)]


def _step_files(folder: Path, stem: str) -> list[str]:
    found = folder.glob(f"{stem}-steps*.jsonl.gz")
    return sorted(file.name.removesuffix(".jsonl.gz") for file in found)


def read_rows(folder: Path, stem: str) -> list[MeasurementRow]:
    """The rows of one shipped run."""
    return measurement_row.read_rows(folder / f"{stem}.jsonl.gz")


def _held_board(model: GpuModel, swept: Curve) -> HeldBoard:
    """The response of the board's own rows, and of the swept types at deeper caps."""
    regulator = model.steps.regulator
    speed, _ = swept.at(np.array(SWEPT_CAPS))
    # The line rises to its value at a cap of the draw itself, which the default limit stands for.
    depth = np.maximum(0.0, speed[-1] / speed - 1.0)
    return HeldBoard(
        round(regulator.reach, 5),
        round(regulator.bend, 5),
        round(regulator.held_share, 5),
        tuple(round(float(value), 5) for value in depth),
    )


def _step_errors(
    model: GpuModel,
    judged: Sequence[tuple[MeasurementRow, StepPrediction]],
    response: ModelErrors,
) -> StepErrors:
    """Mean relative errors on whole steps: time at the limit, and draw below it."""
    time = [made.seconds / _sustained(row) - 1 for row, made in judged]
    draw = [
        made.mean_watts / row.power.mean_watts - 1
        for row, made in judged
        if row.power and untouched(row, model.limit_watts)
    ]
    return StepErrors(
        _mean_size(time), _mean_size(draw), round(response.cap_response, 4),
        f"time and draw: {len(judged)} whole decoder steps that no fit saw, {len(draw)} below the "
        f"limit; cap response: {response.counts['cap_response']} kernels at the default limit, "
        "held out; lower caps not swept",
    )  # fmt: skip


def untouched(row: MeasurementRow, limit_watts: float) -> bool:
    """Whether the row's draw is the work's own."""
    return row.power is not None and row.power.mean_watts < UNTOUCHED * limit_watts


def _sustained(row: MeasurementRow) -> float:
    return row.power.sustained_seconds if row.power else row.latency.median_seconds


def _mean_size(errors: Sequence[float]) -> float:
    """NaN for none."""
    return round(float(np.mean(np.abs(errors))), 4) if errors else float("nan")


def _key(entry: ServingTimes) -> tuple[str, str, int]:
    return entry.gpu, entry.language_model, entry.tensor_parallel


def _own_table(board: Board, entry: ServingTimes) -> StepTable:
    """The entry's language model on a type with own rows, without the host's time."""
    model = board.model
    number_format: NumberFormat = "fp8" if entry.precision == "fp8" else "bf16"
    decoder = find_language_model(entry.language_model)
    priced = price_steps(decoder, board_prices(model), entry.tensor_parallel, number_format)
    return StepTable(
        gpu=model.gpu,
        language_model=entry.language_model,
        precision=entry.precision,
        tensor_parallel=entry.tensor_parallel,
        parts=table_parts(priced),
        host_seconds=0.0,
        host_watts=round(model.steps.gap_watts, 1),
        held=board.held,
        default_limit_watts=model.limit_watts,
        errors=board.errors,
        provenance="derived",
        source=f"kernel rows {RUNS[model.gpu]}.jsonl.gz, summed over the model's kernels; exchange "
        "between GPUs: public tables of all-reduces; host: end-to-end runs less their kernels",
    )


def _host_seconds(tables: Sequence[StepTable], serving: Sequence[ServingTimes]) -> dict[str, float]:
    """What an iteration takes beyond its kernels, by language model (each one engine's runs)."""
    known = {_key(entry): entry for entry in serving if entry.provenance == "measured"}
    found: dict[str, list[float]] = {entry.language_model: [] for entry in serving}
    for table in tables:
        if table.key in known:
            left = _measured_seconds(known[table.key]) - _table_seconds(table)
            found[table.language_model].append(float(np.median(left)))
    return {
        name: round(max(0.0, float(np.mean(values))), 6) if values else 0.0
        for name, values in found.items()
    }


def _work() -> IterationWork:
    """Steady state at ``POINTS``: each iteration also carries its share of the prompts."""
    batch, prompt = np.array(POINTS).T
    return IterationWork(batch * prompt / OUTPUT_TOKENS, prompt, batch, prompt + OUTPUT_TOKENS / 2)


def _measured_seconds(entry: ServingTimes) -> Floats:
    work = _work()
    return np.array([
        entry.iteration_seconds(tokens, batch * context)
        for tokens, batch, context in zip(
            work.prompt_tokens, work.batch, work.context, strict=True
        )
    ])  # fmt: skip


def _table_seconds(table: StepTable) -> Floats:
    return table.limited_seconds(table.iteration(_work()), table.default_limit_watts)


def scaled_table(
    table: StepTable, entry: ServingTimes, speeds: Mapping[str, GpuSpeed], limit_watts: float
) -> StepTable:
    """The table on another GPU type.

    Seconds that scale with the clock scale with matrix throughput, the rest with memory bandwidth;
    draws keep their share of the limit.
    """
    old, new = speeds[table.gpu], speeds[entry.gpu]
    compute = old.gemm_tflops / new.gemm_tflops
    memory = old.memory_gbytes_per_second / new.memory_gbytes_per_second
    share = limit_watts / table.default_limit_watts

    def scaled(part: StepPart) -> StepPart:
        clock = part.clock_seconds * compute
        seconds = clock + (part.seconds - part.clock_seconds) * memory
        return StepPart(seconds, part.joules / part.seconds * share * seconds, clock)

    return replace(
        table,
        gpu=entry.gpu,
        parts={name: scaled(part) for name, part in table.parts.items()},
        host_watts=round(table.host_watts * share, 1),
        default_limit_watts=limit_watts,
        source=f"{table.gpu} scaled: what follows the clock by matrix throughput, the rest by "
        "memory bandwidth, draws by the limit",
    )


def _transfer_error(boards: Mapping[str, Board], speeds: Mapping[str, GpuSpeed]) -> StepErrors:
    """What scaling errs between the two types with own rows, at the points of comparison."""
    names = list(boards)
    errors: dict[str, list[float]] = {"time": [], "draw": []}
    for old, new in ((names[0], names[1]), (names[1], names[0])):
        entry = ServingTimes(new, "llama-3.1-8b", "bf16", 1, 1.0, 1.0, 1.0, "derived", "-", 0, 0.0)
        truth = _own_table(boards[new], entry).iteration(_work())
        limit = boards[new].model.limit_watts
        guess = scaled_table(_own_table(boards[old], entry), entry, speeds, limit)
        made = guess.iteration(_work())
        errors["time"] += (made.seconds / truth.seconds - 1).tolist()
        errors["draw"] += (made.watts / truth.watts - 1).tolist()
    response = max(board.errors.cap_response for board in boards.values())
    return StepErrors(
        _mean_size(errors["time"]), _mean_size(errors["draw"]), response,
        f"{names[0]} and {names[1]}, each scaled from the other; cap response: theirs, not checked "
        "on this type",
    )  # fmt: skip


def _rows_sha256(folder: Path) -> str:
    """Over the runs that the tables come from."""
    digest = hashlib.sha256()
    for stem in RUNS.values():
        for name in (stem, *_step_files(folder, stem)):
            file = folder / f"{name}.jsonl.gz"
            digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
