"""Megatron-LM's model-size table, and what three constants say of it.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, SC 2021 (arXiv 2104.04473), table 1: sequence 2,048, vocabulary 51,200, A100 80 GB, 8 a
host on 8 HDR links, activations recomputed; seconds of a step by its equation 3 from the achieved
rate. Micro-batch and chunks a rank are not in the table: the fastest that fits is taken. All ten
rows agree with public transcriptions of that table, and rate times GPUs with its aggregate column.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from capacity.language_models import LanguageModel
from capacity.model.kernel_samples import Floats
from capacity.roofs import require_roofs
from capacity.training.layer_costs import RooflineCosts
from capacity.training.layout_table import LayoutTable
from capacity.training.rank_placement import PlacedLinks
from capacity.training.step_time import step_times
from capacity.training.step_work import KnownCosts, TrainingGpu, step_work
from capacity.training.training_job import ParallelLayout, TrainingJob
from capacity.training.training_memory import rank_memory

SEQUENCE: Final = 2048
VOCABULARY: Final = 51200
PER_HOST: Final = 8
NVLINK_RATE: Final = 222e9
"""All-reduce bus bandwidth of 8 A100 at 512 MiB (capacity/reference/kernels)."""
NIC_RATE: Final = 25e9
"""HDR InfiniBand, 200 Gb/s a GPU."""
DELAY: Final = 5e-6


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of the table."""

    billions: float
    heads: int
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    tflops: float

    @property
    def flops(self) -> float:
        """Of one step, recomputation counted: equation 3 of the paper."""
        wide = self.layers * self.hidden**2
        rest = 1 + SEQUENCE / (6 * self.hidden) + VOCABULARY / (16 * self.layers * self.hidden)
        return 96.0 * self.batch * SEQUENCE * wide * rest

    @property
    def step_seconds(self) -> float:
        """As published."""
        return self.flops / (self.gpus * self.tflops * 1e12)

    @property
    def data(self) -> int:
        """Replicas."""
        return self.gpus // (self.tensor * self.pipeline)


TABLE: Final = (
    TableRow(1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    TableRow(3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    TableRow(7.5, 32, 4096, 36, 4, 1, 128, 512, 142),
    TableRow(18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    TableRow(39.1, 64, 8192, 48, 8, 2, 512, 1536, 138),
    TableRow(76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    TableRow(145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148),
    TableRow(310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    TableRow(529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163),
    TableRow(1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163),
)
FITTED: Final = (0, 4, 9)
"""The smallest, a middle one and the largest: fixed before any fit. All other triples are told."""


def job_of(row: TableRow) -> TrainingJob:
    """A GPT of the row's size."""
    model = LanguageModel(
        name=f"gpt-{row.billions:g}b",
        layers=row.layers,
        hidden=row.hidden,
        heads=row.heads,
        kv_heads=row.heads,
        head_dim=row.hidden // row.heads,
        intermediate=4 * row.hidden,
        vocabulary=VOCABULARY,
        weight_bits=16,
        source="arXiv 2104.04473, table 1",
        gated=False,
        tied_embeddings=True,
    )
    return TrainingJob(model, row.batch, SEQUENCE, overlap=False)


def layouts_of(row: TableRow) -> list[ParallelLayout]:
    """The row's cuts with every micro-batch and number of chunks."""
    job = job_of(row)
    made = (
        ParallelLayout(row.data, row.tensor, row.pipeline, 1, size, "full", 0, "none", chunks)
        for size, chunks in product((1, 2, 4, 8, 16), (1, 2, 3, 4))
        if chunks == 1 or row.layers % (row.pipeline * chunks) == 0
    )
    return [layout for layout in made if layout.fits_shape(job)]


def links_of(row: TableRow) -> PlacedLinks:
    """Tensor groups inside hosts, data rings and stages over the network; one of each."""
    edges, stages = (1, 1, row.pipeline - 1), (1, row.pipeline)
    cards = PER_HOST // row.tensor if row.pipeline == 1 else 1
    return PlacedLinks(
        boundary_rate=np.full(edges, NIC_RATE),
        boundary_delay=np.full(edges, DELAY),
        ring_rate=np.full(stages, min(NVLINK_RATE, cards * NIC_RATE)),
        ring_delay=np.full(stages, DELAY),
        tensor_rate=np.full(stages, NVLINK_RATE),
        tensor_delay=np.full(stages, 3e-6),
        context_rate=np.full(stages, np.inf),
        context_delay=np.zeros(stages),
        expert_ring_rate=np.full(stages, np.inf),
        expert_ring_delay=np.zeros(stages),
        deal_seconds_per_byte=np.zeros(stages),
        deal_delay=np.zeros(stages),
    )


def gpu_of(constants: tuple[float, float, float]) -> TrainingGpu:
    """An A100 of 80 GB with these three constants."""
    roofs = require_roofs("A100-SXM")
    costs = RooflineCosts(roofs, *constants, draw_watts=400.0)
    return TrainingGpu(
        "A100-SXM", 80e9, roofs.bytes_per_second, 400.0, 62.0, 90.0, 150.0, 200.0, costs
    )


def predicted_seconds(row: TableRow, constants: tuple[float, float, float]) -> float:
    """The fastest layout of the row that fits."""
    job, layouts, gpu = job_of(row), layouts_of(row), gpu_of(constants)
    table = LayoutTable.of(job, layouts)
    layers = table.layers.astype(np.float64)
    work = step_work(KnownCosts(job, gpu), table)
    times = step_times(work, links_of(row), layers, np.ones_like(layers)[:, None]).total
    fits = rank_memory(job, table).total.max(axis=1) <= gpu.memory_bytes
    return float(np.where(fits, times, np.inf).min())


WIDTHS: Final = (0, 100, 200, 300, 450, 600, 800, 1000)


def constants_grid() -> list[tuple[float, float, float]]:
    """Share of the peak, width at half of it, share of the memory bandwidth."""
    return [
        (float(share), float(width), float(memory))
        for share, width, memory in product(
            np.arange(0.50, 0.96, 0.03), WIDTHS, (0.2, 0.3, 0.45, 0.6, 0.8)
        )
    ]


def log_errors(coarse: bool = False) -> Floats:
    """Logarithm of predicted over published seconds, shape (n_constants, 10).

    Args:
        coarse: Only every seventh of the constants.
    """
    return np.array([
        [np.log(predicted_seconds(row, constants) / row.step_seconds) for row in TABLE]
        for constants in constants_grid()[:: 7 if coarse else 1]
    ])  # fmt: skip


def fit(errors: Floats, rows: tuple[int, ...]) -> int:
    """Position of the constants that miss these rows least, by squares."""
    return int((errors[:, list(rows)] ** 2).sum(axis=1).argmin())


def held_out_errors(errors: Floats, rows: tuple[int, ...]) -> Floats:
    """Relative errors of the rows that the constants did not see."""
    rest = [row for row in range(len(TABLE)) if row not in rows]
    missed: Floats = np.abs(np.exp(errors[fit(errors, rows)][rest]) - 1)
    return missed
