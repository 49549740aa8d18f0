"""Bandwidth and delay between every two GPUs, and which kind of network each host has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Collective
from capacity.model.kernel_samples import Floats, Indices
from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = ["Link", "LinkMatrix", "fit_link"]


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two GPUs."""

    bytes_per_second: float
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        require_number(
            "bytes_per_second", self.bytes_per_second, minimum=1e6, maximum=1e14, unit="B/s"
        )
        require_number("latency_seconds", self.latency_seconds, minimum=0, maximum=1, unit="s")


@dataclass(frozen=True, slots=True, eq=False)
class LinkMatrix:
    """What one flow between two GPUs gets while each GPU has one flow in and one out.

    Attributes:
        bytes_per_second: Shape (n_gpus, n_gpus); the diagonal is never used.
        latency_seconds: Likewise.
        host: Number of each GPU's host, shape (n_gpus,), ascending.
        nic_class: Kind of network by host, for example ``infiniband``: collectives whose ranks
            sit on several hosts stay inside one class.
    """

    bytes_per_second: Floats
    latency_seconds: Floats
    host: Indices
    nic_class: tuple[str, ...]

    def __post_init__(self) -> None:
        gpus = len(self.host)
        off = ~np.eye(gpus, dtype=np.bool_)
        for name, least in (("bytes_per_second", 1e6), ("latency_seconds", 0.0)):
            values = getattr(self, name)
            if values.shape != (gpus, gpus):
                raise InputError(name, f"shape ({gpus}, {gpus})", values.shape)
            if not (np.isfinite(values[off]).all() and (values[off] >= least).all()):
                raise InputError(name, f"finite numbers of at least {least:g}", "others")
        if gpus and (self.host[0] != 0 or (np.diff(self.host) < 0).any()):
            raise InputError("host", "ascending numbers from 0", self.host.tolist()[:8])
        if gpus and len(self.nic_class) != int(self.host[-1]) + 1:
            raise InputError("nic_class", "one a host", len(self.nic_class))

    @classmethod
    def from_levels(
        cls,
        gpus_per_host: Sequence[int],
        inside: Link,
        between: dict[tuple[str, str], Link],
        nic_class: Sequence[str],
    ) -> Self:
        """Links that depend only on whether two GPUs share a host, and on their hosts' classes.

        Args:
            between: By pair of classes, either order; every pair that occurs.

        Raises:
            InputError: a pair of classes without a link.
        """
        host = np.repeat(np.arange(len(gpus_per_host)), gpus_per_host)
        hosts = len(gpus_per_host)
        rate, delay = np.empty((hosts, hosts)), np.empty((hosts, hosts))
        for a, b in np.ndindex(hosts, hosts):
            pair = (nic_class[a], nic_class[b])
            link = inside if a == b else between.get(pair) or between.get(pair[::-1])
            if link is None:
                raise InputError("between", f"a link of {pair[0]} and {pair[1]}", None)
            rate[a, b], delay[a, b] = link.bytes_per_second, link.latency_seconds
        at = np.ix_(host, host)
        return cls(rate[at], delay[at], host, tuple(nic_class))

    @property
    def gpus(self) -> int:
        """How many."""
        return len(self.host)

    @property
    def class_of_gpu(self) -> tuple[str, ...]:
        """Kind of network, shape (n_gpus,)."""
        return tuple(self.nic_class[host] for host in self.host.tolist())

    def with_pair(self, a: int, b: int, link: Link) -> Self:
        """These links with those between two hosts, both ways, replaced."""
        rate, delay = self.bytes_per_second.copy(), self.latency_seconds.copy()
        one, two = self.host == a, self.host == b
        for x, y in ((one, two), (two, one)):
            rate[np.ix_(x, y)] = link.bytes_per_second
            delay[np.ix_(x, y)] = link.latency_seconds
        return replace(self, bytes_per_second=rate, latency_seconds=delay)

    def take(self, gpus: Indices) -> Self:
        """The links among some GPUs, in ascending order; hosts are numbered anew."""
        kept = np.sort(gpus)
        at = np.ix_(kept, kept)
        hosts, host = np.unique(self.host[kept], return_inverse=True)
        return type(self)(
            self.bytes_per_second[at],
            self.latency_seconds[at],
            host.astype(np.int64),
            tuple(self.nic_class[h] for h in hosts.tolist()),
        )


def fit_link(rows: Iterable[MeasurementRow]) -> Link:
    """The link inside a host as its collectives show it: bus bytes a second, delay of one hop.

    A time is hops x delay + bus bytes / rate; the rate is of the largest messages, the delay the
    median of what is left over at the smallest ones.

    Raises:
        InputError: no collective of at least 64 MiB, or none of at most 64 KiB.
    """
    timed = [
        (row.kernel, row.latency.median_seconds)
        for row in rows
        if isinstance(row.kernel, Collective)
    ]
    large = [k.bytes_moved / t for k, t in timed if k.message_bytes >= 2**26]
    small = [(k, t) for k, t in timed if k.message_bytes <= 2**16]
    if not large or not small:
        raise InputError(
            "rows", "collectives of 64 KiB and less and of 64 MiB and more", len(timed)
        )
    rate = float(np.median(large))
    delays = [max(0.0, t - k.bytes_moved / rate) / _hops(k) for k, t in small]
    return Link(rate, float(np.median(delays)))


def _hops(kernel: Collective) -> int:
    steps = 2 if kernel.op == "all_reduce" else 1
    return steps * (kernel.gpus - 1) if kernel.op != "send_recv" else 1
