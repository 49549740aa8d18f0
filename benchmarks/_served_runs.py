"""Recordings of a small server on real boards: requests, what they met, and the board's power."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulation.arrivals import Requests

Floats = NDArray[np.float64]

DATA: Final = Path(__file__).parent / "data"
RECORDINGS: Final = {"H200-SXM": (1, 2, 3, 4, 5), "H100-SXM": (1, 2)}
"""Numbers of each GPU type's, from one on."""

PRODUCT_RECORDINGS: Final = {"H200-SXM": (2, 4, 5), "H100-SXM": (2,)}
"""Those whose boards ran single matrix products, too."""


def short_name(gpu: str) -> str:
    """Of a GPU type, in names of figures and folders."""
    return gpu.split("-")[0].lower()


def folder(gpu: str) -> Path:
    """Where a type's recordings lie."""
    return DATA / f"{short_name(gpu)}_served"


@dataclass(frozen=True)
class PowerLog:
    """What NVML told of the board, beside a process that made the load.

    Attributes:
        seconds: Of the monotonic clock, (n_samples,).
        instant_watts, average_watts: NVML's two power fields, (n_samples,).
        energy_seconds, energy_joules: The energy counter, (n_reads,).
    """

    seconds: Floats
    instant_watts: Floats
    average_watts: Floats
    energy_seconds: Floats
    energy_joules: Floats

    @classmethod
    def read(cls, file: Path) -> PowerLog:
        """A log that ``sample_board.py`` wrote."""
        with gzip.open(file, "rt", encoding="utf-8") as text:
            rows = list(csv.reader(text))[1:]
        whole = [row for row in rows if len(row) == 7 and row[2]]
        cells = np.array([[float(row[0]), float(row[1]), float(row[2])] for row in whole])
        counted = np.array([[float(row[0]), float(row[3])] for row in whole if row[3]])
        return cls(
            cells[:, 0], cells[:, 1] / 1e3, cells[:, 2] / 1e3, counted[:, 0], counted[:, 1] / 1e3
        )

    def counted_watts(self, begin: float, end: float) -> float:
        """Mean draw by the energy counter."""
        low, high = np.interp((begin, end), self.energy_seconds, self.energy_joules)
        return float((high - low) / (end - begin))

    def sampled_watts(self, begin: float, end: float) -> float:
        """Mean of the instantaneous field."""
        inside = (self.seconds >= begin) & (self.seconds < end)
        return float(self.instant_watts[inside].mean())

    def means(self, begin: float, seconds: float, window: float) -> Floats:
        """Means of the instantaneous field over windows from ``begin`` on, (n_windows,)."""
        edges = begin + np.arange(0.0, seconds + window / 2, window)
        which = np.digitize(self.seconds, edges) - 1
        inside = (which >= 0) & (which < len(edges) - 1)
        sums = np.bincount(which[inside], self.instant_watts[inside], len(edges) - 1)
        counts = np.bincount(which[inside], minlength=len(edges) - 1)
        return np.asarray(sums / np.maximum(counts, 1))


@dataclass(frozen=True)
class ServedRun:
    """One run of the server.

    Attributes:
        name: With the GPU type's and the recording's number.
        begin_seconds: On the power log's clock.
        requests: In order of arrival.
        first_seconds, last_seconds: Of each request's answer since the run's start, NaN where it
            had not ended, (n_requests,).
        iterations: How many there were, and their seconds, with prompts and without.
    """

    name: str
    trace: str
    begin_seconds: float
    seconds: float
    requests: Requests
    first_seconds: Floats
    last_seconds: Floats
    iterations: dict[str, float]

    @cached_property
    def ended(self) -> NDArray[np.bool_]:
        """Which requests ended within the run."""
        return np.isfinite(self.last_seconds)

    @property
    def ttft_seconds(self) -> Floats:
        """Of the requests that ended."""
        return np.asarray(self.first_seconds - self.requests.arrival_seconds)[self.ended]

    @property
    def tpot_seconds(self) -> Floats:
        """Of the requests that ended and had more than one token."""
        further = self.requests.output_tokens - 1.0
        told = self.ended & (further > 0)
        return np.asarray((self.last_seconds - self.first_seconds)[told] / further[told])


@dataclass(frozen=True)
class Recording:
    """All of one lease.

    Attributes:
        gpu: Type of the board.
        marks_seconds: When idling, loading and waiting with a context began.
        decodes, prompts: Iterations of equal decodes, and of one prompt each, back to back.
    """

    gpu: str
    number: int
    runs: tuple[ServedRun, ...]
    power: PowerLog
    marks_seconds: dict[str, float]
    decodes: list[dict[str, float]]
    prompts: list[dict[str, Any]]


def recordings(gpu: str, numbers: tuple[int, ...] | None = None) -> Iterator[Recording]:
    """The shipped ones of a GPU type."""
    for number in RECORDINGS[gpu] if numbers is None else numbers:
        file = folder(gpu) / f"recording-{number}.json.gz"
        with gzip.open(file, "rt", encoding="utf-8") as text:
            document = json.load(text)
        prefix, suffix = short_name(gpu), f"recording_{number}"
        yield Recording(
            gpu,
            number,
            tuple(
                _run(f"{prefix}_{name.replace('.', '_')}_{suffix}", run)
                for name, run in document["runs"].items()
            ),
            PowerLog.read(folder(gpu) / f"recording-{number}-power.csv.gz"),
            document["marks_seconds"],
            document["decodes"],
            document["prompts"],
        )


def _run(name: str, run: dict[str, Any]) -> ServedRun:
    arrived, prompt, output, first, last = np.array(run["requests"], dtype=np.float64).T
    return ServedRun(
        name,
        run["trace"],
        run["begin_seconds"],
        run["seconds"],
        Requests(arrived.copy(), prompt.copy(), output.copy()),
        first,
        last,
        run["iterations"],
    )
