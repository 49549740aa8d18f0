"""Reading all devices of a node without letting one stuck driver call stall the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gpu.device import GpuDevice, GpuTimeout, GpuUnavailable
from gpu.device_reader import NOTHING_EXTRA, Extra, Outcome, read_device
from gpu.workers.deadline_executor import STALL_NS, Abandoned, DeadlineExecutor, Job
from wattpack.clock import Clock
from wattpack.units import NS_PER_MS

DEADLINE_NS = 80 * NS_PER_MS
"""Below the shortest sampling period (100 ms), far above a healthy read (a few ms)."""


class WorkerReader:
    """Reads all devices within a deadline, whatever any of them does.

    Args:
        devices: Of one node.
        clock: For the deadline.
        deadline_ns: After which a device without an answer counts as stuck in this round.
        stall_ns: How long one device may hold up the others.
    """

    def __init__(
        self,
        devices: Sequence[GpuDevice],
        clock: Clock,
        *,
        deadline_ns: int = DEADLINE_NS,
        stall_ns: int = STALL_NS,
    ) -> None:
        self.devices = tuple(devices)
        self.executor = DeadlineExecutor(clock, deadline_ns=deadline_ns, stall_ns=stall_ns)

    def read_all(self, now_ns: int, extra: Extra = NOTHING_EXTRA) -> list[Outcome]:
        """One outcome a device: fresh, or ``GpuTimeout`` for a device whose call hangs."""
        jobs: dict[str, Job[Outcome]] = {
            device.identity.uuid: partial(_read_for_executor, device, now_ns, extra)
            for device in self.devices
        }
        results = self.executor.run(jobs, now_ns)
        return [_outcome(device, results) for device in self.devices]

    def close(self) -> None:
        """Let the workers end; a stuck one ends with the process."""
        self.executor.close()


def _read_for_executor(
    device: GpuDevice, now_ns: int, extra: Extra, _abandoned: Abandoned
) -> Outcome:
    return read_device(device, now_ns, extra)


def _outcome(device: GpuDevice, results: Mapping[str, Outcome | Exception]) -> Outcome:
    uuid = device.identity.uuid
    result = results.get(uuid)
    if result is None:
        hangs = f"{uuid}: no answer from the driver; its call still hangs"
        return Outcome(error=GpuTimeout(hangs))
    if isinstance(result, Exception):
        return Outcome(error=GpuUnavailable(f"{type(result).__name__}: {result}"))
    return result
