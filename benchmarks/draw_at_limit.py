"""The model of a board's capping loop against draws that it was not fitted on.

On the recorded H200: plain steps that were left out, a training-like load and fast swings, all
played from what the work would draw. On other boards, H200 and H100: the 100 ms readings of rows
that were held at their limit. Two things are not known of such a row and are taken from itself: how
long its board had been held when reading began (the bench waits 1.3 s; at most 0.5 s to each side),
and what it would draw (its highest reading). Errors are shares of the limit. Beside each stands the
best flat line in hindsight, and a board that sheds what is above its limit with a lag of 0.5 s,
which is what simulated boards do.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.runner import Options, Result, Target
from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.shipped_rows import shipped_rows
from capacity.bench.timing import PowerRule
from capacity.fitting.board_steps import HELD_OUT, LIMIT_WATTS, BoardSteps, read_steps
from capacity.fitting.capping_loop_fit import COMPARED_TICKS, demands, first_tick, played
from capacity.model.capping_loop import CappingLoop, capping_loop

NAME = "draw_at_limit"
SUMMARY = "overshoot, dip and beat at the limit against recorded draws that were left out"

Floats = npt.NDArray[np.float64]

OTHER_BOARDS: Final = {
    "h200": "H200-SXM",
    "h200-second-board": "H200-SXM",
    "h100-validation": "H100-SXM",
    "h100-steps": "H100-SXM",
}
LAG_SECONDS: Final = 0.5
BEATS: Final = 0.12
"""Highest less lowest reading, over the limit, from which a row shows a beat; below, kernels just
reach the limit and there is nothing to tell (their number is a figure)."""

READ_SECONDS: Final = 0.02
"""Step of the play; a board is read every fifth."""

APART_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = PowerRule().throttled_settle_seconds
IDLE_SHARE: Final = 0.17
FLEET: Final = 4096

TARGETS: Final = {
    "held_out_steps_error": Target(at_most=0.025),
    "training_like_error": Target(at_most=0.025),
    "training_like_mean_error": Target(at_most=0.02),
    "fast_swings_mean_error": Target(at_most=0.05),
    "other_boards_error_over_flat": Target(at_most=0.5),
    "other_boards_correlation": Target(at_least=0.85),
}


def run(options: Options) -> Result:
    """Seconds, also in the short form."""
    del options
    steps = read_steps()
    loop = capping_loop("H200-SXM")
    return Result(
        _plain_steps(steps, loop)
        | _whole_part(steps, loop, "train", "training_like")
        | _whole_part(steps, loop, "fast", "fast_swings")
        | _other_boards()
        | {"seconds_of_4096_boards_simulated_in_one": _speed(loop)},
        TARGETS,
    )


def _plain_steps(steps: BoardSteps, loop: CappingLoop) -> dict[str, float]:
    firsts = [first_tick(steps, name) for name in HELD_OUT]
    seen = np.array([steps.draws[at : at + COMPARED_TICKS] for at in firsts]).T
    demand = demands(steps, firsts, COMPARED_TICKS)
    made = played(loop, demand, COMPARED_TICKS)
    return {
        "held_out_steps_error": _error(made, seen),
        "held_out_steps_error_of_best_flat": _error(np.full_like(seen, np.median(seen)), seen),
        "held_out_steps_error_of_lag": _error(_lagged(demand, COMPARED_TICKS), seen),
        "held_out_dip_seconds_apart": float(np.abs(_dip(made) - _dip(seen)).mean()),
        "held_out_dip_depth_error": float(
            np.abs(made.min(axis=0) - seen.min(axis=0)).mean() / LIMIT_WATTS
        ),
    }


def _dip(draws: Floats) -> Floats:
    """Seconds from the first whole 100 ms to the deepest."""
    return np.asarray(0.1 * draws.argmin(axis=0))


def _whole_part(steps: BoardSteps, loop: CappingLoop, name: str, figure: str) -> dict[str, float]:
    """A part whose every 100 ms may hold a change of work; mean and highest are robust to it."""
    rows = np.flatnonzero(np.char.startswith(steps.phases, name))
    first, ticks = int(rows[0]), len(rows)
    seen = steps.draws[rows]
    demand = demands(steps, [first], ticks)
    made, lagged = played(loop, demand, ticks)[:, 0], _lagged(demand, ticks)[:, 0]
    return {
        f"{figure}_error": _error(made, seen),
        f"{figure}_error_of_lag": _error(lagged, seen),
        f"{figure}_mean_error": float(abs(made.mean() / seen.mean() - 1)),
        f"{figure}_mean_error_of_lag": float(abs(lagged.mean() / seen.mean() - 1)),
        f"{figure}_highest_error": float(abs(made.max() / seen.max() - 1)),
    }


def _other_boards() -> dict[str, float]:
    figures: dict[str, float] = {}
    everything: list[Floats] = []
    silent = 0
    for run_name, gpu in OTHER_BOARDS.items():
        traces = [_shares(row) for row in shipped_rows(run_name) if _is_held(row)]
        beating = [trace for trace in traces if np.ptp(trace) > BEATS]
        silent += len(traces) - len(beating)
        judged = np.array([_judged(capping_loop(gpu), trace) for trace in beating])
        everything.append(judged)
        name = run_name.replace("-", "_")
        figures |= {
            f"{name}_rows": len(beating),
            f"{name}_error": float(judged[:, 0].mean()),
            f"{name}_error_of_best_flat": float(judged[:, 1].mean()),
            f"{name}_correlation": float(np.median(judged[:, 2])),
            f"{name}_held_seconds": float(np.median(judged[:, 3])),
        }
    judged = np.concatenate(everything)
    return figures | {
        "other_boards_rows_without_a_beat": silent,
        "other_boards_error_over_flat": float(judged[:, 0].mean() / judged[:, 1].mean()),
        "other_boards_correlation": float(np.median(judged[:, 2])),
    }


def _judged(loop: CappingLoop, trace: Floats) -> Floats:
    """Error, that of the best flat line, correlation, and how long the board had been held."""
    made = _from_rest(loop, float(trace.max()), len(trace))
    at = int(np.abs(made - trace).mean(axis=1).argmin())
    return np.array([
        np.abs(made[at] - trace).mean(),
        np.abs(np.median(trace) - trace).mean(),
        np.corrcoef(made[at], trace)[0, 1],
        SETTLE_SECONDS - APART_SECONDS + at * READ_SECONDS,
    ])  # fmt: skip


def _is_held(row: MeasurementRow) -> bool:
    return row.ok and "throttled" in row.flags and row.power is not None


def _shares(row: MeasurementRow) -> Floats:
    instants = row.power.instant_watts if row.power else ()
    return np.array(instants) / row.identity.power_limit_watts


def _from_rest(loop: CappingLoop, demand: float, readings: int) -> Floats:
    """What a meter reads of an idle board that gets work, by the time until its first reading.

    Shape (starts, readings); the starts are ``READ_SECONDS`` apart, 2 * ``APART_SECONDS`` in all.
    """
    first = round((SETTLE_SECONDS - APART_SECONDS) / READ_SECONDS)
    starts = round(2 * APART_SECONDS / READ_SECONDS) + 1
    state = loop.settled(np.array([IDLE_SHARE]), 1.0, READ_SECONDS)
    _, drawn = loop.play(state, np.full((first + starts + 5 * readings, 1), demand), 1.0)
    reads = first + np.arange(starts)[:, np.newaxis] + 5 * np.arange(readings)
    return np.asarray(drawn[reads, 0])


def _lagged(demand: Floats, ticks: int) -> Floats:
    """Shedding with a first-order lag, in steps of 20 ms, as means of 100 ms."""
    shed, draws = np.zeros(demand.shape[1]), []
    for watts in demand:
        shed += (1 - np.exp(-READ_SECONDS / LAG_SECONDS)) * (
            np.maximum(0.0, watts - LIMIT_WATTS) - shed
        )
        draws.append(np.maximum(watts - shed, 0.0))
    return np.asarray(np.array(draws[-ticks * 5 :]).reshape(ticks, 5, -1).mean(axis=1))


def _error(made: Floats, seen: Floats) -> float:
    return float(np.abs(made - seen).mean() / LIMIT_WATTS)


def _speed(loop: CappingLoop) -> float:
    """Simulated seconds in steps of 0.1 s, in one second of this machine's."""
    demand = np.full((100, FLEET), 900.0)
    state = loop.settled(demand[0], LIMIT_WATTS)
    began = time.perf_counter()
    loop.play(state, demand, LIMIT_WATTS)
    return len(demand) * 0.1 / (time.perf_counter() - began)
