"""A Kubernetes control plane for tests: starts on loopback in about a second, no containers.

``start_control_plane`` starts etcd and the project's own API server; with ``KUBEBUILDER_ASSETS`` it
starts the real kube-apiserver and etcd that lie there; with ``WATTPACK_TEST_USE_KUBECONFIG=1`` it
uses the cluster of ``KUBECONFIG`` and starts nothing. The tests are the same on all three.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml

from tests.cluster.cluster_connection import REQUEST_SECONDS, Answer, Connection, cluster_of
from tests.cluster.cluster_processes import ServerProcess, eventually, free_port
from tests.cluster.cluster_tools import kubebuilder_assets, tool
from tests.cluster.kubebuilder_server import kube_apiserver_command
from wattpack.errors import PermanentError, WattpackError

START_SECONDS = 60.0
START_ATTEMPTS = 3
FAULTS_PATH = "/testing/faults"

T = TypeVar("T")


@dataclass(slots=True)
class ControlPlane:
    """A running API server and what runs beside it.

    Attributes:
        directory: Holds kubeconfigs, certificates, logs and etcd's data.
        server_url: The API server's address.
        kubeconfig: An administrator's.
        ca_file: The certificate authority that signed the server's certificate.
        etcd_port: Etcd's client port on 127.0.0.1; None for a cluster that was not started here.
        kind: ``own``, ``kubebuilder`` or ``external``.
    """

    directory: Path
    server_url: str
    kubeconfig: Path
    ca_file: Path
    etcd_port: int | None
    kind: str = "own"
    processes: dict[str, ServerProcess] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    _connections: Connection | None = None

    @property
    def audit_log(self) -> Path:
        """One JSON line for each finished request (level Metadata)."""
        return self.directory / "audit.log"

    def audit_events(self, user: str = "") -> list[dict[str, Any]]:
        """The audit log's events, of one user if named.

        Raises:
            PermanentError: The cluster was not started here, so its audit log is elsewhere.
        """
        if self.kind == "external":
            raise PermanentError("a cluster of somebody else keeps its own audit log")
        lines = self.audit_log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [e for e in events if not user or e["user"].get("username") == user]

    def kubectl(
        self,
        *args: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator or with the given kubeconfig.

        Raises:
            PermanentError: It failed and check is set; the message holds what it wrote.
        """
        command = [str(tool("kubectl")), f"--kubeconfig={kubeconfig or self.kubeconfig}", *args]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=REQUEST_SECONDS * 2,
            env={**os.environ, "HOME": str(self.directory)},
        )
        if check and done.returncode != 0:
            raise PermanentError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        """Send one request; see ``Connection.request`` for the options."""
        return self._connection().request(method, path, body, **options)

    def watch(
        self, path: str, *, kubeconfig: Path | None = None
    ) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """The events of a watch; see ``Connection.watch``."""
        return self._connection().watch(path, kubeconfig=kubeconfig)

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, node: str | None = None, pod: str | None = None
    ) -> Path:
        """A kubeconfig with a fresh token of the account, bound to a node or a pod if named.

        A token bound to a pod on a node carries the node's name, as a projected token does.

        Raises:
            PermanentError: The server refused to make the token.
        """
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if node is not None or pod is not None:
            kind, bound = ("Pod", pod) if pod is not None else ("Node", node)
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": bound}
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        if answer.status != 201:
            raise PermanentError(f"no token for {namespace}/{name}: {answer.message}")
        suffix = "".join(f".{part}" for part in (pod or node,) if part)
        path = self.directory / f"{namespace}.{name}{suffix}.kubeconfig"
        self.write_kubeconfig(path, {"token": answer.body["status"]["token"]})
        self._connection().forget(path)
        return path

    def write_kubeconfig(self, path: Path, user: Mapping[str, str]) -> None:
        """Write a kubeconfig for this server with the given credentials."""
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        cluster = {"server": self.server_url, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": dict(user)}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)

    def inject_fault(self, kind: str, path: str, **rule: object) -> None:
        """Make the next requests whose path matches fail (see docs/test-control-plane.md).

        Raises:
            PermanentError: The rule was refused.
        """
        answer = self.request("POST", FAULTS_PATH, {"kind": kind, "path": path, **rule})
        if answer.status != 201:
            raise PermanentError(f"fault refused: {answer.body}")

    def faults(self) -> list[dict[str, Any]]:
        """The fault rules with the hits they had."""
        rules: list[dict[str, Any]] = self.request("GET", FAULTS_PATH).body["items"]
        return rules

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self.request("DELETE", FAULTS_PATH)

    def start_kwok(
        self, *, node_lease_seconds: int = 40, stages: Path | None = None
    ) -> ServerProcess:
        """Start kwok: it plays the kubelet of every node annotated ``kwok.x-k8s.io/node=fake``.

        Args:
            node_lease_seconds: Of the nodes' Leases; each is renewed after a quarter of it.
            stages: What happens to nodes and pods, if not what kwok's own fast stages do.
        """

        def command(port: int) -> list[str]:
            return [
                str(tool("kwok")),
                f"--kubeconfig={self.kubeconfig}",
                f"--config={stages or tool('kwok-stages.yaml')}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                f"--node-lease-duration-seconds={node_lease_seconds}",
                f"--server-address=127.0.0.1:{port}",
            ]

        return self._start_with_health("kwok", command)

    def start_binder(self) -> ServerProcess | None:
        """Start the stand-in for kube-scheduler; a cluster of somebody else has its own."""
        if self.kind == "external":
            return None

        def command(port: int) -> list[str]:
            return [
                str(tool("binder")),
                f"--kubeconfig={self.kubeconfig}",
                f"--health-address=127.0.0.1:{port}",
            ]

        return self._start_with_health("binder", command)

    def stop_process(self, name: str) -> None:
        """Stop kwok, the binder or the API server by name."""
        self.processes.pop(name).stop()

    def restart_apiserver(self) -> None:
        """Stop the API server and start it again on the same port, with the same keys."""
        self.stop_process("apiserver")
        self._start("apiserver", self.commands["apiserver"], self.ready)

    def ready(self) -> bool:
        """Whether the API server answers /readyz."""
        try:
            return self.request("GET", "/readyz", seconds=5.0).status == 200
        except (urllib3.exceptions.HTTPError, OSError):
            return False

    def stop(self) -> None:
        """End everything that was started here, the API server after its clients, etcd last."""
        order = ("binder", "kwok", "apiserver", "etcd")
        for name in sorted(self.processes, key=lambda n: order.index(n) if n in order else -1):
            self.processes[name].stop()
        self.processes.clear()
        self._connection().close()

    def _start(self, name: str, command: Sequence[str], ready: Callable[[], bool]) -> ServerProcess:
        if name in self.processes:
            return self.processes[name]
        process = ServerProcess(name, command, self.directory)
        self.processes[name], self.commands[name] = process, list(command)
        try:
            process.wait_ready(ready, START_SECONDS)
        except WattpackError:
            self.processes.pop(name).stop()
            raise
        return process

    def _start_with_health(self, name: str, command: Callable[[int], list[str]]) -> ServerProcess:
        def attempt() -> ServerProcess:
            port = free_port()
            url = f"http://127.0.0.1:{port}/healthz"
            return self._start(name, command(port), lambda: _answers(url))

        return _until_ports_are_free(attempt)

    def _connection(self) -> Connection:
        if self._connections is None:
            self._connections = Connection(self.server_url, self.kubeconfig, self.directory)
        return self._connections


def start_control_plane(directory: Path, *, prefix: str = "/registry") -> ControlPlane:
    """Start a control plane of its own, or attach to the one that the environment names.

    Args:
        directory: The folder for its files; a second start in it finds the old keys.
        prefix: Etcd key prefix of the API server.

    Raises:
        ToolMissingError: A program is not built.
        PermanentError: A process ended at once; the message holds its log.
    """
    if os.environ.get("WATTPACK_TEST_USE_KUBECONFIG") == "1":
        return _attach(directory)
    directory.mkdir(parents=True, exist_ok=True)
    plane = _until_ports_are_free(lambda: _start_servers(directory, prefix))
    try:
        eventually("the default account exists", lambda: _has_default_account(plane))
    except BaseException:
        plane.stop()
        raise
    return plane


def _start_servers(directory: Path, prefix: str) -> ControlPlane:
    assets = kubebuilder_assets()
    etcd_port, port = free_port(), free_port()
    plane = ControlPlane(
        directory=directory,
        server_url=f"https://127.0.0.1:{port}",
        kubeconfig=directory / "admin.kubeconfig",
        ca_file=directory / "ca.crt",
        etcd_port=etcd_port,
        kind="own" if assets is None else "kubebuilder",
    )
    etcd = tool("etcd") if assets is None else assets / "etcd"
    if assets is None:
        command = _apiserver_command(directory, etcd_port, port, prefix)
    else:
        command = kube_apiserver_command(assets, directory, etcd_port, port, prefix)
    try:
        name = f"etcd-{uuid.uuid4().hex}"
        etcd_command = _etcd_command(etcd, directory, etcd_port, name)
        plane._start("etcd", etcd_command, lambda: _etcd_is(etcd_port, name))
        plane._start("apiserver", command, lambda: plane.kubeconfig.exists() and plane.ready())
    except BaseException:
        plane.stop()
        raise
    return plane


def _until_ports_are_free(attempt: Callable[[], T]) -> T:
    """Try again with other ports when somebody took one between its choice and its use."""
    for _ in range(START_ATTEMPTS - 1):
        try:
            return attempt()
        except PermanentError as error:
            if "address already in use" not in str(error):
                raise
    return attempt()


def _has_default_account(plane: ControlPlane) -> bool:
    if plane.kind != "own":
        return True
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    return plane.request("GET", path).status == 200


def _attach(directory: Path) -> ControlPlane:
    source = Path(os.environ.get("KUBECONFIG", str(Path.home() / ".kube" / "config")))
    server_url, authority = cluster_of(source)
    ca_file = directory / "ca.crt"
    ca_file.write_bytes(authority)
    return ControlPlane(
        directory=directory,
        server_url=server_url,
        kubeconfig=source,
        ca_file=ca_file,
        etcd_port=None,
        kind="external",
    )


def _etcd_command(etcd: Path, directory: Path, port: int, name: str) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        str(etcd),
        f"--name={name}",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={name}={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def _etcd_is(port: int, name: str) -> bool:
    """Whether this very etcd is healthy: another one may have taken the port a moment ago."""
    url = f"http://127.0.0.1:{port}"
    if not _answers(f"{url}/health"):
        return False
    answer = urllib3.request("POST", f"{url}/v3/cluster/member/list", body="{}", timeout=2.0)
    return any(member.get("name") == name for member in answer.json()["members"])


def _apiserver_command(directory: Path, etcd_port: int, port: int, prefix: str) -> list[str]:
    return [
        str(tool(os.environ.get("WATTPACK_TEST_APISERVER", "apiserver"))),
        f"--etcd=http://127.0.0.1:{etcd_port}",
        f"--prefix={prefix}",
        f"--port={port}",
        f"--dir={directory}",
    ]


def _answers(url: str) -> bool:
    try:
        answer = urllib3.request("GET", url, timeout=2.0, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return bool(answer.status == 200)
