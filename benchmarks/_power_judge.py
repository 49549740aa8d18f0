"""What placements and caps of ``power_packing`` come to: no code of the planner or of the arms.

Draws are drawn anew: each task's boards vary as one around the median of its kind of work, tasks
of one row together by ``correlation``; 105 % of its cap cuts what a board would draw. A budget is
exceeded where the 99th percentile over all draws is above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from benchmarks._openb_trace import FloatArray, IntArray
from benchmarks._power_arms import Placed
from benchmarks._power_cluster import TYPES, Cluster, profile_of

DRAWS: Final = 2000
CHUNK: Final = 250
OVERSHOOT: Final = 1.05
QUANTILE: Final = 0.99


class Verdict(NamedTuple):
    """Of one arm.

    Attributes:
        work: GPUs' worth of work: parts of boards times speed under the cap.
        weighted_work: The same, each board counted with its limit over the mean limit.
        exceeded: Budgets whose 99th percentile is above them, by level.
        mean_watts: Drawn by the whole cluster.
        overbooked: Nodes that hold more of something than they have.
    """

    work: float
    weighted_work: float
    exceeded: dict[str, int]
    mean_watts: float
    overbooked: int


def judge(
    made: Cluster,
    limits: Mapping[str, IntArray],
    placed: Sequence[Placed],
    seed: int,
    correlation: float,
    draws: int = DRAWS,
) -> Verdict:
    """Count an arm."""
    speeds = np.array([_speed(made, p) for p in placed])
    sizes = np.array([p.task.kind.gpu_milli / 1000 for p in placed])
    weight = np.array([TYPES[made.nodes[p.node].model][1] for p in placed])
    mean_limit = sum(n.boards * TYPES[n.model][1] for n in made.nodes) / sum(
        n.boards for n in made.nodes
    )
    watts = _node_watts(made, placed, seed, correlation, draws)
    numbers = {"node": np.arange(len(made.nodes)), "rack": made.rack, "row": made.row}
    exceeded = {
        level: int((np.quantile(_summed(watts, number), QUANTILE, axis=1) > limits[level]).sum())
        for level, number in numbers.items()
    }
    return Verdict(
        float((sizes * speeds).sum()),
        float((sizes * speeds * weight).sum() / mean_limit),
        exceeded,
        float(watts.sum(axis=0).mean()),
        _overbooked(made, placed),
    )


def _speed(made: Cluster, placed: Placed) -> float:
    profile = profile_of(made.nodes[placed.node].model)
    kernel = profile.kernel_classes[placed.task.work]
    fraction = placed.cap_watts / profile.default_limit_watts
    return float(np.interp(fraction, kernel.cap_fractions, kernel.throughput))


def _node_watts(
    made: Cluster, placed: Sequence[Placed], seed: int, correlation: float, draws: int
) -> FloatArray:
    """Of each node in each draw, (n_nodes, draws)."""
    with_boards = [p for p in placed if p.task.kind.boards]
    kernels = [
        profile_of(made.nodes[p.node].model).kernel_classes[p.task.work] for p in with_boards
    ]
    median = np.array([k.power_p50_watts for k in kernels])
    spread = np.array([(k.power_p95_watts - k.power_p50_watts) / 1.6449 for k in kernels])
    idle = np.array([TYPES[made.nodes[p.node].model][2] for p in with_boards])
    most = OVERSHOOT * np.array([p.cap_watts for p in with_boards])
    sizes = np.array([p.task.kind.gpu_milli / 1000 for p in with_boards])
    node = np.array([p.node for p in with_boards])
    shape = (len(made.nodes), len(with_boards))
    onto = csr_array((sizes, (node, np.arange(len(with_boards)))), shape=shape)
    random = np.random.default_rng(seed)
    found = []
    for start in range(0, draws, CHUNK):
        count = min(CHUNK, draws - start)
        common = random.standard_normal((made.row.max() + 1, count))[made.row[node]]
        own = random.standard_normal((len(with_boards), count))
        level = np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own
        drawn = np.clip(median[:, None] + spread[:, None] * level, idle[:, None], most[:, None])
        watts = made.base_watts[:, None] + onto @ (drawn - idle[:, None])
        # Half a watt in 100 kW, and half of the memory.
        found.append(watts.astype(np.float32))
    return np.concatenate(found, axis=1)


def _summed(watts: FloatArray, number: IntArray) -> FloatArray:
    """Over the nodes of each domain, (n_domains, draws)."""
    shape = (int(number.max()) + 1, len(number))
    above = csr_array((np.ones(len(number)), (number, np.arange(len(number)))), shape=shape)
    summed: FloatArray = above @ watts
    return summed


def _overbooked(made: Cluster, placed: Sequence[Placed]) -> int:
    """Nodes with more GPUs, CPU or memory in use than they have."""
    used = np.zeros((len(made.nodes), 3))
    for p in placed:
        kind = p.task.kind
        used[p.node] += (kind.gpu_milli / 1000, kind.milli_cpu, kind.memory_mib)
    has = np.array([(n.boards, n.milli_cpu, n.memory_mib) for n in made.nodes])
    return int((used > has + 1e-6).any(axis=1).sum())
