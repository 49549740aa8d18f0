"""What the work of every pod looks like: its label's word, else a verdict from its telemetry.

What boards' units did is followed beside it, and tells the topology which actuator fits (a board's
own word before that of dcgm-exporter).

Looks once a second beside the tick and judges a few pods in turn; writes nothing. The live view
shows it. A verdict stays while its pod does: a board held at a cap says nothing new.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from capacity.catalogue.pod_works import PodWorks
from capacity.catalogue.workload_classifier import UNKNOWN, WorkClass, shipped_classifier
from controller.app.dcgm_units import NoUnits, UnitsSource
from controller.app.fleet import Fleet
from controller.app.running_topology import DesiredTopology
from controller.app.tick_loop import TickOutcome
from controller.tick_values import Topology
from controller.units_watch import UnitsWatch
from controller.work_seen import PodWork
from controller.workload_history import WorkloadHistory, of_the_work
from wattpack.clock import Clock
from wattpack.kube.port import JsonObject
from wattpack.periodic import PeriodicThread
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.units import NS_PER_SECOND

BOARDS_A_LOOK = 32
"""Judged in one look, half a millisecond each: small fleets every second, 10,000 in 5 minutes."""


class WorkloadWatch(PeriodicThread):
    """Follows the boards and keeps the newest verdicts.

    Args:
        dcgm: Units of boards that do not tell them themselves.
    """

    def __init__(
        self,
        clock: Clock,
        fleet: Fleet,
        desired: DesiredTopology,
        dcgm: UnitsSource | None = None,
    ) -> None:
        super().__init__(clock, "workloads", NS_PER_SECOND)
        self._fleet, self._desired = fleet, desired
        self._dcgm = dcgm or NoUnits()
        self._history, self._units = WorkloadHistory(), UnitsWatch()
        self._lock = threading.Lock()
        self._outcome: TickOutcome | None = None
        self._seen: dict[str, PodWork] = {}
        self._turn = ""
        self._works: Mapping[str, PodWork] = {}

    def take(self, outcome: TickOutcome) -> None:
        """Called by the tick; never blocks for long."""
        with self._lock:
            self._outcome = outcome

    def works(self) -> Mapping[str, PodWork]:
        """By ``namespace/name`` of the pod."""
        return self._works

    def count_by_bound(self) -> dict[str, int]:
        """Pods of each class and of unknown work; classes without pods are 0."""
        bounds = [work.bound for work in self._works.values() if work.source == "telemetry"]
        return {name: bounds.count(name) for name in (*get_args(WorkClass), UNKNOWN)}

    def run_once(self) -> None:
        """Keep a second; judge when it is time."""
        with self._lock:
            outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        topology = outcome.topology
        # By name: since the outcome was made, boards may have changed places.
        pod_of = self._desired.pod_of_gpu
        pods = ["/".join(pod_of.get(uuid, ())) for uuid in topology.gpu_uuids]
        seen, defaults = outcome.seen, topology.default_limit_watts
        draws = of_the_work(seen.gpu_draw_watts, seen.gpu_limit_watts, defaults)
        self._history.add(topology.gpu_uuids, pods, draws, self._fleet.signals(topology))
        self._look_at_units(topology, pods, draws / defaults)
        self._judge(defaults)
        told = labelled_works(self._desired.pods(), self._desired.works())
        running = self._history.boards_of_pods()
        self._works = {pod: work for pod, work in self._seen.items() if pod in running} | told

    def count_by_units(self) -> Counter[tuple[str, str]]:
        """Boards by what their work waits for, as their units tell, and by who told it."""
        boards = self._desired.seen_boards().values()
        return Counter((board.work.kind, board.source) for board in boards)

    def _look_at_units(
        self, topology: Topology, pods: Sequence[str], draw_share: FloatArray
    ) -> None:
        own = self._fleet.units(topology)
        lacking: BoolArray = np.asarray(np.isnan(own).any(axis=0))
        told = np.where(lacking, self._dcgm.units(topology), own)
        rows = np.vstack([told, draw_share])
        now_ns = self._clock.monotonic_ns()
        self._units.look(topology.gpu_uuids, pods, rows, lacking.tolist(), now_ns)
        self._desired.saw_boards(self._units.version, self._units.seen())

    def _judge(self, limit_watts: FloatArray) -> None:
        """The next pods in the order of their names, as many as one look has time for."""
        boards = self._history.boards_of_pods()
        remembered = self._history.remembered_pods()
        self._seen = {pod: work for pod, work in self._seen.items() if pod in remembered}
        names = sorted(boards)
        start = bisect_right(names, self._turn)
        judged = 0
        for pod in (*names[start:], *names[:start]):
            if judged >= BOARDS_A_LOOK:
                return
            verdict = self._history.verdict(boards[pod], limit_watts, shipped_classifier())
            if verdict is not None:
                self._seen[pod] = PodWork(
                    verdict.workload, verdict.bound, verdict.confidence, "telemetry"
                )
            judged += len(boards[pod])
            self._turn = pod


def labelled_works(
    pods: Mapping[tuple[str, str], JsonObject], works: PodWorks
) -> dict[str, PodWork]:
    """What labels say; a name that is neither profile nor entry counts as no label."""
    found = {}
    for (namespace, name), body in pods.items():
        work = works.labelled(body)
        if work is not None:
            found[f"{namespace}/{name}"] = PodWork(work.name, "", 1.0, "label")
    return found
