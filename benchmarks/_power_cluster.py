"""openb's nodes with watts, racks and rows, and its tasks with a kind of work: shared by all arms.

The list names no watts. Limits are datasheets' (assumed); draws and cap curves are those of the
shipped profile of the nearest type, scaled with the limit.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from benchmarks._openb_trace import (
    DATA,
    MILLI_PER_GPU,
    IntArray,
    Kind,
    Node,
    Trace,
    openb_nodes,
    sample,
    shipped_trace,
)
from capacity.gpu_profile import GpuProfile
from capacity.profile_library import shipped_library

#: GPU type of openb: nearest shipped profile, default limit, idle watts. T4, A10, P100 and V100 by
#: NVIDIA's datasheets; G2 and G3 have no public name: 250 W and 25 W idle, as the program of
#: Lettich et al. (arXiv 2412.17484) has them; idle watts are theirs, too. All assumed.
TYPES: Final = {
    "T4": ("V100-PCIE", 70.0, 10.0),
    "A10": ("A40", 150.0, 30.0),
    "P100": ("V100-PCIE", 250.0, 25.0),
    "V100M16": ("V100-PCIE", 300.0, 30.0),
    "V100M32": ("V100-PCIE", 300.0, 30.0),
    "G2": ("V100-PCIE", 250.0, 25.0),
    "G3": ("V100-PCIE", 250.0, 25.0),
}
#: A server without its boards, AC watts: fans and a watt and a half a core (assumed, at worst).
HOST_WATTS, HOST_WATTS_A_CORE = 100.0, 1.5
#: Tasks with a latency target serve, all others train (assumed; the list names no work).
SERVES, TRAINS = "decode", "training"
RACK_NODES, ROW_RACKS = 16, 5
#: Of what all hosts and boards below could draw at their limits (assumed): budgets that bind first
#: in rows, as in oversubscribed halls, and in some racks and nodes.
SHARES: Final = {"node": 0.95, "rack": 0.75, "row": 0.65}


class Task(NamedTuple):
    """One arrival."""

    kind: Kind
    work: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes and what is above each.

    Attributes:
        rack, row: Number of each node's, (n_nodes,).
        host_watts: Of each node without its boards, (n_nodes,).
        full_watts: Of each node at its boards' limits, (n_nodes,).
        base_watts: Of each node with idle boards, (n_nodes,).
    """

    nodes: tuple[Node, ...]
    rack: IntArray
    row: IntArray
    host_watts: IntArray
    full_watts: IntArray
    base_watts: IntArray


@cache
def profile_of(model: str) -> GpuProfile:
    """What is assumed of an openb GPU type."""
    nearest, limit, idle = TYPES[model]
    known = shipped_library().profiles[nearest]
    scale = limit / known.default_limit_watts
    classes = {
        name: replace(
            kernel,
            power_p50_watts=kernel.power_p50_watts * scale,
            power_p95_watts=kernel.power_p95_watts * scale,
        )
        for name, kernel in known.kernel_classes.items()
    }
    return replace(
        known,
        model=model,
        idle_watts=idle,
        min_limit_watts=known.min_limit_watts * scale,
        default_limit_watts=limit,
        max_limit_watts=limit,
        knee_watts=known.knee_watts * scale,
        kernel_classes=classes,
    )


def cluster(seed: int) -> Cluster:
    """Nodes in racks and rows by a random order: neighbours are of mixed types."""
    nodes = openb_nodes()
    order = np.random.default_rng(seed).permutation(len(nodes))
    rack = np.empty(len(nodes), dtype=np.int64)
    rack[order] = np.arange(len(nodes)) // RACK_NODES
    host = np.array([HOST_WATTS + HOST_WATTS_A_CORE * n.milli_cpu / 1000 for n in nodes])
    limit = np.array([n.boards * TYPES[n.model][1] for n in nodes])
    idle = np.array([n.boards * TYPES[n.model][2] for n in nodes])
    whole = [np.ceil(watts).astype(np.int64) for watts in (host, host + limit, host + idle)]
    return Cluster(nodes, rack, rack // ROW_RACKS, *whole)


def budgets(made: Cluster, share_of_row: float = SHARES["row"]) -> dict[str, IntArray]:
    """Limits in watts of every node, rack and row."""
    shares = SHARES | {"row": share_of_row}
    above = {"node": np.arange(len(made.nodes)), "rack": made.rack, "row": made.row}
    return {
        level: np.floor(shares[level] * np.bincount(number, made.full_watts)).astype(np.int64)
        for level, number in above.items()
    }


def arrivals(trace_name: str, seed: int) -> list[Task]:
    """Tasks for 130 % of the GPUs in the published order, with their kind of work."""
    trace = shipped_trace(trace_name)
    text = gzip.decompress((DATA / f"openb_pod_list_{trace_name}.csv.gz").read_bytes()).decode()
    quality = {row["name"]: row["qos"] for row in csv.DictReader(io.StringIO(text))}
    serves = np.array([quality[name] == "LS" for name in sorted(quality)])
    kinds = (*trace.kinds, *trace.kinds)  # those of the second half serve
    kind_of = trace.kind_of + len(trace.kinds) * serves
    drawn = sample(Trace(trace.name, kinds, kind_of), seed, openb_nodes())
    return [
        Task(kinds[k], SERVES if k >= len(trace.kinds) else TRAINS) for k in drawn.arrivals.tolist()
    ]


def gpus(task: Task) -> float:
    """That a task has, parts too."""
    return task.kind.gpu_milli / MILLI_PER_GPU
