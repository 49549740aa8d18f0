"""Write down what NVML answers, with error codes, so that tests can replay a real board.

A recording is gzip-compressed JSON lines: a header, then one frame a sampling step with the raw
answer of every call made in it. Nothing is interpreted: milliwatts stay milliwatts.

    python -m gpu.replay.recorder --out idle.jsonl.gz --seconds 20 --hz 10
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from gpu.device import GpuDevice, GpuError
from gpu.nvml.calls import NvmlCalls
from gpu.nvml.nvml_device import NvmlDriver
from gpu.nvml.return_codes import NvmlFailure, typed_error
from wattpack.clock import Clock, SystemClock
from wattpack.units import NS_PER_SECOND, require_number

FORMAT = "wattpack.io/nvml-recording/v1"

EXTRA_CALLS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetEnforcedPowerLimit", ()),
    ("nvmlDeviceGetPowerManagementLimit", ()),
    ("nvmlDeviceGetTotalEccErrors", (0, 1)),
    ("nvmlDeviceGetTotalEccErrors", (1, 1)),
    ("nvmlDeviceGetPowerState", ()),
    ("nvmlDeviceGetPersistenceMode", ()),
)
"""Calls that the adapter does not need, or not on every board, but that a reader of the recording
compares with: a later adapter may ask by fields or by single calls."""


def call_key(name: str, args: Sequence[int]) -> str:
    """How a call is named in a recording."""
    return f"{name}({','.join(str(arg) for arg in args)})"


class RecordingCalls:
    """Passes calls on and keeps every answer of the present frame."""

    def __init__(self, calls: NvmlCalls) -> None:
        self._calls = calls
        self.frame: dict[str, dict[str, Any]] = {}

    def call(self, name: str, index: int, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        """The answer, after it was written down."""
        answers = self.frame.setdefault(str(index), {})
        try:
            value = self._calls.call(name, index, *args)
        except NvmlFailure as failure:
            answers[call_key(name, args)] = {"code": failure.code}
            raise
        answers[call_key(name, args)] = {"value": value}
        return value

    def take_frame(self) -> dict[str, dict[str, Any]]:
        """The answers since the last call."""
        frame, self.frame = self.frame, {}
        return frame

    def close(self) -> None:
        """Let go of the library."""
        self._calls.close()


def record(
    calls: NvmlCalls, clock: Clock, out: IO[str], *, seconds: float, hz: float, label: str
) -> int:
    """Write a recording; the number of frames.

    Raises:
        GpuError: if NVML does not answer; what was written so far is a valid recording.
    """
    recorder = RecordingCalls(calls)
    driver = NvmlDriver(recorder)
    header = {
        "format": FORMAT,
        "label": label,
        "hz": hz,
        "driver_version": driver.driver_version(),
        "wall_time_ns": clock.wall_time_ns(),
        "devices": [device.identity.model for device in driver.devices()],
    }
    out.write(json.dumps(header) + "\n")
    start_ns = clock.monotonic_ns()
    period_ns = round(NS_PER_SECOND / hz)
    frames = round(seconds * hz)
    for k in range(frames):
        clock.wait_until(start_ns + k * period_ns)
        now_ns = clock.monotonic_ns()
        for device in driver.devices():
            _record_device(recorder, device, now_ns, slow=k % max(1, round(hz)) == 0)
        frame = {"t_ns": now_ns - start_ns, "answers": recorder.take_frame()}
        out.write(json.dumps(frame, separators=(",", ":")) + "\n")
    return frames


def _record_device(recorder: RecordingCalls, device: GpuDevice, now_ns: int, *, slow: bool) -> None:
    """Make every call that the agent makes; a code in the recording is all that is wanted."""
    calls: list[Callable[[], object]] = [lambda: device.read(now_ns), device.limits]
    if slow:
        calls += [device.max_clock_mhz, device.processes]
    for call in calls:
        with contextlib.suppress(GpuError):
            call()
    for name, args in EXTRA_CALLS if slow else ():
        with contextlib.suppress(NvmlFailure):
            recorder.call(name, device.identity.index, *args)


def main(argv: Sequence[str] | None = None) -> int:
    """Record this machine's NVML; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gpu.replay.recorder", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file to write (.jsonl.gz)")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the recording")
    parser.add_argument("--hz", type=float, default=10.0, help="frames a second")
    parser.add_argument("--label", default="", help="what the GPU was doing")
    options = parser.parse_args(argv)
    require_number("seconds", options.seconds, exclusive_minimum=0.0, maximum=3600.0, unit="s")
    require_number("hz", options.hz, exclusive_minimum=0.0, maximum=100.0, unit="Hz")
    from gpu.nvml.binding import LiveNvml

    try:
        calls = LiveNvml()
        with gzip.open(options.out, "wt", encoding="utf-8") as out:
            frames = record(
                calls,
                SystemClock(),
                out,
                seconds=options.seconds,
                hz=options.hz,
                label=options.label,
            )
        calls.close()
    except NvmlFailure as failure:
        print(f"error: {typed_error(failure, 'NVML')}", file=sys.stderr)
        return 1
    except GpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{frames} frames written to {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
