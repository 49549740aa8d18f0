"""Karpenter with its kwok provider beside a planner of ours, on the test control plane.

The provider starts no machine: it writes the Node, and kwok plays its kubelet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.cluster_builders import GATE, Body, create, node, pod
from tests.cluster.cluster_processes import eventually, free_port
from tests.cluster.cluster_tools import tool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.loop_world import LoopWorld
from tests.cluster.stand_in_kinds import CRDS, definition
from wattpack.kube.port import Resource
from wattpack.object_names import OPT_IN_LABEL, OPT_IN_VALUE

ROOT = Path(__file__).parents[2]
SPACE = "grows"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
PRESENT = "present"
#: GPUs and price of what Karpenter can bring, by name.
TYPES = {"plain": (0, 0.1), "g-16": (16, 2.0)}
#: How long what no present node can serve waits at our gate here.
PATIENCE_SECONDS = 3.0
#: Kinds of the API that Karpenter reads and our API server does not serve.
STORAGE = {
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "volumeattachments": "VolumeAttachment",
}


def install_karpenter(plane: ControlPlane) -> None:
    """Its kinds, the process, one NodePool of ``TYPES`` whose empty nodes go after a second."""
    plane.kubectl("apply", "--server-side", "-f", str(tool("karpenter-kinds.yaml")))
    for plural, kind in STORAGE.items():
        create(plane, CRDS, definition((Resource("storage.k8s.io", "v1", plural, kind, False),)))
    for path in (POOLS, CLASSES, *(f"/apis/storage.k8s.io/v1/{plural}" for plural in STORAGE)):
        eventually(f"{path} is served", lambda p=path: plane.request("GET", p).status == 200)
    _start(plane)
    create(plane, CLASSES, {"metadata": {"name": "kwok"}, "spec": {}} | _kind(CLASSES))
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "kwok"}
    template = {"requirements": [_one_of("karpenter.sh/capacity-type", "on-demand")]}
    template |= {"nodeClassRef": reference, "expireAfter": "Never"}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"}
    pool = {"template": {"spec": template}, "disruption": disruption, "limits": {"cpu": "1000"}}
    create(plane, POOLS, {"metadata": {"name": "gpus"}, "spec": pool} | _kind(POOLS))


def _kind(path: str) -> Body:
    group, version, _ = path.removeprefix("/apis/").split("/")
    return {
        "apiVersion": f"{group}/{version}",
        "kind": "NodePool" if path == POOLS else "KWOKNodeClass",
    }


def _one_of(key: str, value: str) -> Body:
    return {"key": key, "operator": "In", "values": [value]}


def _start(plane: ControlPlane) -> None:
    types = plane.directory / "instance-types.json"
    types.write_text(json.dumps([_type(name, *what) for name, what in TYPES.items()]))

    def command(port: int) -> list[str]:
        return [
            "env",  # it has no flag for this
            f"KUBECONFIG={plane.kubeconfig}",
            str(tool("karpenter")),
            f"--instance-types-file-path={types}",
            f"--health-probe-port={port}",
            f"--metrics-port={free_port()}",
            "--disable-leader-election=true",
            "--batch-idle-duration=200ms",
        ]

    plane._start_with_health("karpenter", command)


def _type(name: str, gpus: int, price: float) -> Body:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    where = [
        _one_of("karpenter.sh/capacity-type", "on-demand"),
        _one_of("topology.kubernetes.io/zone", "zone-a"),
    ]
    return {
        "name": name,
        "offerings": [{"Price": price, "Available": True, "Requirements": where}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": room | ({"nvidia.com/gpu": str(gpus)} if gpus else {}),
    }


class World(LoopWorld):
    """A planner of ours, in this process, one present node of 8 GPUs, and Karpenter."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, PODS, unservable_seconds=PATIENCE_SECONDS)

    def furnish(self) -> None:
        """Our kinds, the namespace, the present node, who plays kubelets and the scheduler."""
        plane = self.plane
        space = {"name": SPACE, "labels": {OPT_IN_LABEL: OPT_IN_VALUE}}
        create(plane, "/api/v1/namespaces", {"metadata": space})
        create(plane, f"/api/v1/namespaces/{SPACE}/configmaps", {"metadata": {"name": "owner"}})
        create(plane, "/api/v1/nodes", node(PRESENT))
        plane.start_kwok()
        plane.start_binder()

    def add(
        self,
        name: str,
        gpus: int,
        *,
        gated: bool = True,
        annotations: Body | None = None,
        **spec: Any,
    ) -> None:
        """A pod that a controller would make anew, at our gate or at none."""
        body = pod(name, gates=[GATE] if gated else (), gpus=gpus, **spec)
        body["metadata"]["annotations"] = annotations or {}
        owner = self.plane.request("GET", f"/api/v1/namespaces/{SPACE}/configmaps/owner").body
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
        body["metadata"]["ownerReferences"] = [reference | {"uid": owner["metadata"]["uid"]}]
        create(self.plane, PODS, body)
        eventually(f"the planner sees {name}", lambda: name in self.seen())

    def node_of(self, name: str) -> str:
        """Where the pod runs; empty while it does not."""
        body = self.pod(name)
        runs = body.get("status", {}).get("phase") == "Running"
        return str(body["spec"].get("nodeName") or "") if runs else ""

    def is_gated(self, name: str) -> bool:
        return bool(self.pod(name)["spec"].get("schedulingGates"))

    def is_unschedulable(self, name: str) -> bool:
        """What autoscalers look at."""
        conditions = self.pod(name).get("status", {}).get("conditions") or ()
        return any(c.get("reason") == "Unschedulable" for c in conditions)

    def delete(self, name: str) -> None:
        self.plane.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        eventually(f"{name} is gone", lambda: name not in self.seen())

    def claims(self) -> list[Body]:
        """What Karpenter has asked its provider for, and has not given back."""
        found: list[Body] = self.plane.request("GET", CLAIMS).body["items"]
        return found

    def brought(self) -> dict[str, Body]:
        """Nodes that Karpenter brought, by name."""
        query = "/api/v1/nodes?labelSelector=karpenter.sh/nodepool"
        nodes = self.plane.request("GET", query).body["items"]
        return {n["metadata"]["name"]: n for n in nodes}

    def clear(self) -> None:
        """No pods, and no node but the present one."""
        for item in self.plane.request("GET", PODS).body["items"]:
            self.delete(item["metadata"]["name"])
        for claim in self.claims():
            self.plane.request("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        eventually("Karpenter's nodes are gone", lambda: not self.brought(), 30.0)
