"""The row's GPUs: which type sits where, and the simulated boards with their constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import GpuProfile
from capacity.profile_library import shipped_library
from gpu.simulated.board_arrays import BoardBank, BoardSpec, WriteDelays
from gpu.simulated.board_spec import PowerSensor
from simulation.capping_boards import CappingRegulation, row_loops
from simulation.compiled_boards import fastest_bank
from simulation.plant import node_names
from simulation.scenario import Scenario
from simulation.speeds import GpuTypes
from wattpack.units import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class RowBoards:
    """All boards of the row.

    Attributes:
        profiles: GPU types in use.
        profile_of_node: Position of each server's type, (n_nodes,).
        node_of_gpu: Server of each board, (n_gpus,).
        bank: The boards.
        types: What they do with a watt.
        uuids: (n_gpus,).
    """

    profiles: list[GpuProfile]
    profile_of_node: list[int]
    node_of_gpu: NDArray[np.int64]
    bank: BoardBank
    types: GpuTypes
    uuids: tuple[str, ...]


def build_boards(scenario: Scenario, generator: np.random.Generator, start_ns: int) -> RowBoards:
    """The boards of a scenario.

    Args:
        scenario: Types, counts and constants.
        generator: Of what differs from board to board.
        start_ns: First instant.

    Raises:
        UnknownGpuModel: for a type without a profile.
    """
    row, library = scenario.row, shipped_library()
    names = sorted({group.gpu_model for group in row.groups})
    profiles = [library.find(name) for name in names]
    of_node = [names.index(g.gpu_model) for g in row.groups for _ in range(g.count)]
    profile_of_node = interleaved(of_node)
    specs = [
        _spec(profiles[profile_of_node[node]], name, i, row.power_sensor)
        for node, name in enumerate(node_names(scenario))
        for i in range(row.gpus_per_server)
    ]
    node_of_gpu = np.repeat(np.arange(row.servers, dtype=np.int64), row.gpus_per_server)
    of_gpu = [profile_of_node[int(node)] for node in node_of_gpu]
    idle_watts = np.array([spec.idle_watts for spec in specs])
    loops = row_loops([profiles[i].model for i in of_gpu], generator)
    plant = scenario.plant
    bank = fastest_bank(
        specs,
        seed=generator,
        start_ns=start_ns,
        regulation=CappingRegulation(loops, idle_watts),
        delays=WriteDelays(
            generator.uniform(plant.cap_delay_min_seconds, plant.cap_delay_max_seconds, len(specs)),
            plant.lock_delay_seconds,
        ),
    )
    return RowBoards(
        profiles,
        profile_of_node,
        node_of_gpu,
        bank,
        GpuTypes.of(profiles, of_gpu),
        tuple(str(spec.uuid) for spec in specs),
    )


WITHOUT_AVERAGE = ("A100", "A30", "V100", "T4", "RTX-6000")
"""GPU types whose nvmlDeviceGetPowerUsage is no average: GA100 and older (NVML API reference).
``RTX-6000`` is the Quadro of Turing's time."""


def sensor_of(gpu_model: str, power_sensor: str) -> PowerSensor:
    """What the power fields of a board of a type show in a scenario.

    Args:
        gpu_model: wattpack's name of the type.
        power_sensor: ``row.power_sensor``.
    """
    if power_sensor != "by_type":
        return PowerSensor(power_sensor)
    if any(gpu_model == name or gpu_model.startswith(f"{name}-") for name in WITHOUT_AVERAGE):
        return PowerSensor.SAMPLED
    return PowerSensor.AVERAGED_AND_SAMPLED


def _spec(profile: GpuProfile, node: str, index: int, power_sensor: str) -> BoardSpec:
    return BoardSpec(
        uuid=GpuUuid(f"GPU-{node}-{index}"),
        model=profile.product_names[0],
        node=NodeName(node),
        index=index,
        idle_watts=profile.idle_watts,
        default_limit_watts=profile.default_limit_watts,
        min_limit_watts=profile.min_limit_watts,
        max_limit_watts=profile.max_limit_watts,
        max_clock_mhz=round(profile.max_clock_mhz),
        knee_watts=profile.knee_watts,
        sensor=sensor_of(profile.model, power_sensor),
    )


def interleaved(values: list[int]) -> list[int]:
    """The same values in an order in which every kind is spread evenly over racks."""
    kinds = sorted(set(values))
    placed = dict.fromkeys(kinds, 0)
    total = {kind: values.count(kind) for kind in kinds}
    result = []
    for _ in values:
        kind = min(kinds, key=lambda k: ((placed[k] + 0.5) / total[k], k))
        placed[kind] += 1
        result.append(kind)
    return result
