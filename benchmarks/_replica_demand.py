"""Minutes of demand: real totals of ten minutes, shaped within by real hours of other services.

ServeGen's totals say how many requests a service has in ten minutes, not how they lie within. Each
ten minutes take the shape of ten minutes of Azure's conversations or Mooncake's (drawn with the
seed), and requests come by chance (Poisson) at that rate. Azure's coding service is left out: its
8 requests a second fall silent for minutes, which sums over a hundred clients do not.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.startup_time import startup_time

Floats = npt.NDArray[np.float64]

DATA: Final = Path(__file__).parent / "data" / "forecasting"
SHAPES: Final = (
    ("azure_llm_2023_binned.csv.gz", "service", "conv"),
    ("mooncake_fast25_binned.csv.gz", "workload", "conversation"),
)
DAY_MINUTES: Final = 1440
BIN_MINUTES: Final = 10
WORKLOAD: Final = "decoder-decode"
"""Whose start a replica takes (catalogue; mostly assumed): mean 138 s, p95 244 s."""

NODE_BOOT: Final = (180.0, 360.0)
"""Median and 95th percentile of a node's boot and join, seconds, assumed; only where it is told."""

MEAN_REPLICAS: Final = 20
"""That the first day's mean takes, assumed: it sets what a replica serves."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service's demand.

    Attributes:
        name: Of the ServeGen model.
        rates: Requests a second by minute, shape (n_minutes,).
        replica_rate: Requests a second that one replica serves.
    """

    name: str
    rates: Floats
    replica_rate: float


def services(seed: int, names: tuple[str, ...] = ("m-large", "m-mid", "m-small")) -> list[Service]:
    """The services, each with its own draws."""
    with gzip.open(DATA / "servegen_model_totals_10min.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    shapes = _shapes()
    found = []
    for place, name in enumerate(names):
        rng = np.random.default_rng([seed, place])
        bins = np.array([float(row[name]) for row in rows])
        shaped = bins[:, None] * shapes[rng.integers(len(shapes), size=len(bins))]
        counts = rng.poisson(shaped.ravel() * 60.0)
        first_day = bins[: DAY_MINUTES // BIN_MINUTES].mean()
        found.append(Service(name, counts / 60.0, float(first_day) / MEAN_REPLICAS))
    return found


def _shapes() -> Floats:
    """Ten minutes each as ratios to their mean, shape (n, 10)."""
    found = []
    for file_name, column, wanted in SHAPES:
        with gzip.open(DATA / file_name, "rt") as file:
            rows = [r for r in csv.DictReader(file) if r[column] == wanted and r["bin_s"] == "60"]
        # The first and the last minute are cut off by the recording.
        minutes = np.array([float(row["requests"]) for row in rows[1:-1]])
        whole = len(minutes) // BIN_MINUTES * BIN_MINUTES
        tens = minutes[:whole].reshape(-1, BIN_MINUTES)
        found.append(tens / tens.mean(axis=1, keepdims=True))
    return np.concatenate(found)


def start_minutes(seed: int, count: int, *, with_node: bool = False) -> npt.NDArray[np.intp]:
    """Whole minutes that an order of each minute takes to work, the same for every policy."""
    levels = [(k + 0.5) / 200 for k in range(200)]
    seconds = np.array(startup_time(shipped_catalogue()[WORKLOAD]).quantiles(levels))
    rng = np.random.default_rng([seed, 99])
    drawn = rng.choice(seconds, size=count)
    if with_node:
        median, p95 = NODE_BOOT
        drawn = drawn + rng.lognormal(np.log(median), np.log(p95 / median) / 1.645, count)
    return np.maximum(np.ceil(drawn / 60.0), 1).astype(np.intp)
