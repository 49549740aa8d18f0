"""What the product asks of any API server: apply, watch, custom resources, webhooks, leases."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_builders import GATE, Body, create, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubebuilder_server import write_serving_certificate

pytestmark = pytest.mark.cluster

ENDPOINT = "testapi.local/endpoint"
GROUP = "machinery.wattpack.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def widgets(control_plane: ControlPlane) -> Iterator[str]:
    """The path of a served custom resource with a CEL rule, a default and a status."""
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "max": {"type": "integer", "default": 10},
        },
        "x-kubernetes-validations": [
            {"rule": "self.size <= self.max", "message": "size must be at most max"}
        ],
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}
        },
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    crd = {
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }
    create(control_plane, CRDS, crd)
    path = f"/apis/{GROUP}/v1/widgets"
    probe = widget("probe", 1)
    eventually("served", lambda: control_plane.request("POST", path, probe).status == 201)
    yield path
    control_plane.request("DELETE", f"{CRDS}/widgets.{GROUP}")


def widget(name: str, size: int) -> Body:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": size},
    }


def test_a_custom_resource_is_defaulted_and_judged_by_schema_and_cel(
    control_plane: ControlPlane, widgets: str
) -> None:
    made = create(control_plane, widgets, widget("good", 3))
    assert made["spec"] == {"size": 3, "max": 10}
    for size, why in ((0, "greater than or equal to 1"), (11, "size must be at most max")):
        answer = control_plane.request("POST", widgets, widget("bad", size))
        assert answer.status == 422
        assert why in answer.message


def test_status_and_spec_are_written_apart(control_plane: ControlPlane, widgets: str) -> None:
    create(control_plane, widgets, widget("apart", 3))
    both = {"spec": {"size": 4}, "status": {"phase": "Ready"}}
    answer = control_plane.request("PATCH", f"{widgets}/apart/status", both, patch="merge")
    assert answer.body["spec"]["size"] == 3
    assert answer.body["status"] == {"phase": "Ready"}
    answer = control_plane.request("PATCH", f"{widgets}/apart", both, patch="merge")
    assert (answer.body["spec"]["size"], answer.body["metadata"]["generation"]) == (4, 2)


def test_kubectl_explains_a_custom_resource(control_plane: ControlPlane, widgets: str) -> None:
    def explained() -> bool:
        done = control_plane.kubectl("explain", f"widgets.{GROUP}.spec", check=False)
        return "size\t<integer> -required-" in done.stdout

    eventually("the schema is published", explained)


@pytest.mark.parametrize("kind", ["custom", "built-in"])
def test_two_appliers_conflict_until_one_forces(
    control_plane: ControlPlane, widgets: str, namespace: str, kind: str
) -> None:
    def body(value: int) -> Body:
        if kind == "custom":
            return widget(f"applied-{namespace}", value)
        meta = {"name": "applied", "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"v": str(value)},
        }

    base = f"{widgets}/applied-{namespace}"
    if kind == "built-in":
        base = f"/api/v1/namespaces/{namespace}/configmaps/applied"

    def apply(manager: str, value: int, query: str = "") -> int:
        path = f"{base}?fieldManager={manager}{query}"
        return control_plane.request("PATCH", path, body(value), patch="apply").status

    assert apply("one", 1) == 201
    assert apply("two", 2) == 409
    assert apply("two", 2, "&force=true") == 200
    assert apply("one", 1) == 409


def test_a_watch_starts_where_it_is_told(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = create(control_plane, path, {"metadata": {"name": "first"}})
    create(control_plane, path, {"metadata": {"name": "second"}})
    version = first["metadata"]["resourceVersion"]
    with control_plane.watch(f"{path}?resourceVersion={version}") as events:
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "second")


def test_a_watch_list_ends_its_first_part_with_a_bookmark(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    create(control_plane, path, {"metadata": {"name": "there"}})
    query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    names = []
    with control_plane.watch(f"{path}?{query}") as events:
        for event in events:
            if event["type"] == "BOOKMARK":
                break
            names.append(event["object"]["metadata"]["name"])
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert "there" in names


def test_a_stale_lease_update_conflicts(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 1}
    read = create(control_plane, path, {"metadata": {"name": "leader"}, "spec": spec})
    mine, yours = ({**read, "spec": {**spec, "holderIdentity": holder}} for holder in "bc")
    assert control_plane.request("PUT", f"{path}/leader", mine).status == 200
    assert control_plane.request("PUT", f"{path}/leader", yours).status == 409
    senseless = {"metadata": {"name": "leader"}, "spec": {**spec, "leaseDurationSeconds": 0}}
    assert control_plane.request("PUT", f"{path}/leader", senseless).status == 422


def test_an_event_is_one_object_in_both_groups(control_plane: ControlPlane, namespace: str) -> None:
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Capped",
        "note": "lowered",
        "action": "Cap",
        "type": "Normal",
        "reportingController": "wattpack",
        "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "p", "namespace": namespace},
    }
    create(control_plane, f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)
    core = control_plane.request("GET", f"/api/v1/namespaces/{namespace}/events/e").body
    assert (core["message"], core["involvedObject"]["name"]) == ("lowered", "p")


class _Hook(http.server.BaseHTTPRequestHandler):
    """A mutating webhook that gates every pod."""

    seen: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(length))["request"]
        self.seen.append(f"{request['operation']} {request['kind']['kind']} {self.path}")
        patch = [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]
        response = {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
        data = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook(tmp_path: Path, namespace: str) -> Iterator[tuple[str, str]]:
    """Address and CA bundle of a running webhook."""
    write_serving_certificate(tmp_path, f"hook.{namespace}.svc")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    bundle = base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode()
    yield f"127.0.0.1:{server.server_address[1]}", bundle
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_behind_a_service_gates_pods_and_may_fail_open(
    control_plane: ControlPlane, namespace: str, hook: tuple[str, str]
) -> None:
    address, bundle = hook
    if control_plane.kind != "own":
        pytest.skip("only the project's own server resolves services to loopback")
    service = {
        "metadata": {"name": "hook", "annotations": {ENDPOINT: address}},
        "spec": {"ports": [{"port": 443}]},
    }
    create(control_plane, f"/api/v1/namespaces/{namespace}/services", service)
    reference = {"namespace": namespace, "name": "hook", "path": "/mutate"}
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    webhook = {
        "name": "gate.wattpack.io",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
        "clientConfig": {"service": reference, "caBundle": bundle},
        "namespaceSelector": selector,
        "matchConditions": [
            {"name": "only-work", "expression": "object.metadata.name.startsWith('work')"}
        ],
        "rules": [rule],
    }
    create(control_plane, path, {"metadata": {"name": namespace}, "webhooks": [webhook]})
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def gated(name: str) -> bool:
        made = control_plane.request("POST", f"{pods}?dryRun=All", pod(name)).body
        return bool(made["spec"].get("schedulingGates"))

    eventually("the webhook is called", lambda: gated("work"))
    assert not gated("other"), "matchConditions leave other pods out"
    assert "CREATE Pod /mutate?timeout=2s" in _Hook.seen
    away = {"url": "https://127.0.0.1:9/mutate"}
    broken = [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": away}]
    assert control_plane.request("PATCH", f"{path}/{namespace}", broken, patch="json").status == 200
    eventually("without its webhook a pod is let through", lambda: not gated("work"))
    control_plane.request("DELETE", f"{path}/{namespace}")


@pytest.mark.usefixtures("with_controllers")
def test_a_namespace_takes_everything_with_it(control_plane: ControlPlane) -> None:
    create(control_plane, "/api/v1/namespaces", {"metadata": {"name": "doomed"}})
    path = "/api/v1/namespaces/doomed"
    create(control_plane, f"{path}/pods", pod("p", gates=[GATE]))
    control_plane.request("DELETE", path)
    late = control_plane.request("POST", f"{path}/configmaps", {"metadata": {"name": "late"}})
    assert late.status in (403, 404)
    eventually("it is gone", lambda: control_plane.request("GET", path).status == 404)
    assert control_plane.request("GET", f"{path}/pods/p").status == 404
