"""Real processes are told to end, at nasty moments too: they end in time and leave no files."""

from __future__ import annotations

import base64
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from forecasting.sqlite import HistoryStore
from tests.wattpack.kube_over_http import kubeconfig
from wattpack.cli import VERBS
from wattpack.clock import SystemClock
from wattpack.units import NS_PER_MS, NS_PER_SECOND

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("ending_program.py")
CLOCK = SystemClock()
START_SECONDS = 60.0
#: On cores of its own; beside other work it gets its share of them only.
END_SECONDS = 2.0
# Verbs whose work has an end of its own: nobody waits, so nobody could look.
FINISH_BY_THEMSELVES = {
    "backtest": "goes through one history; the same command goes on where it ended",
    "bench": "measures one board; the same command goes on where it ended",
    "explain": "answers one question",
    "forecast": "prints tables",
    "history": "fills or lists one file",
    "plan": "places one snapshot",
    "profiles": "prints tables",
    "release": "asks a person, then writes once",
    "workloads": "prints tables",
}


@dataclass(frozen=True, slots=True)
class Case:
    """How a verb is started so that it serves.

    Attributes:
        arguments: Of the verb, for a folder and a kubeconfig.
        words: What it says once it serves; None if its socket tells.
        status: Its exit status after a SIGTERM and after a Ctrl-C.
        is_cut_short: Whether a second signal ends it at once.
    """

    arguments: Callable[[Path, Path], list[str]]
    words: str | None
    status: tuple[int, int] = (0, 0)
    is_cut_short: bool = True


def controller(_folder: Path, config: Path) -> list[str]:
    ports = ["--stream-address=127.0.0.1:0", "--http-host=127.0.0.1", "--http-port=0"]
    return ["controller", *ports, f"--kubeconfig={config}"]


def scheduler(_folder: Path, config: Path) -> list[str]:
    return ["scheduler", "--webhook-port=0", "--metrics-port=0", f"--kubeconfig={config}"]


def console(_folder: Path, config: Path) -> list[str]:
    source = "--controller=http://127.0.0.1:9/v1/live"
    return ["console", source, "--port=0", f"--kubeconfig={config}"]


def forecaster(folder: Path, config: Path) -> list[str]:
    HistoryStore(folder / "history.sqlite").close()
    return ["forecaster", f"--history-file={folder / 'history.sqlite'}", f"--kubeconfig={config}"]


def agent(_folder: Path, _config: Path) -> list[str]:
    return ["agent", "--simulated=2", "--controller=127.0.0.1:9", "--insecure", "--port=0"]


def agent_with_relay(folder: Path, config: Path) -> list[str]:
    return [*agent(folder, config), f"--pod-resources-from={folder / 'nobody.sock'}"]


def actuator(folder: Path, *more: str) -> list[str]:
    body = {"devices": {"NVIDIA H200": 400}, "allowed_uids": [os.getuid()]}
    (folder / "actuator.json").write_text(json.dumps(body))
    paths = [f"--config={folder / 'actuator.json'}", f"--state={folder / 'state.json'}"]
    return [
        "actuator",
        "--device=simulated",
        *paths,
        f"--socket={folder / 'tmp' / 'a.sock'}",
        *more,
    ]


def door(folder: Path, _config: Path) -> list[str]:
    return actuator(folder, "--pod-resources-only", "--pod-resources=/nowhere/kubelet.sock")


#: Every process and thread of the demo over two servers, which start sooner than fifty-two.
SMALL_ROW = {
    "row": {
        "groups": [{"gpu_model": "H200-SXM", "count": 2}],
        "racks": 1,
        "rated_servers": 2,
        "rack_rated_servers": 2,
        "external_watts": 100,
    },
    "services": [],
    "training": [],
    "history": {"days": 1},
}


def demo(folder: Path, *more: str) -> list[str]:
    (folder / "scenario.yaml").write_text(json.dumps(SMALL_ROW))
    return ["demo", f"--scenario={folder / 'scenario.yaml'}", *more]


CASES = {
    "agent": Case(agent, "reports to"),
    "agent with a relay": Case(agent_with_relay, "reports to"),
    "agent --local": Case(
        lambda *_: ["agent", "--local", "--json", "--simulated=1", "--port=0"], "metrics:"
    ),
    "actuator": Case(lambda folder, _: actuator(folder), None, is_cut_short=False),
    "actuator --pod-resources-only": Case(door, None),
    "console": Case(console, "dashboard"),
    "controller": Case(controller, "no certificate yet"),
    "forecaster": Case(forecaster, "cannot list"),
    "scheduler": Case(scheduler, "lease"),
    "watchdog": Case(lambda _, config: ["watchdog", f"--kubeconfig={config}"], "lease not read"),
    "demo": Case(
        lambda folder, _: demo(folder, "--headless", "--replicas=1", "--duration=36000"),
        " s ",
        (143, 0),
    ),
    "demo just started": Case(
        lambda folder, _: demo(folder, "--headless", "--replicas=2", "--duration=36000"),
        "servers",
        (143, 130),
    ),
    "demo with a dashboard": Case(
        lambda folder, _: demo(folder, "--port=0", "--speed=30"), "kW, ", (143, 0)
    ),
}


def share_of_a_core() -> float:
    """What a process may get beside all others; at most half, for neighbours that begin later.

    The load is a mean of the last minute, so those that run at this moment are looked at too.
    """
    mean, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    busy = max(float(mean), float(now.split("/")[0]))
    return min(0.5, (os.cpu_count() or 1) / (2.0 * busy))


class Process:
    """One of the cases, run by the program that makes its moments."""

    def __init__(self, case: Case, folder: Path, moment: str) -> None:
        config = folder / "kubeconfig"
        # The client library keeps what lies inside a kubeconfig in temporary files.
        authority = base64.b64encode(b"nobody's").decode()
        cluster = {"server": "https://127.0.0.1:9", "certificate-authority-data": authority}
        config.write_text(json.dumps(kubeconfig(cluster)))
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.said = b""
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), moment, *case.arguments(folder, config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": str(self.temporary),
            },
        )
        if case.words is not None:
            self.wait_for(case.words)
            return
        until_ns = CLOCK.monotonic_ns() + round(START_SECONDS * NS_PER_SECOND)
        while not any(path.is_socket() for path in self.temporary.iterdir()):
            assert CLOCK.monotonic_ns() < until_ns
            CLOCK.wait_until(CLOCK.monotonic_ns() + 20 * NS_PER_MS)

    def wait_for(self, words: str) -> None:
        """Until it has said this; it never falls silent before."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while words.encode() not in self.said:
                assert selector.select(START_SECONDS), self.said.decode()
                chunk = os.read(self.process.stdout.fileno(), 4096)
                assert chunk, self.said.decode()
                self.said += chunk

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def begin_moment(self) -> None:
        self.tell(signal.SIGALRM)
        self.wait_for("moment")

    def end_moment(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"released")
        self.process.stdin.flush()

    def status(self) -> int:
        """Its exit status; it ends in time, with no traceback and no files."""
        rest, _ = self.process.communicate(timeout=END_SECONDS / share_of_a_core())
        said = (self.said + rest).decode()
        assert "Traceback" not in said, said
        assert "Exception ignored" not in said, said
        assert [path.name for path in self.temporary.rglob("*")] == []
        return self.process.returncode


@contextmanager
def started(name: str, moment: str = "stuck") -> Iterator[Process]:
    # A socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="wp") as folder:
        process = Process(CASES[name], Path(folder), moment)
        try:
            yield process
        finally:
            process.process.kill()
            process.process.communicate()


def test_every_verb_is_known_to_serve_or_to_finish_by_itself() -> None:
    """A new verb takes its place in one of the two, and serves only with the notice."""
    serving = {name.split()[0] for name in CASES}
    assert serving | set(FINISH_BY_THEMSELVES) == set(VERBS)
    assert not serving & set(FINISH_BY_THEMSELVES)
    for verb in FINISH_BY_THEMSELVES:
        module = ROOT / f"{VERBS[verb].module.replace('.', '/')}.py"
        assert "end_noted" not in module.read_text(), f"{verb} serves"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize("name", CASES)
def test_a_process_ends_without_a_traceback_and_takes_its_files_away(
    name: str, number: signal.Signals
) -> None:
    with started(name) as process:
        # The demo's tokens lie there while it runs.
        running = name in {"demo", "demo with a dashboard"}
        assert not running or any(process.temporary.rglob("*token*"))
        process.tell(number)
        assert process.status() == CASES[name].status[number == signal.SIGINT]


@pytest.mark.parametrize("name", ["actuator", "agent", "controller", "demo"])
def test_a_terminal_that_closes_ends_a_process_in_order(name: str) -> None:
    with started(name) as process:
        process.tell(signal.SIGHUP)
        assert process.status() == (129 if CASES[name].status[0] else 0)


LOST = ["in a finaliser", "with locks in hand"]


@pytest.mark.parametrize("moment", LOST)
@pytest.mark.parametrize("name", CASES)
def test_a_signal_at_a_nasty_moment_is_not_lost(name: str, moment: str) -> None:
    with started(name, moment) as process:
        process.begin_moment()
        process.tell(signal.SIGTERM)
        process.end_moment()
        assert process.status() == CASES[name].status[0]


@pytest.mark.parametrize("name", CASES)
def test_a_signal_that_wakes_another_thread_ends_the_process(name: str) -> None:
    with started(name, "where others get the signal") as process:
        process.begin_moment()
        process.tell(signal.SIGTERM)
        assert process.status() == CASES[name].status[0]


CUT_SHORT = [name for name, case in CASES.items() if case.is_cut_short]
AT_ONCE = {signal.SIGTERM: 143, signal.SIGINT: 130}


# Which signal is the second is told by one module for all verbs: each verb meets one of them.
@pytest.mark.parametrize(
    ("name", "second"),
    list(zip(CUT_SHORT, itertools.cycle(AT_ONCE), strict=False)),
    ids=lambda part: getattr(part, "name", part),
)
def test_a_second_signal_ends_a_process_that_hangs_at_once(
    name: str, second: signal.Signals
) -> None:
    with started(name) as process:
        process.begin_moment()
        process.tell(signal.SIGINT)
        process.wait_for(f"heard {signal.SIGINT.value}")
        process.tell(second)
        assert process.status() == AT_ONCE[second]


def test_a_second_signal_does_not_keep_the_boards_from_their_guaranteed_caps() -> None:
    with started("actuator", "in a finaliser") as process:
        process.begin_moment()
        process.tell(signal.SIGTERM)
        process.wait_for(f"heard {signal.SIGTERM.value}")
        process.tell(signal.SIGTERM)
        process.wait_for(f"heard {signal.SIGTERM.value}\nheard {signal.SIGTERM.value}")
        process.end_moment()
        process.wait_for('"event":"capped","reason":"stop"')
        assert process.status() == 0


def test_a_measurement_is_interrupted_and_takes_its_processes_with_it() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="wp") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks", "demo_row", "--quick"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": folder},
        ) as benchmark,
    ):
        assert benchmark.stderr is not None
        assert b"running" in benchmark.stderr.readline()
        benchmark.send_signal(signal.SIGTERM)
        _, rest = benchmark.communicate(timeout=START_SECONDS)
        assert (benchmark.returncode, rest) == (143, b"")
        assert os.listdir(folder) == []
