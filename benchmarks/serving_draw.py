"""The twin's server beside a real one: mean draw under the same request traces, H200 and H100.

A small continuous-batching server (shape of Llama-3.1-8B, one GPU) was fed with the arrivals of the
Azure 2023 traces, their times divided by a rate, and its board's mean draw was read. Which part of
a trace it was given is not recorded, so the twin's server gets ten minutes from where the reference
scenario starts, and the spread over other ten minutes is printed beside each error. No figure here
was fitted on: the twin's iterations come from kernels (``capacity.fitting.step_tables``).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks._twin_server import Batching, play
from benchmarks.runner import Options, Result, Target
from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from simulation.arrivals import Requests
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256
from simulation.traces import Trace, TraceName, shipped_trace

NAME = "serving_draw"
SUMMARY = "mean draw of the twin's server against a real one under the same traces"

RUNS_FILE: Final = Path(__file__).parent / "data" / "capacity" / "served_draws.csv"
LANGUAGE_MODEL: Final = "llama-3.1-8b"
BEGIN_SECONDS: Final = (900.0, 0.0, 1800.0)
"""On the trace; the first is what is scored."""

LENGTH_SECONDS: Final = {False: 600.0, True: 40.0}


@dataclass(frozen=True, slots=True)
class Served:
    """One run of the real server: what its board drew on average, and what else is known of it."""

    gpu: str
    trace: TraceName
    rate: float
    measured_watts: float
    measured_batch: float | None
    measured_first_token_seconds: tuple[float, float] | None

    @property
    def name(self) -> str:
        """For figures: ``h200_conversation_0_8``."""
        rate = f"{self.rate:g}".replace(".", "_")
        return f"{self.gpu.split('-')[0].lower()}_{self.trace}_{rate}"


def _measured() -> tuple[Served, ...]:
    with RUNS_FILE.open(encoding="utf-8") as file:
        return tuple(
            Served(
                row["gpu"],
                "code" if row["trace"] == "code" else "conversation",
                float(row["rate"]),
                float(row["mean_watts"]),
                float(row["batch_p50"]) if row["batch_p50"] else None,
                (float(row["ttft_p50_min_seconds"]), float(row["ttft_p50_max_seconds"]))
                if row["ttft_p50_min_seconds"]
                else None,
            )
            for row in csv.DictReader(file)
        )


RUNS: Final = _measured()

QUICK_RUNS: Final = RUNS[:3]
"""The code trace comes in bursts of minutes: a short part of it has a mean of its own."""

ERROR_LINE: Final = 0.10


@dataclass(frozen=True, slots=True)
class Twin:
    """What the twin's server did in one run.

    Attributes:
        watts: Means over seconds, (n_seconds,).
        batch: Decoding requests of each step that decoded, (n_steps,).
        first_token_seconds: Of finished requests, (n_requests,).
    """

    watts: np.ndarray
    batch: np.ndarray
    first_token_seconds: np.ndarray


def run(options: Options) -> Result:
    """All runs; the quick form takes less of the conversation trace, on the H200 alone."""
    figures: dict[str, float | int | str] = {"plant_sha256": plant_sha256(frozen_plant())}
    targets: dict[str, Target] = {}
    chosen = [served for served in RUNS if not options.quick or served in QUICK_RUNS]
    errors = []
    for served in chosen:
        options.progress(served.name)
        begins = BEGIN_SECONDS[:1] if options.quick else BEGIN_SECONDS
        found = [serve(served, begin, LENGTH_SECONDS[options.quick]) for begin in begins]
        means = [float(twin.watts.mean()) for twin in found]
        off = [mean / served.measured_watts - 1 for mean in means]
        first = found[0]
        low, high = np.percentile(first.watts, [5, 95])
        figures |= {
            f"{served.name}_watts": means[0],
            f"{served.name}_measured_watts": served.measured_watts,
            f"{served.name}_error": abs(off[0]),
            f"{served.name}_error_signed_min": min(off),
            f"{served.name}_error_signed_max": max(off),
            f"{served.name}_p5_watts": float(low),
            f"{served.name}_p95_watts": float(high),
            f"{served.name}_batch_p50": float(np.median(first.batch)),
            f"{served.name}_ttft_p50_seconds": float(np.median(first.first_token_seconds)),
        }
        if served.measured_batch is not None:
            figures[f"{served.name}_measured_batch_p50"] = served.measured_batch
        if served.measured_first_token_seconds is not None:
            low, high = served.measured_first_token_seconds
            figures[f"{served.name}_measured_ttft_p50_min_seconds"] = low
            figures[f"{served.name}_measured_ttft_p50_max_seconds"] = high
        targets[f"{served.name}_error"] = Target(at_most=ERROR_LINE)
        errors.append(abs(off[0]))
    figures["error_mean"] = float(np.mean(errors))
    targets["error_mean"] = Target(at_most=ERROR_LINE)
    return Result(figures, targets)


def serve(served: Served, begin_seconds: float, seconds: float) -> Twin:
    """The twin's server and board under one part of a trace."""
    profile = shipped_library().find(served.gpu)
    table = shipped_step_tables().find(profile.model, LANGUAGE_MODEL, 1)
    requests = _requests(shipped_trace(served.trace), served.rate, begin_seconds, seconds)
    run = play(table, requests, seconds, Batching(), profile=profile)
    whole = round(1 / run.step_seconds)
    return Twin(
        run.watts.reshape(-1, whole).mean(axis=1),
        run.decode_batch[run.decode_batch > 0],
        run.first_token_seconds,
    )


def _requests(trace: Trace, rate: float, begin_seconds: float, seconds: float) -> Requests:
    """The arrivals of ``seconds`` of server time, from the trace's second ``begin_seconds`` on.

    A trace that ends before is repeated.
    """
    laps = [
        (trace.arrival_seconds + lap * trace.length_seconds - begin_seconds) / rate
        for lap in range(int((begin_seconds + seconds * rate) // trace.length_seconds) + 1)
    ]
    arrivals = np.concatenate(laps)
    which = np.flatnonzero((arrivals >= 0.0) & (arrivals < seconds))
    original = which % len(trace.arrival_seconds)
    return Requests(arrivals[which], trace.prompt_tokens[original], trace.output_tokens[original])
