"""The question of a training plan and its answer, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.link_matrix import LinkMatrix
from capacity.training.power_wave import StepPower
from capacity.training.step_work import TrainingGpu
from capacity.training.training_job import (
    OFFLOADS,
    RECOMPUTES,
    Offload,
    ParallelLayout,
    Recompute,
    TrainingJob,
)
from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = [
    "Objective",
    "ParallelPlan",
    "ParallelPlans",
    "SearchChoices",
    "TrainingCluster",
    "TrainingPrices",
    "TrainingProblem",
]

JOULES_PER_KWH: Final = 3.6e6
SECONDS_PER_HOUR: Final = 3600.0


class Objective(StrEnum):
    """What a step should have the least of."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingCluster:
    """GPUs and their links.

    Attributes:
        gpus: The type under each limit that may be chosen, all else alike.
        speed: Of each GPU relative to an uncapped one of its type, shape (n_gpus,); all 1 if None.
        others: Further types, each under one limit.
        type_of_gpu: 0 for ``gpus``, then the position in ``others`` and one, shape (n_gpus,); None
            where there is one type.
    """

    links: LinkMatrix
    gpus: tuple[TrainingGpu, ...]
    speed: Floats | None = None
    others: tuple[TrainingGpu, ...] = ()
    type_of_gpu: Indices | None = None

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InputError("gpus", "at least one limit", 0)
        if self.links.gpus < 1:
            raise InputError("links", "at least one GPU", 0)
        if self.speed is not None and (
            self.speed.shape != (self.links.gpus,)
            or not (np.isfinite(self.speed).all() and (self.speed > 0).all())
        ):
            raise InputError("speed", "a positive number a GPU", self.speed.shape)
        types = self.types
        if types.shape != (self.links.gpus,) or set(types.tolist()) - set(range(self.type_count)):
            raise InputError("type_of_gpu", f"0 to {self.type_count - 1} for each GPU", types.shape)
        if self.others and self.type_of_gpu is None:
            raise InputError("type_of_gpu", "the type of each GPU", None)

    @property
    def type_count(self) -> int:
        """How many types there are."""
        return 1 + len(self.others)

    @property
    def types(self) -> Indices:
        """Of each GPU, shape (n_gpus,)."""
        if self.type_of_gpu is None:
            return np.zeros(self.links.gpus, dtype=np.int64)
        return self.type_of_gpu

    def take(self, kept: Indices) -> TrainingCluster:
        """Some of the GPUs, by ascending number."""
        return TrainingCluster(
            self.links.take(kept), self.gpus, self.gpu_speed[kept], self.others, self.types[kept]
        )

    def first(self, count: int) -> Indices:
        """As many GPUs, hosts of one NIC class together, by ascending number."""
        kinds = np.unique(self.links.class_of_gpu, return_inverse=True)[1]
        kept: Indices = np.sort(np.lexsort((np.arange(self.links.gpus), kinds))[:count])
        return kept

    @property
    def gpu_speed(self) -> Floats:
        """Shape (n_gpus,)."""
        return np.ones(self.links.gpus) if self.speed is None else self.speed


@dataclass(frozen=True, slots=True)
class TrainingPrices:
    """Dollars; zeros leave time as the only cost."""

    dollars_per_gpu_hour: float = 2.0
    dollars_per_kwh: float = 0.12

    def __post_init__(self) -> None:
        for name in self.__slots__:
            require_number(name, getattr(self, name), minimum=0, maximum=1e6)


@dataclass(frozen=True, slots=True)
class SearchChoices:
    """What a search may choose from.

    Attributes:
        largest_micro_batch: Sequences.
        fewer_gpus: Also halves, quarters and so on of the GPUs.
        chunks: Pieces a pipeline rank may hold.
        pipelines: Lengths of the pipeline, any if None.
        refined: Layouts whose ranks and layers are laid out by search; ``thorough`` of them from
            many starts.
        seed: Of drawn neighbours where there are too many to try.
    """

    recompute: tuple[Recompute, ...] = RECOMPUTES
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    offload: tuple[Offload, ...] = OFFLOADS
    chunks: tuple[int, ...] = (1, 2, 4)
    pipelines: tuple[int, ...] | None = None
    largest_micro_batch: int = 16
    fewer_gpus: bool = True
    refined: int = 12
    thorough: int = 3
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TrainingProblem:
    """The whole question."""

    job: TrainingJob
    cluster: TrainingCluster
    prices: TrainingPrices = TrainingPrices()
    choices: SearchChoices = SearchChoices()
    objective: Objective = Objective.TIME
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)


@dataclass(frozen=True, slots=True, eq=False)
class ParallelPlan:
    """One layout on its GPUs.

    Attributes:
        ranks: GPU numbers, shape (pipeline, data, context, tensor).
        layers: Of each stage.
        limit_watts: Of every GPU.
        memory_bytes: Of each stage's fullest rank.
        shares: Of the step: ``compute``, ``exchange``, ``bubble``, ``imbalance``, ``gradients``,
            ``update``.
        joules: Of all GPUs, one step; ``dollars`` likewise.
        tokens_per_second: Of the whole job.
    """

    layout: ParallelLayout
    ranks: Indices
    layers: tuple[int, ...]
    limit_watts: float
    step_seconds: float
    joules: float
    dollars: float
    tokens_per_second: float
    memory_bytes: tuple[float, ...]
    power: StepPower
    shares: dict[str, float]

    def amount(self, objective: Objective) -> float:
        """Seconds, joules or dollars of a step."""
        return {
            Objective.TIME: self.step_seconds,
            Objective.ENERGY: self.joules,
            Objective.COST: self.dollars,
        }[objective]


@dataclass(frozen=True, slots=True)
class ParallelPlans:
    """The best plan, those that no other one beats in everything, and why not better.

    Attributes:
        front: By rising time; the best one is among them.
        considered: Layouts whose step was priced; ``too_large`` of them do not fit the memory.
        binding: What would make the best plan faster, by share of the step, largest first.
        warnings: In words.
    """

    best: ParallelPlan
    front: tuple[ParallelPlan, ...]
    considered: int
    too_large: int
    binding: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...]
