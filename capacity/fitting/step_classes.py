"""Kernel classes of the GPU types with measured steps: draws of whole steps, costs of caps.

The median and the 95th percentile are of measured mean draws. The curves are those of the step
tables: the board's own response near its limit, the swept types' at deeper caps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capacity.fitting.board_power import Draw, summarise
from capacity.fitting.step_tables import RUNS, Board, board_of, untouched
from capacity.kernels import Phase
from capacity.step_table import Floats

PHASES: tuple[Phase, ...] = ("prefill", "decode")

STEP_CLASSES: Mapping[str, Phase] = {"prefill": "prefill", "decode": "decode", "batch": "prefill"}
"""Kernel classes that slow down as the steps of a phase."""

LEAST_ROWS = 5
"""Below the limit that an error of draws needs: nearly all prefill is held at it."""

PROBE_SHARE = 0.5
"""Of the limit: a cap at which every step is held, to learn how much of it follows the clock."""


def boards(rows: Path, sweep: Path) -> dict[str, Board]:
    """The types with own rows.

    Args:
        sweep: The file of power-limit sweeps.
    """
    return {gpu: board_of(gpu, rows, sweep) for gpu in RUNS}


def step_draws(board: Board, phase: Phase) -> Draw:
    """Mean draws of the whole steps of a phase."""
    values = [row.power.mean_watts for row, _ in board.of_phase(phase) if row.power]
    source = (
        f"{RUNS[board.model.gpu]}-steps*.jsonl.gz: whole {phase} steps of three decoders, designed "
        "batches and contexts, not a workload's mix"
    )
    return summarise(values, "measured", source)


def step_curves(board: Board, phase: Phase, cap_fractions: Floats) -> dict[str, Floats]:
    """Throughput and draw at caps, the mean over the steps of a phase, each (n_caps,).

    Throughput is relative to the default limit, draw to the mean draw there.
    """
    limit, held = board.model.limit_watts, board.held
    regulator = board.model.steps.regulator
    pairs = board.of_phase(phase)
    free = np.array([made.uncapped_seconds for _, made in pairs])
    wanted = np.array([made.uncapped_watts for _, made in pairs])
    probed = np.array([
        board.model.step(row.kernel, PROBE_SHARE * limit).seconds for row, _ in pairs
    ])  # fmt: skip
    clock = (probed - free) / regulator.depth(wanted, PROBE_SHARE * limit)

    def at(cap_watts: float) -> tuple[Floats, Floats]:
        drawn = np.minimum(wanted, held.held_share * cap_watts)
        return free + held.depth(wanted, drawn, limit) * clock, drawn

    full, at_default = at(limit)
    capped = [at(share * limit) for share in cap_fractions.tolist()]
    return {
        "throughput": np.array([(full / seconds).mean() for seconds, _ in capped]),
        "draw": np.array([drawn.mean() / at_default.mean() for _, drawn in capped]),
    }


def step_notes(board: Board, phase: Phase) -> dict[str, Any]:
    """Where the curves come from, and the three errors."""
    errors = board.phase_errors[phase]
    below = sum(untouched(row, board.model.limit_watts) for row, _ in board.of_phase(phase))
    return {
        "curve_provenance": "derived",
        "curve_source": f"response of {RUNS[board.model.gpu]}.jsonl.gz to the default limit, over "
        "whole steps; at deeper caps the line of the Zeus sweeps of four other GPU types",
        "curve_samples": len(board.of_phase(phase)),
        "error_mape": errors.cap_response,
        "error_kind": errors.kind,
        "power_error": errors.draw if below >= LEAST_ROWS else None,
        "time_error": errors.time,
    }
