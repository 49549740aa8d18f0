"""A run of the row as the oracle would have it: the same arrivals, servers and lost feeds.

The oracle knows what every server draws beside its GPUs, or, with ``declared_worst``, counts the
declared worst of it, as everybody must who has no meter and no reading of a server's own. Boards
draw what it grants in the same step; nothing overshoots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulation.compiled_server_row import fastest_server_row
from simulation.plant import breakers_of, domain_names, rack_of_nodes
from simulation.row_control.faults import RowFaultKind, RowFaults
from simulation.row_control.oracle import OracleLimits, best_shares
from simulation.row_control.random_work import Worth
from simulation.row_control.work import HIGH, Bools, Floats, Held, Integers, RowWork
from simulation.scenario import Scenario

NO_FAULTS = RowFaults()


class PricedWork(RowWork, Protocol):
    """Work that can tell what a watt buys in the step that it returned last."""

    def worth(self) -> Worth:
        """By unit of boards that move together."""
        ...


@dataclass(frozen=True, slots=True)
class BoardConstants:
    """What boards of the row are, (n_gpus,) each.

    Attributes:
        node_of_gpu: Server.
        floor_watts: Promised to the work on it.
        least_watts: Below which no limit holds it.
        default_limit_watts: As after a driver load.
        most_watts: What it may be let draw; the default limit but for boards that nobody can
            command.
    """

    node_of_gpu: Integers
    floor_watts: Floats
    least_watts: Floats
    default_limit_watts: Floats
    most_watts: Floats


@dataclass(frozen=True, slots=True)
class OracleResult:
    """A finished run.

    Attributes:
        seconds: End of each step since the run began, (n_steps,).
        load_ratio: Mean load over rating of what feeds are left, (n_steps, n_domains).
        done: Work so far of ``LOW`` and ``HIGH``, seconds of full speed, (n_steps, 2).
    """

    seconds: Floats
    load_ratio: Floats
    done: Floats

    def work_between(self, begin_seconds: float, end_seconds: float) -> Floats:
        """Work done in a span, of ``LOW`` and ``HIGH``, (2,)."""
        seconds = np.concatenate([[0.0], self.seconds])
        done = np.vstack([np.zeros(2), self.done])
        ends = (begin_seconds, end_seconds)
        at = np.array([[np.interp(t, seconds, column) for column in done.T] for t in ends])
        return np.asarray(at[1] - at[0])


class OracleRun:
    """The oracle on a row.

    Args:
        scenario: Shape, ratings, constants and seed, as of the run that it is compared with.
        boards: Their constants.
        work: Fresh work with concave curves; it is used up.
        faults: Those that change what can be done for anybody act: lost feeds, dark servers and
            steps of everything. The rest is no concern of an oracle.
        declared_worst: Count the declared worst of servers in place of what they draw.
        keeps_reserve: Draw no more than the required feeds carry, also while all are there.
    """

    def __init__(
        self,
        scenario: Scenario,
        boards: BoardConstants,
        work: PricedWork,
        faults: RowFaults = NO_FAULTS,
        *,
        declared_worst: bool = False,
        keeps_reserve: bool = False,
    ) -> None:
        self._boards, self._work, self._faults = boards, work, faults
        self._plant, self._row = scenario.plant, scenario.row
        self._declared_worst = declared_worst
        self._feeds_aside = self._row.fed_by - self._row.carried_by if keeps_reserve else 0
        self._rack_of_node = rack_of_nodes(scenario)
        self._breakers = breakers_of(scenario)
        self._n_domains = len(domain_names(scenario))
        # The stream of the judged run, so the same servers; what flickers about their means, an
        # oracle would foresee.
        generator = np.random.default_rng((scenario.seed, 4))
        still = scenario.plant.model_copy(update={"host_noise_ratio": 0.0})
        steady = scenario.model_copy(update={"plant": still})
        self._servers = fastest_server_row(steady, boards.node_of_gpu, generator)
        n = len(boards.node_of_gpu)
        self._class = np.asarray(work.priority == HIGH, dtype=np.int64)
        self._held = Held(np.ones(n), np.ones(n), np.ones(n, dtype=np.bool_))
        self._seconds = 0.0

    def run(self, seconds: float, step_seconds: float) -> OracleResult:
        """Go on for so long."""
        ends, ratios, done = [], [], []
        for _ in range(round(seconds / step_seconds)):
            ratios.append(self._step(step_seconds))
            self._seconds += step_seconds
            ends.append(self._seconds)
            done.append(np.bincount(self._class, self._work.done(), 2))
        return OracleResult(np.array(ends), np.array(ratios), np.array(done))

    def _step(self, step_seconds: float) -> Floats:
        boards, now = self._boards, self._seconds
        n = len(boards.node_of_gpu)
        struck = self._faults.struck(RowFaultKind.FEED_LOST, now, self._n_domains)
        self._breakers.lost_feeds = np.maximum(struck, self._feeds_aside).astype(np.int64)
        self._servers.on = ~self._dark(now)
        alive = self._servers.on[boards.node_of_gpu]
        wanted = self._work.step(now, step_seconds, self._held)
        full = self._faults.struck(RowFaultKind.ALL_TO_FULL, now, n)
        highest = np.maximum(wanted, boards.default_limit_watts)
        wanted = np.where(full, highest, wanted)
        share = best_shares(self._work.worth(), wanted, self._limits(alive))
        watts = self._servers.advance(np.where(alive, wanted * share, 0.0), step_seconds)
        self._held = Held(np.where(alive, share, 0.0), np.ones(n), alive)
        return self._breakers.load_ratio(watts)

    def _dark(self, seconds: float) -> Bools:
        return self._faults.struck(RowFaultKind.NODE_REBOOT, seconds, self._row.servers)

    def _limits(self, alive: Bools) -> OracleLimits:
        boards, plant = self._boards, self._plant
        ones = self._breakers.load_ratio(np.ones(self._n_domains))
        rated = 1.0 / ones
        if self._declared_worst:
            host = np.where(self._servers.on, plant.worst_host_watts, 0.0)
            per_watt = 1.0
        else:
            # Fans are slow against a step: what they drew in the last one, they draw in this.
            per_watt = 1.0 + plant.host_watts_per_gpu_watt
            moving = plant.host_watts_per_gpu_watt * self._servers.gpu_watts
            host = np.where(self._servers.on, self._servers.host_watts - moving, 0.0)
        racks = np.bincount(self._rack_of_node, host, self._row.racks) / plant.supply_efficiency
        return OracleLimits(
            self._rack_of_node[boards.node_of_gpu],
            rated[1:] - racks,
            float(rated[0] - racks.sum() - self._row.external_watts),
            np.full(len(boards.node_of_gpu), per_watt / plant.supply_efficiency),
            np.where(alive, boards.floor_watts, 0.0),
            np.where(alive, boards.least_watts, 0.0),
            np.where(alive, boards.most_watts, 0.0),
        )
