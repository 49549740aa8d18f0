"""The agent learns who holds its GPUs although the kubelet's folder lets only root in.

A real gRPC server stands for the kubelet, in a folder of mode 0750; the agent's side runs in a
process that gave up root, as its pod does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from actuator.app.actuator_command import main
from actuator.unix_socket.pod_resources import NoPodResources, borrow_connection
from telemetry.attribution.kubelet import METHOD, PodResources
from telemetry.attribution.kubelet_relay import KubeletRelay
from tests.actuator.test_actuator_process import eventually
from wattpack.errors import TransientError
from wattpack.wire.v1 import podresources_pb2 as messages

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/telemetry/fixtures/h200/idle.jsonl.gz"
AGENT_USER = 65532

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives up root: needs it first")

UNPRIVILEGED = f"""
import contextlib, encodings.idna, io, json, os, sys
from pathlib import Path
import grpc
from telemetry.app.agent_command import main
import gpu.replay.replayed_device, telemetry.attribution.kubelet, telemetry.app.local_view
os.setgroups([])
os.setgid({AGENT_USER})
os.setuid({AGENT_USER})
sys.exit(main(["--local", "--once", "--json", "--replay", sys.argv[1], *sys.argv[2:]]))
"""


class Kubelet:
    """Pod-resources behind a folder that only root may enter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pod-resources"
        self.folder.mkdir(mode=0o750)
        self.path = self.folder / "kubelet.sock"
        self.gpu = ""
        self.start()

    def start(self) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=messages.ListPodResourcesRequest.FromString,
            response_serializer=messages.ListPodResourcesResponse.SerializeToString,
        )
        service, method = METHOD.strip("/").split("/")
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self.server.add_insecure_port(f"unix://{self.path}")
        self.server.start()

    def stop(self) -> None:
        self.server.stop(0).wait()
        self.path.unlink(missing_ok=True)

    def _list(self, _request: object, _context: object) -> messages.ListPodResourcesResponse:
        answer = messages.ListPodResourcesResponse()
        pod = answer.pod_resources.add(namespace="team", name="train-0")
        container = pod.containers.add(name="main")
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=[self.gpu])
        # Larger than a socket's buffer, so that bytes go in several pieces.
        for i in range(4000):
            answer.pod_resources.add(namespace="other", name=f"{i}-{'x' * 100}")
        return answer


class Door:
    """``wattpack actuator --pod-resources-only`` as a process of its own."""

    def __init__(
        self, folder: Path, kubelet: Path, uids: tuple[int, ...] = (AGENT_USER, 0)
    ) -> None:
        self.socket = folder / "run" / "door.sock"
        self.audit = folder / "audit.jsonl"
        config = folder / "config.json"
        body = {"devices": {}, "allowed_uids": list(uids), "socket_gid": AGENT_USER}
        config.write_text(json.dumps(body))
        program = [sys.executable, "-m", "actuator", "--pod-resources-only"]
        program += ["--config", str(config), "--socket", str(self.socket)]
        program += ["--audit", str(self.audit), "--pod-resources", str(kubelet)]
        self.process = subprocess.Popen(program, cwd=ROOT)
        eventually(self.socket.exists)
        self.socket.parent.chmod(0o755)

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.audit.read_text().splitlines()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    made = Kubelet(folder)
    yield made
    made.stop()


@pytest.fixture
def door(folder: Path, kubelet: Kubelet) -> Iterator[Door]:
    made = Door(folder, kubelet.path)
    yield made
    if made.process.poll() is None:
        made.stop()


def agent(*arguments: str) -> dict[str, Any]:
    """What ``wattpack agent --local --once --json`` says without root."""
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(RECORDING), *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_process_without_root_learns_its_pods_through_the_actuator(
    kubelet: Kubelet, door: Door
) -> None:
    alone = agent("--kubelet-socket", str(kubelet.path))
    assert alone["attribution_source"] != "kubelet"
    kubelet.gpu = alone["devices"][0]["uuid"]
    seen = agent("--pod-resources-from", str(door.socket))
    assert seen["attribution_source"] == "kubelet"
    assert "team/train-0" in seen["devices"][0]["holders"]
    assert door.events() == ["pod_resources_opened"]


def test_the_connection_comes_back_after_the_kubelet_restarted(
    kubelet: Kubelet, door: Door
) -> None:
    kubelet.gpu = "GPU-1"
    relay = KubeletRelay(lambda: borrow_connection(door.socket))
    client = PodResources(relay.path, timeout_seconds=10.0)
    assert [grant.pod for grant in client.list()] == ["train-0"]
    kubelet.stop()
    with pytest.raises(TransientError):
        client.list()
    kubelet.start()

    def answers() -> bool:
        try:
            return bool(client.list())
        except TransientError:
            return False

    eventually(answers)
    client.close()
    relay.close()
    assert not relay.path.exists()


def test_a_stranger_gets_no_connection(folder: Path, kubelet: Kubelet) -> None:
    door = Door(folder, kubelet.path, uids=(AGENT_USER,))
    with pytest.raises(NoPodResources, match="peer"):
        borrow_connection(door.socket)
    assert door.stop() == 0
    assert "pod_resources_opened" not in door.events()


def test_no_kubelet_is_said_and_the_door_lives_on(kubelet: Kubelet, door: Door) -> None:
    kubelet.stop()
    with pytest.raises(NoPodResources, match="a kubelet that answers"):
        borrow_connection(door.socket)
    kubelet.start()
    borrow_connection(door.socket).close()
    assert main(["--check", "--socket", str(door.socket)]) == 0


def test_an_actuator_that_was_not_told_of_the_kubelet_opens_nothing(folder: Path) -> None:
    from tests.actuator.test_actuator_socket import Node

    node = Node(folder)
    with pytest.raises(NoPodResources, match="not offered"):
        borrow_connection(node.path)
    node.client.close()
    node.hosted.close()


def test_nobody_there_is_a_typed_error(folder: Path) -> None:
    with pytest.raises(NoPodResources, match="none"):
        borrow_connection(folder / "none")
    relay = KubeletRelay(lambda: borrow_connection(folder / "none"))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(relay.path))
        assert client.recv(1) == b""
    relay.close()


def test_borrowed_descriptors_do_not_stay_in_the_privileged_process(door: Door) -> None:
    descriptors = Path(f"/proc/{door.process.pid}/fd")
    borrow_connection(door.socket).close()
    before = len(list(descriptors.iterdir()))
    for _ in range(60):
        borrow_connection(door.socket).close()
    eventually(lambda: len(list(descriptors.iterdir())) <= before)
