"""The actuator over real Unix sockets: who may speak, what is said, what is refused."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuator.app.config_file import ActuatorConfig
from actuator.app.hosted_actuators import HostedActuators, socket_path
from actuator.audit_log import AuditLog
from actuator.lease_messages import DeviceCommand, DeviceState, LeaseCommand, Operation
from actuator.unix_socket.client import (
    ActuatorClient,
    ActuatorProtocolError,
    ActuatorRefused,
    ActuatorUnavailable,
)
from actuator.unix_socket.connections import MESSAGE_BURST
from actuator.unix_socket.encoding import MAX_LINE_BYTES, encode_command
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission
from actuator.unix_socket.socket_file import SocketTaken
from tests.actuator.actuator_boards import MemoryBoard
from wattpack.clock import ManualClock, SystemClock
from wattpack.units import NS_PER_SECOND

CONFIG = ActuatorConfig({"NVIDIA H200": 400.0}, frozenset({os.getuid()}))


class Node:
    """One hosted node with two boards, a clock that the test moves, and a client."""

    def __init__(self, directory: Path, config: ActuatorConfig = CONFIG) -> None:
        self.clock = ManualClock(start_ns=10**12)
        self.boards = [MemoryBoard("GPU-0"), MemoryBoard("GPU-1", 300.0, 1)]
        self.hosted = HostedActuators({"n": self.boards}, config, directory, self.clock, seed=1)
        self.hosted.open()
        self.path = socket_path(directory, "n")
        self.client = ActuatorClient(self.path, self.clock)
        self.sequence = 0

    def command(self, watts: float = 600.0, uuid: str = "GPU-0", epoch: int = 1) -> LeaseCommand:
        """A command that answers a fresh status."""
        self.sequence += 1
        device = DeviceCommand(uuid, Operation.SET_POWER_LIMIT, watts)
        return LeaseCommand(epoch, self.sequence, self.client.status().nonce, 5000, (device,))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance_seconds(seconds)
        self.hosted.tick()

    def raw(self, data: bytes, finish: bool = False) -> dict[str, Any]:
        """What comes back for bytes that a well-behaved client would never send."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(10)
            stream.connect(str(self.path))
            try:
                stream.sendall(data)
                if finish:
                    stream.shutdown(socket.SHUT_WR)
            except BrokenPipeError:
                pass  # dropped while still talking; the reply tells why
            answer = stream.makefile("rb").readline()
        document: dict[str, Any] = json.loads(answer) if answer else {}
        return document

    def events(self) -> list[str]:
        return [str(entry["event"]) for entry in self.hosted.audits["n"].entries]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path: a socket's holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        yield Path(path)


@pytest.fixture
def node(directory: Path) -> Iterator[Node]:
    made = Node(directory)
    yield made
    made.client.close()
    made.hosted.close()


def test_boards_are_at_or_below_their_guaranteed_caps_before_the_first_contact(node: Node) -> None:
    assert [board.limit_watts for board in node.boards] == [400.0, 300.0]
    assert {row.state for row in node.client.status().devices.values()} == {DeviceState.OK}


def test_a_command_reaches_the_board_and_its_lease_runs_out(node: Node) -> None:
    result = node.client.apply(node.command(600.0))
    assert (result.accepted, result.devices) == (True, {"GPU-0": "confirmed"})
    assert node.boards[0].limit_watts == 600.0
    node.pass_time(5.0)
    assert node.boards[0].limit_watts == 400.0
    assert not node.client.status().devices["GPU-0"].lease_active
    assert node.events() == ["start", "apply", "expire"]


def test_a_wake_up_that_comes_after_the_end_is_no_failure() -> None:
    """Who is told to end looks by itself, too, and may be gone before the one who wakes it."""
    server = SocketServer(SystemClock())
    server.close()
    server.wake()


def test_i3_garbage_and_silence_extend_nothing(node: Node) -> None:
    sent = node.command(600.0)
    assert node.client.apply(sent).accepted
    node.pass_time(1.5)
    assert node.client.apply(sent).field == "sequence"
    node.pass_time(2.5)
    node.raw(b"extend everything please\n")
    assert node.client.apply(replace(sent, sequence=9)).field == "nonce"
    node.pass_time(1.0)
    assert node.boards[0].limit_watts == 400.0


def test_a_refused_command_names_the_field_and_is_audited(node: Node) -> None:
    result = node.client.apply(node.command(900.0))
    assert not result.accepted
    assert result.field == "devices[0].cap_watts"
    assert "<= 700" in result.expected
    assert node.hosted.audits["n"].entries[-1]["peer_uid"] == os.getuid()
    assert node.boards[0].limit_watts == 400.0


def test_a_foreign_limit_is_undone_within_a_second(node: Node) -> None:
    node.boards[0].limit_watts = 700.0
    node.pass_time(1.0)
    assert node.boards[0].limit_watts == 400.0
    assert node.client.status().devices["GPU-0"].tampered == 1
    assert node.events()[-1] == "reassert"


def test_one_lost_board_does_not_stop_the_others(node: Node) -> None:
    node.boards[0].lost = True
    node.pass_time(1.0)
    node.client.apply(node.command(500.0, "GPU-1"))
    states = {uuid: row.state for uuid, row in node.client.status().devices.items()}
    assert states == {"GPU-0": DeviceState.UNREADABLE, "GPU-1": DeviceState.OK}
    assert node.boards[1].limit_watts == 500.0
    node.boards[0].lost = False
    node.boards[0].limit_watts = 700.0
    node.pass_time(1.0)
    assert node.boards[0].limit_watts == 400.0


def test_a_silently_failing_write_is_reported_and_retried(node: Node) -> None:
    node.boards[0].ignores_limits = True
    result = node.client.apply(node.command(600.0))
    assert result.devices == {"GPU-0": "unconfirmed"}
    row = node.client.status().devices["GPU-0"]
    assert (row.failed_writes, row.confirmed_sequence, row.limit_watts) == (1, 0, 400.0)
    node.boards[0].ignores_limits = False
    node.pass_time(1.0)
    assert node.client.status().devices["GPU-0"].confirmed_sequence == 1


def test_a_refused_lock_leaves_the_old_cap_in_force(node: Node) -> None:
    node.boards[0].refuses_locks = True
    device = DeviceCommand("GPU-0", Operation.LOCK_CLOCKS, 700.0, 1200)
    result = node.client.apply(LeaseCommand(1, 1, node.client.status().nonce, 5000, (device,)))
    assert "no locks today" in result.devices["GPU-0"]
    assert node.boards[0].limit_watts == 400.0


def test_a_rebooted_node_starts_at_guaranteed_caps_with_its_epoch(node: Node) -> None:
    node.client.apply(node.command(600.0, epoch=4))
    node.boards[0].limit_watts = 700.0
    node.hosted.restart("n", "boot-2")
    status = node.client.status()
    assert (status.boot_id, status.highest_epoch) == ("boot-2", 4)
    assert node.boards[0].limit_watts == 400.0
    assert node.client.apply(node.command(600.0, epoch=3)).field == "epoch"


def good(**changes: object) -> bytes:
    device = {"uuid": "GPU-0", "operation": "set_power_limit", "cap_watts": 500.0}
    command = {"epoch": 1, "sequence": 1, "nonce": 1, "ttl_ms": 5000, "devices": [device]}
    for path, value in changes.items():
        target = (
            device
            if path in {"uuid", "operation", "cap_watts", "lock", "lock_max_mhz"}
            else command
        )
        target[path] = value
    return json.dumps({"version": 1, "request": "apply", "command": command}).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"\n", "message"),
        (b"[]\n", "message"),
        (b'{"version": 1, "request": "sta\n', "message"),
        (b"\xff\xfe\n", "message"),
        (b"[" * 5000 + b"\n", "message"),
        (b'{"version": 1, "version": 1, "request": "status"}\n', "message"),
        (b'{"version": 2, "request": "status"}\n', "version"),
        (b'{"version": true, "request": "status"}\n', "version"),
        (b'{"version": 1, "request": "uncap"}\n', "request"),
        (b'{"version": 1, "request": "status", "more": 1}\n', "more"),
        (b'{"version": 1, "request": "apply"}\n', "command"),
        (b'{"version": 1, "request": "apply", "command": 7}\n', "command"),
        (good(epoch=0), "command.epoch"),
        (good(epoch=True), "command.epoch"),
        (good(epoch=1.0), "command.epoch"),
        (good(sequence=-1), "command.sequence"),
        (good(nonce="1"), "command.nonce"),
        (good(ttl_ms=0), "command.ttl_ms"),
        (good(ttl_ms=10**12), "command.ttl_ms"),
        (good(devices=[]), "command.devices"),
        (good(devices={}), "command.devices"),
        (good(devices=[None]), "command.devices[0]"),
        (good(surprise=1), "command.surprise"),
        (good(uuid=5), "command.devices[0].uuid"),
        (good(uuid=""), "command.devices[0].uuid"),
        (good(operation="overclock"), "command.devices[0].operation"),
        (good(cap_watts=-5), "command.devices[0].cap_watts"),
        (good(cap_watts=True), "command.devices[0].cap_watts"),
        (good(cap_watts="500W"), "command.devices[0].cap_watts"),
        (good(cap_watts=None), "command.devices[0].cap_watts"),
        (good(cap_watts=float("nan")), "message"),
        (good(cap_watts=float("inf")), "message"),
        (good(cap_watts=10**400), "command.devices[0].cap_watts"),
        (good(lock_max_mhz=1200), "command.devices[0].lock_max_mhz"),
        (good(lock=1200), "command.devices[0].lock"),
    ],
)
def test_a_malformed_line_is_answered_with_the_field_and_changes_nothing(
    node: Node, line: bytes, field: str
) -> None:
    answer = node.raw(line)
    assert answer["error"]["field"] == field
    assert answer["error"]["expected"]
    assert [board.limit_watts for board in node.boards] == [400.0, 300.0]
    assert node.client.status().highest_epoch == 0


def test_an_endless_line_is_cut_off(node: Node) -> None:
    assert node.raw(b"x" * (3 * MAX_LINE_BYTES))["error"]["field"] == "message"
    assert node.client.status().devices


def test_a_truncated_command_is_never_carried_out(node: Node) -> None:
    whole = encode_command(node.command(600.0))
    assert node.raw(whole[:-1], finish=True) == {}
    assert node.boards[0].limit_watts == 400.0


def test_a_flood_is_cut_off_and_others_are_served(node: Node) -> None:
    request = b'{"version": 1, "request": "nonsense"}\n'
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(10)
        stream.connect(str(node.path))
        stream.sendall(request * (MESSAGE_BURST + 1))
        replies = stream.makefile("rb").readlines()
    assert len(replies) == MESSAGE_BURST + 1
    assert json.loads(replies[-1])["error"]["field"] == "rate"
    assert node.client.status().devices


def test_idle_connections_cannot_lock_the_agent_out(node: Node) -> None:
    with contextlib.ExitStack() as idle:
        for _ in range(20):
            stream = idle.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            stream.connect(str(node.path))
        assert node.client.status().devices


def test_a_stranger_is_refused_by_the_kernels_word_and_audited(directory: Path) -> None:
    stranger = replace(CONFIG, allowed_uids=frozenset({os.getuid() + 1}))
    node = Node(directory, stranger)
    with pytest.raises(ActuatorRefused, match="uid"):
        node.client.status()
    node.hosted.close()
    assert node.events() == ["start", "peer_refused", "stop"]


def test_a_listed_group_is_admitted(directory: Path) -> None:
    by_group = replace(CONFIG, allowed_uids=frozenset(), allowed_gids=frozenset({os.getgid()}))
    node = Node(directory, by_group)
    assert node.client.status().devices
    node.client.close()
    node.hosted.close()


def test_the_socket_is_not_open_to_the_world(node: Node) -> None:
    assert stat.S_IMODE(node.path.stat().st_mode) == 0o660


def test_a_dead_socket_is_replaced_a_living_or_foreign_one_is_not(
    node: Node, directory: Path
) -> None:
    server = SocketServer(node.clock)
    admission = Admission(frozenset({0}))
    actuator = node.hosted.actuators["n"]
    with pytest.raises(SocketTaken, match="another process"):
        server.add(node.path, actuator, admission, print)
    plain = directory / "plain"
    plain.write_text("keep me")
    with pytest.raises(SocketTaken, match="not a socket"):
        server.add(plain, actuator, admission, print)
    dead = directory / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(dead))
    server.add(dead, actuator, admission, print)
    server.close()
    assert plain.read_text() == "keep me"


def test_the_client_says_when_nobody_answers(directory: Path) -> None:
    with pytest.raises(ActuatorUnavailable, match="none"):
        ActuatorClient(directory / "none", ManualClock()).status()


@pytest.mark.parametrize(
    "answer",
    [b"{}\n", b'{"status": 1}\n', b"nonsense\n", b'{"status": {"boot_id": "x"}}\n'],
)
def test_the_client_refuses_an_answer_that_is_not_the_protocol(
    directory: Path, answer: bytes
) -> None:
    path = directory / "liar"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        client = ActuatorClient(path, ManualClock())
        client._connected()
        stream, _ = listener.accept()
        stream.sendall(answer)
        with pytest.raises(ActuatorProtocolError):
            client.status()
        stream.close()


def test_the_client_reconnects_after_the_actuator_restarted(directory: Path) -> None:
    node = Node(directory)
    assert node.client.status().devices
    node.hosted.close()
    again = Node(directory)
    assert node.client.status().devices
    node.client.close()
    again.hosted.close()


def test_stopping_leaves_guaranteed_caps(directory: Path) -> None:
    node = Node(directory)
    node.client.apply(node.command(600.0))
    node.client.close()
    node.hosted.close()
    assert node.boards[0].limit_watts == 400.0


def test_hosted_actuators_end_leases_on_their_own_thread(directory: Path) -> None:
    clock = SystemClock()
    board = MemoryBoard("GPU-0")
    hosted = HostedActuators({"n": [board]}, CONFIG, directory, clock, seed=1)
    hosted.open()
    ticking = threading.Thread(target=hosted.run_ticks)
    ticking.start()
    client = ActuatorClient(socket_path(directory, "n"), clock)
    device = DeviceCommand("GPU-0", Operation.SET_POWER_LIMIT, 600.0)
    assert client.apply(LeaseCommand(1, 1, client.status().nonce, 1500, (device,))).accepted
    until_ns = clock.monotonic_ns() + 30 * NS_PER_SECOND
    while board.limit_watts != 400.0 and clock.monotonic_ns() < until_ns:
        clock.wait_until(clock.monotonic_ns() + NS_PER_SECOND // 50)
    client.close()
    hosted.close()
    ticking.join()
    assert board.limit_watts == 400.0
    assert "expire" in [entry["event"] for entry in hosted.audits["n"].entries]


def test_a_full_disk_loses_audit_lines_but_no_cap() -> None:
    class Disk(io.StringIO):
        full = False

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "no space left")
            return super().write(text)

    disk = Disk()
    audit = AuditLog(disk, ManualClock())
    disk.full = True
    audit({"event": "apply"})
    audit({"event": "expire"})
    disk.full = False
    audit({"event": "renew"})
    audit({"event": "stop"})
    (line,) = disk.getvalue().splitlines()
    assert json.loads(line)["lost_before"] == 2
    assert json.loads(line)["renewals_before"] == 1


def test_a_status_asked_for_ahead_is_the_next_status_and_never_a_later_answer(node: Node) -> None:
    first = node.client.status()
    node.client.ask_status()
    node.client.ask_status()
    second = node.client.status()
    assert second.nonce not in (first.nonce, node.client.status().nonce)
    command = node.command(600.0)
    node.client.ask_status()
    assert node.client.apply(command).devices == {"GPU-0": "confirmed"}
    assert node.client.status().devices["GPU-0"].confirmed_sequence == command.sequence


def test_asking_ahead_of_an_actuator_that_has_gone_is_told_by_the_status(directory: Path) -> None:
    node = Node(directory)
    node.client.ask_status()  # without a connection: nothing to ask on
    node.client.status()
    node.hosted.close()
    node.client.ask_status()
    with pytest.raises(ActuatorUnavailable):
        node.client.status()
    node.client.close()
