"""``--scenario FILE`` of benchmarks that read a part of a scenario file (docs/scenario.md).

Each names the keys that it reads. Others of the file have no meaning there: they are checked all
the same, left alone, and told, so that one file of somebody's row serves every benchmark.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._arguments import read_arguments
from benchmarks.runner import Options
from capacity.gpu_profile import GpuProfile
from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import shipped_library
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import InputError
from wattpack.settings import read_yaml_mapping

USAGE = "--scenario FILE"


@dataclass(frozen=True, slots=True)
class Given:
    """What a file says.

    Attributes:
        scenario: With the reference row's values where the file is silent.
        file: Where it lies.
        without_meaning: Keys of the file that the benchmark does not read.
    """

    scenario: Scenario
    file: Path
    without_meaning: tuple[str, ...]

    def kind(self, name: str) -> str:
        """Name of finished rows in the folder of ``--resume``: those of this file's words."""
        return f"{name}-{hashlib.sha256(self.file.read_bytes()).hexdigest()[:12]}"

    def figures(self) -> dict[str, float | int | str]:
        """What a result says of it."""
        told = ", ".join(self.without_meaning) or "none"
        return {"scenario": self.scenario.name, "scenario_keys_without_meaning": told}

    def profiles(self) -> list[GpuProfile]:
        """Of the row's servers, one after the other.

        Raises:
            InputError: for a GPU type without a profile.
        """
        found = []
        for group in self.scenario.row.groups:
            try:
                profile = shipped_library().find(group.gpu_model)
            except UnknownGpuModel as error:
                key = "row.groups[].gpu_model"
                raise self.wrong(key, error.expected, group.gpu_model) from error
            found += [profile] * group.count
        return found

    def only_profile(self) -> GpuProfile:
        """Of all servers.

        Raises:
            InputError: for several types.
        """
        models = {profile.model: profile for profile in self.profiles()}
        if len(models) != 1:
            raise self.wrong("row.groups", "servers of one GPU type", sorted(models))
        return next(iter(models.values()))

    def wrong(self, key: str, expected: str, got: object) -> InputError:
        """What the file says cannot be run."""
        return InputError(key, expected, got, str(self.file))


def given_scenario(
    name: str, options: Options, reads: Sequence[str], *, only_ends: bool = False
) -> Given | None:
    """The file of ``--scenario``, None without one.

    Args:
        name: The benchmark's.
        options: Of the run.
        reads: Keys that have a meaning there, as docs/scenario.md writes them.
        only_ends: As for ``read_given``.

    Raises:
        InputError: for another argument, and naming the key for a file that is no scenario.
    """
    parser = argparse.ArgumentParser(prog=name, add_help=False, exit_on_error=False)
    parser.add_argument("--scenario", type=Path)
    asked = read_arguments(parser, options.arguments, USAGE)
    if asked.scenario is None:
        return None
    return read_given(asked.scenario, options, reads, only_ends=only_ends)


def read_given(
    file: Path, options: Options, reads: Sequence[str], *, only_ends: bool = False
) -> Given:
    """The same of a file whose name is known.

    Args:
        file: Where it lies.
        options: Of the run.
        reads: As for ``given_scenario``.
        only_ends: Whether work is of the lowest and the highest class alone: others are told.

    Raises:
        InputError: naming the key for a file that is no scenario.
    """
    scenario = load_scenario(file, seed=options.seed)
    keys = dict.fromkeys(_keys(read_yaml_mapping(file), ""))
    known = ("name", *reads)
    alone = tuple(key for key in keys if not any(_below(key, read) for read in known))
    if only_ends:
        alone += classes_between(scenario)
    if alone:
        options.progress(f"{file}: no meaning here: {', '.join(alone)}")
    return Given(scenario, file, alone)


def classes_between(scenario: Scenario) -> tuple[str, ...]:
    """Classes that no work is of where work is of the lowest and the highest value."""
    ordered = sorted(scenario.priority_classes, key=lambda one: one.value)
    return tuple(f"priority_classes[{one.name}]" for one in ordered[1:-1])


def _below(key: str, read: str) -> bool:
    """Whether a key is read; an empty list says something of all that could be in it."""
    inside = (f"{read}.", f"{read}[]")
    return key == read or key.startswith(inside) or read.startswith((f"{key}.", f"{key}[]"))


def _keys(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - what YAML holds
    """Names of all that a document says."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _keys(below, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(below, dict) for below in value):
        for below in value:
            yield from _keys(below, f"{path}[]")
    else:
        yield path
