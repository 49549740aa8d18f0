"""The agent's small Kubernetes client: same errors as the port, bounded in time and size."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulation.kube import EmbeddedKube
from tests.wattpack.kube_over_http import KubeOverHttp, kubeconfig, send
from wattpack.api import GpuNode
from wattpack.clock import ManualClock, SystemClock
from wattpack.errors import InputError
from wattpack.kube.light import LightKube, Server, from_kubeconfig, in_cluster
from wattpack.kube.port import (
    NODES,
    PODS,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)

KIND = GpuNode.meta.resource
ROOT = Path(__file__).parents[2]


@pytest.fixture
def served() -> Iterator[KubeOverHttp]:
    with KubeOverHttp(EmbeddedKube(ManualClock())) as made:
        yield made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@pytest.fixture
def light(served: KubeOverHttp, token: Path) -> LightKube:
    server = Server("127.0.0.1", served.port, token_file=token, tls=False)
    return LightKube(server, SystemClock())


def gpu_node(name: str = "n0", **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": name},
        **parts,
    }


def test_create_get_and_apply_do_what_the_embedded_api_does(
    light: LightKube, served: KubeOverHttp
) -> None:
    created = light.create(KIND, gpu_node(spec={"nodeName": "n0"}))
    assert light.get(KIND, "n0") == created
    body = gpu_node(status={"health": "Ok"})
    applied = light.apply(KIND, body, field_manager="wattpack-agent", subresource="status")
    assert applied["status"]["health"] == "Ok"
    assert served.kube.get(KIND, "n0") == applied
    method, path, query, headers = served.seen[-1]
    assert (method, path) == ("PATCH", "/apis/wattpack.io/v1alpha1/gpunodes/n0/status")
    assert query["fieldManager"] == ["wattpack-agent"]
    assert query["force"] == ["true"]
    assert headers["Content-Type"] == "application/apply-patch+yaml"


def test_apply_makes_a_missing_object(light: LightKube, served: KubeOverHttp) -> None:
    light.apply(KIND, gpu_node(spec={"nodeName": "n0"}), field_manager="wattpack-agent")
    assert served.kube.get(KIND, "n0")["spec"]["nodeName"] == "n0"


def test_missing_repeated_and_wrong_objects_are_the_ports_errors(light: LightKube) -> None:
    with pytest.raises(NotFoundError):
        light.get(KIND, "nobody")
    light.create(KIND, gpu_node(spec={"nodeName": "n0"}))
    with pytest.raises(AlreadyExistsError):
        light.create(KIND, gpu_node(spec={"nodeName": "n0"}))
    with pytest.raises(InvalidError):
        light.create(KIND, gpu_node("n1", spec={"nodeName": "other"}))


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (301, "", UnavailableError),
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (409, "Conflict", ConflictError),
        (410, "Gone", GoneError),
        (422, "Invalid", InvalidError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
    ],
)
def test_each_status_is_a_typed_error(
    light: LightKube, served: KubeOverHttp, code: int, reason: str, expected: type[KubeError]
) -> None:
    served.raw = lambda request: send(request, code, {"reason": reason, "message": "no"})
    with pytest.raises(expected):
        light.get(KIND, "n0")


def test_the_time_that_a_busy_server_asks_for_is_carried(
    light: LightKube, served: KubeOverHttp
) -> None:
    served.raw = lambda request: send(request, 429, {}, headers={"Retry-After": "7"})
    with pytest.raises(ThrottledError) as caught:
        light.get(KIND, "n0")
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize(
    "body", [b"", b"<html>proxy</html>", b'{"kind": ', b"[1]", b"null", b'{"a": NaN']
)
def test_an_answer_that_is_no_json_object_is_no_answer(
    light: LightKube, served: KubeOverHttp, body: bytes
) -> None:
    served.raw = lambda request: send(request, 200, body)
    with pytest.raises(UnavailableError):
        light.get(KIND, "n0")


def test_a_truncated_answer_is_no_answer(light: LightKube, served: KubeOverHttp) -> None:
    served.raw = lambda request: send(request, 200, b'{"a": 1}', headers={"Content-Length": "99"})
    with pytest.raises(UnavailableError, match=r"8 of|early|ends after"):
        light.get(KIND, "n0")


def test_a_huge_answer_is_refused_before_it_is_all_read(
    light: LightKube, served: KubeOverHttp
) -> None:
    def flood(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.close_connection = True
        try:
            for _ in range(1000):
                request.wfile.write(b" " * 65536)
        except OSError:
            return

    served.raw = flood
    with pytest.raises(UnavailableError, match="more than"):
        light.get(KIND, "n0")


def test_a_silent_server_costs_the_deadline_and_no_more(served: KubeOverHttp) -> None:
    done = threading.Event()
    served.raw = lambda request: (done.wait(30), None)[1]
    server = Server("127.0.0.1", served.port, token="t", tls=False)
    with pytest.raises(UnavailableError, match="timed out"):
        LightKube(server, SystemClock(), deadline_seconds=0.05).get(KIND, "n0")
    done.set()


def test_nobody_there_is_unavailable(token: Path) -> None:
    server = Server("127.0.0.1", 1, token_file=token, tls=False)
    with pytest.raises(UnavailableError, match="refused"):
        LightKube(server, SystemClock()).get(KIND, "n0")


def test_a_plain_server_in_place_of_tls_gets_no_token(served: KubeOverHttp) -> None:
    light = LightKube(Server("127.0.0.1", served.port, token="secret"), SystemClock())
    with pytest.raises(UnavailableError):
        light.get(KIND, "n0")
    assert all("secret" not in str(entry) for entry in served.seen)


def test_a_rotated_token_is_used_at_once(
    light: LightKube, served: KubeOverHttp, token: Path
) -> None:
    light.create(KIND, gpu_node(spec={"nodeName": "n0"}))
    token.write_text("second\n")
    light.get(KIND, "n0")
    assert [entry[3]["Authorization"] for entry in served.seen] == [
        "Bearer first",
        "Bearer second",
    ]


@pytest.mark.parametrize("text", ["", "\n", "a b", "a\r\nX-Evil: 1", "\x00", "é", "x" * 20000])
def test_a_file_that_holds_no_token_is_refused_unsent(
    light: LightKube, served: KubeOverHttp, token: Path, text: str
) -> None:
    token.write_text(text)
    with pytest.raises(ForbiddenError):
        light.get(KIND, "n0")
    token.unlink()
    with pytest.raises(UnavailableError):
        light.get(KIND, "n0")
    assert served.seen == []


def test_what_cannot_be_asked_is_refused_unsent(light: LightKube, served: KubeOverHttp) -> None:
    with pytest.raises(InvalidError):
        light.apply(KIND, gpu_node(status={"x": float("nan")}), field_manager="m")
    with pytest.raises(InvalidError):
        light.get(PODS, "p")
    with pytest.raises(InvalidError):
        light.get(NODES, "n", "default")
    with pytest.raises(InvalidError):
        light.get(NODES, "")
    assert served.seen == []


def test_a_name_cannot_leave_its_place_in_the_path(light: LightKube, served: KubeOverHttp) -> None:
    with pytest.raises(InvalidError):
        light.get(NODES, "../../x?y")
    assert served.seen[0][1] == "/api/v1/nodes/..%2F..%2Fx%3Fy"


def test_a_pod_finds_its_server_in_its_environment(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    server = in_cluster(environment, tmp_path)
    assert (server.host, server.port, server.tls) == ("fd00::1", 6443, True)
    assert server.token_file == tmp_path / "token"
    for port in ("x", "70000", "-1", ""):
        with pytest.raises(InputError):
            in_cluster({**environment, "KUBERNETES_SERVICE_PORT": port}, tmp_path)
    with pytest.raises(InputError):
        in_cluster({}, tmp_path)


def test_a_kubeconfig_gives_server_authority_and_token(tmp_path: Path) -> None:
    file = tmp_path / "config"
    pem = base64.b64encode(b"PEM").decode()
    cluster = {"server": "https://api:6443/", "certificate-authority-data": pem}
    file.write_text(yaml.safe_dump(kubeconfig(cluster, {"tokenFile": "mine"})))
    server = from_kubeconfig(file)
    assert (server.host, server.port, server.ca_pem) == ("api", 6443, "PEM")
    assert server.token_file == tmp_path / "mine"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        kubeconfig(contexts=None),
        kubeconfig(contexts=[{"name": "other", "context": {}}]),
        kubeconfig(clusters=[3]),
        kubeconfig(user={}),
        kubeconfig(user={"client-certificate": "x", "client-key": "y"}),
        kubeconfig({"server": 5}),
        kubeconfig({"server": ""}),
        kubeconfig({"server": "ftp://api"}),
        kubeconfig({"server": "https://api:99999"}),
        kubeconfig({"server": "https://api/prefix"}),
        kubeconfig({"server": "http://10.0.0.1"}),
        kubeconfig({"server": "https://api", "certificate-authority-data": "%%"}),
    ],
)
def test_a_wrong_kubeconfig_is_refused_by_name(tmp_path: Path, document: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError):
        from_kubeconfig(file)


def test_a_file_that_is_no_yaml_or_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config"
    with pytest.raises(InputError):
        from_kubeconfig(file)
    file.write_bytes(b"\xff: [")
    with pytest.raises(InputError):
        from_kubeconfig(file)


def test_it_needs_no_library() -> None:
    code = (
        "import sys, wattpack.kube.light\n"
        "print([m for m in ('kubernetes', 'urllib3', 'pydantic', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
