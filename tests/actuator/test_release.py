"""``wattpack release --restore-defaults``: the one raise without a lease, by root's own word."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actuator.app.hosted_actuators import socket_path
from actuator.app.release_command import UNKNOWN, main
from actuator.lease_messages import DeviceState
from actuator.unix_socket.encoding import Ask, encode_ask
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission
from tests.actuator.test_actuator_process import Rig, eventually
from tests.actuator.test_actuator_socket import CONFIG, Node
from wattpack.errors import InputError, WattpackError


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        yield Path(path)


def never(_question: str) -> str:
    raise AssertionError("nobody was to be asked")


def test_released_boards_stay_at_their_defaults_when_the_actuator_leaves(directory: Path) -> None:
    rig = Rig(directory).start()
    rig.raise_to(600.0)
    assert main(["--restore-defaults", "--yes", "--socket", str(rig.socket)], never) == 0
    assert (rig.limit("GPU-0"), rig.limit("GPU-1")) == (700.0, 700.0)
    status = rig.client.status()
    assert {row.state for row in status.devices.values()} == {DeviceState.UNCONTROLLED}
    assert rig.stop() == 0  # SIGTERM: helm uninstall
    assert (rig.limit("GPU-0"), rig.limit("GPU-1")) == (700.0, 700.0)
    restored = [row for row in rig.events() if row["event"] == "restore_defaults"]
    assert [row["peer_uid"] for row in restored] == [os.getuid()]
    assert {device["after_watts"] for device in restored[0]["devices"]} == {700.0}


def test_a_crash_after_the_release_takes_nothing_back_but_a_new_start_does(directory: Path) -> None:
    rig = Rig(directory).start()
    assert main(["--restore-defaults", "--yes", "--socket", str(rig.socket)], never) == 0
    (child,) = rig.child_pids()
    os.kill(child, 9)
    eventually(lambda: len(rig.child_pids()) == 2)
    eventually(rig.answers)
    assert rig.limit() == 700.0
    assert rig.stop() == 0
    rig.start()
    assert rig.limit() == 400.0
    rig.raise_to(600.0, epoch=2)
    assert rig.stop() == 0
    assert rig.limit() == 400.0


def test_no_lease_is_given_to_a_released_node(directory: Path) -> None:
    node = Node(directory)
    table = node.hosted.tables["n"]
    node.hosted.actuators["n"].restore_defaults(0)
    assert [board.limit_watts for board in node.boards] == [700.0, 700.0]
    assert node.client.apply(node.command(500.0)).field == "state"
    node.pass_time(20.0)
    assert [board.limit_watts for board in node.boards] == [700.0, 700.0]
    assert table.released
    node.client.close()
    node.hosted.close()
    assert [board.limit_watts for board in node.boards] == [700.0, 700.0]


def test_the_agents_user_may_not_release_and_the_attempt_is_audited(directory: Path) -> None:
    node = Node(directory)
    path = socket_path(directory, "n")
    with pytest.raises(WattpackError, match="root"):
        main(["--restore-defaults", "--yes", "--socket", str(path)], never)
    refused = node.hosted.audits["n"].entries[-1]
    assert (refused["event"], refused["expected"]) == (
        "peer_refused",
        "the actuator's own user (root)",
    )
    assert node.boards[0].limit_watts == 400.0
    node.client.close()
    node.hosted.close()


def test_a_state_that_cannot_be_kept_releases_nothing(directory: Path) -> None:
    node = Node(directory)

    def full(_memory: object) -> None:
        from actuator.app.persisted_state import StateNotSaved

        raise StateNotSaved("no space left")

    node.hosted._stores["n"].save = full  # type: ignore[method-assign]
    result = node.hosted.actuators["n"].restore_defaults(0)
    assert (result.accepted, result.field) == (False, "state")
    assert node.boards[0].limit_watts == 400.0
    node.client.close()
    node.hosted.close()


def test_it_asks_and_without_a_yes_nothing_happens(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = str(directory / "nobody.sock")
    assert main(["--restore-defaults", "--socket", nobody], lambda _: "") == 1
    said = capsys.readouterr().out
    assert UNKNOWN in said
    assert "nothing was changed" in said

    def end_of_input(_question: str) -> str:
        raise EOFError

    with pytest.raises(InputError, match="--yes"):
        main(["--restore-defaults", "--socket", nobody], end_of_input)
    with pytest.raises(SystemExit):
        main([])


def cluster(gpus: int, **changes: Any) -> dict[str, Any]:
    """A rack of 20 kW with one node of H200s."""
    spec = {
        "ratingWatts": 20_000,
        "breaker": {"curve": "RackThermal"},
        "members": {"nodeSelector": {"rack": "a"}},
        "supplyEfficiency": 0.95,
        "nonGpuPerNode": {"worstWatts": 2_000, "idleWatts": 500},
    } | changes
    devices = [
        {"uuid": f"GPU-{i}", "model": "NVIDIA H200", "index": i, "defaultLimitWatts": 700}
        for i in range(gpus)
    ]
    return {
        "items": [
            {
                "apiVersion": "wattpack.io/v1alpha1",
                "kind": "PowerDomain",
                "metadata": {"name": "rack-a"},
                "spec": {**spec, "ratingWatts": 1},  # a change that was refused does not count
                "status": {"acceptedSpec": spec},
            },
            {
                "apiVersion": "wattpack.io/v1alpha1",
                "kind": "GpuNode",
                "metadata": {"name": "n1"},
                "spec": {"nodeName": "n1"},
                "status": {"gpuCount": gpus, "devices": devices},
            },
            {"kind": "Node", "metadata": {"name": "n1", "labels": {"rack": "a"}}},
        ]
    }


@pytest.mark.parametrize(("gpus", "word", "status"), [(8, "bears it", 0), (32, "OVERLOAD", 1)])
def test_it_says_what_the_breaker_will_bear(
    directory: Path, capsys: pytest.CaptureFixture[str], gpus: int, word: str, status: int
) -> None:
    file = directory / "cluster.json"
    file.write_text(json.dumps(cluster(gpus)))
    arguments = ["--restore-defaults", "--dry-run", "--cluster", str(file)]
    assert main(arguments, never) == status
    said = capsys.readouterr().out
    assert word in said
    # By hand: 8 x 700 W x 1.05 overshoot x (1 + 0.09 / sqrt(8)) / 0.95 + 2000 W AC = 8.4 kW.
    if gpus == 8:
        assert "8.4 of 20.0 kW with 8 GPUs" in said


def test_servers_of_a_rack_that_was_never_accepted_load_the_row_above_it(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = cluster(8)
    rack, spec = document["items"][0], document["items"][0]["status"]["acceptedSpec"]
    row = {**spec, "members": {}, "nonGpuPerNode": {"worstWatts": 0}}
    refused = {**spec, "ratingWatts": 1, "parent": "row", "members": {"nodeNames": ["n1"]}}
    document["items"] += [
        {**rack, "spec": refused, "status": {}},
        {**rack, "metadata": {"name": "row"}, "spec": row, "status": {"acceptedSpec": row}},
    ]
    del document["items"][0]
    file = directory / "cluster.json"
    file.write_text(json.dumps(document))
    assert main(["--restore-defaults", "--dry-run", "--cluster", str(file)], never) == 0
    said = capsys.readouterr().out
    assert "row: 8.4 of 20.0 kW with 8 GPUs" in said
    assert "rack-a" not in said


def test_gpus_whose_default_nobody_told_are_named(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = cluster(8)
    document["items"][1]["status"]["gpuCount"] = 10
    file = directory / "cluster.json"
    file.write_text(json.dumps(document))
    assert main(["--restore-defaults", "--dry-run", "--cluster", str(file)], never) == 1
    said = capsys.readouterr().out
    assert "CANNOT BE SAID, 2 GPUs of unknown limit NOT counted" in said


@pytest.mark.parametrize(("has_agent", "unknown"), [(False, 8), (True, 2)])
def test_boards_that_only_the_node_object_tells_are_unknown_not_absent(
    directory: Path, capsys: pytest.CaptureFixture[str], has_agent: bool, unknown: int
) -> None:
    document = cluster(6)
    document["items"][2]["status"] = {"capacity": {"nvidia.com/gpu": "8"}}
    if not has_agent:
        del document["items"][1]
    file = directory / "cluster.json"
    file.write_text(json.dumps(document))
    assert main(["--restore-defaults", "--dry-run", "--cluster", str(file)], never) == 1
    said = capsys.readouterr().out
    assert "with 8 GPUs: CANNOT BE SAID" in said
    assert f"{unknown} GPUs of unknown limit NOT counted" in said
    assert "rack-a: 2.0 of" in said or has_agent  # the host counts: 2000 W AC


@pytest.mark.parametrize("text", ["", "[]", '{"items": 5}', '{"items": [5]}', '{"items": []}', "{"])
def test_a_file_that_is_no_cluster_is_refused(directory: Path, text: str) -> None:
    file = directory / "cluster.json"
    file.write_text(text)
    with pytest.raises(InputError):
        main(["--restore-defaults", "--dry-run", "--cluster", str(file)], never)


def test_roots_own_word_reaches_the_boards_over_the_socket(directory: Path) -> None:
    node = Node(directory, replace(CONFIG, allowed_uids=frozenset({os.getuid() + 1})))
    server = SocketServer(node.clock)
    path = directory / "r"
    admission = Admission(frozenset(), operators=frozenset({os.getuid()}))
    server.add(path, node.hosted.actuators["n"], admission, print)
    with socket.socket(socket.AF_UNIX) as root:
        root.connect(str(path))
        server.poll(0)
        root.sendall(encode_ask(Ask.RESTORE_DEFAULTS))
        server.poll(0)
        assert b'"accepted":true' in root.recv(4096)
    assert [board.limit_watts for board in node.boards] == [700.0, 700.0]
    server.close()
    node.hosted.close()
