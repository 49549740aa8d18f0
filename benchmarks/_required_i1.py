"""A row that I1 forbids is refused by the key of its rating, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from simulation.row_control.product_topology import product_topology
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS
from simulation.scenario import Scenario
from wattpack.errors import InputError, SafetyError

__all__ = ["i1_told_of", "require_i1"]


@contextmanager
def i1_told_of(scenario: Scenario, file: Path | None) -> Iterator[None]:
    """What the product says of I1 inside, told of the file."""
    try:
        yield
    except SafetyError as error:
        expected = f"a rating that carries its servers ({error})"
        rated, source = scenario.row.rated_servers, "" if file is None else str(file)
        raise InputError("row.rated_servers", expected, rated, source) from error


def require_i1(scenario: Scenario, file: Path) -> None:
    """Pass only a row whose guaranteed caps fit.

    Raises:
        InputError: naming file and key.
    """
    plant = RowPlant(scenario, START_NS)
    with i1_told_of(scenario, file):
        product_topology(plant, np.zeros(plant.n_gpus, dtype=np.int64))
