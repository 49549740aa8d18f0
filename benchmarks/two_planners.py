"""Two planners, slow writes, and a Lease that cannot be renewed: is anything promised twice?

The leader's path to its Lease breaks again and again while it writes, and one of its patches is
stuck: its sender gives up after 10 s, it is stored after 25 s, when the other planner leads. Once
with 48 pods on the test control plane (real API machinery, kwok, the tests' binder) and once with
750 pods in virtual time on the embedded API. Every GPU is needed, so each double promise shows.
A quick run has shorter writes, time-outs and Leases, and the same ends.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._handover import GPUS_PER_NODE, Judge, SlowApi, Wire
from benchmarks._turns import TurnClock
from benchmarks.runner import Options, Result, Target
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_process import SchedulerProcess, planner_elector
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.batching import Batcher
from scheduler_plugin.kube_objects.admission import Mode
from simulation.kube import EmbeddedKube
from wattpack.clock import Clock, SystemClock
from wattpack.errors import DeadlineExceededError
from wattpack.gpu_resources import NVIDIA_GPU
from wattpack.kube.election import PLANNER_ELECTION, ElectionSettings
from wattpack.kube.port import NODES, PODS, JsonObject, KubeApi
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION, GATE
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND, seconds_to_ns

NAME = "two_planners"
SUMMARY = "two planners with API writes of 2 s: double promises and late writes at handovers"
#: A write, a time-out and the Lease's release may be under way when a planner is told to end.
END_SECONDS = 30.0
SYSTEM, TEAM = "wattpack-system", "team"
TARGETS = {
    key: Target(at_most=0)
    for part in ("plane", "virtual")
    for key in (
        f"{part}_pods_promised_twice",
        f"{part}_gpus_beyond_nodes",
        f"{part}_patches_begun_after_the_lease",
        f"{part}_late_writes_outside_the_plan",
        f"{part}_pods_unplaced",
        f"{part}_pods_without_a_pin",
    )
} | {
    key: Target(at_least=1)
    for part in ("plane", "virtual")
    for key in (f"{part}_handovers", f"{part}_stuck_writes_arrived")
}


@dataclass(frozen=True, slots=True)
class Size:
    """One experiment.

    Attributes:
        scale: Of every time, against writes of 2 s and a Lease of 15 s.
        first_cut_seconds: When the leader's Lease breaks first.
        cut_every_seconds: How often it breaks then; after half of that it is whole.
        limit_seconds: When to stop whatever is left.
    """

    pods: int
    scale: float
    first_cut_seconds: float
    cut_every_seconds: float
    limit_seconds: float

    def election(self) -> ElectionSettings:
        """Lease, renew deadline and retry; a short run has its own."""
        return PLANNER_ELECTION if self.scale == 1.0 else ElectionSettings(4, 3.0, 1.0)


def pod_body(index: int, pods: int, owner_uid: str) -> JsonObject:
    """A gated pod of one GPU; one in five belongs to a gang of four."""
    in_gang = index < pods // 5 // 4 * 4
    labels = {GANG_LABEL: f"g{index // 4}"} if in_gang else {}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{index:04}",
            "namespace": TEAM,
            "labels": labels,
            "annotations": {GANG_SIZE_ANNOTATION: "4"} if in_gang else {},
            "ownerReferences": [owner | {"uid": owner_uid}],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/work:1",
                    "resources": {"limits": {NVIDIA_GPU: "1"}},
                }
            ],
            "schedulingGates": [{"name": GATE}],
        },
    }


class Experiment:
    """Two replicas over one server.

    Args:
        api: The server.
        clock: Of everything.
        size: How large and how long.
        bind: Called each second where nobody else binds pods.
        threaded: Whether informers may have threads.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        size: Size,
        bind: Callable[[], None],
        *,
        threaded: bool,
    ) -> None:
        self._clock, self._size, self._bind = clock, size, bind
        self._api, self._threaded = api, threaded
        names = [f"p{i:04}" for i in range(size.pods)]
        self.judge = Judge(dict.fromkeys(names, 1))
        self.wire = Wire(api, clock, self.judge)
        self.apis = {name: SlowApi(self.wire, name, 2.0 * size.scale, size.scale) for name in "ab"}
        self.processes = {name: self._process(name) for name in "ab"}
        self.handovers = 0

    def _process(self, name: str) -> SchedulerProcess:
        api: Any = self.apis[name]
        settings = PlacementSettings(
            mode=Mode.MANAGE,
            deadline_seconds=0.0,
            kept_plans=1000,
            # Beside each other, and slow enough that the Lease breaks while pods are left.
            patches_at_once=2,
        )

        def new_loop(fenced: KubeApi, epoch: int) -> PlacementLoop:
            planner = InProcessPlanner(0.0)
            around = PlannerSurroundings(self._clock, planner, name, threaded=self._threaded)
            return PlacementLoop(fenced, around, settings, epoch=epoch)

        elector = planner_elector(api, self._clock, SYSTEM, name, ord(name), self._size.election())
        batcher = Batcher(seconds_to_ns(0.2), NS_PER_SECOND, 5 * NS_PER_SECOND)
        return SchedulerProcess(api, self._clock, elector, batcher, new_loop, PlacementMetrics())

    def world(self) -> None:
        """Break the leader's Lease, store stuck writes, bind pods; until all run or time is up."""
        every_ns = seconds_to_ns(self._size.cut_every_seconds)
        step_ns = seconds_to_ns(0.2 if self._threaded else 1.0)
        began_ns = self._clock.monotonic_ns()
        next_cut_ns, holder = began_ns + seconds_to_ns(self._size.first_cut_seconds), ""
        while not self._done(began_ns):
            self._clock.wait_until(self._clock.monotonic_ns() + step_ns)
            now_ns = self._clock.monotonic_ns()
            self.wire.deliver()
            self._bind()
            self.handovers += holder not in ("", self.wire.holder) and bool(self.wire.holder)
            holder = self.wire.holder or holder
            # Before the first plan there is no write that could be stuck.
            if now_ns >= next_cut_ns and self.wire.holder in self.apis and self.judge.plans:
                leader = self.apis[self.wire.holder]
                leader.lease_is_cut = leader.next_is_stuck = True
                next_cut_ns = now_ns + every_ns
            elif now_ns >= next_cut_ns - every_ns // 2:
                for api in self.apis.values():
                    api.lease_is_cut = False
        for process in self.processes.values():
            process.stop()

    def in_threads(self) -> None:
        """The world, beside each replica in a thread; they end first, however the world ends.

        Raises:
            DeadlineExceededError: if a replica did not end.
        """
        runs = [process.run for process in self.processes.values()]
        threads = [threading.Thread(target=run, daemon=True) for run in runs]
        try:
            for thread in threads:
                thread.start()
            self.world()
        except BaseException:
            for api in self.apis.values():
                api.break_off()
            raise
        finally:
            for process in self.processes.values():
                process.stop()
            until_ns = self._clock.monotonic_ns() + seconds_to_ns(END_SECONDS)
            for thread in threads:
                if thread.ident is not None:
                    left_ns = until_ns - self._clock.monotonic_ns()
                    thread.join(max(0.0, left_ns / NS_PER_SECOND))
        if any(thread.is_alive() for thread in threads):
            raise DeadlineExceededError(f"a planner did not end in {END_SECONDS:g} s")

    def _done(self, began_ns: int) -> bool:
        if self._clock.monotonic_ns() - began_ns > seconds_to_ns(self._size.limit_seconds):
            return True
        everybody = len(self.judge.pins) == self._size.pods
        return everybody and not self.wire.deliveries and self.unplaced() == 0

    def unplaced(self) -> int:
        """Pods without a node."""
        pods = self._api.list(PODS, TEAM).items
        return sum(not pod["spec"].get("nodeName") for pod in pods)

    def figures(self, part: str) -> dict[str, float | int]:
        """What the judge saw."""
        judge = self.judge
        pinned = sum(bool(node) for node in judge.pins.values())
        return {
            f"{part}_pods": self._size.pods,
            f"{part}_pods_pinned": pinned,
            f"{part}_pods_without_a_pin": self._size.pods - pinned,
            f"{part}_handovers": self.handovers,
            f"{part}_pods_promised_twice": judge.promised_twice() + len(judge.repinned),
            f"{part}_gpus_beyond_nodes": max(0, judge.over_gpus),
            f"{part}_stuck_writes_arrived": judge.stuck_arrived,
            f"{part}_late_writes": len(judge.late),
            f"{part}_latest_write_after_takeover_seconds": round(judge.last_late_seconds, 1),
            f"{part}_late_writes_outside_the_plan": judge.late_outside_plans,
            f"{part}_patches_begun_after_the_lease": judge.begun_late,
            f"{part}_pods_unplaced": self.unplaced(),
        }


def in_virtual_time(size: Size) -> dict[str, float | int]:
    """The embedded API and three threads that take turns."""
    clock = TurnClock()
    api = EmbeddedKube(clock, history_window=100_000)
    for i in range(-(-size.pods // GPUS_PER_NODE)):
        add_node(api, f"n{i:03}")
    for i in range(size.pods):
        api.create(PODS, pod_body(i, size.pods, "owner"), TEAM)

    bound: set[str] = set()

    def bind() -> None:
        for name in experiment.judge.pins.keys() - bound:
            pod = api.bind(name, TEAM, experiment.judge.pins[name])
            running = {**pod, "status": {**pod.get("status", {}), "phase": "Running"}}
            api.replace(PODS, running, TEAM, subresource="status")
            bound.add(name)

    experiment = Experiment(api, clock, size, bind, threaded=False)
    clock.run(*(process.run for process in experiment.processes.values()), experiment.world)
    return experiment.figures("virtual")


def add_node(api: KubeApi, name: str) -> None:
    """A node of 8 GPUs that is Ready."""
    room = {"cpu": "96", "memory": "1Ti", "pods": "110", NVIDIA_GPU: str(GPUS_PER_NODE)}
    conditions = [{"type": "Ready", "status": "True"}]
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
    stored = api.create(NODES, body)
    status = {"allocatable": room, "capacity": room, "conditions": conditions}
    api.replace(NODES, {**stored, "status": status}, subresource="status")


def on_the_test_plane(size: Size, directory: Path) -> dict[str, float | int]:
    """Real API machinery, kwok's nodes, the tests' binder, and informers in threads."""
    from wattpack.kube.client import from_kubeconfig

    builders = importlib.import_module("tests.cluster.cluster_builders")
    plane = importlib.import_module("tests.cluster.control_plane").start_control_plane(directory)
    try:
        crds = Path(__file__).parents[1] / "manifests" / "crds"
        plane.kubectl("apply", "--server-side", "-f", str(crds))
        for name in (SYSTEM, TEAM):
            builders.create(plane, "/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{TEAM}"
        owner = builders.create(plane, f"{path}/configmaps", {"metadata": {"name": "owner"}})
        for i in range(-(-size.pods // GPUS_PER_NODE)):
            builders.create(plane, "/api/v1/nodes", builders.node(f"n{i:03}"))
        plane.start_kwok()
        plane.start_binder()
        for i in range(size.pods):
            body = pod_body(i, size.pods, owner["metadata"]["uid"])
            builders.create(plane, f"{path}/pods", body)
        api = from_kubeconfig(plane.kubeconfig)
        experiment = Experiment(api, SystemClock(), size, lambda: None, threaded=True)
        experiment.in_threads()
        return experiment.figures("plane")
    finally:
        plane.stop()


def run(options: Options) -> Result:
    """Both experiments; without the test control plane's programs only the virtual one."""
    quick = options.quick
    virtual_cut = 120.0 if quick else 300.0
    virtual = Size(60 if quick else 750, 1.0, virtual_cut, virtual_cut, 20_000.0)
    plane = Size(16, 0.15, 0.5, 15.0, 30.0) if quick else Size(48, 1.0, 50.0, 50.0, 400.0)
    figures: dict[str, float | int | str] = dict(in_virtual_time(virtual))
    options.progress(f"virtual time: {figures}")
    why = importlib.import_module("tests.cluster.cluster_tools").missing_control_plane_tool()
    if why:
        options.progress(f"SKIPPED on the test control plane: {why}")
        figures["plane_skipped"] = why
        targets = {key: bound for key, bound in TARGETS.items() if key.startswith("virtual")}
        return Result(figures, targets)
    with ScratchFolder() as folder:
        figures |= on_the_test_plane(plane, folder)
    return Result(figures, TARGETS)
