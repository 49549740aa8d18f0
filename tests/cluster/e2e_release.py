"""A release on the test control plane whose processes really run, each under its own account.

Helm installs the chart; the pods on the server are played by kwok, and beside each a real process
is started with the command line, the settings file and the account that its pod has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster_builders import Body, create, node
from tests.cluster.cluster_processes import ServerProcess, eventually, free_port
from tests.cluster.cluster_tools import REPOSITORY, ToolMissingError, tool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e_rights import Grant, granted

CHART = REPOSITORY / "charts" / "wattpack"
KUBE_VERSION = "1.34.0"
SYSTEM, NODE_NAMESPACE = "wattpack-system", "wattpack-node"
#: The project's own server has no API priority and fairness.
NO_FLOW_SCHEMA = {"flowSchema": {"enabled": False}}
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
WORKLOADS = {
    "controller": ("statefulsets", SYSTEM),
    "scheduler": ("deployments", SYSTEM),
    "watchdog": ("deployments", SYSTEM),
    "forecaster": ("deployments", SYSTEM),
    "console": ("deployments", SYSTEM),
    "agent": ("daemonsets", NODE_NAMESPACE),
}


class LiveRelease:
    """The chart installed, and processes of it.

    Args:
        plane: With kwok and the binder running.
        directory: For settings, tokens and logs.
        values: Of the chart.
    """

    def __init__(self, plane: ControlPlane, directory: Path, values: Mapping[str, Any]) -> None:
        self.plane, self.directory = plane, directory
        self._values = dict(values)
        self.processes: dict[str, ServerProcess] = {}
        self.ports: dict[str, int] = {}
        self.http_ports: dict[str, int] = {}
        self.console_url = ""

    def helm(self, *arguments: str) -> str:
        """Run helm; what it printed.

        Raises:
            ToolMissingError: Helm is not built.
        """
        done = subprocess.run(
            [
                str(tool("helm")),
                f"--kubeconfig={self.plane.kubeconfig}",
                f"--namespace={SYSTEM}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "HOME": str(self.directory)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self) -> None:
        """Everything that the chart holds, in a namespace that admits restricted pods only."""
        level = {"pod-security.kubernetes.io/enforce": "restricted"}
        create(self.plane, "/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": level}})
        self.helm(
            "install", "wattpack", str(CHART),
            *(f"--set-json={key}={json.dumps(value)}" for key, value in self._values.items()),
        )  # fmt: skip

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """The same release with other values."""
        self.helm(
            "upgrade", "wattpack", str(CHART), "--reuse-values",
            *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()),
        )  # fmt: skip

    def add_servers(
        self, names: Sequence[str], gpus: int, product: str, taints: Sequence[Body] = ()
    ) -> None:
        """GPU servers that kwok plays."""
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product}
        for name in names:
            body = node(name, gpus=gpus, labels=labels, taints=taints)
            create(self.plane, "/api/v1/nodes", body)

    def workload(self, component: str) -> dict[str, Any]:
        """A component's workload as it lies on the server."""
        kind, namespace = WORKLOADS[component]
        path = f"/apis/apps/v1/namespaces/{namespace}/{kind}/wattpack-{component}"
        answer = self.plane.request("GET", path)
        assert answer.status == 200, (path, answer.status, answer.body)
        return answer.body

    def arguments(self, component: str) -> list[str]:
        """The command line in the component's pod, its settings file brought here."""
        (container,) = self.workload(component)["spec"]["template"]["spec"]["containers"]
        line: list[str] = container["args"]
        if "--config=/etc/wattpack/settings.yaml" in line:
            path = f"/api/v1/namespaces/{SYSTEM}/configmaps/wattpack-{component}"
            file = self.directory / f"{component}.yaml"
            file.write_text(self.plane.request("GET", path).body["data"]["settings.yaml"])
            line = [f"--config={file}" if a.startswith("--config=") else a for a in line]
        return line

    def start(
        self,
        name: str,
        component: str,
        *extra: str,
        environment: Mapping[str, str] | None = None,
        without: tuple[str, ...] = ("--no-such",),
        node: str | None = None,
    ) -> ServerProcess:
        """A process of a component under the component's account.

        Args:
            name: Of the process.
            component: Whose command line and account it gets.
            extra: More arguments; a later one wins.
            environment: Added to ours.
            without: Beginnings of arguments that make sense in the pod only.
            node: That the account's token is bound to.
        """
        verb, *rest = (a for a in self.arguments(component) if not a.startswith(without))
        account = self.plane.service_account_kubeconfig(
            NODE_NAMESPACE if component == "agent" else SYSTEM, f"wattpack-{component}", node=node
        )
        started = ServerProcess(
            name,
            [sys.executable, "-m", "wattpack.cli", verb, *rest, f"--kubeconfig={account}", *extra],
            self.directory,
            {"PYTHONPATH": str(REPOSITORY), **(environment or {})},
        )
        self.processes[name] = started
        return started

    def start_controller(self, index: int) -> ServerProcess:
        """One replica; its ports are in ``ports``, the same when it starts again."""
        name = f"wattpack-controller-{index}"
        for ports in (self.ports, self.http_ports):
            ports.setdefault(name, free_port())
        return self.start(
            name,
            "controller",
            f"--stream-address=127.0.0.1:{self.ports[name]}",
            "--http-host=127.0.0.1",
            f"--http-port={self.http_ports[name]}",
            f"--audit-file={self.directory / name}.sqlite",
            environment={"WATTPACK_CONTROLLER_REPLICA": name},
        )

    def start_scheduler(self) -> ServerProcess:
        """The planner with its webhook, which the server finds through the Service."""
        port = free_port()
        self.http_ports["scheduler"] = http_port = free_port()
        mark = {"metadata": {"annotations": {"testapi.local/endpoint": f"127.0.0.1:{port}"}}}
        path = f"/api/v1/namespaces/{SYSTEM}/services/wattpack-scheduler"
        assert self.plane.request("PATCH", path, mark, patch="merge").status == 200
        return self.start(
            "scheduler",
            "scheduler",
            f"--metrics-port={http_port}",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={port}",
        )

    def start_forecaster(self, prometheus_url: str) -> ServerProcess:
        """The forecaster, which asks that Prometheus."""
        self.http_ports["forecaster"] = port = free_port()
        return self.start(
            "forecaster",
            "forecaster",
            f"--metrics-port={port}",
            f"--prometheus-url={prometheus_url}",
        )

    def start_console(self) -> str:
        """The console, which reads every controller with its own token; its address."""
        file = self.directory / "console.token"
        file.write_text(self.token("wattpack-console", SYSTEM))
        port = free_port()
        self.start(
            "console",
            "console",
            "--host=127.0.0.1",
            f"--port={port}",
            f"--token-file={file}",
            *(
                f"--controller=http://127.0.0.1:{port}/v1/live"
                for name, port in self.http_ports.items()
                if "controller" in name
            ),
            without=("--host=", "--port=", "--controller="),
        )
        self.console_url = f"http://127.0.0.1:{port}"
        return self.console_url

    def start_agent(self, server: str, recording: Path) -> str:
        """An agent beside two replayed boards, out of every controller's reach; its address."""
        port = free_port()
        self.start(
            "agent",
            "agent",
            f"--node={server}",
            f"--port={port}",
            f"--replay={recording}",
            "--devices=2",
            "--controller=127.0.0.1:1",
            "--insecure",
            without=("--ca=", "--token=", "--controller=", "--actuator=", "--pod-resources-from="),
            node=server,
        )
        return f"http://127.0.0.1:{port}"

    def token(self, account: str, namespace: str) -> str:
        """A token of an account, as the kubelet would mount it."""
        answer = self.plane.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )
        assert answer.status == 201, answer.message
        return str(answer.body["status"]["token"])

    def agent_token(self, server: str) -> Path:
        """The projected token of the agent's pod on a server, as the kubelet would ask for it."""
        volumes = self.workload("agent")["spec"]["template"]["spec"]["volumes"]
        (projected,) = (v["projected"] for v in volumes if v["name"] == "stream-token")
        wanted = projected["sources"][0]["serviceAccountToken"]
        spec = {
            "audiences": [wanted["audience"]],
            "expirationSeconds": wanted["expirationSeconds"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": self._agent_pod(server)},
        }
        answer = self.plane.request(
            "POST",
            f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts/wattpack-agent/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        assert answer.status == 201, answer.message
        file = self.directory / f"{server}.token"
        file.write_text(answer.body["status"]["token"])
        return file

    def _agent_pod(self, server: str) -> str:
        path = f"/api/v1/namespaces/{NODE_NAMESPACE}/pods"

        def probe() -> str | None:
            answer = self.plane.request("GET", path)
            assert answer.status == 200, (answer.status, answer.body)
            for item in answer.body["items"]:
                is_agent = item["metadata"]["name"].startswith("wattpack-agent-")
                if is_agent and item["spec"].get("nodeName") == server:
                    return str(item["metadata"]["name"])
            return None

        return eventually(f"an agent's pod on {server}", probe)

    def mount_authority(self) -> Path:
        """The agents' ConfigMap volume, as the kubelet would write it once it is filled."""
        path = f"/api/v1/namespaces/{NODE_NAMESPACE}/configmaps/wattpack-controller-ca"

        def published() -> str:
            body = self.plane.request("GET", path).body
            return str((body.get("data") or {}).get("ca.crt", ""))

        for name in self.ports:
            self.processes[name].wait_ready(lambda: bool(published()), 40)
        file = self.directory / "ca.crt"
        file.write_text(published())
        return file

    def server_name(self) -> str:
        """The name under which an agent of the chart calls the first replica."""
        (target,) = (
            a.removeprefix("--controller=").removesuffix(":8443")
            for a in self.arguments("agent")
            if a.startswith("--controller=wattpack-controller-0.")
        )
        return target

    def lease(self, name: str) -> dict[str, Any]:
        """The spec of one of our Leases; empty if it does not exist."""
        spec: dict[str, Any] = self.plane.request("GET", f"{LEASES}/{name}").body.get("spec", {})
        return spec

    def uninstall_hook(self) -> str:
        """Run the pre-delete hook's command under the hook's account; what it printed."""
        shown = self.helm(
            "template", "wattpack", str(CHART), f"--kube-version={KUBE_VERSION}",
            "--show-only=templates/uninstall-hook.yaml",
        )  # fmt: skip
        hooks = [item for item in yaml.safe_load_all(shown) if item]
        (job,) = (item for item in hooks if item["kind"] == "Job")
        rest = yaml.safe_dump_all(item for item in hooks if item is not job)
        self.plane.kubectl("apply", "-f", "-", stdin=rest)
        line = job["spec"]["template"]["spec"]["containers"][0]["args"]
        account = self.plane.service_account_kubeconfig(SYSTEM, "wattpack-uninstall")
        done = subprocess.run(
            [sys.executable, "-m", "wattpack.cli", *line, f"--kubeconfig={account}"],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def grants(self, component: str) -> set[Grant]:
        """What the installed chart allows a component's account."""
        namespace = NODE_NAMESPACE if component == "agent" else SYSTEM
        return granted(self.plane, namespace, f"wattpack-{component}")

    def requests_by(self, component: str) -> list[dict[str, Any]]:
        """What a component's account asked of the API server."""
        namespace = NODE_NAMESPACE if component == "agent" else SYSTEM
        user = f"system:serviceaccount:{namespace}:wattpack-{component}"
        return self.plane.audit_events(user)

    def stop(self) -> None:
        """End every process that was started here."""
        for started in self.processes.values():
            started.stop()


def has_helm() -> str:
    """Why there is no helm, or an empty string."""
    try:
        tool("helm")
    except ToolMissingError as error:
        return str(error)
    return ""


def app_version() -> str:
    """Of the product that the chart installs."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return str(chart["appVersion"])
