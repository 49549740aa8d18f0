"""What the live view and the console say of pods' work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from console.cap_reasons import explain_gpu
from controller.app.classified_profiles import ClassifiedProfiles
from controller.app.fleet import Fleet
from controller.app.live_view_builder import shown_to
from controller.app.tick_loop import TickOutcome
from controller.app.workload_watch import WorkloadWatch
from controller.tick_values import Topology
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello, make_reading
from tests.controller_process.object_builders import (
    PODS,
    POLICIES,
    make_cluster,
    make_node,
    make_object,
    make_pod,
)
from tests.controller_process.test_tick_attacks import Bench
from wattpack.api import WorkloadProfile
from wattpack.kube.write_budget import write_budget
from wattpack.live_view import LiveView
from wattpack.object_names import CLASSIFIED_LABEL, WORKLOAD_LABEL
from wattpack.power.domain_tree import FloatArray
from wattpack.wire.v1 import power_pb2

DECODE = {"draw_watts": 532.0, "utilisation": 1.0, "memory_utilisation": 0.85}


class Watched:
    """A controller that ticks beside its watch; one node with two boards, one of them in use."""

    def __init__(self, label: str = "", profiles: tuple[str, ...] = ()) -> None:
        fleet = self.fleet = Fleet()
        fleet.hello(make_hello("node-1"))
        cluster = self.cluster = make_cluster(make_node("node-1"))
        labels = {WORKLOAD_LABEL: label} if label else {}
        cluster.put(
            PODS,
            make_pod(
                "chat", node="node-1", metadata={"namespace": "team", "uid": "u", "labels": labels}
            ),
        )
        for name in profiles:
            body = make_object(
                "WorkloadProfile", name, {"kind": "Serving", "kernelMix": {}}, namespace="team"
            )
            cluster.put(WorkloadProfile.meta.resource, body)
        self.bench = Bench(cluster, fleet, lambda: self.watch.works())
        self.watch = WorkloadWatch(self.bench.clock, fleet, cluster.desired)

    def tick(self, **reading: Any) -> TickOutcome:
        use = power_pb2.PodUse(
            namespace="team", name="chat", uid="u", device_uuids=["node-1-gpu-0"]
        )
        readings = [make_reading(f"node-1-gpu-{i}", **(reading if i == 0 else {})) for i in (0, 1)]
        outcome = self.bench.tick("node-1", devices=readings, pods=[use])
        assert outcome is not None
        return outcome

    def run(self, seconds: int, **reading: Any) -> LiveView:
        for _ in range(seconds):
            self.watch.take(self.tick(**reading))
            self.watch.run_once()
        view = self.bench.ticker.live()
        assert view is not None
        return view


def test_a_pod_that_nobody_described_is_shown_with_what_it_looks_like() -> None:
    view = Watched().run(90, **DECODE)
    assert view.gpus.bound == ["bandwidth", ""]
    assert view.gpus.workload[0]
    assert view.gpus.workload_confidence[0] is not None
    assert view.gpus.workload_confidence[0] > 0.6
    work = str(explain_gpu(view, "node-1-gpu-0")["work"])
    assert "memory bandwidth" in work
    assert "%" in work


def test_nothing_is_said_before_a_minute_was_seen() -> None:
    view = Watched().run(40, **DECODE)
    assert view.gpus.workload_confidence == [None, None]
    assert explain_gpu(view, "node-1-gpu-0")["work"] == ""


@pytest.mark.parametrize(
    ("label", "profiles", "shown"),
    [("chat-profile", ("chat-profile",), "chat-profile"), ("rl-rollout", (), "rl-rollout")],
)
def test_a_label_overrides_what_telemetry_shows(
    label: str, profiles: tuple[str, ...], shown: str
) -> None:
    view = Watched(label, profiles).run(90, **DECODE)
    assert (view.gpus.workload[0], view.gpus.bound[0]) == (shown, "")
    assert view.gpus.workload_confidence[0] == 1.0
    assert "label" in str(explain_gpu(view, "node-1-gpu-0")["work"])


def test_a_label_that_names_nothing_known_counts_as_none() -> None:
    assert Watched("no-such-work").run(90, **DECODE).gpus.bound[0] == "bandwidth"


def test_boards_that_change_places_keep_what_their_pods_showed() -> None:
    watched = Watched()
    watched.run(55, **DECODE)
    older = watched.tick(**DECODE)
    hello = make_hello("node-1")
    hello.devices[0].index, hello.devices[1].index = 1, 0
    watched.bench.fleet.hello(hello)
    newer = watched.tick(**DECODE)
    assert newer.topology.gpu_uuids == older.topology.gpu_uuids[::-1]
    watched.watch.take(older)
    watched.watch.run_once()
    assert watched.run(10, **DECODE).gpus.bound[1] == "bandwidth"


def test_a_capped_board_keeps_the_verdict_of_before() -> None:
    watched = Watched()
    watched.run(90, **DECODE)
    view = watched.run(90, draw_watts=349.0, limit_watts=350.0, utilisation=1.0)
    assert view.gpus.bound[0] == "bandwidth"


def test_what_telemetry_shows_for_minutes_becomes_a_profile() -> None:
    """From reports to the object: the tick, the watch and the writer, one beside the other."""
    watched = Watched()
    clock, cluster = watched.bench.clock, watched.bench.cluster
    kube = EmbeddedKube(clock)
    writer = ClassifiedProfiles(
        kube, clock, cluster.desired, watched.watch.works, lambda: True, write_budget(clock)
    )
    for _ in range(90):
        watched.run(5, **DECODE)
        writer.run_once()
    (body,) = kube.list(WorkloadProfile.meta.resource).items
    assert body["metadata"]["name"] == "pod-chat"
    assert body["metadata"]["labels"] == {CLASSIFIED_LABEL: "bandwidth"}
    assert body["spec"]["confidence"] >= 0.6


def test_a_label_tells_what_the_limit_costs_the_work() -> None:
    watched = Watched("rl-rollout")
    free = watched.run(3, draw_watts=690.0)
    assert free.gpus.speed_fraction == [1.0, None]
    assert "cost it no speed" in str(explain_gpu(free, "node-1-gpu-0")["work"])
    view = watched.run(3, draw_watts=349.0, limit_watts=350.0)
    kept = view.gpus.speed_fraction[0]
    assert kept is not None
    assert 0.5 < kept < 0.9
    told = str(explain_gpu(view, "node-1-gpu-0")["work"])
    assert f"at 350 W it keeps about {kept:.0%}" in told
    assert shown_to(view, lambda namespaces: ()).gpus.speed_fraction == [None, None]


def test_strangers_do_not_learn_what_a_pod_runs() -> None:
    view = shown_to(Watched().run(90, **DECODE), lambda namespaces: ())
    assert view.gpus.workload[0] == ""
    assert view.gpus.pod[0] == "(hidden)"


def test_pods_are_counted_by_what_binds_them() -> None:
    watched = Watched()
    watched.run(90, **DECODE)
    counts = watched.watch.count_by_bound()
    assert counts["bandwidth"] == 1
    assert sum(counts.values()) == 1


@pytest.mark.parametrize("share", [-1.0, 7.0, float("nan")])
def test_signals_that_no_board_can_give_are_unknown(share: float) -> None:
    view = Watched().run(90, draw_watts=532.0, utilisation=share, memory_utilisation=share)
    assert view.gpus.workload_confidence[0] is not None


# A matrix times one row on an H200 (benchmarks/data/h200_served/gpm.json).
STREAM = {
    "engine_activity": 0.982, "sm_activity": 0.92, "tensor_activity": 0.0, "dram_activity": 0.835,
}  # fmt: skip


def test_what_a_boards_units_did_is_shown_and_explained() -> None:
    watched = Watched()
    view = watched.run(300, draw_watts=500.0, utilisation=1.0, **STREAM)
    assert view.gpus.seen[1] == ""
    told = str(explain_gpu(view, "node-1-gpu-0")["work"])
    assert "waits for memory (DRAM 84%, tensor pipe 0%, SMs 92%, engine 98% of the time" in told
    assert "the board's own counters" in told
    assert watched.watch.count_by_units() == {("memory", "board"): 1}
    assert shown_to(view, lambda _: set()).gpus.seen == ["", ""]


def test_a_boards_own_word_counts_before_dcgms() -> None:
    watched = Watched()

    class Dcgm:
        def units(self, topology: Topology) -> FloatArray:
            return np.tile([[0.98], [0.95], [0.9], [0.17]], topology.n_gpus)

    watched.watch = WorkloadWatch(
        watched.bench.clock, watched.fleet, watched.cluster.desired, Dcgm()
    )
    watched.run(300, draw_watts=500.0, utilisation=1.0, **STREAM)
    assert watched.watch.count_by_units() == {("memory", "board"): 1}
    view = watched.run(300, draw_watts=650.0, utilisation=1.0)
    assert watched.watch.count_by_units() == {("compute", "dcgm"): 1}
    assert "dcgm-exporter" in str(explain_gpu(view, "node-1-gpu-0")["work"])


@pytest.mark.parametrize("wrong", [{"dram_activity": 1.2}, {"sm_activity": -0.1}, {}])
def test_units_that_are_not_all_told_or_cannot_be_are_unknown(wrong: dict[str, float]) -> None:
    told = STREAM | wrong if wrong else {"dram_activity": 0.8}
    watched = Watched()
    view = watched.run(300, draw_watts=500.0, utilisation=1.0, **told)
    assert view.gpus.seen == ["", ""]


def test_a_board_whose_work_waits_for_memory_is_given_to_its_clock() -> None:
    watched = Watched()
    body = make_object(
        "PowerPolicy", "all", {"priority": 0, "allowedActuators": ["PowerLimit", "ClockLock"]}
    )
    watched.cluster.put(POLICIES, body)
    before = watched.tick(draw_watts=500.0, utilisation=1.0, **STREAM).topology
    watched.run(300, draw_watts=500.0, utilisation=1.0, **STREAM)
    after = watched.tick(draw_watts=500.0, utilisation=1.0, **STREAM).topology
    assert before.clock_lock.tolist() == [False, False]
    assert after.clock_lock.tolist() == [True, False]
