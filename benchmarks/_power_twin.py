"""Placements of ``power_packing`` on the twin's boards, second by second: no code of the planner.

Every GPU of the cluster is a board of the twin (``gpu.simulated``): limits that are written act
after a board's own delay, are held by the recorded capping loop with sensors up to 5 % off, and
some boards hold up to 5 % too much. What tasks want moves as in the twin's rows
(``simulation.row_control``): serving with a drift that all share, bursts that a service shares and
its own load, in time constants of 90, 6 and 2 s; training at a level that jumps every 90 s, with
the exchange at the end of each step. Medians and 95th percentiles are the profiles', hosts at their
worst, no controller acts. A budget is exceeded where the 99th percentile of its means over 1 s is
above it.

Boards within a node are seated here, anew: a share on the fullest board that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from benchmarks._openb_trace import MILLI_PER_GPU, FloatArray, IntArray
from benchmarks._power_arms import Placed
from benchmarks._power_cluster import SERVES, Cluster, profile_of
from gpu.simulated.board_arrays import BoardBank, BoardSpec, WriteDelays
from simulation.capping_boards import CappingRegulation, row_loops
from simulation.compiled_boards import fastest_bank
from simulation.plant_constants import frozen_plant
from simulation.row_control.random_work import RandomWorkSettings
from simulation.row_control.work_layout import SERVICES
from wattpack.units import NS_PER_SECOND, GpuUuid, NodeName

CELL_SECONDS: Final = 0.25
CELLS: Final = 4
"""In a second."""
SETTLE_SECONDS: Final = 10
"""Not judged: all boards start at once, and limits have yet to act."""
QUANTILE: Final = 0.99
Z95: Final = 1.6449
STEP_SECONDS: Final = (4.0, 12.0)
"""Of training, as ``RandomWork`` draws them."""
NOISE_SPREADS: Final = 3.0


class Seen(NamedTuple):
    """Of one run.

    Attributes:
        exceeded: Budgets whose 99th percentile of 1 s means is above them, by level.
        touched: Budgets that any 1 s mean is above, by level.
        seconds_above: Seconds above, summed over all budgets.
        highest_share: The highest 1 s mean over its budget.
        unseated: Tasks for which their node has no boards.
    """

    exceeded: dict[str, int]
    touched: dict[str, int]
    seconds_above: int
    highest_share: float
    unseated: int


class _Seats(NamedTuple):
    """Which task is on which board.

    Attributes:
        tasks: Those that have boards.
        onto: Part of each board that each task has, (n_boards, n_tasks).
        caps: Limit of each board, (n_boards,).
        unseated: Tasks that found none.
    """

    tasks: list[Placed]
    onto: csr_array
    caps: FloatArray
    unseated: int


def watch(
    made: Cluster,
    limits: Mapping[str, IntArray],
    placed: Sequence[Placed],
    seed: int,
    seconds: int,
) -> Seen:
    """Let the placement run for some simulated seconds and look at every domain each second."""
    seats = _seats(made, placed)
    random = np.random.default_rng((seed, 0x7717))
    bank = _bank(made, random)
    bank.set_limits(np.clip(seats.caps, bank.min_limit_watts, bank.max_limit_watts))
    wants = _Wants(made, seats.tasks, random)
    node_of_board = np.repeat(np.arange(len(made.nodes)), [n.boards for n in made.nodes])
    watts = np.empty((len(made.nodes), seconds))
    for second in range(-SETTLE_SECONDS, seconds):
        drawn = np.zeros(len(bank))
        for _ in range(CELLS):
            wanted = bank.idle_watts + seats.onto @ wants.above_idle()
            now_ns = bank.now_ns + round(CELL_SECONDS * NS_PER_SECOND)
            drawn += bank.advance(wanted, now_ns) / CELLS
        if second >= 0:
            above = np.bincount(node_of_board, drawn - bank.idle_watts, len(made.nodes))
            watts[:, second] = made.base_watts + above
    return _seen(made, limits, watts, seats.unseated)


def _seen(made: Cluster, limits: Mapping[str, IntArray], watts: FloatArray, unseated: int) -> Seen:
    numbers = {"node": np.arange(len(made.nodes)), "rack": made.rack, "row": made.row}
    exceeded, touched, seconds_above, highest = {}, {}, 0, 0.0
    for level, number in numbers.items():
        sums = np.zeros((len(limits[level]), watts.shape[1]))
        np.add.at(sums, number, watts)
        over = sums > limits[level][:, None]
        quantile = np.quantile(sums, QUANTILE, axis=1)
        exceeded[level] = int((quantile > limits[level]).sum())
        touched[level] = int(over.any(axis=1).sum())
        seconds_above += int(over.sum())
        highest = max(highest, float((sums / limits[level][:, None]).max()))
    return Seen(exceeded, touched, seconds_above, highest, unseated)


def _seats(made: Cluster, placed: Sequence[Placed]) -> _Seats:
    first = np.concatenate([[0], np.cumsum([n.boards for n in made.nodes])]).astype(np.int64)
    left = np.full(first[-1], MILLI_PER_GPU)
    limit = [profile_of(n.model).default_limit_watts for n in made.nodes for _ in range(n.boards)]
    caps = np.array(limit)
    tasks: list[Placed] = []
    entries: list[tuple[float, int, int]] = []
    unseated = 0
    for p in placed:
        if not p.task.kind.boards:
            continue
        milli = min(p.task.kind.gpu_milli, MILLI_PER_GPU)
        here = np.arange(first[p.node], first[p.node + 1])
        have = here[left[here] >= milli]
        have = have[np.argsort(left[have], kind="stable")][: p.task.kind.boards]
        if len(have) < p.task.kind.boards:
            unseated += 1
            continue
        left[have] -= milli
        caps[have] = np.minimum(caps[have], p.cap_watts)
        entries += [(milli / MILLI_PER_GPU, board, len(tasks)) for board in have.tolist()]
        tasks.append(p)
    parts, boards, columns = (np.array(column) for column in zip(*entries, strict=True))
    shape = (len(left), len(tasks))
    return _Seats(tasks, csr_array((parts, (boards, columns)), shape=shape), caps, unseated)


def _bank(made: Cluster, random: np.random.Generator) -> BoardBank:
    specs = []
    for number, node in enumerate(made.nodes):
        profile = profile_of(node.model)
        specs += [
            BoardSpec(
                uuid=GpuUuid(f"GPU-{number}-{i}"),
                model=node.model,
                node=NodeName(f"node-{number}"),
                index=i,
                idle_watts=profile.idle_watts,
                default_limit_watts=profile.default_limit_watts,
                min_limit_watts=profile.min_limit_watts,
                max_limit_watts=profile.max_limit_watts,
                max_clock_mhz=round(profile.max_clock_mhz),
                knee_watts=profile.knee_watts,
            )
            for i in range(node.boards)
        ]
    plant = frozen_plant()
    slowest = random.uniform(plant.cap_delay_min_seconds, plant.cap_delay_max_seconds, len(specs))
    idle_watts = np.array([spec.idle_watts for spec in specs])
    return fastest_bank(
        specs,
        seed=random,
        start_ns=0,
        regulation=CappingRegulation(row_loops([s.model for s in specs], random), idle_watts),
        delays=WriteDelays(slowest, plant.lock_delay_seconds),
    )


class _Wants:
    """What tasks would draw without limits, cell by cell.

    Args:
        made: The cluster.
        tasks: With boards.
        random: Of everything.
    """

    def __init__(self, made: Cluster, tasks: Sequence[Placed], random: np.random.Generator) -> None:
        profiles = [profile_of(made.nodes[p.node].model) for p in tasks]
        kernels = [f.kernel_classes[p.task.work] for f, p in zip(profiles, tasks, strict=True)]
        self._idle = np.array([f.idle_watts for f in profiles])
        self._median = np.array([k.power_p50_watts for k in kernels])
        self._spread = (np.array([k.power_p95_watts for k in kernels]) - self._median) / Z95
        self._serves = np.array([p.task.work == SERVES for p in tasks])
        self._random, self._settings, self._plant = random, RandomWorkSettings(), frozen_plant()
        n = len(tasks)
        self._service = random.integers(SERVICES, size=n)
        self._drift, self._bursts = random.standard_normal(1), random.standard_normal(SERVICES)
        self._own, self._level = random.standard_normal(n), random.standard_normal(n)
        self._step_seconds = random.uniform(*STEP_SECONDS, n)
        self._offset = random.uniform(0.0, 1.0, n)
        self._seconds = 0.0

    def above_idle(self) -> FloatArray:
        """Mean of a board in the next cell above idle, (n_tasks,)."""
        s = self._settings
        self._drift = self._wandered(self._drift, s.drift_seconds)
        self._bursts = self._wandered(self._bursts, s.swing_seconds)
        self._own = self._wandered(self._own, s.replica_seconds)
        jumps = self._random.random(len(self._level)) < CELL_SECONDS / s.batch_jump_seconds
        self._level[jumps] = self._random.standard_normal(int(jumps.sum()))
        ratios = np.array([s.drift_ratio, s.swing_ratio, s.replica_ratio])
        moved = ratios @ np.stack(
            [np.broadcast_to(self._drift, self._own.shape), self._bursts[self._service], self._own]
        )
        level = np.where(self._serves, moved / np.linalg.norm(ratios), self._level)
        watts = (self._median + self._spread * level) * self._exchange() * self._noise()
        self._seconds += CELL_SECONDS
        above: FloatArray = np.maximum(watts - self._idle, 0.0)
        return above

    def _wandered(self, values: FloatArray, time_constant_seconds: float) -> FloatArray:
        """A first-order process of spread 1, one cell on."""
        keep = float(np.exp(-CELL_SECONDS / time_constant_seconds))
        pushed: FloatArray = self._random.standard_normal(len(values))
        return keep * values + float(np.sqrt(1.0 - keep**2)) * pushed

    def _exchange(self) -> FloatArray:
        """Training draws less at the end of each step; 1 elsewhere."""
        step = (self._seconds / self._step_seconds + self._offset) % 1.0
        dips = ~self._serves & (step >= 1.0 - self._plant.training_dip_share)
        return np.where(dips, self._plant.training_dip_ratio, 1.0)

    def _noise(self) -> FloatArray:
        drawn = self._random.standard_normal(len(self._level))
        spread = self._settings.board_noise_ratio
        return 1.0 + spread * np.clip(drawn, -NOISE_SPREADS, NOISE_SPREADS)
