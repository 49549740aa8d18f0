"""Gavel's measured jobs, a cluster and a mix of jobs as in its simulations."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

TABLE: Final = Path(__file__).parent / "data" / "capacity" / "gavel" / "isolated_throughputs.csv.gz"
MODELS: Final = ("v100", "p100", "k80")
GPUS_OF_A_MODEL: Final = 36
"""Of each type in the simulated cluster of Gavel (its EXPERIMENTS.md: v100:36|p100:36|k80:36)."""
GPUS_OF_A_SERVER: Final = 8
"""Assumed; the largest job fits one server, so that the table's consolidated rows hold."""
PRICE: Final = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""Dollars for an hour of a GPU: Google Cloud's list prices of 2020 (assumed; only ratios count)."""
SIZES: Final = ((0.70, 1), (0.80, 2), (0.95, 4), (1.0, 8))
"""Cumulative shares of jobs on 1, 2, 4 and 8 GPUs, as Gavel's generator draws them."""


@dataclass(frozen=True, slots=True)
class GavelJob:
    """One job.

    Attributes:
        speeds: Steps a second by GPU type, of all its GPUs; types that it does not run on are
            left out.
    """

    number: int
    name: str
    gpus: int
    speeds: dict[str, float]


@cache
def table() -> dict[tuple[str, int], dict[str, float]]:
    """Steps a second by GPU type, of each job type on so many GPUs."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    with gzip.open(TABLE, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            speed = float(row["steps_per_second"])
            if speed > 0:
                found.setdefault((row["job_type"], int(row["gpus"])), {})[row["gpu"]] = speed
    return found


def servers() -> list[tuple[str, int]]:
    """GPU type and GPUs of each server."""
    whole, rest = divmod(GPUS_OF_A_MODEL, GPUS_OF_A_SERVER)
    sizes = [GPUS_OF_A_SERVER] * whole + [rest] * bool(rest)
    return [(model, size) for model in MODELS for size in sizes]


def drawn_jobs(seed: int, count: int) -> list[GavelJob]:
    """Jobs of random types and sizes."""
    random = np.random.default_rng(seed)
    made: list[GavelJob] = []
    while len(made) < count:
        share = random.random()
        gpus = next(size for below, size in SIZES if share <= below)
        types = sorted(name for name, size in table() if size == gpus)
        name = types[int(random.integers(len(types)))]
        made.append(GavelJob(len(made), name, gpus, table()[name, gpus]))
    return made
