"""The work side of the demo: pods come, are gated by the real webhook, run when bound, and end."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable

from forecasting.sqlite import HistoryStore
from simulation.app.cluster_stand_ins import ClusterStandIn
from simulation.app.earlier_days import DrawRecorder
from simulation.kube.embedded_api import EmbeddedKube
from simulation.pod_work import NAMESPACE, pod_manifest
from simulation.world import World
from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import PODS, JsonObject
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
WEBHOOK_SECONDS = 2.0


class WebhookCaller:
    """Asks a mutating webhook about a new pod, as an API server does; fails open.

    Args:
        port: Of the webhook on this machine.
        authority_pem: Certificate that it has to show a chain to.
        server_name: Name in its certificate.
    """

    def __init__(self, port: int, authority_pem: bytes, server_name: str) -> None:
        self._port, self._name = port, server_name
        self._context = ssl.create_default_context(cadata=authority_pem.decode())
        self.failures = 0

    def admit(self, pod: JsonObject) -> JsonObject:
        """The pod after the webhook's patch; unchanged if the webhook does not answer."""
        request = {
            "uid": pod["metadata"]["uid"],
            "operation": "CREATE",
            "object": pod,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": pod["metadata"]["namespace"],
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        try:
            response = self._post(json.dumps(body).encode())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.failures += 1
            log.warning("webhook did not answer, pod goes on without it: %s", error)
            return pod
        if "patch" not in response:
            return pod
        patched: JsonObject = apply_json_patch(pod, json.loads(base64.b64decode(response["patch"])))
        return patched

    def _post(self, body: bytes) -> JsonObject:
        connection = _NamedConnection(self._port, self._context, self._name)
        try:
            connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        response: JsonObject = answer["response"]
        return response


class _NamedConnection(http.client.HTTPSConnection):
    """Connects to loopback and checks the certificate for the service's name."""

    def __init__(self, port: int, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__("127.0.0.1", port, timeout=WEBHOOK_SECONDS, context=context)
        self._tls, self._server_name = context, server_name

    def connect(self) -> None:
        """As usual, but with the service's name for the TLS check."""
        http.client.HTTPConnection.connect(self)
        # Headers and body are two writes; waiting for the acknowledgement costs 40 ms.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


class DemoWork:
    """Runs the cluster's users, binder and kubelets, a step a simulated second.

    Args:
        world: Where the work runs.
        api: The embedded store.
        clock: Shared by everybody.
        admit: What happens to a new pod on its way in.
        rebooted: Called with each node that has rebooted.
        history: Where the workloads' power and load are recorded, as exporters would.
    """

    def __init__(
        self,
        world: World,
        api: EmbeddedKube,
        clock: Clock,
        admit: Callable[[JsonObject], JsonObject],
        rebooted: Callable[[str], None],
        history: HistoryStore,
    ) -> None:
        self._world, self._api, self._clock = world, api, clock
        self._admit, self._rebooted = admit, rebooted
        self._cluster = ClusterStandIn(api)
        self._pods = Informer(api, clock, PODS, namespace=NAMESPACE)
        self._recorder = DrawRecorder(world, history, domains=False)
        self._priorities = {c.name: c.value for c in world.scenario.priority_classes}
        self._wake = clock.new_wake()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="work", daemon=True)
        self.pending = 0

    def start(self) -> None:
        """The first second at once, the others in a thread."""
        self.step()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping:
            self._clock.wait_until(self._clock.monotonic_ns() + NS_PER_SECOND, self._wake)
            self.step()

    def step(self) -> None:
        """One second of the cluster's life."""
        for node in self._world.take_reboots():
            self._rebooted(node)
        for name in self._world.take_finished():
            self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        for work in self._world.due(self._clock.monotonic_ns()):
            pod = pod_manifest(work, self._priorities[work.priority_class])
            self._api.create(PODS, self._admit(pod), NAMESPACE)
        if self._pods.pump():
            pods = self._cluster.step()
            self._world.pods_changed(pods)
            self.pending = sum(1 for pod in pods if not pod["spec"].get("nodeName"))
        self._recorder.take(self._clock.wall_time_ns())
