"""Of what the small rows of ``lease_safety`` and ``restart`` are, and their topologies."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks._given_scenario import Given
from controller.tick_values import PowerSettings, Topology
from simulation.plant_constants import PlantConstants, frozen_plant
from simulation.plant_hash import plant_sha256
from simulation.scenario import Scenario
from wattpack.errors import SafetyError

READS: Final = (
    "row.groups", "row.gpus_per_server", "row.racks", "row.rated_servers", "row.rated_server_watts",
    "row.rack_rated_servers", "row.external_watts", "control.lease_ttl_ms",
    "plant.supply_efficiency", "plant.host_base_watts", "plant.host_watts_per_gpu_watt",
    "plant.fan_range_watts", "plant.host_burst_watts", "plant.cap_delay_min_seconds",
    "plant.cap_delay_max_seconds",
)  # fmt: skip
"""Keys of a scenario file that have a meaning in both."""

BREAKER_CURVES: Final = "row and racks RackThermal"
"""What every domain of both benchmarks declares (``make_tree``); each judge has its own."""

OWN_WATTS: Final = 700.0
"""Default limit of the boards for which demands of both benchmarks were written down."""

HOST_WATTS: Final = 800.0
"""What every server draws beside its boards, DC."""


@dataclass(frozen=True, slots=True)
class RowKind:
    """Servers alike, below racks and a row.

    Attributes:
        gpu_type: wattpack's name of the boards.
        product: The driver's.
        min_watts: Lowest limit.
        default_watts: Default limit.
        idle_watts: Draw of a board without work.
        settings: The controller's.
        given: Servers, ratings and losses of somebody's row, None for the benchmark's own.
    """

    gpu_type: str = "H200-SXM"
    product: str = "NVIDIA H200"
    min_watts: float = 200.0
    default_watts: float = OWN_WATTS
    idle_watts: float = 90.0
    settings: PowerSettings = field(default_factory=PowerSettings)
    given: Given | None = None

    @classmethod
    def of(cls, given: Given | None) -> RowKind:
        """As somebody's row has it.

        Raises:
            InputError: for servers of several GPU types.
        """
        if given is None:
            return cls()
        profile = given.only_profile()
        return cls(
            profile.model,
            profile.product_names[0],
            profile.min_limit_watts,
            profile.default_limit_watts,
            profile.idle_watts,
            PowerSettings(lease_ttl_ms=given.scenario.control.lease_ttl_ms),
            given,
        )

    @property
    def plant(self) -> PlantConstants:
        """Whose boards and hosts the row has."""
        return self.given.scenario.plant if self.given else frozen_plant()

    @property
    def plant_sha256(self) -> str:
        """Of that."""
        return plant_sha256(self.plant)

    def watts(self, own_watts: float) -> float:
        """What stands for so many watts of the benchmark's own boards, of this type's."""
        return float(round(own_watts / OWN_WATTS * self.default_watts))


def make_topology(kind: RowKind, **own: Any) -> Topology:  # noqa: ANN401 - the builder's
    """The row that a file describes, or the benchmark's own.

    Args:
        kind: Of what it is.
        **own: Arguments of the builder without a file; with one, its priorities.

    Raises:
        InputError: for a row in which I1 cannot hold.
    """
    builders = importlib.import_module("tests.controller.builders")
    if kind.given is None:
        made: Topology = builders.make_topology(**own)
        return made
    scenario = kind.given.scenario
    row, plant = scenario.row, scenario.plant
    racks = np.full(row.racks, scenario.rack_rating_watts)
    try:
        made = builders.make_topology(
            parents=(-1, *[0] * row.racks),
            nodes=[1 + i % row.racks for i in range(row.servers)],
            gpus_per_node=row.gpus_per_server,
            limits=(kind.min_watts, kind.default_watts),
            floor_watts=kind.given.only_profile().knee_watts,
            request_watts=kind.default_watts,
            node_worst_watts=plant.worst_host_watts,
            ratings=[scenario.row_rating_watts, *racks],
            efficiency=plant.supply_efficiency,
            external=np.array([row.external_watts, *np.zeros(row.racks)]),
            priority=priorities(scenario),
        )
    except SafetyError as error:
        expected = "a rating that carries the lowest limits and hosts at their worst (I1)"
        raise kind.given.wrong("row.rated_servers", expected, row.rated_servers) from error
    return made


def priorities(scenario: Scenario) -> list[int]:
    """Of each board: the classes' values in turn."""
    values = [one.value for one in scenario.priority_classes]
    boards = scenario.row.servers * scenario.row.gpus_per_server
    return [values[i % len(values)] for i in range(boards)]
