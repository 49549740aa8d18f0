"""How long until a new replica does useful work, as a distribution with its parts.

    schedule ─► image ─► model load ─► compile ─► warm-up        one after the other, independent

Forecasts need a quantile of the sum (how far ahead to ask), moves its mean (what they cost). Parts
are distributions, since cold starts are skewed: medians add up to less than the 95th percentile of
the sum. Joosen et al., "Serverless Cold Starts and Where to Find Them" (arXiv 2410.06145), find
parts that differ by region: up to 7 s of dependencies and scheduling in one, 3 s of pod allocation
in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.workload_memory import memory_use
from capacity.catalogue.workload_schema import Workload
from wattpack.errors import InputError
from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

BINS: Final = 4096
TAIL: Final = 1e-4
"""Probability that a part is cut off at its upper end."""

Z95: Final = 1.6448536269514722
"""Standard normal quantile of 0.95."""

SCHEDULE: Final = (1.0, 7.0)
"""Median and 95th percentile of gate, pin and bind, seconds: the upper one as in the
paper's slowest region, the median assumed for a cluster with free GPUs."""

SPREAD: Final = {"image": 3.0, "model-load": 2.0, "compile": 1.3, "warm-up": 1.5}
"""95th percentile over median, assumed: a registry under load is slower than a local disk."""

IMAGE_BYTES_PER_SECOND: Final = 200e6
"""Pull and unpack of one image, assumed: unpacking binds, not the network."""

SHARED_LOAD: Final = 0.5
"""Share of the storage rate that loading of weights attains, assumed: many files, one reader."""


class Seconds(Protocol):
    """A distribution of a duration."""

    @property
    def mean(self) -> float:
        """Seconds."""
        ...

    def below(self, seconds: Floats) -> Floats:
        """Probability of at most so many seconds, of the shape of ``seconds``."""
        ...

    def upper(self, probability: float) -> float:
        """Seconds that are exceeded with this probability."""
        ...


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Skewed, above 0; equal figures are a constant."""

    median: float
    p95: float

    def __post_init__(self) -> None:
        require_number("median", self.median, minimum=0, maximum=1e6)
        require_number("p95", self.p95, minimum=self.median, maximum=1e6)

    @property
    def _sigma(self) -> float:
        return float(np.log(self.p95 / self.median) / Z95) if self.median else 0.0

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.median * float(np.exp(self._sigma**2 / 2))

    def below(self, seconds: Floats) -> Floats:
        """Probability of at most so many seconds."""
        if not self._sigma:
            return np.asarray(seconds >= self.median, dtype=np.float64)
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(seconds, 0.0) / self.median)
        return np.asarray(ndtr(logs / self._sigma))

    def upper(self, probability: float) -> float:
        """Seconds that are exceeded with this probability."""
        if not self._sigma:
            return self.median
        return float(self.median * np.exp(-self._sigma * ndtri(probability)))


@dataclass(frozen=True, slots=True)
class Measured:
    """The observed durations themselves."""

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise InputError("seconds", "at least one observed duration", 0)
        for value in self.seconds:
            require_number("seconds", value, minimum=0, maximum=1e6)

    @property
    def mean(self) -> float:
        """Seconds."""
        return float(np.mean(self.seconds))

    def below(self, seconds: Floats) -> Floats:
        """Share of the observations of at most so many seconds."""
        ordered = np.sort(self.seconds)
        return np.asarray(np.searchsorted(ordered, seconds, side="right") / len(ordered))

    def upper(self, probability: float) -> float:
        """The longest observation."""
        del probability
        return max(self.seconds)


@dataclass(frozen=True, slots=True)
class StartupTime:
    """Named parts, independent of one another."""

    parts: tuple[tuple[str, Seconds], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InputError("parts", "at least one", 0)

    @property
    def mean_seconds(self) -> float:
        """Of the sum: what a move loses on average."""
        return sum(part.mean for _, part in self.parts)

    def quantile(self, level: float) -> float:
        """Seconds within which a replica is ready with this probability: the lead time.

        Within 0.2 % of the longest possible sum (the grid's width and the tails cut off).
        """
        require_number("level", level, exclusive_minimum=0, maximum=0.999)
        return self.quantiles([level])[0]

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """As ``quantile``, for several levels at once."""
        reach = sum(part.upper(TAIL) for _, part in self.parts)
        if reach == 0:
            return [0.0 for _ in levels]
        width = reach / (BINS - 1)
        whole = np.ones(1)
        edges: Floats = (np.arange(BINS + 1, dtype=np.float64) - 0.5) * width
        for _, part in self.parts:
            mass = np.diff(part.below(edges))
            # What lies beyond the grid or at its very start belongs to the outermost bins.
            mass[0] += float(part.below(edges[:1])[0])
            mass[-1] += max(0.0, 1 - float(mass.sum()))
            whole = np.convolve(whole, mass)
        reached = np.cumsum(whole) / whole.sum()
        return [float(np.searchsorted(reached, level)) * width for level in levels]


def startup_time(
    workload: Workload,
    host: HostRoofline | None = None,
    *,
    image_is_there: bool = False,
    weight_bytes: float | None = None,
) -> StartupTime:
    """Parts of a catalogue entry's start on a node.

    Args:
        host: Rates of the node's storage and PCIe.
        image_is_there: No pull.
        weight_bytes: Loaded by one GPU; the entry's own if None.
    """
    rates = host or HostRoofline()
    weights = memory_use(workload).weight_bytes if weight_bytes is None else weight_bytes
    path = min(rates.storage_bytes_per_second * SHARED_LOAD, rates.pcie_bytes_per_second)
    medians = {
        "image": 0.0 if image_is_there else workload.startup.image_bytes / IMAGE_BYTES_PER_SECOND,
        "model-load": weights / path,
        "compile": workload.startup.compile_seconds,
        "warm-up": workload.startup.warmup_seconds,
    }
    parts: list[tuple[str, Seconds]] = [("schedule", LogNormal(*SCHEDULE))]
    parts += [(name, LogNormal(m, m * SPREAD[name])) for name, m in medians.items()]
    return StartupTime(tuple(parts))
