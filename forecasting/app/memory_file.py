"""What the forecaster has learned, in a file: a restart goes on where it stopped.

One ``.npz`` archive without pickled objects: arrays, and a header in JSON with everything else. It
is written beside its place and moved there, so that a reader finds the old one or the new one. A
file of another version, or a damaged one, is refused: the forecaster then rehearses its histories.
Open issues are in it, or in files of their own where it is written again and again.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from forecasting.app.issue_files import (
    CHANGING_ARRAYS,
    LASTING_ARRAYS,
    IssueFiles,
    read_issue_file,
    refuse_large,
)
from forecasting.calibration.pooled import PooledCalibration
from forecasting.calibration.promise_record import PromiseRecord
from forecasting.calibration.stored_calibration import calibration_from_json, calibration_to_json
from forecasting.combination import LossRecord
from forecasting.engine_memory import EngineMemory, Pool
from forecasting.engine_question import Shape
from forecasting.forecast_engine import Engine
from forecasting.open_issues import OpenIssue, not_counted_at
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from wattpack.errors import InputError

VERSION: Final = 4
"""Of the archive; levels and shapes are told in it."""

DAMAGED: Final = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, EOFError, MemoryError,
    RuntimeError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""What reading an archive of other bytes can raise; RuntimeError of one that says it is locked."""


def write_state(path: Path, state: ForecasterState, issues: IssueFiles | None = None) -> None:
    """The file holds what the state has learned.

    Args:
        path: The file.
        state: What is written.
        issues: Where open issues go; None puts them into the file itself.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    arrays: dict[str, np.ndarray] = {}
    groups = [
        _group(number, group, engine.memory, _Out(arrays, issues))
        for number, (group, engine) in enumerate(sorted(state.engines.items()))
    ]
    header = {
        "version": VERSION,
        "rehearsed": sorted(state.rehearsed),
        "groups": groups,
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    if issues is not None:
        issues.keep_only({one["file"] for group in groups for one in group["open_issues"]})


def read_state(path: Path, empty: ForecasterState) -> ForecasterState:
    """The state that was written, with the models of ``empty``; that one if there is no file.

    Raises:
        InputError: the file is damaged, or of another version.
        OSError: it cannot be read.
    """
    if not path.exists():
        return empty
    try:
        refuse_large(path)
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(bytes(arrays["header"]))
            if header["version"] != VERSION:
                raise InputError("stateFile.version", str(VERSION), header["version"], str(path))
            engines = {}
            for number, told in enumerate(header["groups"]):
                shape = Shape(told["step_seconds"], told["horizon"], tuple(told["levels"]))
                memory = _memory(path, number, told, shape, arrays)
                group = (shape.step_seconds, shape.horizon, shape.levels)
                engines[group] = Engine(shape, empty.tiers.live(shape.horizon), memory)
            rehearsed = frozenset(SeriesId(name) for name in header["rehearsed"])
    except DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError("stateFile", f"a state of a forecaster ({error})", str(path)) from error
    return replace(empty, engines=engines, rehearsed=rehearsed)


class _Out(NamedTuple):
    """Where arrays go: into the file, and those of issues into files of their own if there are."""

    arrays: dict[str, np.ndarray]
    issues: IssueFiles | None

    def put(self, prefix: str, issue: OpenIssue) -> dict[str, str]:
        """An issue's arrays; returns where its lasting ones are, nothing for the file itself."""
        for name in CHANGING_ARRAYS:
            self.arrays[f"{prefix}/{name}"] = getattr(issue, name)
        if self.issues is not None:
            return {"file": self.issues.name_of(issue)}
        for name in LASTING_ARRAYS:
            self.arrays[f"{prefix}/{name}"] = getattr(issue, name)
        return {}


def _group(
    number: int,
    group: tuple[int, int, tuple[float, ...]],
    memory: EngineMemory,
    out: _Out,
) -> dict[str, Any]:
    """One group's part of the header; its arrays go out."""
    step_seconds, horizon, levels = group
    out.arrays[f"{number}/sums"] = memory.losses.sums
    out.arrays[f"{number}/windows"] = memory.losses.windows
    return {
        "step_seconds": step_seconds,
        "horizon": horizon,
        "levels": list(levels),
        "points": _calibrations(memory.points),
        "peaks": _calibrations(memory.peaks),
        "records": {name: record.to_json() for name, record in sorted(memory.records.items())},
        "losses": {
            "tiers": list(memory.losses.tiers),
            "series": list(memory.losses.series),
            "until_seconds": memory.losses.until_seconds,
        },
        "open_issues": [
            {
                "begin_seconds": issue.begin_seconds,
                "learned_steps": issue.learned_steps,
                "series": list(issue.series),
                "pools": [list(pool) for pool in issue.pools],
                "tiers": list(issue.tiers),
                **out.put(f"{number}/{i}", issue),
            }
            for i, issue in enumerate(memory.open_issues)
        ],
    }


def _calibrations(kept: Mapping[Pool, PooledCalibration]) -> list[list[object]]:
    """Namespace, kind and what was learned, pool by pool."""
    return [[*pool, calibration_to_json(one)] for pool, one in sorted(kept.items())]


def _memory(
    path: Path,
    number: int,
    told: Mapping[str, Any],
    shape: Shape,
    arrays: Mapping[str, np.ndarray],
) -> EngineMemory:
    """One group's memory.

    Raises:
        InputError: what is told does not fit the shape.
    """
    points, peaks = (
        {(space, kind): calibration_from_json(kept) for space, kind, kept in told[name]}
        for name in ("points", "peaks")
    )
    for calibration in (*points.values(), *peaks.values()):
        if calibration.levels != shape.grid:
            raise InputError("stateFile.levels", f"{shape.grid}", calibration.levels)
    losses = LossRecord(
        tiers=tuple(told["losses"]["tiers"]),
        series=tuple(told["losses"]["series"]),
        sums=arrays[f"{number}/sums"],
        windows=arrays[f"{number}/windows"],
        until_seconds=int(told["losses"]["until_seconds"]),
    )
    open_issues: list[OpenIssue] = []
    for i, part in enumerate(told["open_issues"]):
        found = _arrays_of(path, f"{number}/{i}", part, arrays)
        if "counted" not in found:
            # A state of before records counted windows in turn.
            found["counted"] = found["judged"] & not_counted_at(
                open_issues, part["series"], int(part["begin_seconds"]), shape.step_seconds
            )
        open_issues.append(_issue(f"{number}/{i}", part, shape, found))
    return EngineMemory(
        open_issues=tuple(open_issues),
        points=points,
        peaks=peaks,
        losses=losses,
        records={
            SeriesId(name): PromiseRecord.from_json(record)
            for name, record in told["records"].items()
        },
    )


def _arrays_of(
    path: Path, prefix: str, told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The arrays of an issue, wherever they are."""
    changing = {
        name: arrays[f"{prefix}/{name}"] for name in CHANGING_ARRAYS if f"{prefix}/{name}" in arrays
    }
    if "file" in told:
        return {**read_issue_file(path, str(told["file"])), **changing}
    return {name: arrays[f"{prefix}/{name}"] for name in LASTING_ARRAYS} | changing


def _issue(
    prefix: str, told: Mapping[str, Any], shape: Shape, found: Mapping[str, np.ndarray]
) -> OpenIssue:
    """An open issue.

    Raises:
        InputError: its arrays are not of its series and of the shape.
    """
    n_series, n_levels = len(told["series"]), len(shape.grid)
    steps, peaks = (n_series, shape.horizon, n_levels), (n_series, n_levels)
    wanted = {
        "steps": steps, "told_steps": steps, "peaks": peaks, "told_peaks": peaks, "broken": peaks,
        "scale": (n_series,), "change": (n_series,), "judged": (n_series,), "counted": (n_series,),
    }  # fmt: skip
    for name, expected in wanted.items():
        if found[name].shape != expected:
            raise InputError(f"stateFile.{prefix}/{name}", f"{expected}", found[name].shape)
    if len(told["pools"]) != n_series:
        raise InputError(f"stateFile.{prefix}/pools", "a pool a series", len(told["pools"]))
    if found["by_tier"].shape[:3] != (len(told["tiers"]), n_series, shape.horizon):
        raise InputError(f"stateFile.{prefix}/by_tier", "an answer a tier", len(told["tiers"]))
    return OpenIssue(
        begin_seconds=int(told["begin_seconds"]),
        series=tuple(SeriesId(name) for name in told["series"]),
        pools=tuple((space, kind) for space, kind in told["pools"]),
        tiers=tuple(told["tiers"]),
        learned_steps=int(told["learned_steps"]),
        **found,
    )
