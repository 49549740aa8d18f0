"""openb's nodes, its lists of tasks, and the sample of one seed: shared by policies and judge."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks._go_random import GoRandom
from wattpack.errors import InputError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

DATA: Final = Path(__file__).parent / "data" / "openb"
NODES: Final = "openb_node_list_gpu_node.csv.gz"
TRACES: Final = (
    "default",
    *(f"cpu{share}" for share in ("050", "100", "200", "250")),
    *(f"gpushare{share}" for share in (40, 60, 80, 100)),
    *(f"gpuspec{share}" for share in (10, 20, 25, 33)),
    *(f"multigpu{share}" for share in (20, 30, 40, 50)),
)
SEEDS: Final = range(42, 52)
MILLI_PER_GPU: Final = 1000
MOST_BOARDS: Final = 8
LOAD: Final = 1.3  # of the cluster's GPUs, as published
_MOST: Final = 10**12


class Node(NamedTuple):
    """One row of the node list."""

    name: str
    milli_cpu: int
    memory_mib: int
    boards: int
    model: str


class Kind(NamedTuple):
    """What a task asks for; tasks of one kind differ only in their names.

    Attributes:
        boards: Whole boards, or 1 of which it takes a share.
        board_milli: Of each of them.
        models: Allowed models, empty for any.
    """

    milli_cpu: int
    memory_mib: int
    boards: int
    board_milli: int
    models: tuple[str, ...]

    @property
    def gpu_milli(self) -> int:
        """Of all its boards."""
        return self.boards * self.board_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """A list of tasks, sorted by name.

    Attributes:
        kinds: Each kind once.
        kind_of: Of each task, (n_tasks,).
    """

    name: str
    kinds: tuple[Kind, ...]
    kind_of: IntArray


class Sample(NamedTuple):
    """What one seed draws.

    Attributes:
        arrivals: Kinds of the tasks in the order in which they come, (n,).
        node_rank: Place of each node in the seed's random order of nodes, which settles ties.
    """

    arrivals: IntArray
    node_rank: IntArray


@cache
def openb_nodes() -> tuple[Node, ...]:
    """The 1,213 nodes with GPUs, by name."""
    nodes = [
        Node(
            row["sn"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["gpu"]),
            row["model"],
        )
        for row in csv.DictReader(io.StringIO(_text(DATA / NODES)))
    ]
    return tuple(sorted(nodes))


@cache
def shipped_trace(name: str) -> Trace:
    """One of ``TRACES``."""
    return read_trace(DATA / f"openb_pod_list_{name}.csv.gz", name)


def read_trace(file: Path, name: str | None = None) -> Trace:
    """A list of tasks in openb's columns, gzipped or not.

    Raises:
        InputError: naming the line and column that is wrong.
    """
    rows = csv.DictReader(io.StringIO(_text(file)))
    named = sorted((row.get("name") or "", _kind(row, rows.line_num, file)) for row in rows)
    if not named:
        raise InputError("line 2", "at least one task", "none", file.name)
    kinds = tuple(sorted({kind for _, kind in named}))
    if not any(kind.boards for kind in kinds):
        raise InputError("num_gpu", "at least one task with a GPU", "none", file.name)
    number = {kind: i for i, kind in enumerate(kinds)}
    plain = file.name.removesuffix(".gz").removesuffix(".csv").removeprefix("openb_pod_list_")
    return Trace(name or plain, kinds, np.array([number[kind] for _, kind in named]))


def _text(file: Path) -> str:
    try:
        data = file.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError("--trace", "a readable file of tasks", str(error), file.name) from error


def _kind(row: dict[str, str], line: int, file: Path) -> Kind:
    def whole(column: str, lowest: int, most: int) -> int:
        text = row.get(column) or ""
        if not (text.isascii() and text.isdigit() and lowest <= int(text[:20]) <= most):
            expected = f"a whole number from {lowest} to {most}"
            raise InputError(f"line {line}: {column}", expected, text, file.name)
        return int(text)

    boards = whole("num_gpu", 0, MOST_BOARDS)
    milli = whole("gpu_milli", 1, MILLI_PER_GPU) if boards else 0
    if boards > 1 and milli < MILLI_PER_GPU:
        raise InputError(f"line {line}: gpu_milli", "1000 for several GPUs", milli, file.name)
    models = (row.get("gpu_spec") or "") if boards else ""
    return Kind(
        whole("cpu_milli", 0, _MOST),
        whole("memory_mib", 0, _MOST),
        boards,
        milli,
        tuple(sorted({model for model in models.split("|") if model})),
    )


def sample(trace: Trace, seed: int, nodes: Sequence[Node]) -> Sample:
    """Tasks shuffled, then drawn anew (or dropped) until they ask for 130 % of the GPUs.

    The published method, draw by draw (``kubernetes-scheduler-simulator``, ``core.go`` and
    ``simulator.go``): one number is drawn for a log line, then come shuffle, tasks and nodes. The
    first task that would exceed the load ends it; several boards of one task count as one there.
    """
    random = GoRandom(seed)
    random.int63()
    tasks = list(range(len(trace.kind_of)))
    random.shuffle(tasks)
    kinds = [trace.kinds[kind] for kind in trace.kind_of]
    limit = LOAD * MILLI_PER_GPU * sum(node.boards for node in nodes)
    asked = sum(kind.gpu_milli for kind in kinds)
    if asked > limit:
        while asked > limit:
            asked -= kinds[tasks.pop(random.below(len(tasks)))].gpu_milli
    else:
        while True:
            task = random.below(len(kinds))
            if asked + kinds[task].board_milli > limit:
                break
            asked += kinds[task].gpu_milli
            tasks.append(task)
    return Sample(trace.kind_of[tasks], np.array(random.permutation(len(nodes))))
