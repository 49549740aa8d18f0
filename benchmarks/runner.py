"""What every benchmark shares: options in, figures and targets out, one JSON line at the end.

A benchmark is a module in this folder with ``NAME``, ``SUMMARY`` and ``run(options) -> Result``.
A figure is a number with its unit in the key; a target is a bound on one figure. A result without
targets (an unfinished run, a form for which no line was drawn) says ``"met": null``. The exit
status is 0 when the measurement was made, met or not.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from wattpack.errors import InputError
from wattpack.sweep.sweep import sweep_of

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line gave.

    Attributes:
        quick: A form of at most 20 s for tests; fewer repetitions, never other cases.
        seed: Of every generator.
        resume: Folder of finished shards, or None.
        scheduler: Address of a Dask scheduler that runs the cases, or None for this machine.
        arguments: What is left of the command line, for the benchmark itself.
        progress: Called with a line for people; goes to standard error.
    """

    quick: bool = False
    seed: int = 1
    resume: Path | None = None
    scheduler: str | None = None
    arguments: tuple[str, ...] = ()
    progress: Callable[[str], None] = field(default=lambda line: print(line, file=sys.stderr))


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure: at most or at least."""

    at_most: float | None = None
    at_least: float | None = None

    def met_by(self, figure: float) -> bool:
        """Whether the figure keeps the bound; NaN never does."""
        return (self.at_most is None or figure <= self.at_most) and (
            self.at_least is None or figure >= self.at_least
        )

    def to_json(self) -> dict[str, float]:
        """Only the bounds that are set."""
        bounds = {"at_most": self.at_most, "at_least": self.at_least}
        return {name: bound for name, bound in bounds.items() if bound is not None}


@dataclass(frozen=True, slots=True)
class Result:
    """Figures and the targets on some of them."""

    figures: Mapping[str, float | int | str]
    targets: Mapping[str, Target] = field(default_factory=dict)

    def met(self) -> bool | None:
        """Whether every target is kept; None without any, where nothing was judged."""
        if not self.targets:
            return None
        return all(
            isinstance(value := self.figures.get(name), int | float) and target.met_by(value)
            for name, target in self.targets.items()
        )

    def to_json(self, name: str) -> dict[str, Any]:
        """The last line of a run."""
        return {
            "benchmark": name,
            "figures": dict(self.figures),
            "targets": {key: target.to_json() for key, target in self.targets.items()},
            "met": self.met(),
        }


Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
OneCase = Callable[[int, int], Row]
"""Seed and number of a case in, what JSON can hold out."""


def finished_rows(
    options: Options, name: str, one_case: OneCase, count: int, digest: str | None = None
) -> Rows:
    """Cases 0 to ``count``; those that the folder of ``--resume`` holds are not run again.

    Cases run in this process, or on the workers of ``--scheduler``; each is kept as it ends.

    A file there is of one seed, and of the code and data that its name has the digest of: of all
    code and data, or what ``rests_on_digest`` says of cases that run in this process alone.

    Raises:
        InputError: if that folder cannot be made, or nobody answers as the scheduler.
    """
    kept = _kept_rows(options, f"{name}-seed-{options.seed}-{digest or sources_digest()}.jsonl")
    rows = _read_rows(kept, count)
    missing = [number for number in range(count) if number not in rows]
    sweep = sweep_of(options.scheduler, sources_digest)
    for index, row in sweep.rows(partial(one_case, options.seed), missing):
        rows[missing[index]] = row
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([missing[index], row]) + "\n")
        if options.scheduler is not None:
            options.progress(f"{len(rows)} of {count} cases")
    return [rows[number] for number in range(count)]


def _kept_rows(options: Options, name: str) -> Path | None:
    """The file of finished cases, None where nothing is kept."""
    if options.resume is None:
        return None
    try:
        options.resume.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--resume", "a folder to write to", str(options.resume)) from error
    return options.resume / name


def _read_rows(kept: Path | None, count: int) -> dict[int, Row]:
    """Finished cases by number; a last line that was cut off is taken out of the file."""
    if kept is None or not kept.exists():
        return {}
    text = kept.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        kept.write_text(whole, encoding="utf-8")
    return {number: row for number, row in map(json.loads, whole.splitlines()) if number < count}


EVERYTHING = (
    "actuator",
    "benchmarks",
    "capacity",
    "controller",
    "forecasting",
    "gpu",
    "proto",
    "scheduler_plugin",
    "simulation",
    "telemetry",
    "wattpack",
)
"""Whatever a benchmark can call: a file of finished rows is not to outlive any of it."""


@cache
def sources_digest(places: tuple[str, ...] = EVERYTHING) -> str:
    """Of all code and data that a figure can depend on.

    Args:
        places: Folders and files from the root of the project.
    """
    made = hashlib.sha256()
    root = Path(__file__).parent.parent
    for place in places:
        found = root / place
        for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
            parts = file.relative_to(root).parts
            if file.is_file() and not {"__pycache__", "results"}.intersection(parts):
                made.update("/".join(parts).encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:12]


def discover() -> dict[str, ModuleType]:
    """Every benchmark by name; imports them all."""
    found = {name: _benchmark(name) for name in _candidates()}
    return {name: module for name, module in found.items() if module is not None}


def named(name: str) -> ModuleType | None:
    """The benchmark of that name, if there is one; imports no other, which would take seconds."""
    return _benchmark(name) if name in _candidates() else None


def find(name: str) -> ModuleType:
    """The benchmark of that name.

    Raises:
        InputError: listing the known names.
    """
    module = named(name)
    if module is None:
        raise InputError("benchmark", "one of " + ", ".join(sorted(discover())), name)
    return module


def _candidates() -> list[str]:
    """Modules of this folder that may be benchmarks; one has its module's name."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    others = {"__main__", "expected", "runner"}
    return [m.name for m in modules if m.name not in others and not m.name.startswith("_")]


def _benchmark(name: str) -> ModuleType | None:
    module = importlib.import_module(f"benchmarks.{name}")
    if not hasattr(module, "NAME"):
        return None  # it plots
    if name != module.NAME:
        raise InputError(f"{module.__name__}.NAME", f"the module's name, {name}", module.NAME)
    return module


def record(line: Mapping[str, Any], *, rests_on: str, seed: int, date: str) -> Path:
    """Keep a full-size result with date, commit and machine class; returns the file.

    Args:
        line: Of the run, as JSON.
        rests_on: Digest of the code and data behind it, ``rests_on_digest``.
        seed: Of the run.
        date: Of the run, ``2026-11-28``.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    machine = f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}"
    marks = {"seed": seed, "date": date, "commit": commit, "machine": machine}
    document = {**line, **marks, "rests_on": rests_on}
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{line['benchmark']}.json"
    file.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file


def _cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0))
