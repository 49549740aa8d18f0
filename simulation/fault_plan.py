"""Faults with their times: what goes wrong in a run, and whom it strikes.

The plant's own faults are carried out by ``simulation.world``. Faults of the product's processes
(telemetry loss, crashes, an API that is down) are only announced here: whoever runs the processes
asks ``active`` and acts, the runner in one process and the demo over loopback alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.scenario import FaultKind, FaultSettings
from wattpack.errors import InputError
from wattpack.units import seconds_to_ns

Bools = NDArray[np.bool_]

NODE_FAULTS = frozenset({FaultKind.TELEMETRY_LOSS, FaultKind.NODE_REBOOT, FaultKind.DRIVER_RELOAD})
DOMAIN_FAULTS = frozenset({FaultKind.METER_GAP, FaultKind.FEED_LOSS})
GPU_FAULTS = frozenset(
    {
        FaultKind.SILENT_WRITE_FAILURE,
        FaultKind.IGNORE_CAP,
        FaultKind.GPU_HUNG,
        FaultKind.SENSOR_GAIN,
        FaultKind.DEMAND_STEP,
    }
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with its targets worked out.

    Attributes:
        kind: What goes wrong.
        begin_ns: First instant.
        end_ns: First instant after it; ``begin_ns`` for an event.
        struck: Which GPUs, nodes or domains, by kind; empty for faults of whole processes.
        ratio: As in the scenario.
    """

    kind: FaultKind
    begin_ns: int
    end_ns: int
    struck: Bools
    ratio: float


class FaultSchedule:
    """All faults of a run.

    Args:
        faults: As the scenario gives them.
        gpu_uuids: (n_gpus,).
        node_names: (n_nodes,).
        domain_names: (n_domains,).
        node_of_gpu: (n_gpus,).
        seed: Of the draw where only a share is struck.

    Raises:
        InputError: for a target that does not exist, naming the fault.
    """

    def __init__(
        self,
        faults: Sequence[FaultSettings],
        gpu_uuids: Sequence[str],
        node_names: Sequence[str],
        domain_names: Sequence[str],
        node_of_gpu: NDArray[np.int64],
        seed: int,
    ) -> None:
        self._gpu_uuids = list(gpu_uuids)
        self._node_names = list(node_names)
        self._domain_names = list(domain_names)
        self._node_of_gpu = node_of_gpu
        self.faults = tuple(
            self._fault(i, settings, np.random.default_rng((seed, 3, i)))
            for i, settings in enumerate(faults)
        )

    def _fault(self, i: int, settings: FaultSettings, generator: np.random.Generator) -> Fault:
        struck = self._target(i, settings)
        if settings.share < 1.0 and struck.any():
            chosen = np.flatnonzero(struck)
            keep = max(1, round(settings.share * len(chosen)))
            struck = np.zeros_like(struck)
            struck[generator.permutation(chosen)[:keep]] = True
        begin_ns = seconds_to_ns(settings.at_seconds)
        end_ns = begin_ns + seconds_to_ns(settings.duration_seconds)
        return Fault(settings.kind, begin_ns, end_ns, struck, settings.ratio)

    def _target(self, i: int, settings: FaultSettings) -> Bools:
        kind, target = settings.kind, settings.target
        field = f"faults.{i}.target"
        if kind in DOMAIN_FAULTS:
            return _named(field, target, self._domain_names, "a domain")
        if kind in NODE_FAULTS:
            return _named(field, target, self._node_names, "a node")
        if kind not in GPU_FAULTS:
            if target:
                raise InputError(field, f"no target for {kind}", target)
            return np.zeros(0, dtype=np.bool_)
        if target in self._node_names:
            return np.asarray(self._node_of_gpu == self._node_names.index(target), dtype=np.bool_)
        return _named(field, target, self._gpu_uuids, "a GPU uuid or a node")

    def active(self, kind: FaultKind, now_ns: int) -> list[Fault]:
        """Faults of a kind that last at a time."""
        return [f for f in self.faults if f.kind is kind and f.begin_ns <= now_ns < f.end_ns]

    def any_active(self, kind: FaultKind, now_ns: int) -> bool:
        """Whether a fault of a kind lasts at a time."""
        return bool(self.active(kind, now_ns))

    def struck(self, kind: FaultKind, now_ns: int, n: int) -> Bools:
        """Which targets a kind strikes at a time, (n,)."""
        result = np.zeros(n, dtype=np.bool_)
        for fault in self.active(kind, now_ns):
            result |= fault.struck
        return result

    def beginning(self, after_ns: int, until_ns: int) -> list[Fault]:
        """Faults whose first instant lies in (after, until], or at 0 for the first step."""
        return [
            f
            for f in self.faults
            if after_ns < f.begin_ns <= until_ns or (after_ns == f.begin_ns == 0)
        ]


def _named(field: str, target: str, names: Sequence[str], what: str) -> Bools:
    if not target:
        return np.ones(len(names), dtype=np.bool_)
    if target not in names:
        raise InputError(field, what, target)
    return np.array([name == target for name in names], dtype=np.bool_)
