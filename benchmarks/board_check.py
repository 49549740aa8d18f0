"""Readings of H200s and H100s beside the plant's: draw of products and decodes, sensors, costs.

Replays ``data/h200_served`` and ``data/h100_served`` (PROVENANCE.md) without a GPU; nothing of it
is fitted. Products are of layers that no shipped row holds. The plant's draw of work is what
capacity prices it at, at most what the regulator holds.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from benchmarks._served_runs import (
    PRODUCT_RECORDINGS,
    RECORDINGS,
    Floats,
    PowerLog,
    Recording,
    folder,
    recordings,
    short_name,
)
from benchmarks.runner import Options, Result, Target
from capacity.kernels import Gemm
from capacity.profile_library import shipped_library
from capacity.serving.kernel_prices import shipped_prices
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork

NAME = "board_check"
SUMMARY = "draws, sensors and reading costs of real H200s and H100s beside the plant's figures"

SETTLING_SECONDS: Final = 0.5
"""Of a product's 1.3 s and of a batch's 2.5 s, not counted: averages hold what was before."""

UNTOUCHED: Final = 0.95
"""Measured draw over limit below which it is the work's own and not the regulator's."""

WINDOWS_SECONDS: Final = np.arange(0.3, 1.61, 0.1)
DELAYS_SECONDS: Final = np.arange(0.0, 0.31, 0.05)
LINE: Final = 0.10

TARGETS: Final = {
    f"{short_name(gpu)}_{key}": Target(at_most=LINE)
    for gpu in RECORDINGS
    for key in ("products_error_mean", "products_below_limit_error_mean", "decode_error_worst")
}


def run(options: Options) -> Result:
    """All of it; the short form is the long one."""
    figures: dict[str, float | int | str] = {}
    for gpu in RECORDINGS:
        options.progress(gpu)
        figures |= {f"{short_name(gpu)}_{key}": value for key, value in _judge(gpu).items()}
    return Result(
        {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}, TARGETS
    )


def _judge(gpu: str) -> dict[str, float | int]:
    """All of one GPU type."""
    figures = _products(gpu)
    errors = []
    for recording in recordings(gpu):
        found = _decodes(recording)
        errors += [abs(value) for value in found.values()]
        told = {f"{key}_error": value for key, value in found.items()}
        told |= _idle(recording) | _sensors(recording)
        figures |= {f"recording_{recording.number}_{key}": value for key, value in told.items()}
    figures["decode_error_worst"] = max(errors)
    figures["decode_error_mean"] = float(np.mean(errors))
    return figures | _costs(gpu)


def products(gpu: str, recording: int) -> tuple[list[Gemm], Floats, Floats, Floats]:
    """Kernels, what they drew, what the plant says, and seconds measured over priced, (n,)."""
    file = folder(gpu) / f"products-{recording}.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    power = PowerLog.read(folder(gpu) / f"products-{recording}-power.csv.gz")
    kernels = [Gemm(row["m"], row["n"], row["k"], "bf16") for row in rows]
    prices = shipped_prices(gpu)
    priced = prices.price(kernels)
    drawn = [power.sampled_watts(row["begin"] + SETTLING_SECONDS, row["end"]) for row in rows]
    seconds = np.array([row["wall_seconds"] for row in rows])
    held = prices.regulator.held_share * prices.limit_watts
    return kernels, np.array(drawn), np.minimum(priced.watts, held), seconds / priced.seconds


def _products(gpu: str) -> dict[str, float | int]:
    """Of each board, and the means over boards, which the line is of."""
    boards = {number: _board_products(gpu, number) for number in PRODUCT_RECORDINGS[gpu]}
    figures: dict[str, float | int] = {"products_boards": len(boards)}
    for name in ("error_mean", "below_limit_error_mean"):
        of_boards = [float(found[name]) for found in boards.values()]
        figures[f"products_{name}"] = float(np.mean(of_boards))
        figures[f"products_{name}_worst_board"] = max(of_boards)
    for number, found in boards.items():
        figures |= {f"recording_{number}_products_{key}": value for key, value in found.items()}
    return figures


def _board_products(gpu: str, recording: int) -> dict[str, float | int]:
    _, drawn, told, slower = products(gpu, recording)
    off = told / drawn - 1.0
    free = drawn < UNTOUCHED * shipped_prices(gpu).limit_watts
    return {
        "count": len(drawn),
        "error_mean": float(np.abs(off).mean()),
        "error_worst": float(np.abs(off).max()),
        "signed_error_mean": float(off.mean()),
        "below_limit_count": int(free.sum()),
        "below_limit_error_mean": float(np.abs(off[free]).mean()),
        "below_limit_seconds_over_priced_median": float(np.median(slower[free])),
    }


def decodes(recording: Recording) -> tuple[Floats, Floats, Floats, Floats]:
    """Batches, watts measured and of the plant, seconds measured over the plant's, (n,)."""
    table = shipped_step_tables().find(recording.gpu, "llama-3.1-8b", 1)
    rows = recording.decodes
    batch = np.array([row["batch"] for row in rows], dtype=np.float64)
    context = np.array([row["context"] for row in rows], dtype=np.float64)
    nothing = np.zeros(len(rows))
    made = table.iteration(IterationWork(nothing, nothing + 1.0, batch, context))
    held = table.held.held_share * table.default_limit_watts
    drawn = [
        recording.power.sampled_watts(row["begin"] + SETTLING_SECONDS, row["end"]) for row in rows
    ]
    took = np.array([row["seconds"] for row in rows])
    slowed = table.limited_seconds(made, table.default_limit_watts)
    return batch, np.array(drawn), np.minimum(made.watts, held), took / slowed


def _decodes(recording: Recording) -> dict[str, float]:
    batch, drawn, told, _ = decodes(recording)
    return {
        f"decode_{int(n)}": float(t / d - 1) for n, d, t in zip(batch, drawn, told, strict=True)
    }


def _idle(recording: Recording) -> dict[str, float]:
    marks, power = recording.marks_seconds, recording.power
    profile = shipped_library().find(recording.gpu)
    idle = power.counted_watts(marks["idle"] + 2.0, marks["loading"] - 0.5)
    context = power.counted_watts(marks["context"] + 3.0, marks["context"] + 7.5)
    return {
        "idle_watts": idle,
        "context_watts": context,
        "idle_over_plant": idle / profile.idle_watts,
        "context_over_plant": context / profile.context_watts,
    }


def _sensors(recording: Recording) -> dict[str, float]:
    power = recording.power
    window, delay, left = averaging_window(power)
    ratios = [
        power.sampled_watts(one.begin_seconds, one.begin_seconds + one.seconds)
        / power.counted_watts(one.begin_seconds, one.begin_seconds + one.seconds)
        for one in recording.runs
    ]
    changes = np.flatnonzero(np.diff(power.instant_watts)) + 1
    return {
        "average_window_seconds": window,
        "average_delay_seconds": delay,
        "average_left_watts": left,
        "instant_update_seconds": float(np.median(np.diff(power.seconds[changes]))),
        "samples_over_counter_worst": max(ratios, key=lambda ratio: abs(ratio - 1.0)),
        "samples_over_counter_mean": float(np.mean(ratios)),
    }


def averaging_window(power: PowerLog) -> tuple[float, float, float]:
    """Window and delay whose mean of instantaneous samples is nearest to the averaged field.

    Returns:
        Window and delay, seconds, and what is left, root mean square watts.
    """
    at = np.arange(power.seconds[0] + 3.0, power.seconds[-1] - 1.0, 0.05)
    instant = np.interp(at, power.seconds, power.instant_watts)
    energy = np.concatenate([[0.0], np.cumsum(instant * 0.05)])
    edges = np.concatenate([at, [at[-1] + 0.05]])
    told = np.interp(at, power.seconds, power.average_watts)
    found = []
    for window in WINDOWS_SECONDS.tolist():
        for delay in DELAYS_SECONDS.tolist():
            end = np.interp(at - delay, edges, energy)
            mean = (end - np.interp(at - delay - window, edges, energy)) / window
            kept = slice(round(3.0 / 0.05), None)
            left = float(np.sqrt(np.mean((mean[kept] - told[kept]) ** 2)))
            found.append((left, window, delay))
    left, window, delay = min(found)
    return window, delay, left


def _costs(gpu: str) -> dict[str, float | int]:
    agent: dict[str, Any] = json.loads((folder(gpu) / "agent.json").read_text(encoding="utf-8"))
    gpm: dict[str, Any] = json.loads((folder(gpu) / "gpm.json").read_text(encoding="utf-8"))
    figures: dict[str, float | int] = {"gpm_supported": int(gpm["supported"])}
    for state in ("idle", "loaded"):
        figures[f"agent_8_boards_{state}_percent_of_one_core"] = agent[state][
            "cpu_percent_of_one_core"
        ]
        for name, cost in gpm[f"cost_{state}"].items():
            figures[f"{name.replace(' ', '_')}_{state}_cpu_us"] = cost["cpu_us"]
    return figures
