"""What layouts cost on a cluster: seconds, joules, dollars and memory, many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_values import (
    JOULES_PER_KWH,
    SECONDS_PER_HOUR,
    Objective,
    ParallelPlan,
    TrainingProblem,
)
from capacity.training.power_wave import mean_draw_watts, power_of
from capacity.training.rank_placement import PlacedLinks, placed_links
from capacity.training.step_time import StepTimes, StepWork, step_times
from capacity.training.step_work import KnownCosts, TrainingGpu, step_work
from capacity.training.training_job import ParallelLayout, TrainingJob
from capacity.training.training_memory import rank_memory

__all__ = ["LayoutPricing", "Priced"]


@dataclass(frozen=True, slots=True)
class Priced:
    """Amounts of n layouts or placements, shape (n,) each."""

    times: StepTimes
    draw_watts: Floats
    joules: Floats
    dollars: Floats

    def amount(self, objective: Objective) -> Floats:
        """Seconds, joules or dollars of a step, shape (n,)."""
        return {
            Objective.TIME: self.times.total,
            Objective.ENERGY: self.joules,
            Objective.COST: self.dollars,
        }[objective]


class LayoutPricing:
    """Prices layouts of one problem on GPUs under one limit.

    Args:
        numbers: What the problem's GPUs are called outside, ascending; their own numbers if None.
    """

    def __init__(
        self, problem: TrainingProblem, gpu: TrainingGpu, numbers: Indices | None = None
    ) -> None:
        self.problem, self.gpu = problem, gpu
        self.numbers = np.arange(problem.cluster.links.gpus) if numbers is None else numbers
        self.known = KnownCosts(problem.job, gpu)
        self._speed = problem.cluster.gpu_speed

    @property
    def job(self) -> TrainingJob:
        """What is trained."""
        return self.problem.job

    def price(self, table: LayoutTable, ranks: Indices) -> Priced:
        """Each layout on each placement; one of the two is a single one, or there are as many.

        Args:
            ranks: Shape (n, pipeline, data, context, tensor).
        """
        work = step_work(self.known, table)
        return self._priced(table, work, placed_links(self.problem.cluster.links, ranks), ranks)

    def price_without_links(self, table: LayoutTable, ranks: Indices) -> Priced:
        """As ``price``, were every link infinitely fast."""
        n, pipeline = len(ranks), table.pipeline
        free, none = np.full(n, np.inf), np.zeros(n)
        edges, stages = np.full((n, pipeline - 1), np.inf), np.full((n, pipeline), np.inf)
        links = PlacedLinks(
            edges, np.zeros_like(edges), stages, np.zeros_like(stages), free, none, free, none
        )
        return self._priced(table, step_work(self.known, table), links, ranks)

    def _priced(
        self, table: LayoutTable, work: StepWork, links: PlacedLinks, ranks: Indices
    ) -> Priced:
        rows = max(len(table.layouts), len(ranks), len(table.layers))
        layers = np.broadcast_to(table.layers, (rows, table.pipeline)).astype(np.float64)
        speed = np.broadcast_to(
            self._speed[ranks].min(axis=(2, 3, 4)), (rows, table.pipeline)
        ).astype(np.float64)
        times = step_times(work, links, layers, speed)
        draw = np.array([self.known.of(layout).draw_watts for layout in table.layouts])
        mean = mean_draw_watts(self.gpu, times, draw, table.offload)
        joules = mean * times.total * ranks[0].size
        prices = self.problem.prices
        hours = times.total / SECONDS_PER_HOUR
        dollars = hours * ranks[0].size * prices.dollars_per_gpu_hour
        dollars = dollars + joules / JOULES_PER_KWH * prices.dollars_per_kwh
        return Priced(times, draw, joules, dollars)

    def memory_bytes(self, table: LayoutTable) -> Floats:
        """Of each stage's fullest rank, shape (n, pipeline)."""
        return rank_memory(self.job, table).total

    def fits(self, table: LayoutTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether GPUs and hosts can hold it, shape (n,)."""
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.on_gpu(table) & self.off_gpu(table)
        return holds

    def on_gpu(self, table: LayoutTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether every rank's memory suffices, shape (n,)."""
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            self.memory_bytes(table).max(axis=1) <= self.gpu.memory_bytes
        )
        return holds

    def off_gpu(self, table: LayoutTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether what is offloaded has room on the host, shape (n,)."""
        away = offloaded_bytes(self.job, table).max(axis=1)
        host = self.gpu.host
        room = np.array([np.inf, host.memory_bytes, host.nvme_bytes])[table.offload]
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = away <= room
        return holds

    def plan(self, layout: ParallelLayout, ranks: Indices, layers: Indices) -> ParallelPlan:
        """Everything about one layout on one placement, with these layers a stage."""
        table = LayoutTable.of(self.job, [layout], layers[None])
        priced = self.price(table, ranks[None])
        times = priced.times
        seconds = float(times.total[0])
        parts = {
            "compute": times.stage_busy.mean(axis=1),
            "exchange": times.stage_exchange.mean(axis=1),
            "imbalance": times.imbalance,
            "bubble": times.bubble,
            "gradients": times.gradient,
            "update": times.update,
        }
        away = layout.offload != "none"
        return ParallelPlan(
            layout=layout,
            ranks=self.numbers[ranks],
            layers=tuple(layers.tolist()),
            limit_watts=self.gpu.limit_watts,
            step_seconds=seconds,
            joules=float(priced.joules[0]),
            dollars=float(priced.dollars[0]),
            tokens_per_second=self.job.tokens / seconds,
            memory_bytes=tuple(self.memory_bytes(table)[0].tolist()),
            power=power_of(self.gpu, times, priced.draw_watts, away=away),
            shares={name: float(part[0]) / seconds for name, part in parts.items()},
        )


def offloaded_bytes(job: TrainingJob, table: LayoutTable) -> Floats:
    """What each rank of a stage keeps outside of its GPU, shape (n, pipeline)."""
    kept = LayoutTable(
        **{name: getattr(table, name) for name in table.__slots__ if name != "offload"},
        offload=np.zeros_like(table.offload),
    )
    away: Floats = rank_memory(job, kept).optimizer * (table.offload > 0)[:, None]
    return away
