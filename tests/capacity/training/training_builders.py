"""Small jobs, GPUs of three constants, and clusters of a few hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks._step_simulator import Device, Simulation
from capacity.language_models import LanguageModel
from capacity.model.kernel_samples import Floats, Indices
from capacity.roofs import require_roofs
from capacity.training.layer_costs import RooflineCosts
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.link_matrix import Link, LinkMatrix
from capacity.training.plan_values import TrainingCluster, TrainingProblem
from capacity.training.rank_placement import first_placements, placed_links
from capacity.training.step_time import StepTimes, step_times
from capacity.training.step_work import KnownCosts, TrainingGpu, step_work
from capacity.training.training_job import ParallelLayout, TrainingJob

NVLINK = Link(370e9, 3e-6)
INFINIBAND = Link(45e9, 5e-6)
ETHERNET = Link(3e9, 30e-6)


def model(layers: int = 16, **changes: Any) -> LanguageModel:
    """A decoder of 3 billion parameters unless told otherwise."""
    shape: dict[str, Any] = {
        "name": "small",
        "layers": layers,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "intermediate": 14336,
        "vocabulary": 32000,
        "weight_bits": 16,
        "source": "made up",
    }
    return LanguageModel(**(shape | changes))


def job(**changes: Any) -> TrainingJob:
    """64 sequences of 4,096 tokens a step."""
    shape: dict[str, Any] = {"model": model(), "global_batch": 64, "sequence_tokens": 4096}
    return TrainingJob(**(shape | changes))


def gpu(**changes: Any) -> TrainingGpu:
    """An H100 by its datasheet."""
    roofs = require_roofs("H100-SXM")
    shape: dict[str, Any] = {
        "model": "H100-SXM",
        "memory_bytes": roofs.memory_bytes,
        "bytes_per_second": roofs.bytes_per_second,
        "limit_watts": 700.0,
        "idle_watts": 70.0,
        "wait_watts": 130.0,
        "exchange_watts": 250.0,
        "update_watts": 350.0,
        "costs": RooflineCosts(roofs, 0.75, 300.0, 0.8, 650.0),
    }
    return TrainingGpu(**(shape | changes))


def cluster(
    hosts: int = 4,
    gpus_per_host: int = 4,
    nic: Link = INFINIBAND,
    classes: Sequence[str] | None = None,
    across: Link = ETHERNET,
) -> LinkMatrix:
    """Hosts of one NIC class, or of these."""
    kinds = list(classes) if classes is not None else ["infiniband"] * hosts
    between = {(a, b): nic if a == b else across for a in kinds for b in kinds}
    return LinkMatrix.from_levels([gpus_per_host] * hosts, NVLINK, between, kinds)


def first(links: LinkMatrix, layout: ParallelLayout) -> Indices:
    """The first placement."""
    return next(first_placements(links, layout))


def predicted(
    of: TrainingJob, layout: ParallelLayout, links: LinkMatrix, board: TrainingGpu | None = None
) -> StepTimes:
    """The closed form on the first placement."""
    board = board or gpu()
    table = LayoutTable.of(of, [layout])
    placed = placed_links(links, first(links, layout)[None], layout.expert)
    layers: Floats = table.layers.astype(np.float64)
    speed = np.ones((1, layout.data, layout.pipeline))
    return step_times(step_work(KnownCosts(of, board), table), placed, layers, speed)


def simulated(of: TrainingJob, layout: ParallelLayout, links: LinkMatrix) -> float:
    """The judge on the same placement."""
    board = gpu()
    costs = KnownCosts(of, board).of(layout)
    host = board.host
    device = Device(
        board.bytes_per_second,
        host.link_bytes_per_second,
        host.memory_bytes_per_second,
        host.nvme_bytes_per_second,
    )
    layers = LayoutTable.of(of, [layout]).layers[0].tolist()
    return Simulation(
        of, layout, costs, links, first(links, layout).tolist(), layers, device
    ).seconds()


def pricing(of: TrainingJob, links: LinkMatrix) -> LayoutPricing:
    """Prices on a cluster of H100."""
    board = gpu()
    return LayoutPricing(TrainingProblem(of, TrainingCluster(links, (board,))), board)
