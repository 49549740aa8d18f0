"""Somebody's row as servers that answer requests: what they take, what they draw, how busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks._given_power import power_of
from benchmarks._given_scenario import read_given
from benchmarks._required_i1 import require_i1
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options
from simulation.inference_row.request_lengths import LengthsName
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import WATTPACK
from simulation.inference_row.served_rows import ServedRow, served_row_of
from simulation.row_control.scenario_faults import faults_within
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import InputError

__all__ = ["READS", "GivenRow", "given_row", "given_servers", "refuse_beside_a_file", "told_of"]

READS: Final = (*ROW_READS, "faults")
"""Keys that ``polca_row``, ``polca_weeks`` and ``row_frontier`` take."""


@dataclass(frozen=True, slots=True)
class GivenRow:
    """A row of a file.

    Attributes:
        scenario: Its plant, meters, breakers and faults.
        served: What its servers take, as busy as rows of their type.
        power: Its servers around the GPUs, and its rating.
    """

    scenario: Scenario
    served: ServedRow
    power: ServerPower


def given_row(
    file: Path, seed: int, servers: int | None = None, lengths: LengthsName = "published"
) -> GivenRow:
    """The row of a file.

    Args:
        file: Of a scenario.
        seed: Of boards, meters and noise.
        servers: As many as requests come for, None for the file's.
        lengths: Of prompts and answers.

    Raises:
        InputError: naming file and key for other servers, for boards whose requests are not timed,
            and for faults that strike nobody here.
    """
    scenario, source = load_scenario(file, seed=seed), str(file)
    models = sorted({group.gpu_model for group in scenario.row.groups})
    if len(models) != 1:
        raise InputError("row.groups", "servers of one GPU type", models, source)
    if servers is not None and scenario.row.servers != servers:
        raise InputError(
            "row.groups", f"{servers} servers (--servers)", scenario.row.servers, source
        )
    try:
        served = served_row_of(models[0], lengths)
        faults_within(scenario)
    except InputError as error:
        raise InputError(error.field, error.expected, error.got, source) from error
    return GivenRow(scenario, served, power_of(scenario, source))


def given_servers(file: Path) -> int:
    """How many a file's row has."""
    return load_scenario(file).row.servers


def told_of(
    file: Path | None, options: Options, policies: Sequence[str]
) -> dict[str, float | int | str]:
    """What a result says of a file, which is checked before anything runs.

    Raises:
        InputError: as ``given_row``, and for a row that the product may not run.
    """
    if file is None:
        return {}
    given = read_given(file, options, READS, only_ends=True)
    row = given_row(file, options.seed)
    if any(policy.startswith(WATTPACK) for policy in policies):
        require_i1(row.scenario, file)
    return given.figures()


def refuse_beside_a_file(file: Path | None, **flags: Any) -> None:  # noqa: ANN401 - of a parser
    """Pass only flags that a file leaves something to say to; None is not given.

    Raises:
        InputError: naming the flag.
    """
    for name, value in flags.items():
        if file is not None and value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, "nothing beside --scenario, whose row it is of", value)
