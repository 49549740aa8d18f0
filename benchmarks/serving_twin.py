"""A small real server on H200s and H100s beside the twin's and capacity's model: draw, latencies.

The server is our own: the shape of Llama-3.1-8B with random weights on one board, continuous
batching with prompts in chunks (``data/h200_served`` and ``data/h100_served``, PROVENANCE.md). Its
recordings are replayed here without a GPU. The twin gets the arrivals, capacity's step table and
the plant's board; nothing is fitted to the recordings. Latencies are also given at steps of 0.01 s,
since the twin's own step of 0.25 s is longer than most first tokens take. Figures ``capacity_*``
are of capacity's serving model alone under the same arrivals (``_capacity_alone``): it has the mean
and, by its own means of seconds, the p95 of the draw, and its own first tokens and times per token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks._capacity_alone import capacity_alone
from benchmarks._served_runs import (
    RECORDINGS,
    PowerLog,
    Recording,
    ServedRun,
    recordings,
    short_name,
)
from benchmarks._twin_server import (
    FINE_STEP_SECONDS,
    TWIN_STEP_SECONDS,
    Batching,
    Floats,
    TwinRun,
    play,
)
from benchmarks.runner import Options, Result, Target
from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256

NAME = "serving_twin"
SUMMARY = "the twin's server and capacity's model against a recorded one's draw, TTFT and TPOT"

LANGUAGE_MODEL: Final = "llama-3.1-8b"
BATCHING: Final = Batching(max_batch=256, chunk_tokens=2048)
WINDOW_SECONDS: Final = 5.0
RISES_SECONDS: Final = (2, 40)
POWER_LINE: Final = 0.05
LATENCY_LINE: Final = 0.15
STARTING_SECONDS: Final = 5
"""Of a run, in which an idle board goes to work: no rise of served traffic."""

QUICK_RUNS: Final = 1
"""Of each type's last recording; its figures are those of the long form."""

LINES: Final = {
    "mean_watts": POWER_LINE,
    "p95_watts": POWER_LINE,
    "ttft_p50": LATENCY_LINE,
    "tpot_p50": LATENCY_LINE,
    "fine_ttft_p50": LATENCY_LINE,
    "fine_tpot_p50": LATENCY_LINE,
    "capacity_mean_watts": POWER_LINE,
    "capacity_p95_watts": POWER_LINE,
    "capacity_ttft_p50": LATENCY_LINE,
    "capacity_tpot_p50": LATENCY_LINE,
}
TARGETS: Final = {
    f"{short_name(gpu)}_{key}_error_worst": Target(at_most=line)
    for gpu in RECORDINGS
    for key, line in LINES.items()
}


def run(options: Options) -> Result:
    """Every run of every recording; ``--quick`` one run of each GPU type."""
    rows = []
    for gpu, numbers in RECORDINGS.items():
        for recording in recordings(gpu, numbers[-1:] if options.quick else None):
            for served in recording.runs[: QUICK_RUNS if options.quick else None]:
                rows.append((gpu, recording.number, served.name, judge(recording, served)))
                options.progress(f"{served.name}: {rows[-1][3]}")
    return summary(rows)


def summary(rows: Sequence[tuple[str, int, str, Mapping[str, float]]]) -> Result:
    """Figures of all runs, summed up by GPU type.

    Args:
        rows: GPU type, number of the recording, name of the run, what ``judge`` found.
    """
    figures: dict[str, float | int | str] = {
        "runs": len(rows),
        "plant_sha256": plant_sha256(frozen_plant()),
    }
    signed: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    for gpu, recording, name, found in rows:
        short = short_name(gpu)
        figures |= {f"{name}_{key}": round(value, 5) for key, value in found.items()}
        for key, value in found.items():
            if key.endswith("_error"):
                signed[f"{short}_recording_{recording}_{key}_signed_mean"].append(value)
                errors[f"{short}_{key}"].append(abs(value))
    figures |= {key: round(float(np.mean(values)), 4) for key, values in signed.items()}
    for key, values in errors.items():
        figures[f"{key}_median"] = round(float(np.median(values)), 4)
        figures[f"{key}_worst"] = round(max(values), 4)
    return Result(figures, TARGETS)


def judge(recording: Recording, served: ServedRun) -> dict[str, float]:
    """What was measured, and signed relative errors of the twin and of capacity's model."""
    gpu = recording.gpu
    own, fine = twin(gpu, served, TWIN_STEP_SECONDS), twin(gpu, served, FINE_STEP_SECONDS)
    power, begin = recording.power, served.begin_seconds
    windows = counted_means(power, begin, served.seconds, WINDOW_SECONDS)
    mine = step_means(own, WINDOW_SECONDS)
    measured = {
        "mean_watts": float(windows.mean()),
        "p95_watts": float(np.percentile(windows, 95)),
        "ttft_p50": float(np.median(served.ttft_seconds)),
        "tpot_p50": float(np.median(served.tpot_seconds)),
    }
    told = {
        "mean_watts": float(mine.mean()),
        "p95_watts": float(np.percentile(mine, 95)),
        "ttft_p50": float(np.median(own.first_token_seconds)),
        "tpot_p50": float(np.nanmedian(own.per_token_seconds)),
    }
    found = {f"measured_{key}": value for key, value in measured.items()}
    found |= {f"{key}_error": told[key] / measured[key] - 1.0 for key in told}
    latencies = {
        "ttft_p50": float(np.median(fine.first_token_seconds)),
        "tpot_p50": float(np.nanmedian(fine.per_token_seconds)),
    }
    for key, value in latencies.items():
        found[f"fine_{key}_error"] = value / measured[key] - 1.0
    for key, value in by_capacity(gpu, served).items():
        found[f"capacity_{key}_error"] = value / measured[key] - 1.0
    seconds = power.means(begin, served.seconds, 1.0)
    for span in RISES_SECONDS:
        found[f"measured_rise_{span}_seconds_watts"] = largest_rise(seconds, span)
        found[f"rise_{span}_seconds_watts"] = largest_rise(step_means(own, 1.0), span)
    found["measured_prompt_token_seconds"] = (
        served.iterations["with_prompts_seconds"] / served.iterations["prompt_tokens"]
    )
    return found


def twin(gpu: str, served: ServedRun, step_seconds: float) -> TwinRun:
    """The twin's server and board under the same arrivals."""
    profile = shipped_library().find(gpu)
    table = shipped_step_tables().find(profile.model, LANGUAGE_MODEL, 1)
    return play(table, served.requests, served.seconds, BATCHING, step_seconds, profile)


def by_capacity(gpu: str, served: ServedRun) -> dict[str, float]:
    """What capacity's serving model alone says of a run, watts and seconds."""
    run = capacity_alone(gpu, LANGUAGE_MODEL, served, BATCHING)
    each = round(WINDOW_SECONDS)
    windows = run.watts[: len(run.watts) // each * each].reshape(-1, each).mean(axis=1)
    return {
        "mean_watts": float(windows.mean()),
        "p95_watts": float(np.percentile(windows, 95)),
        "ttft_p50": float(np.median(run.first_token_seconds)),
        "tpot_p50": float(np.median(run.per_token_seconds)),
    }


def counted_means(power: PowerLog, begin: float, seconds: float, window: float) -> Floats:
    """Means by the energy counter, (n_windows,)."""
    starts = begin + np.arange(round(seconds / window)) * window
    return np.array([power.counted_watts(start, start + window) for start in starts])


def step_means(run: TwinRun, window: float) -> Floats:
    """Means of the twin's draw, (n_windows,)."""
    each = round(window / run.step_seconds)
    return np.asarray(run.watts[: len(run.watts) // each * each].reshape(-1, each).mean(axis=1))


def largest_rise(seconds: Floats, span: int) -> float:
    """Largest rise of one-second means within so many seconds, watts; not of the run's start."""
    settled = seconds[STARTING_SECONDS:]
    return max(
        float(settled[at] - settled[max(0, at - span) : at + 1].min()) for at in range(len(settled))
    )
