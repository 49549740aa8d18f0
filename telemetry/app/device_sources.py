"""Where the agent's devices come from: this machine, a recording, or simulated boards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpu.device import GpuDriver
from gpu.device_reader import DeviceReader, InlineReader
from gpu.workers.worker_reader import WorkerReader
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND, NodeName


@dataclass(frozen=True, slots=True)
class Source:
    """A node's devices, ready to be read.

    Attributes:
        before_round: Called with the time before each round: moves simulated boards.
        unidentified: Devices that the driver lists but that do not answer.
        note: What a person should know about these devices.
    """

    reader: DeviceReader
    driver: GpuDriver
    before_round: Callable[[int], None]
    unidentified: int = 0
    note: str = ""

    def close(self) -> None:
        """Stop reading and let go of the driver."""
        self.reader.close()
        self.driver.close()


def nothing_before(now_ns: int) -> None:
    """Real boards move by themselves."""


def nvml_source(clock: Clock) -> Source:
    """The GPUs of this machine, each read by its own worker.

    Raises:
        GpuUnavailable: if there is no driver; the message says what to do.
    """
    from gpu.nvml import open_nvml

    driver = open_nvml()
    reader = WorkerReader(driver.devices(), clock)
    note = f"NVIDIA driver {driver.driver_version()}"
    return Source(reader, driver, nothing_before, len(driver.unidentified), note)


def replay_source(path: Path, clock: Clock, copies: int | None) -> Source:
    """Recorded boards, read as real ones are.

    Raises:
        InputError: if the file is no recording.
    """
    from gpu.replay.replayed_device import open_recording

    driver = open_recording(path, clock, copies)
    reader = WorkerReader(driver.devices(), clock)
    note = "REPLAY of a recording, not this machine"
    return Source(reader, driver, nothing_before, len(driver.unidentified), note)


def simulated_source(count: int, clock: Clock, node: NodeName, seed: int) -> Source:
    """Simulated boards under a slowly changing load, for machines without a GPU."""
    import numpy as np

    from gpu.simulated import BoardBank, node_boards

    specs = node_boards(node, count, "simulated H200")
    bank = BoardBank(specs, seed=seed, start_ns=clock.monotonic_ns())
    phases = np.arange(count) / max(1, count)

    def before_round(now_ns: int) -> None:
        if now_ns > bank.now_ns:
            turns = now_ns / NS_PER_SECOND / 60.0 + phases
            bank.advance(400.0 + 350.0 * np.sin(2 * math.pi * turns), now_ns)

    driver = bank.driver(node, writable=False)
    reader = InlineReader(driver.devices())
    return Source(reader, driver, before_round, 0, "SIMULATED boards, no GPU is read")
