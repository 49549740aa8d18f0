"""A recorded board behind the device port: the NVML adapter fed from a recording.

The adapter's code runs unchanged, so that a test on a recording is a test of the adapter.
"""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu.nvml.calls import FIELD_VALUES, SYSTEM
from gpu.nvml.nvml_device import NvmlDriver
from gpu.nvml.return_codes import FUNCTION_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED, NvmlFailure
from gpu.replay.recorder import FORMAT, call_key
from wattpack.clock import Clock
from wattpack.errors import InputError


class Recording:
    """What a board answered, by device, call and time.

    Attributes:
        header: Of the file.
        duration_ns: Time of the last frame plus one period.
    """

    def __init__(self, header: dict[str, Any], frames: list[dict[str, Any]]) -> None:
        self.header = header
        self.devices = sorted({int(i) for f in frames for i in f["answers"] if int(i) != SYSTEM})
        step_ns = frames[-1]["t_ns"] // max(1, len(frames) - 1)
        self.duration_ns: int = frames[-1]["t_ns"] + max(1, step_ns)
        self._times: dict[tuple[int, str], list[int]] = {}
        self._answers: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for frame in frames:
            for index, answers in frame["answers"].items():
                for key, answer in answers.items():
                    self._keep(int(index), key, frame["t_ns"], answer)

    def _keep(self, index: int, key: str, at_ns: int, answer: dict[str, Any]) -> None:
        if key.startswith(FIELD_VALUES) and "value" in answer:
            # Kept by field: a later adapter may ask for the same fields in other groups.
            for row in answer["value"]:
                self._keep(index, f"field {row[0]}", at_ns, {"value": row})
            return
        times = self._times.setdefault((index, key), [])
        if times and times[-1] == at_ns:
            return
        times.append(at_ns)
        self._answers.setdefault((index, key), []).append(answer)

    def answer(self, index: int, key: str, at_ns: int) -> dict[str, Any] | None:
        """The latest answer not after ``at_ns``, else the first; None if never asked."""
        times = self._times.get((index, key))
        if times is None:
            return None
        return self._answers[index, key][max(0, bisect.bisect_right(times, at_ns) - 1)]


def load_recording(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        InputError: if it is missing, truncated, of another format or has no frames.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return parse_recording(lines, str(path))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError("recording", "a complete gzip file", str(error), str(path)) from error


def parse_recording(lines: Iterable[str], source: str = "") -> Recording:
    """The recording in lines of JSON.

    Raises:
        InputError: naming the line.
    """
    header: dict[str, Any] | None = None
    frames: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"line {number}", "one JSON object", line, source) from error
        if header is None:
            if not isinstance(entry, dict) or entry.get("format") != FORMAT:
                raise InputError("line 1", f"a header with format {FORMAT}", entry, source)
            header = entry
            continue
        frames.append(_checked_frame(entry, number, source))
    if header is None or not frames:
        raise InputError("recording", "a header and at least one frame", len(frames), source)
    recording = Recording(header, frames)
    if not recording.devices:
        raise InputError("recording", "answers of at least one device", header, source)
    return recording


def _checked_frame(entry: Any, number: int, source: str) -> dict[str, Any]:  # noqa: ANN401
    good = (
        isinstance(entry, dict)
        and isinstance(entry.get("t_ns"), int)
        and entry["t_ns"] >= 0
        and isinstance(entry.get("answers"), dict)
        and all(
            (index == str(SYSTEM) or index.isdecimal())
            and isinstance(answers, dict)
            and all(
                isinstance(a, dict) and ({"value"} == set(a) or {"code"} == set(a))
                for a in answers.values()
            )
            for index, answers in entry["answers"].items()
        )
    )
    if not good:
        raise InputError(f"line {number}", "t_ns and answers with value or code", entry, source)
    return dict(entry)


class ReplayCalls:
    """NVML calls answered from a recording that loops.

    Args:
        recording: What was answered.
        clock: Its time since construction is the position in the recording.
        copies: How many boards to show; board i answers as recorded board i modulo the number
            recorded, with its own UUID. None: as many as recorded.
    """

    def __init__(self, recording: Recording, clock: Clock, copies: int | None = None) -> None:
        self._recording = recording
        self._clock = clock
        self._start_ns = clock.monotonic_ns()
        self._count = len(recording.devices) if copies is None else copies

    def call(self, name: str, index: int, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        """The recorded answer; what was never asked is FUNCTION_NOT_FOUND, writes NO_PERMISSION."""
        if name == "nvmlDeviceGetCount":
            return self._count
        if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset")):
            raise NvmlFailure(NO_PERMISSION, name)
        devices = self._recording.devices
        recorded = SYSTEM if index == SYSTEM else devices[index % len(devices)]
        at_ns = (self._clock.monotonic_ns() - self._start_ns) % self._recording.duration_ns
        if name == FIELD_VALUES:
            return self._fields(recorded, args, at_ns)
        answer = self._recording.answer(recorded, call_key(name, args), at_ns)
        if answer is None:
            raise NvmlFailure(FUNCTION_NOT_FOUND, name)
        if "code" in answer:
            raise NvmlFailure(int(answer["code"]), name)
        value = answer["value"]
        if name == "nvmlDeviceGetUUID" and index >= len(devices):
            return f"{value}-copy{index // len(devices)}"
        return value

    def _fields(self, recorded: int, ids: tuple[int, ...], at_ns: int) -> list[list[float]]:
        rows = []
        for field in ids:
            answer = self._recording.answer(recorded, f"field {field}", at_ns)
            rows.append(answer["value"] if answer else [field, NOT_SUPPORTED, 0])
        return rows

    def close(self) -> None:
        """Nothing is held."""


def open_recording(path: Path, clock: Clock, copies: int | None = None) -> NvmlDriver:
    """The recorded boards as a driver.

    Raises:
        InputError: for a file that is no recording.
    """
    return NvmlDriver(ReplayCalls(load_recording(path), clock, copies))
