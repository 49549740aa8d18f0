"""Classified WorkloadProfiles on real API machinery, with the rights of the rendered chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.helm_render import of_kind, rendered
from tests.cluster.cluster_builders import create
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from tests.controller_process.classified_bench import DECODE, PREFILL, PROFILES, REPLICA_SETS, Bench
from wattpack.kube.client import from_kubeconfig
from wattpack.kube.port import PODS, ForbiddenError

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "manifests" / "crds" / "wattpack.io_workloadprofiles.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "replicaset-chat-6f7d"
#: Seconds between two looks: a watch that ends at once takes a second of a real server.
STEP = 330

pytestmark = [pytest.mark.cluster, pytest.mark.helm]


def controllers_rights(plane: ControlPlane, namespace: str) -> Path:
    """A kubeconfig of an account with the role that the chart gives the controller."""
    (role,) = [
        item
        for item in of_kind(rendered("default"), "ClusterRole")
        if item["metadata"]["name"] == "wp-wattpack-controller"
    ]
    account = {"metadata": {"name": "controller"}}
    create(plane, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    meta = {"name": f"controller-{namespace}"}
    create(plane, f"{RBAC}/clusterroles", {"metadata": meta, "rules": role["rules"]})
    subject = {"kind": "ServiceAccount", "name": "controller", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
    binding = {"metadata": meta, "roleRef": reference, "subjects": [subject]}
    create(plane, f"{RBAC}/clusterrolebindings", binding)
    return plane.service_account_kubeconfig(namespace, "controller")


def test_written_kept_given_up_and_collected(
    with_controllers: ControlPlane, namespace: str
) -> None:
    plane = with_controllers
    plane.kubectl("apply", "--server-side", f"--filename={CRD}")
    plane.kubectl("wait", "--for=condition=Established", "crd/workloadprofiles.wattpack.io")
    own = from_kubeconfig(controllers_rights(plane, namespace))
    bench = Bench(from_kubeconfig(plane.kubeconfig), own, namespace)
    bench.replica_set(replicas=1)
    (pod,) = eventually("its pod", lambda: bench.kube.list(PODS, namespace).items or None)
    name = pod["metadata"]["name"]

    # Written by the controller's account once the verdict has stayed, and shown to people.
    bench.run(2 * STEP, {name: DECODE}, STEP)
    assert bench.profiles()[NAME]["spec"]["kernelMix"] == {}
    line = plane.kubectl("-n", namespace, "get", "wprof", "--no-headers").stdout.split()
    assert line[:5] == [NAME, "Serving", "decoder-decode", "bandwidth", "0.9"]
    with pytest.raises(ForbiddenError):
        own.delete(PROFILES, NAME, namespace)

    # Another class stays for a quarter of an hour before it is told.
    bench.run(4 * STEP, {name: PREFILL}, STEP)
    assert bench.profiles()[NAME]["spec"]["workload"] == "decoder-prefill"

    # A person's word is a conflict that the person wins.
    edit = '{"spec": {"workload": "rl-rollout"}}'
    plane.kubectl("-n", namespace, "patch", "wprof", NAME, "--type=merge", f"--patch={edit}")
    bench.run(4 * STEP, {name: DECODE}, STEP)
    assert bench.writer.outcomes["kept_by_people"] >= 1
    assert bench.profiles()[NAME]["spec"]["workload"] == "rl-rollout"

    # It goes with its owner.
    bench.kube.delete(REPLICA_SETS, "chat-6f7d", namespace)
    eventually("collected", lambda: not bench.profiles())
