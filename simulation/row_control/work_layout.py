"""Which server does which work: random work's kinds, units and gangs, drawn once a run.

A unit is what moves together: a replica of a service, a training gang, one batch board. Units lie
in one rack and on one GPU type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import GpuProfile
from simulation.row_control.share_curves import (
    BATCH,
    DECODE,
    KERNELS,
    PREFILL,
    TRAINING,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

REPLICA_BOARDS: Final = 4
"""Tensor parallel, as in the twin's services."""

SERVICES: Final = 3
LOW_SERVICE: Final = 2
"""Two services in three are of high priority; with training and batch about half of a row is."""

HIGH_GANGS: Final = 0.2
GANG_SERVERS: Final = (1, 4)


class WorkKind(IntEnum):
    """What a unit does."""

    SERVING = 0
    TRAINING = 1
    BATCH = 2
    IDLE = 3


@dataclass(frozen=True, slots=True)
class WorkShape:
    """The row as work sees it.

    Attributes:
        node_of_gpu: (n_gpus,).
        rack_of_node: (n_nodes,).
        type_of_node: Position of the GPU type, (n_nodes,).
        context_watts: Draw with an idle context, (n_gpus,).
        default_limit_watts: (n_gpus,).
        decode_clock_knee_ratio: Locked over highest clock above which decode keeps its speed.
    """

    node_of_gpu: Integers
    rack_of_node: Integers
    type_of_node: Integers
    context_watts: Floats
    default_limit_watts: Floats
    decode_clock_knee_ratio: float

    @property
    def n_gpus(self) -> int:
        """Boards."""
        return len(self.node_of_gpu)

    @classmethod
    def of(
        cls,
        profiles: Sequence[GpuProfile],
        type_of_node: Sequence[int],
        rack_of_node: Integers,
        node_of_gpu: Integers,
        decode_clock_knee_ratio: float,
    ) -> WorkShape:
        """The shape of a row whose i-th server has boards of type ``type_of_node[i]``."""
        types = np.array(type_of_node, dtype=np.int64)
        of_gpu = types[node_of_gpu]
        return cls(
            node_of_gpu,
            rack_of_node,
            types,
            np.array([p.context_watts for p in profiles])[of_gpu],
            np.array([p.default_limit_watts for p in profiles])[of_gpu],
            decode_clock_knee_ratio,
        )


class Shares(Protocol):
    """What the layout needs of the settings."""

    training_share: float
    batch_share: float
    idle_share: float


@dataclass(frozen=True, slots=True)
class WorkLayout:
    """Who does what.

    Attributes:
        unit_of_gpu: (n_gpus,).
        kind: ``WorkKind``, (n_units,).
        service: Service of a serving unit, 0 elsewhere, (n_units,).
        priority: 0 low, 1 high, (n_units,).
        gang: Number of the gang, -1 for none, (n_units,).
        boards: Boards of a unit, (n_units,).
        low_curve: Curve of the quieter phase, (n_units,).
        high_curve: Curve of the hotter phase, (n_units,).
        low_clock_knee: Clock share above which the quieter phase keeps its speed, (n_units,).
    """

    unit_of_gpu: Integers
    kind: Integers
    service: Integers
    priority: Integers
    gang: Integers
    boards: Floats
    low_curve: Integers
    high_curve: Integers
    low_clock_knee: Floats

    @property
    def n_units(self) -> int:
        """Units."""
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class _Unit:
    gpus: Integers
    kind: WorkKind
    gpu_type: int
    service: int
    priority: int


def lay_out(shape: WorkShape, shares: Shares, generator: np.random.Generator) -> WorkLayout:
    """Work dealt to servers at random."""
    free = list(generator.permutation(len(shape.rack_of_node)))
    units = _gangs(shape, free, round(shares.training_share * len(free)), generator)
    n_nodes = len(shape.rack_of_node)
    for kind, count in (
        (WorkKind.BATCH, round(shares.batch_share * n_nodes)),
        (WorkKind.IDLE, round(shares.idle_share * n_nodes)),
    ):
        for node in free[:count]:
            units += [
                _Unit(np.array([gpu]), kind, int(shape.type_of_node[node]), 0, 0)
                for gpu in _gpus_of(shape, [node])
            ]
        del free[:count]
    for node in free:
        units += _replicas(shape, node, generator)
    return _layout(shape, units)


def _gangs(
    shape: WorkShape, free: list[int], servers: int, generator: np.random.Generator
) -> list[_Unit]:
    """Gangs of whole servers in one rack and of one type; takes their servers out of ``free``."""
    units: list[_Unit] = []
    while servers > 0:
        size = min(servers, int(generator.integers(GANG_SERVERS[0], GANG_SERVERS[1] + 1)))
        head = free[0]
        alike = [
            node
            for node in free
            if shape.rack_of_node[node] == shape.rack_of_node[head]
            and shape.type_of_node[node] == shape.type_of_node[head]
        ][:size]
        for node in alike:
            free.remove(node)
        servers -= len(alike)
        high = int(generator.random() < HIGH_GANGS)
        gpus = _gpus_of(shape, alike)
        units.append(_Unit(gpus, WorkKind.TRAINING, int(shape.type_of_node[head]), 0, high))
    return units


def _replicas(shape: WorkShape, node: int, generator: np.random.Generator) -> list[_Unit]:
    gpus = _gpus_of(shape, [node])
    units = []
    for begin in range(0, len(gpus), REPLICA_BOARDS):
        service = int(generator.integers(SERVICES))
        units.append(
            _Unit(
                gpus[begin : begin + REPLICA_BOARDS],
                WorkKind.SERVING,
                int(shape.type_of_node[node]),
                service,
                int(service != LOW_SERVICE),
            )
        )
    return units


def _gpus_of(shape: WorkShape, nodes: Sequence[int]) -> Integers:
    return np.flatnonzero(np.isin(shape.node_of_gpu, nodes)).astype(np.int64)


_LOW = {WorkKind.SERVING: DECODE, WorkKind.TRAINING: TRAINING, WorkKind.BATCH: BATCH}
_HIGH = {WorkKind.SERVING: PREFILL, WorkKind.TRAINING: TRAINING, WorkKind.BATCH: BATCH}


def _layout(shape: WorkShape, units: list[_Unit]) -> WorkLayout:
    unit_of_gpu = np.zeros(shape.n_gpus, dtype=np.int64)
    for number, unit in enumerate(units):
        unit_of_gpu[unit.gpus] = number
    trains = [unit.kind is WorkKind.TRAINING for unit in units]
    kinds = np.array([unit.kind for unit in units], dtype=np.int64)
    base = np.array([unit.gpu_type * len(KERNELS) for unit in units], dtype=np.int64)
    low = np.array([_LOW.get(unit.kind, DECODE) for unit in units], dtype=np.int64)
    high = np.array([_HIGH.get(unit.kind, DECODE) for unit in units], dtype=np.int64)
    return WorkLayout(
        unit_of_gpu,
        kinds,
        np.array([unit.service for unit in units], dtype=np.int64),
        np.array([unit.priority for unit in units], dtype=np.int64),
        np.where(trains, np.cumsum(trains) - 1, -1).astype(np.int64),
        np.array([float(len(unit.gpus)) for unit in units]),
        base + low,
        base + high,
        np.where(kinds == WorkKind.SERVING, shape.decode_clock_knee_ratio, 1.0),
    )
