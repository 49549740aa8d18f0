"""Workload controllers make, replace and remove pods; what lost its owner is collected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.cluster_builders import Body, create, node
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("with_controllers")]

LABELS = {"app": "w"}
GONE_404 = 404


def template(image: str = "i:1", **spec: Any) -> Body:
    """A pod template that no node takes, unless told."""
    container = {"name": "c", "image": image}
    return {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [container], "nodeSelector": {"no": "where"}, **spec},
    }


def workload(name: str, **spec: Any) -> Body:
    body = {"selector": {"matchLabels": LABELS}, "template": template()}
    return {"metadata": {"name": name}, "spec": {**body, **spec}}


def pods(plane: ControlPlane, namespace: str) -> list[Body]:
    """The pods of the namespace that are not being deleted."""
    items = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return [p for p in items if "deletionTimestamp" not in p["metadata"]]


def names(plane: ControlPlane, namespace: str) -> set[str]:
    return {p["metadata"]["name"] for p in pods(plane, namespace)}


def make_ready(plane: ControlPlane, namespace: str) -> None:
    """Say of every pod that it runs and is ready."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in names(plane, namespace):
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        plane.request("PATCH", path, {"status": status}, patch="merge")


def test_a_deployment_keeps_its_pods_and_rolls_to_a_new_template(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    create(control_plane, path, workload("web", replicas=2))
    eventually("two pods", lambda: len(pods(control_plane, namespace)) == 2)
    victim = sorted(names(control_plane, namespace))[0]
    control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{victim}")
    eventually("again two pods", lambda: len(pods(control_plane, namespace)) == 2)
    make_ready(control_plane, namespace)
    done = control_plane.kubectl("-n", namespace, "rollout", "status", "deploy/web", "--timeout=9s")
    assert "successfully rolled out" in done.stdout
    control_plane.kubectl("-n", namespace, "set", "image", "deploy/web", "c=i:2")

    def rolled() -> bool:
        make_ready(control_plane, namespace)
        images = [p["spec"]["containers"][0]["image"] for p in pods(control_plane, namespace)]
        return images == ["i:2", "i:2"]

    eventually("only new pods", rolled)


def test_an_ordered_set_makes_its_pods_one_after_the_other(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    create(control_plane, path, workload("db", replicas=2, serviceName="db"))
    eventually("the first", lambda: names(control_plane, namespace) == {"db-0"})
    make_ready(control_plane, namespace)
    eventually("the second", lambda: names(control_plane, namespace) == {"db-0", "db-1"})
    control_plane.kubectl("-n", namespace, "scale", "sts/db", "--replicas=1")
    make_ready(control_plane, namespace)
    eventually("the last goes first", lambda: names(control_plane, namespace) == {"db-0"})


def test_a_claim_template_becomes_a_claim_and_a_volume(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    body = workload("db", replicas=1, serviceName="db")
    mount = {"name": "data", "mountPath": "/data"}
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    create(control_plane, path, body)
    eventually("the pod", lambda: names(control_plane, namespace) == {"db-0"})
    (made,) = pods(control_plane, namespace)
    sources = {v["name"]: v for v in made["spec"]["volumes"]}
    assert sources["data"]["persistentVolumeClaim"]["claimName"] == "data-db-0"
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    assert control_plane.request("GET", f"{claims}/data-db-0").status == 200


def test_a_daemon_set_pins_one_pod_to_each_node_it_tolerates(
    control_plane: ControlPlane, namespace: str
) -> None:
    label = {"pool": namespace}
    taint = {"key": "keep-out", "effect": "NoSchedule"}
    create(control_plane, "/api/v1/nodes", node(f"{namespace}-a", labels=label))
    create(control_plane, "/api/v1/nodes", node(f"{namespace}-b", labels=label, taints=[taint]))
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    body = workload("agent", template=template(nodeSelector=label))
    create(control_plane, path, body)
    eventually("a pod for the open node", lambda: len(pods(control_plane, namespace)) == 1)
    terms = pods(control_plane, namespace)[0]["spec"]["affinity"]["nodeAffinity"]
    field = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert field["matchFields"][0]["values"] == [f"{namespace}-a"]
    untaint = {"spec": {"taints": None}}
    control_plane.request("PATCH", f"/api/v1/nodes/{namespace}-b", untaint, patch="merge")
    eventually("a pod for both", lambda: len(pods(control_plane, namespace)) == 2)
    control_plane.request("DELETE", f"/api/v1/nodes/{namespace}-a")
    eventually("its pod goes with a node", lambda: len(pods(control_plane, namespace)) == 1)
    control_plane.request("DELETE", f"/api/v1/nodes/{namespace}-b")


def test_an_indexed_job_runs_each_index_until_it_succeeds(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    body = {
        "metadata": {"name": "gang"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": template(restartPolicy="Never"),
        },
    }
    create(control_plane, path, body)
    eventually("two pods", lambda: len(pods(control_plane, namespace)) == 2)
    index = "batch.kubernetes.io/job-completion-index"
    found = {p["metadata"]["annotations"][index] for p in pods(control_plane, namespace)}
    assert found == {"0", "1"}
    failed, fine = sorted(names(control_plane, namespace))

    def end(name: str, phase: str) -> None:
        place = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        control_plane.request("PATCH", place, {"status": {"phase": phase}}, patch="merge")

    end(failed, "Failed")
    end(fine, "Succeeded")
    eventually("a second try", lambda: len(pods(control_plane, namespace)) == 3)
    (retry,) = names(control_plane, namespace) - {failed, fine}
    end(retry, "Succeeded")

    def complete() -> bool:
        status = control_plane.request("GET", f"{path}/gang").body["status"]
        return any(c["type"] == "Complete" for c in status.get("conditions", []))

    eventually("the job is complete", complete)


def test_a_pod_that_is_deleted_under_a_job_counts_as_a_failure(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    spec = {"backoffLimit": 1, "template": template(restartPolicy="Never")}
    create(control_plane, path, {"metadata": {"name": "frail"}, "spec": spec})

    def status() -> Body:
        found: Body = control_plane.request("GET", f"{path}/frail").body["status"]
        return found

    seen: set[str] = set()
    for _ in range(2):
        eventually("a new pod", lambda: bool(names(control_plane, namespace) - seen))
        (name,) = names(control_plane, namespace) - seen
        seen.add(name)
        control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
    eventually("it failed", lambda: bool(status().get("conditions")))
    assert status()["conditions"][0]["reason"] == "BackoffLimitExceeded"
    assert status()["failed"] == 2
    eventually("no pod is left", lambda: not pods(control_plane, namespace))


def test_the_pods_of_a_deleted_job_go_with_it(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    spec = {"parallelism": 2, "template": template(restartPolicy="Never")}
    create(control_plane, path, {"metadata": {"name": "j"}, "spec": spec})
    eventually("two pods", lambda: len(pods(control_plane, namespace)) == 2)
    control_plane.request("DELETE", f"{path}/j?propagationPolicy=Background")
    eventually("no pod", lambda: not pods(control_plane, namespace))


def test_a_suspended_job_has_no_pods(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    spec = {"parallelism": 1, "template": template(restartPolicy="Never")}
    create(control_plane, path, {"metadata": {"name": "j"}, "spec": spec})
    eventually("a pod", lambda: len(pods(control_plane, namespace)) == 1)
    suspend = {"spec": {"suspend": True}}
    control_plane.request("PATCH", f"{path}/j", suspend, patch="merge")
    eventually("no pod", lambda: not pods(control_plane, namespace))


def test_what_is_owned_goes_with_its_owner_across_kinds(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    create(control_plane, path, workload("web", replicas=2))
    eventually("two pods", lambda: len(pods(control_plane, namespace)) == 2)
    control_plane.request("DELETE", f"{path}/web")
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    eventually("no set", lambda: not control_plane.request("GET", sets).body["items"])
    eventually("no pod", lambda: not pods(control_plane, namespace))


def metadata(plane: ControlPlane, path: str) -> Body:
    found: Body = plane.request("GET", path).body["metadata"]
    return found


def owned(owner: Body, name: str, *, blocks: bool = False) -> Body:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


def test_orphans_stay_and_a_foreground_deletion_waits(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = create(control_plane, path, {"metadata": {"name": "first"}})
    create(control_plane, path, owned(first, "orphan"))
    control_plane.request("DELETE", f"{path}/first", {"propagationPolicy": "Orphan"})
    eventually(
        "the owner goes", lambda: control_plane.request("GET", f"{path}/first").status == GONE_404
    )
    orphan = control_plane.request("GET", f"{path}/orphan").body
    assert not orphan["metadata"].get("ownerReferences")

    second = create(control_plane, path, {"metadata": {"name": "second"}})
    held = owned(second, "held", blocks=True)
    held["metadata"]["finalizers"] = ["test.wattpack.io/hold"]
    create(control_plane, path, held)
    control_plane.request("DELETE", f"{path}/second", {"propagationPolicy": "Foreground"})
    eventually(
        "the dependent is told to go",
        lambda: (
            "deletionTimestamp" in control_plane.request("GET", f"{path}/held").body["metadata"]
        ),
    )
    assert control_plane.request("GET", f"{path}/second").status == 200
    release = {"metadata": {"finalizers": None}}
    control_plane.request("PATCH", f"{path}/held", release, patch="merge")
    eventually(
        "then the owner goes",
        lambda: control_plane.request("GET", f"{path}/second").status == GONE_404,
    )


def test_an_object_of_an_owner_that_never_was_is_collected(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}}
    create(control_plane, path, owned(ghost, "lost"))
    eventually(
        "it is collected", lambda: control_plane.request("GET", f"{path}/lost").status == GONE_404
    )
