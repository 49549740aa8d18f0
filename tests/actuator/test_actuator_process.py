"""The real processes: parent and child, killed, stopped, restarted and misconfigured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actuator.app.board_writes import WorkerHands
from actuator.app.config_file import load_config
from actuator.app.host_unit import render_host_unit
from actuator.app.persisted_state import DEFAULT_STATE_FILE, FileStore, StateNotSaved
from actuator.lease_entry import Memory, RememberedDevice
from actuator.lease_messages import DeviceCommand, LeaseCommand, Operation
from actuator.unix_socket.client import ActuatorClient, ActuatorUnavailable
from tests.actuator.actuator_boards import read_boards, write_board
from wattpack.clock import SystemClock
from wattpack.errors import InputError
from wattpack.units import NS_PER_MS, NS_PER_SECOND

PROGRAM = Path(__file__).with_name("actuator_program.py")
CLOCK = SystemClock()
PATIENCE_SECONDS = 30


def eventually(what: Callable[[], bool]) -> None:
    """Wait until it holds; the time-out only ends a hopeless run."""
    until_ns = CLOCK.monotonic_ns() + PATIENCE_SECONDS * NS_PER_SECOND
    while not what():
        assert CLOCK.monotonic_ns() < until_ns, "it never happened"
        CLOCK.wait_until(CLOCK.monotonic_ns() + 20 * NS_PER_MS)


class Rig:
    """One actuator with its parent, boards in a file, and a client."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.boards_file = directory / "boards.json"
        for uuid in ("GPU-0", "GPU-1"):
            write_board(self.boards_file, uuid, 700.0)
        self.config_file = directory / "config.json"
        defaults = {"devices": {"NVIDIA H200": 400}, "allowed_uids": [os.getuid()]}
        self.config_file.write_text(json.dumps(defaults | config))
        self.audit_file = directory / "audit.jsonl"
        self.state_file = directory / "state.json"
        self.socket = directory / "a.sock"
        self.client = ActuatorClient(self.socket, CLOCK)
        self.sequence = 0
        self.process: subprocess.Popen[bytes] | None = None

    def command_line(self, *more: str) -> list[str]:
        paths = ["--config", self.config_file, "--state", self.state_file]
        paths += ["--socket", self.socket, "--audit", self.audit_file]
        return [sys.executable, str(PROGRAM), str(self.boards_file), *map(str, paths), *more]

    def start(self) -> Rig:
        self.process = subprocess.Popen(self.command_line(), env=environment())
        eventually(self.answers)
        return self

    def answers(self) -> bool:
        try:
            return bool(self.client.status().devices)
        except ActuatorUnavailable:
            return False

    def limit(self, uuid: str = "GPU-0") -> float:
        return float(read_boards(self.boards_file)[uuid])

    def events(self) -> list[dict[str, Any]]:
        if not self.audit_file.exists():
            return []
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def child_pids(self) -> list[int]:
        return [row["pid"] for row in self.events() if row["event"] == "child_started"]

    def raise_to(self, watts: float, epoch: int = 1) -> None:
        self.sequence += 1
        device = DeviceCommand("GPU-0", Operation.SET_POWER_LIMIT, watts)
        nonce = self.client.status().nonce
        result = self.client.apply(LeaseCommand(epoch, self.sequence, nonce, 10_000, (device,)))
        assert result.devices == {"GPU-0": "confirmed"}

    def stop(self) -> int:
        self.client.close()
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp") as path:
        yield Path(path)


@pytest.fixture
def rig(directory: Path) -> Iterator[Rig]:
    made = Rig(directory).start()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.stop()


def test_a_killed_child_leaves_guaranteed_caps_and_its_epoch_lives_on(rig: Rig) -> None:
    rig.raise_to(600.0, epoch=7)
    assert rig.limit() == 600.0
    os.kill(rig.child_pids()[0], signal.SIGKILL)
    eventually(lambda: rig.limit() == 400.0)
    eventually(lambda: len(rig.child_pids()) == 2 and rig.answers())
    status = rig.client.status()
    assert (status.highest_epoch, status.highest_sequence) == (7, 1)
    row = status.devices["GPU-0"]
    assert (row.limit_watts, row.lease_active) == (400.0, True)
    assert [e["reason"] for e in rig.events() if e["event"] == "capped"] == ["start", "child_died"]


def test_i10_a_limit_lost_behind_its_back_is_rewritten(rig: Rig) -> None:
    write_board(rig.boards_file, "GPU-1", 700.0)
    eventually(lambda: rig.limit("GPU-1") == 400.0)
    assert rig.client.status().devices["GPU-1"].tampered == 1


def test_sigterm_leaves_guaranteed_caps_and_no_process(rig: Rig) -> None:
    rig.raise_to(600.0)
    assert rig.stop() == 0
    assert rig.limit() == 400.0
    assert not rig.socket.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(rig.child_pids()[0], 0)


def test_a_second_ctrl_c_leaves_the_capping_alone(directory: Path) -> None:
    """A terminal tells its whole group; the capping waits for its configuration meanwhile."""
    rig = Rig(directory)
    rig.process = subprocess.Popen(
        rig.command_line(), env=environment(), start_new_session=True, stderr=subprocess.PIPE
    )
    eventually(rig.answers)
    rig.client.close()
    written = rig.config_file.rename(directory / "written.json")
    os.mkfifo(rig.config_file)
    os.killpg(rig.process.pid, signal.SIGINT)
    asked: list[int] = []
    eventually(lambda: bool(writing_end(rig.config_file, asked)))
    write_board(rig.boards_file, "GPU-0", 700.0)
    os.killpg(rig.process.pid, signal.SIGINT)
    written.replace(rig.config_file)
    with open(asked[0], "w") as end:
        end.write(rig.config_file.read_text())
    _, said = rig.process.communicate(timeout=PATIENCE_SECONDS)
    assert (rig.process.returncode, said) == (0, b"")
    assert rig.limit() == 400.0


def writing_end(pipe: Path, found: list[int]) -> list[int]:
    """Also in ``found``: the end to write to, once somebody waits at the other."""
    with contextlib.suppress(OSError):
        found.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return found


def test_a_stopped_child_counts_as_dead(rig: Rig) -> None:
    rig.raise_to(600.0)
    os.kill(rig.child_pids()[0], signal.SIGSTOP)
    eventually(lambda: rig.limit() == 400.0)
    assert "child_hangs" in {row["event"] for row in rig.events()}


def test_a_child_whose_parent_is_gone_leaves_guaranteed_caps(rig: Rig) -> None:
    rig.raise_to(600.0)
    rig.client.close()
    assert rig.process is not None
    rig.process.kill()
    rig.process.wait(PATIENCE_SECONDS)
    eventually(lambda: rig.limit() == 400.0 and not rig.socket.exists())


def run_once(rig: Rig, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        rig.command_line(*more),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_host_units_command_lowers_all_raises_none_and_exits(directory: Path) -> None:
    rig = Rig(directory)
    write_board(rig.boards_file, "GPU-1", 250.0)
    assert run_once(rig, "--apply-guaranteed-and-exit").returncode == 0
    assert (rig.limit("GPU-0"), rig.limit("GPU-1")) == (400.0, 250.0)


def test_the_verb_runs_on_simulated_boards(directory: Path) -> None:
    config = directory / "config.json"
    config.write_text(json.dumps({"devices": {"*": 450}, "allowed_uids": [0]}))
    paths = [f"--config={config}", f"--state={directory / 'state.json'}"]
    done = subprocess.run(
        [sys.executable, "-m", "wattpack.cli", "actuator", "--device=simulated", *paths,
         "--apply-guaranteed-and-exit"],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["devices"]
    assert [(row["before_watts"], row["after_watts"]) for row in rows] == [(700.0, 450.0)] * 8


def test_an_unknown_model_without_a_guaranteed_cap_refuses_to_start(directory: Path) -> None:
    rig = Rig(directory, devices={"NVIDIA A100": 300})
    done = run_once(rig)
    assert done.returncode == 2
    assert "devices.NVIDIA H200: expected a guaranteed cap in W" in done.stderr
    assert rig.limit() == 700.0


def test_the_host_unit_is_ordered_before_kubelet_and_runs_with_one_capability(
    directory: Path,
) -> None:
    unit = run_once(Rig(directory), "--print-host-unit").stdout.splitlines()
    for line in ("Before=kubelet.service", "Type=oneshot", "CapabilityBoundingSet=CAP_SYS_ADMIN"):
        assert line in unit
    packaged = Path(__file__).parents[2] / "packaging/systemd/wattpack-guaranteed-caps.service"
    paths = Path("/etc/wattpack/actuator.json"), DEFAULT_STATE_FILE
    assert packaged.read_text() == render_host_unit(*paths)


def test_the_privileged_process_loads_no_third_party_code(directory: Path) -> None:
    code = (
        "import sys, actuator.app.actuator_command; print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=True
    )
    loaded = set(done.stdout.decode().split())
    assert not loaded & {"numpy", "pydantic", "grpc", "yaml", "kubernetes", "pynvml"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"devices": {}}, "devices"),
        ({"devices": {"NVIDIA H200": -1}}, "devices.NVIDIA H200"),
        ({"devices": {"NVIDIA H200": True}}, "devices.NVIDIA H200"),
        ({"devices": {"NVIDIA H200": "400W"}}, "devices.NVIDIA H200"),
        ({"allowed_uids": []}, "allowed_uids"),
        ({"allowed_uids": [-1]}, r"allowed_uids\[0\]"),
        ({"allowed_uids": "all"}, "allowed_uids"),
        ({"max_ttl_ms": 60_000}, "max_ttl_ms"),
        ({"max_ttl_ms": 0}, "max_ttl_ms"),
        ({"max_ttl": 5}, "max_ttl"),
    ],
)
def test_a_wrong_configuration_names_its_field(
    directory: Path, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError, match=f"config.json: {field}: expected"):
        load_config(Rig(directory, **change).config_file)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"devices": NaN}', "{} {}"])
def test_a_configuration_that_is_no_json_object_is_refused(directory: Path, text: str) -> None:
    file = directory / "config.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        load_config(file)


@pytest.mark.parametrize("watts", [400_000, 3200])
def test_milliwatts_or_a_nodes_total_in_place_of_watts_a_gpu_refuse_to_start(
    directory: Path, watts: int
) -> None:
    done = run_once(Rig(directory, devices={"*": watts}), "--apply-guaranteed-and-exit")
    assert done.returncode == 2
    assert "<= 700 W a GPU" in done.stderr


MEMORY = Memory("boot", 5, 9, {"GPU-0": RememberedDevice(400.0, 380.0, 600.0, None, 10**12)})


def test_the_state_file_gives_back_what_was_saved(directory: Path) -> None:
    store = FileStore(directory / "deep" / "state.json")
    assert store.load() == (None, "")
    store.save(MEMORY)
    assert store.load() == (MEMORY, "")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace("600.0", "NaN"),
        lambda text: text.replace("highest_epoch", "hi_epoch"),
    ],
)
def test_a_damaged_state_file_is_no_lease(directory: Path, damage: Callable[[str], str]) -> None:
    file = directory / "state.json"
    store = FileStore(file)
    store.save(MEMORY)
    file.write_text(damage(file.read_text()))
    memory, problem = store.load()
    assert problem
    assert memory is None or not memory.devices


def test_a_readable_epoch_of_a_damaged_state_file_is_kept(directory: Path) -> None:
    file = directory / "state.json"
    store = FileStore(file)
    store.save(MEMORY)
    file.write_text(file.read_text().replace('"cap_watts": 600.0', '"cap_watts": -1'))
    memory, _ = store.load()
    assert memory == Memory("", 5, 9, {})


def test_the_state_is_never_written_through_a_link_that_somebody_laid(directory: Path) -> None:
    file, victim = directory / "state.json", directory / "victim"
    victim.write_text("mine")
    (directory / f".state.json.{os.getpid()}").symlink_to(victim)
    with pytest.raises(StateNotSaved):
        FileStore(file).save(MEMORY)
    assert victim.read_text() == "mine"
    assert not file.exists()


def test_a_state_file_that_cannot_be_written_is_a_typed_error(directory: Path) -> None:
    (directory / "file").write_text("in the way")
    with pytest.raises(StateNotSaved):
        FileStore(directory / "file" / "state.json").save(MEMORY)


def test_a_hung_board_is_reported_at_once_the_second_time_and_others_go_on() -> None:
    from threading import Event

    from actuator.lease_entry import Write, WriteKind
    from tests.actuator.actuator_boards import MemoryBoard

    release = Event()

    class Hung(MemoryBoard):
        def set_power_limit(self, watts: float) -> None:
            release.wait()
            super().set_power_limit(watts)

    hung, well = Hung("GPU-0"), MemoryBoard("GPU-1")
    hands = WorkerHands([hung, well], CLOCK, deadline_ns=50 * NS_PER_MS)
    plan = (Write(WriteKind.POWER_LIMIT, 600.0), Write(WriteKind.RESET_CLOCKS))
    for _ in range(2):
        outcomes = hands.carry_out({"GPU-0": plan, "GPU-1": plan})
        assert "not returned" in outcomes["GPU-0"].error
        assert outcomes["GPU-1"].limit_watts == 600.0
    release.set()
    eventually(lambda: hands.carry_out({"GPU-0": ()})["GPU-0"].limit_watts == 600.0)
    assert "unlock" not in hung.calls
    hands.close()
