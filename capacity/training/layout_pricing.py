"""What layouts cost on a cluster: seconds, joules, dollars and memory, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from capacity.training.rank_placement import PlacedLinks, first_placements, placed_links
from capacity.training.stage_split import fitting_split, most_layers, split_by_speed
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
    """Prices layouts of one problem on its GPUs, those of the first type under one limit.

    Args:
        numbers: What the problem's GPUs are called outside, ascending; their own numbers if None.
    """

    def __init__(
        self, problem: TrainingProblem, gpu: TrainingGpu, numbers: Indices | None = None
    ) -> None:
        self.problem, self.gpu = problem, gpu
        self.numbers = np.arange(problem.cluster.links.gpus) if numbers is None else numbers
        cluster = problem.cluster
        boards = (gpu, *cluster.others)
        self._known = tuple(KnownCosts(problem.job, board) for board in boards)
        self._speed, self._type = cluster.gpu_speed, cluster.types
        self._room = np.array([board.memory_bytes for board in boards])[self._type]
        bandwidth = np.array([board.bytes_per_second for board in boards])
        self._update_speed = (bandwidth / gpu.bytes_per_second)[self._type]
        shares = np.bincount(self._type, minlength=len(boards)) / max(1, len(self._type))
        self._shares: Floats = shares
        self._mean = _mean_board(boards, shares)

    @property
    def job(self) -> TrainingJob:
        """What is trained."""
        return self.problem.job

    def price(self, table: LayoutTable, ranks: Indices) -> Priced:
        """Each layout on each placement; one of the two is a single one, or there are as many.

        Args:
            ranks: Shape (n, pipeline, data, context, tensor).
        """
        work = step_work(self._known[0], table)
        links = placed_links(self.problem.cluster.links, ranks, table.expert)
        return self._priced(table, work, links, ranks)

    def starts(self, layout: ParallelLayout) -> Iterator[Indices]:
        """Placements to begin with, each (pipeline, data, context, tensor)."""
        return first_placements(self.problem.cluster.links, layout, self._type)

    def price_without_links(self, table: LayoutTable, ranks: Indices) -> Priced:
        """As ``price``, were every link infinitely fast."""
        n, pipeline = len(ranks), table.pipeline
        edges = np.full((n, ranks.shape[2], pipeline - 1), np.inf)
        free = np.full((n, pipeline), np.inf)
        none = np.zeros_like(free)
        rings = (free, none) * 4
        links = PlacedLinks(edges, np.zeros_like(edges), *rings, none, none)
        return self._priced(table, step_work(self._known[0], table), links, ranks)

    def _priced(
        self, table: LayoutTable, work: StepWork, links: PlacedLinks, ranks: Indices
    ) -> Priced:
        rows = max(len(table.layouts), len(ranks), len(table.layers))
        layers = np.broadcast_to(table.layers, (rows, table.pipeline)).astype(np.float64)
        links, speed = _distinct_replicas(links, self._speeds(table.layouts, ranks))
        update_speed = self._update_speed[ranks].min(axis=(2, 3, 4))
        times = step_times(work, links, layers, speed, update_speed)
        draw = self._by_type(table.layouts, "draw_watts") @ self._shares
        mean = mean_draw_watts(self._mean, times, draw, table.offload)
        joules = mean * times.total * ranks[0].size
        prices = self.problem.prices
        hours = times.total / SECONDS_PER_HOUR
        dollars = hours * ranks[0].size * prices.dollars_per_gpu_hour
        dollars = dollars + joules / JOULES_PER_KWH * prices.dollars_per_kwh
        return Priced(times, draw, joules, dollars)

    @property
    def is_mixed(self) -> bool:
        """Whether what a stage has room for depends on where it lies."""
        return bool(np.ptp(self._room) > 0)

    @property
    def is_uneven(self) -> bool:
        """Whether a split to begin with depends on where the stages lie."""
        return len(self._known) > 1 or bool(np.ptp(self._speed) > 0)

    def _by_type(self, layouts: Sequence[ParallelLayout], name: str) -> Floats:
        """One of the layer costs, shape (n_layouts, n_types)."""
        rows = [[getattr(known.of(one), name) for known in self._known] for one in layouts]
        return np.array(rows, dtype=np.float64)

    def _speeds(self, layouts: Sequence[ParallelLayout], ranks: Indices) -> Floats:
        """Of each replica's and stage's slowest GPU relative to the first type uncapped.

        For a single layout or a single placement; shape (n, data, pipeline).
        """
        each = self._speed[ranks]
        if len(self._known) > 1:
            seconds = self._by_type(layouts, "forward_seconds")
            ratio = seconds[:, :1] / seconds
            at = self._type[ranks]
            each = each * (ratio[0][at] if len(layouts) == 1 else ratio[:, at[0]])
        return np.moveaxis(each.min(axis=(3, 4)), 2, 1)

    def cut(self, table: LayoutTable, ranks: Indices) -> LayoutTable:
        """The layouts with a split to begin with: by the stages' speed, within their memory.

        Args:
            ranks: One placement, shape (pipeline, data, context, tensor).
        """
        if self.is_uneven:
            speed = self._speeds(table.layouts, ranks[None]).min(axis=1)
            if np.ptp(speed) > 0:
                speed = np.broadcast_to(speed, table.layers.shape)
                table = table.with_layers(split_by_speed(table, speed))
        on_gpu = most_layers(table, self.memory_bytes, self.stage_room(ranks[None]))
        away = partial(offloaded_bytes, self.job)
        most = np.minimum(on_gpu, most_layers(table, away, self._host_room(table)[:, None]))
        return table.with_layers(fitting_split(table, most))

    def stage_room(self, ranks: Indices) -> Floats:
        """Bytes of each stage's smallest GPU, shape (n, pipeline)."""
        room: Floats = self._room[ranks].min(axis=(2, 3, 4))
        return room

    def memory_bytes(self, table: LayoutTable) -> Floats:
        """Of each stage's fullest rank, shape (n, pipeline)."""
        return rank_memory(self.job, table).total

    def fits(
        self, table: LayoutTable, ranks: Indices
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether GPUs and hosts can hold it there, shape (n,); ``ranks`` as for ``price``."""
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.on_gpu(
            table, ranks
        ) & self.off_gpu(table)
        return holds

    def on_gpu(
        self, table: LayoutTable, ranks: Indices
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether every rank's memory suffices, shape (n,); ``ranks`` as for ``price``."""
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.all(
            self.memory_bytes(table) <= self.stage_room(ranks), axis=1
        )
        return holds

    def off_gpu(self, table: LayoutTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether what is offloaded has room on the host, shape (n,)."""
        away = offloaded_bytes(self.job, table).max(axis=1)
        holds: np.ndarray[tuple[int], np.dtype[np.bool_]] = away <= self._host_room(table)
        return holds

    def _host_room(self, table: LayoutTable) -> Floats:
        """Bytes where the layout offloads to, shape (n,)."""
        host = self.gpu.host
        room: Floats = np.array([np.inf, host.memory_bytes, host.nvme_bytes])[table.offload]
        return room

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
            power=power_of(self._mean, times, priced.draw_watts, away=away),
            shares={name: float(part[0]) / seconds for name, part in parts.items()},
        )


def _mean_board(boards: tuple[TrainingGpu, ...], shares: Floats) -> TrainingGpu:
    """The first board with the mean draws of all of them."""

    def mean(watts: Callable[[TrainingGpu], float]) -> float:
        return float(np.array([watts(board) for board in boards]) @ shares)

    return replace(
        boards[0],
        idle_watts=mean(lambda board: board.idle_watts),
        wait_watts=mean(lambda board: board.wait_watts),
        exchange_watts=mean(lambda board: board.exchange_watts),
        update_watts=mean(lambda board: board.update_watts),
    )


def _distinct_replicas(links: PlacedLinks, speed: Floats) -> tuple[PlacedLinks, Floats]:
    """Of a single placement, replicas that are alike only once: most are, on like hosts."""
    if len(speed) > 1 or speed.shape[1] == 1:
        return links, speed
    columns = (speed[0], links.boundary_rate[0], links.boundary_delay[0])
    kept = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True)[1]
    rate, delay = links.boundary_rate[:, kept], links.boundary_delay[:, kept]
    return replace(links, boundary_rate=rate, boundary_delay=delay), speed[:, kept]


def offloaded_bytes(job: TrainingJob, table: LayoutTable) -> Floats:
    """What each rank of a stage keeps outside of its GPU, shape (n, pipeline)."""
    kept = LayoutTable(
        **{name: getattr(table, name) for name in table.__slots__ if name != "offload"},
        offload=np.zeros_like(table.offload),
    )
    away: Floats = rank_memory(job, kept).optimizer * (table.offload > 0)[:, None]
    return away
