"""ProvisioningRequests through a real API, with a stand-in for the autoscaler that answers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_plugin.app.under_way_reader import PROVISIONING_REQUESTS
from scheduler_plugin.promises.provisioning_settings import ProvisioningSettings
from tests.cluster.cluster_builders import GATE, Body, create, node, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from tests.cluster.loop_world import LoopWorld
from tests.cluster.stand_in_kinds import CRDS, definition

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SPACE = "asks"
CORE = f"/api/v1/namespaces/{SPACE}"
REQUESTS = f"/apis/{PROVISIONING_REQUESTS[0].api_version}/namespaces/{SPACE}/provisioningrequests"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
#: How long what no present node can serve waits at our gate here.
PATIENCE_SECONDS = 1.0


def request_definition() -> Body:
    """The kind with the limits of its public schema (cluster autoscaler 1.34)."""
    made = definition(PROVISIONING_REQUESTS)
    text = {"type": "string", "maxLength": 253}
    reference = {"type": "object", "required": ["name"], "properties": {"name": text}}
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {"count": {"type": "integer", "minimum": 1}, "podTemplateRef": reference},
    }
    fixed = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
    sets = {"type": "array", "items": pod_set, "minItems": 1, "maxItems": 32}
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "podSets": sets | {"x-kubernetes-validations": fixed},
            "provisioningClassName": text | {"x-kubernetes-validations": fixed},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    for version in made["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": schema}
    return made


class World(LoopWorld):
    """A planner of ours in this process, one node of 8 GPUs, and who plays the autoscaler."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(
            plane,
            f"{CORE}/pods",
            unservable_seconds=PATIENCE_SECONDS,
            provisioning=ProvisioningSettings(enabled=True),
        )

    def add_gang(self, owner: str, size: int, gpus: int) -> list[str]:
        """Gated members that ``owner`` would make anew; their names."""
        path = f"{CORE}/configmaps"
        uid = create(self.plane, path, {"metadata": {"name": owner}})["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "controller": True}
        names = [f"{owner}-{i}" for i in range(size)]
        for name in names:
            body = pod(name, gates=[GATE], gpus=gpus)
            body["metadata"] |= {
                "labels": {"wattpack.io/gang": owner},
                "annotations": {"wattpack.io/gang-size": str(size)},
                "ownerReferences": [reference | {"uid": uid}],
            }
            create(self.plane, f"{CORE}/pods", body)
        eventually("the planner sees them", lambda: set(names) <= self.seen())
        return names

    def named_by(self, name: str) -> str:
        return str(self.pod(name)["metadata"].get("annotations", {}).get(CONSUMES, ""))

    def items(self, path: str) -> list[Body]:
        found: list[Body] = self.plane.request("GET", path).body["items"]
        return found

    def wait_for_request(self, names: list[str]) -> Body:
        """The one request, once every pod names it."""
        eventually("all are marked", lambda: self.step() and all(map(self.named_by, names)))
        (request,) = self.items(REQUESTS)
        assert {self.named_by(name) for name in names} == {request["metadata"]["name"]}
        return request

    def say(self, request: Body, condition: str) -> None:
        """As the autoscaler would."""
        told = {"type": condition, "status": "True", "reason": condition, "message": "so it is"}
        told["lastTransitionTime"] = request["metadata"]["creationTimestamp"]
        path = f"{REQUESTS}/{request['metadata']['name']}"
        body = self.plane.request("GET", path).body | {"status": {"conditions": [told]}}
        assert self.plane.request("PUT", f"{path}/status", body).status == 200

    def end(self, owner: str, names: list[str]) -> None:
        """The work is over; what belongs to it goes with it."""
        self.plane.request("DELETE", f"{CORE}/configmaps/{owner}")
        for path in (REQUESTS, f"{CORE}/podtemplates"):
            eventually(f"{path} is empty", lambda p=path: not self.items(p), 20.0)
        for name in names:
            self.plane.request("DELETE", f"{CORE}/pods/{name}?gracePeriodSeconds=0")
        eventually("the planner sees none", lambda: not self.seen())


@pytest.fixture
def world(fresh_control_plane: ControlPlane) -> Iterator[World]:
    plane = fresh_control_plane
    if plane.kind == "external":
        pytest.skip("a cluster of somebody else may have an autoscaler in earnest")
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds"))
    create(plane, CRDS, request_definition())
    eventually("requests are served", lambda: plane.request("GET", REQUESTS).status == 200)
    create(plane, "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    create(plane, "/api/v1/nodes", node("present"))
    plane.start_kwok()
    plane.start_binder()
    made = World(plane)
    yield made
    made.loop.close()


def test_an_autoscaler_serves_one_gang_and_fails_another(world: World) -> None:
    names = world.add_gang("trains", 2, 16)
    request = world.wait_for_request(names)
    assert [each["count"] for each in request["spec"]["podSets"]] == [2]
    (template,) = world.items(f"{CORE}/podtemplates")
    assert template["metadata"]["name"] == request["spec"]["podSets"][0]["podTemplateRef"]["name"]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "16"
    world.say(request, "Provisioned")
    for i in range(2):
        create(world.plane, "/api/v1/nodes", node(f"brought-{i}", gpus=16))
    eventually(
        "all run",
        lambda: (
            world.step() and all(world.pod(n)["status"].get("phase") == "Running" for n in names)
        ),
    )
    assert {world.pod(name)["spec"]["nodeName"] for name in names} == {"brought-0", "brought-1"}
    world.end("trains", names)

    names = world.add_gang("fails", 2, 32)
    world.say(world.wait_for_request(names), "Failed")

    def is_unschedulable(name: str) -> bool:
        conditions = world.pod(name)["status"].get("conditions") or ()
        return any(c.get("reason") == "Unschedulable" for c in conditions)

    eventually("all are let go", lambda: world.step() and all(map(is_unschedulable, names)), 20.0)
    assert not any(map(world.named_by, names)), "or the autoscaler would bring nothing for them"
    world.end("fails", names)
