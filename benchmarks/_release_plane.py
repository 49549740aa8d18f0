"""A test control plane with kwok's nodes and the scheduler as it is deployed, to release pods."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks._release_judge import AuditTail, Judge
from wattpack.clock import SystemClock
from wattpack.gpu_resources import NVIDIA_GPU
from wattpack.kube.port import JsonObject
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION, GATE
from wattpack.units import NS_PER_SECOND, ns_to_seconds, seconds_to_ns

__all__ = ["Plane", "Size", "pod_body", "running_plane"]

SYSTEM: Final = "wattpack-system"
TEAM: Final = "team"
#: How the scheduler's requests begin to say who they are.
PLANNER: Final = "wattpack-scheduler/"
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ROOT: Final = Path(__file__).parents[1]
GPUS_PER_NODE: Final = 8
GANG_SIZE: Final = 4
#: A node's Lease outlasts every run, so that none is renewed for sport (issue 9: at least 20 min).
NODE_LEASE_SECONDS: Final = 1800
#: Requests that are under way at once while the cluster is filled, and while pods arrive.
SENDERS: Final = 4
SERVERS: Final = ("apiserver", "etcd")


@dataclass(frozen=True, slots=True)
class Size:
    """How much one run has.

    Attributes:
        gang_share: The share of pods that are members of gangs of ``GANG_SIZE``.
        per_second: Arrivals; 0 for a burst.
        limit_seconds: When to stop waiting for the last release.
    """

    nodes: int
    pods: int
    limit_seconds: float
    gang_share: float = 0.0
    per_second: float = 0.0

    @property
    def members(self) -> int:
        """Pods that belong to gangs: the first ones."""
        return int(self.pods * self.gang_share) // GANG_SIZE * GANG_SIZE


def pod_body(index: int, size: Size, owner_uid: str, *, gated: bool) -> JsonObject:
    """A controller-owned pod of one GPU."""
    in_gang = index < size.members
    labels = {GANG_LABEL: f"g{index // GANG_SIZE:04}"} if in_gang else {}
    notes = {GANG_SIZE_ANNOTATION: str(GANG_SIZE)} if in_gang else {}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    container = {
        "name": "main",
        "image": "registry.example/work:1",
        "resources": {"limits": {NVIDIA_GPU: "1"}},
    }
    spec: JsonObject = {"containers": [container]}
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    metadata = {
        "name": f"p{index:05}",
        "labels": labels,
        "annotations": notes,
        "ownerReferences": [owner | {"uid": owner_uid}],
    }
    return {"metadata": metadata, "spec": spec}


class Plane:
    """A running control plane.

    Args:
        plane: Of the cluster tests.
        directory: For logs.
    """

    def __init__(self, plane: Any, directory: Path) -> None:  # noqa: ANN401
        self._plane, self._directory = plane, directory
        self._clock = SystemClock()
        self._port = importlib.import_module("tests.cluster.cluster_processes").free_port()
        self._tail = AuditTail(plane.audit_log)
        self.judge = Judge(PLANNER)
        self._owner_uid = ""
        self._server_before = 0.0

    def furnish(self, nodes: int) -> None:
        """Kinds, namespaces and nodes that kwok reports as ready."""
        self._plane.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds"))
        for name, labels in ((SYSTEM, {}), (TEAM, {"wattpack.io/placement": "enabled"})):
            self._create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        owner = {"metadata": {"name": "owner"}}
        self._owner_uid = self._create(f"/api/v1/namespaces/{TEAM}/configmaps", owner)["metadata"][
            "uid"
        ]
        builders = importlib.import_module("tests.cluster.cluster_builders")
        self._in_parallel(
            lambda i: self._create("/api/v1/nodes", builders.node(f"n{i:04}", gpus=GPUS_PER_NODE)),
            range(nodes),
        )

    def start_kwok(self, *, pods: bool) -> None:
        """Kwok plays the nodes, and their kubelets if ``pods``."""
        tools = importlib.import_module("tests.cluster.cluster_tools")
        stages = tools.tool("kwok-stages.yaml")
        if not pods:
            whole = yaml.safe_load_all(stages.read_text())
            kept = [s for s in whole if s and s["spec"]["resourceRef"]["kind"] == "Node"]
            stages = self._directory / "node-stages.yaml"
            stages.write_text(yaml.safe_dump_all(kept))
        self._plane.start_kwok(node_lease_seconds=NODE_LEASE_SECONDS, stages=stages)

    def start_binder(self) -> None:
        """The tests' stand-in for kube-scheduler."""
        self._plane.start_binder()

    def nodes_are_ready(self, seconds: float) -> None:
        """Wait until kwok has reported every node once.

        Raises:
            DeadlineExceededError: if that takes longer.
        """
        processes = importlib.import_module("tests.cluster.cluster_processes")

        def ready() -> bool:
            nodes = self._plane.request("GET", "/api/v1/nodes").body["items"]
            return all(
                any(c["type"] == "Ready" and c["status"] == "True" for c in found)
                for found in (node.get("status", {}).get("conditions", []) for node in nodes)
            )

        processes.eventually("every node is ready", ready, seconds)

    def start_scheduler(self, *, webhook: bool) -> None:
        """The process in mode Manage, with its defaults, as the administrator.

        The tests' server looks an account up anew for each request with its token, which doubles
        what a request costs; kube-apiserver remembers tokens.
        """
        processes = importlib.import_module("tests.cluster.cluster_processes")
        if webhook:
            self._register_webhook()
        command = [sys.executable, "-m", "wattpack.cli", "scheduler", f"--namespace={SYSTEM}"]
        command += [f"--kubeconfig={self._plane.kubeconfig}", "--mode=Manage", "--metrics-port=0"]
        command += ["--webhook-host=127.0.0.1", f"--webhook-port={self._port if webhook else 0}"]
        environment = {"PYTHONPATH": str(ROOT)}
        self._server_before = sum(map(self._cpu_seconds, SERVERS))
        started = processes.ServerProcess("scheduler", command, self._directory, environment)
        self._plane.processes["scheduler"] = started
        started.wait_ready(self._gates if webhook else self._leads, 60.0)

    def _register_webhook(self) -> None:
        hook = importlib.import_module("tests.webhook_object").webhook_configuration
        note = {"testapi.local/endpoint": f"127.0.0.1:{self._port}"}
        service = {
            "metadata": {"name": "wattpack-scheduler", "annotations": note},
            "spec": {"ports": [{"port": 443}]},
        }
        self._create(f"/api/v1/namespaces/{SYSTEM}/services", service)
        reference = {"namespace": SYSTEM, "name": "wattpack-scheduler", "path": "/mutate"}
        self._create(WEBHOOKS, hook("wattpack-placement", reference))

    def _gates(self) -> bool:
        probe = pod_body(0, Size(0, 1, 0.0), self._owner_uid, gated=False)
        made = self._plane.request("POST", f"{PODS}?dryRun=All", probe)
        return bool(made.status == 201 and made.body["spec"].get("schedulingGates"))

    def _leads(self) -> bool:
        self.look()
        return self.judge.leads_since is not None

    def fill(self, size: Size) -> None:
        """All pods at once, at the gate."""
        bodies = [pod_body(i, size, self._owner_uid, gated=True) for i in range(size.pods)]
        self._in_parallel(lambda i: self._create(PODS, bodies[i]), range(size.pods))

    def arrive(self, size: Size) -> float:
        """Pods one after the other at their rate, whatever the server takes; the rate reached."""
        began_ns = self._clock.monotonic_ns()
        with ThreadPoolExecutor(SENDERS) as pool:
            sent = []
            for i in range(size.pods):
                self._clock.wait_until(began_ns + seconds_to_ns(i / size.per_second))
                body = pod_body(i, size, self._owner_uid, gated=False)
                sent.append(pool.submit(self._create, PODS, body))
            for one in sent:
                one.result()
        return size.pods / ns_to_seconds(self._clock.monotonic_ns() - began_ns)

    def wait_for_releases(self, size: Size) -> None:
        """Until every pod was released and what follows was written, or time is up."""
        until_ns = self._clock.monotonic_ns() + seconds_to_ns(size.limit_seconds)
        while len(self.judge.released) < size.pods and self._clock.monotonic_ns() < until_ns:
            self._clock.wait_until(self._clock.monotonic_ns() + NS_PER_SECOND // 4)
            self.look()
        self._clock.wait_until(self._clock.monotonic_ns() + NS_PER_SECOND)
        self.look()

    def cpu_milliseconds(self, pods: int) -> dict[str, float]:
        """CPU of the scheduler, without the solver's process, and of the server, a pod.

        The server's is counted from when the scheduler was started; what else it serves is in it.
        """
        server = sum(self._cpu_seconds(name) for name in SERVERS) - self._server_before
        planner = self._cpu_seconds("scheduler")
        return {
            "scheduler_cpu_milliseconds_per_pod": round(1000 * planner / pods, 2),
            "server_cpu_milliseconds_per_pod": round(1000 * server / pods, 2),
        }

    def _cpu_seconds(self, name: str) -> float:
        """Of one process, user and system (proc(5): fields 14 and 15 of stat)."""
        stat = Path(f"/proc/{self._plane.processes[name].pid}/stat").read_text()
        after_name = stat.rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Tell the judge what the server logged since."""
        self.judge.see(self._tail.read())

    def unbound(self) -> int:
        """Pods without a node."""
        pods = self._plane.request("GET", PODS).body["items"]
        return sum(not pod["spec"].get("nodeName") for pod in pods)

    def _create(self, path: str, body: JsonObject) -> JsonObject:
        made = self._plane.request("POST", path, body)
        if made.status != 201:
            raise RuntimeError(f"POST {path}: {made.status} {made.message}")
        created: JsonObject = made.body
        return created

    def _in_parallel(self, one: Callable[[int], object], numbers: range) -> None:
        with ThreadPoolExecutor(SENDERS) as pool:
            for _ in pool.map(one, numbers):
                pass


@contextmanager
def running_plane(directory: Path) -> Iterator[Plane]:
    """A control plane of its own, ended at the end."""
    directory.mkdir(parents=True)
    plane = importlib.import_module("tests.cluster.control_plane").start_control_plane(directory)
    try:
        yield Plane(plane, directory)
    finally:
        plane.stop()
