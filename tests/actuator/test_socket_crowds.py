"""However many peers knock, the agent is served: real Unix sockets, a crowd of processes."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actuator.app.actuator_command import main
from actuator.app.hosted_actuators import HostedActuators, socket_path
from actuator.lease_messages import DeviceCommand, LeaseCommand, Operation
from actuator.unix_socket import connections
from actuator.unix_socket.client import ActuatorClient
from actuator.unix_socket.connections import IDLE_NS, MAX_CONNECTIONS, Connection, leaver
from actuator.unix_socket.encoding import encode_command, encode_status_request
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission, Peer, peer_credentials
from tests.actuator.actuator_boards import MemoryBoard
from tests.actuator.test_actuator_socket import CONFIG, Node
from wattpack.clock import ManualClock, SystemClock
from wattpack.units import NS_PER_SECOND

CROWD = """
import socket, sys
held, many = [], int(sys.argv[2])
print("here", flush=True)
for i in range(many):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(sys.argv[1])
        if i % 3 == 0:
            s.send(b'{"version": 1, "request": "status"}\\n')
        elif i % 3 == 1:
            s.send(b'{"version": 1, "requ')
    except OSError:
        pass
    held.append(s)
    if len(held) > 500:
        held.pop(0).close()
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        yield Path(path)


def unknown_process(stream: socket.socket) -> Peer:
    """What the kernel tells of a peer in another container."""
    return replace(peer_credentials(stream), pid=0)


@pytest.mark.parametrize("peer_of", [peer_credentials, unknown_process])
def test_ten_thousand_connections_of_an_allowed_peer_starve_nobody(
    directory: Path, monkeypatch: pytest.MonkeyPatch, peer_of: object
) -> None:
    monkeypatch.setattr("actuator.app.hosted_actuators.SocketServer", server_with(peer_of))
    clock, board = SystemClock(), MemoryBoard("GPU-0")
    hosted = HostedActuators({"n": [board]}, CONFIG, directory, clock, seed=1)
    hosted.open()
    path = socket_path(directory, "n")
    command = [sys.executable, "-c", CROWD, str(path), "2500"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    crowd = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    try:
        for process in crowd:
            assert process.stdout.readline() == b"here\n"
        client = ActuatorClient(path, clock)
        for attempt in range(100):
            watts = 500.0 + 2 * attempt
            if attempt % 10 == 0:
                client.close()  # an agent that starts anew stands in line like everybody
            device = DeviceCommand("GPU-0", Operation.SET_POWER_LIMIT, watts)
            asked = LeaseCommand(1, attempt + 1, client.status().nonce, 5000, (device,))
            assert client.apply(asked).accepted
            assert board.limit_watts == watts
            held = len(hosted._server._endpoints[0].connections)
            assert held <= MAX_CONNECTIONS + 1  # the one for whom another leaves at this moment
        for process in crowd:
            assert process.stdout.readline() == b"done\n"
        client.close()
        assert client.status().devices
        client.close()
    finally:
        for process in crowd:
            process.communicate()
        hosted.close()


def server_with(peer_of: object) -> object:
    return lambda clock: SocketServer(clock, peer_of)  # type: ignore[arg-type]


def test_a_process_that_leaks_connections_closes_its_own() -> None:
    def connection(pid: int, spoke_ns: int) -> Connection:
        return Connection(None, Peer(pid, 0, 0), spoke_ns)  # type: ignore[arg-type]

    agent = connection(7, 1)
    leaky = [connection(9, 2 + i) for i in range(connections.MAX_CONNECTIONS_A_PROCESS + 1)]
    assert leaver([agent, *leaky], 100) is leaky[0]
    assert leaver([agent, *leaky[:-1]], 100) is None


def test_who_carries_the_leases_stays_when_all_the_others_are_louder() -> None:
    crowd = [Connection(None, Peer(0, 0, 0), 1000 + i) for i in range(MAX_CONNECTIONS)]  # type: ignore[arg-type]
    agent = Connection(None, Peer(0, 0, 0), 5, proven_ns=5)  # type: ignore[arg-type]
    assert leaver([agent, *crowd], 2000) is crowd[0]
    much_later = 5 + 60 * NS_PER_SECOND
    assert leaver([agent, *crowd], much_later) is agent


def test_silent_and_half_spoken_connections_are_closed(directory: Path) -> None:
    clock = ManualClock(start_ns=10**12)
    server = SocketServer(clock)
    node = Node(directory)
    path = directory / "s"
    server.add(path, node.hosted.actuators["n"], Admission(frozenset({os.getuid()})), print)
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as slow:
        for stream in (silent, slow):
            stream.connect(str(path))
        slow.sendall(b'{"version": 1')
        server.poll(0)
        server.poll(0)
        clock.advance_seconds(IDLE_NS / NS_PER_SECOND - 1)
        slow.sendall(b', "requ')
        server.poll(0)
        assert len(server._endpoints[0].connections) == 2
        clock.advance_seconds(2)
        server.poll(0)
        assert (silent.recv(1), slow.recv(1)) == (b"", b"")
    server.close()
    node.client.close()
    node.hosted.close()


def test_a_flood_of_garbage_fills_no_audit_log(directory: Path) -> None:
    node = Node(directory)
    for _ in range(50):
        node.raw(b"nonsense\n")
    assert node.events().count("malformed") == 1
    node.clock.advance_seconds(1)
    node.raw(b"nonsense\n")
    last = node.hosted.audits["n"].entries[-1]
    assert (last["event"], last["left_out_before"]) == ("malformed", 49)
    node.client.close()
    node.hosted.close()


def test_no_file_descriptor_left_ends_nothing(directory: Path) -> None:
    node = Node(directory)
    assert node.client.status().devices
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as stranger:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            stranger.connect(str(node.path))
            assert node.client.status().devices
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    node.client.close()
    node.hosted.close()


def test_the_probe_asks_and_a_socket_file_alone_is_not_alive(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node(directory)
    assert main(["--check", "--socket", str(node.path)]) == 0
    assert "2 ok" in capsys.readouterr().out
    for board in node.boards:
        board.lost = True
    node.pass_time(1.0)
    assert main(["--check", "--socket", str(node.path)]) == 1
    node.client.close()
    node.hosted.close()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(directory / "deaf"))
        deaf.listen()
        assert main(["--check", "--socket", str(directory / "deaf")]) == 1
    assert "deaf" in capsys.readouterr().err


def test_who_may_only_read_commands_nothing(directory: Path) -> None:
    node = Node(directory)
    server = SocketServer(node.clock)
    path = directory / "r"
    admission = Admission(frozenset({os.getuid() + 1}), operators=frozenset({os.getuid()}))
    server.add(path, node.hosted.actuators["n"], admission, print)
    asked = encode_command(node.command(600.0))
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        with probe.makefile("rb") as answers:
            server.poll(0)
            probe.sendall(encode_status_request())
            server.poll(0)
            assert b'"status"' in answers.readline()
            probe.sendall(asked)
            server.poll(0)
            assert b'"field":"peer"' in answers.readline()
    assert node.boards[0].limit_watts == 400.0
    server.close()
    node.client.close()
    node.hosted.close()


def test_descriptors_that_a_peer_sends_along_do_not_pile_up(directory: Path) -> None:
    node = Node(directory)
    assert node.client.status().devices
    with socket.socket(socket.AF_UNIX) as giver, open(os.devnull) as gift:
        giver.connect(str(node.path))
        with giver.makefile("rb") as answers:
            giver.sendall(encode_status_request())
            assert b'"status"' in answers.readline()  # its connection is taken, and counts
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(50):
                socket.send_fds(giver, [encode_status_request()], [gift.fileno()] * 8)
                assert b'"status"' in answers.readline()
            assert len(os.listdir("/proc/self/fd")) == before
    node.client.close()
    node.hosted.close()
