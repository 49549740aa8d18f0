"""Why small batches are slow: what of an iteration is the host's, and what launches would cost.

An engine records its decode iterations as graphs; what stays with the host is scheduling, sampling
and streaming (``EngineConstants``). Without graphs, as in eager mode, each kernel is launched by
the host, and an iteration takes at least as long as its launches, whatever the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from capacity.bench.launch_bound import HOST_BOUND_RATIO, eager_launch_seconds
from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.decoder_kernels import DecoderShare, TokenGroup
from capacity.serving.deployment import Deployment

REFERENCE_GPU: Final = "H200-SXM"
"""Whose host stands for those of types without rows (assumed)."""

LARGEST_BATCH: Final = 1024


@dataclass(frozen=True, slots=True)
class HostShare:
    """A decode iteration.

    Attributes:
        seconds: Of all of it, at full clock.
        host_seconds: Of the engine on the host and in the gaps between kernels.
    """

    seconds: float
    host_seconds: float

    @property
    def share(self) -> float:
        """The host's."""
        return self.host_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class LaunchBound:
    """A decode iteration whose kernels the host launches one by one.

    Attributes:
        launch_seconds: Of one kernel, from steps that waited for their host.
        measured_on: GPU type whose host that was.
        batch: Up to which launches take 1.1 times the kernels' own time or more; 0 if none does,
            ``LARGEST_BATCH`` if all do.
    """

    launches: int
    launch_seconds: float
    measured_on: str
    batch: int

    @property
    def seconds(self) -> float:
        """Least time of an iteration."""
        return self.launches * self.launch_seconds


def host_share(deployment: Deployment, batch: int, context: float) -> HostShare:
    """Of a decode iteration of so many sequences with this mean context."""
    constants = deployment.engine.constants
    host = constants.layer_seconds * deployment.model.layers + constants.step_seconds
    host += constants.sequence_seconds * batch / deployment.batching.stream_interval
    return HostShare(deployment.clock().decode(batch, context)[0], host)


def launch_bound(deployment: Deployment, context: float) -> LaunchBound:
    """What the deployment's iterations would be without recorded graphs."""
    measured_on, each = _launch_seconds(deployment.prices.roofs.model)
    share = DecoderShare(deployment.model, deployment.tensor_parallel, deployment.number_format)
    mix = share.mix((TokenGroup("decode", 1, 1, max(1, round(context))),))
    launches = sum(count for _, count in mix)

    def waits(batch: int) -> bool:
        one = host_share(deployment, batch, context)
        return launches * each >= HOST_BOUND_RATIO * (one.seconds - one.host_seconds)

    low, high = 0, LARGEST_BATCH + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if waits(middle) else (low, middle)
    return LaunchBound(launches, each, measured_on, low)


@lru_cache(maxsize=8)
def _launch_seconds(gpu: str) -> tuple[str, float]:
    """Type and seconds: its own rows, or the reference's."""
    for name in (gpu, REFERENCE_GPU):
        if name in WHOLE_RUNS:
            seconds = eager_launch_seconds(shipped_rows(WHOLE_RUNS[name]))
            if seconds is not None:
                return name, seconds
    raise LookupError("the shipped rows of the reference hold a transition section")
