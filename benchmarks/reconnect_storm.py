"""How long 1,250 agents need to come back after every stream ended at once, amid a storm.

A real controller replica (TLS, leases, ticks over 10,000 GPUs) runs in a process of its own. All
streams end at the same moment; each agent comes back over its own TLS connection with a token that
has to be reviewed over HTTP (10 ms an answer: assumed, as no API server of a cluster was at hand).
Meanwhile 8 threads make 500 connections half of which send garbage below TLS, then 1,600 handshakes
without a word, and the certificate is renewed once more in the middle. Deaths of the replica count
as such. Everything is on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._storm_agents import GUARANTEED_WATTS, Fleet
from benchmarks.runner import Options, Result, Target
from wattpack.clock import Clock, SystemClock
from wattpack.ending import last_step
from wattpack.errors import DeadlineExceededError
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND, seconds_to_ns

NAME = "reconnect_storm"
SUMMARY = "seconds until 1,250 agents are back, amid garbage and certificate renewals"

REVIEW_SECONDS = 0.01
#: After the cut; a cut is itself a renewal that lets no stream move over.
RENEW_SECONDS = 1.0
#: Connections, and whether every other one sends garbage below TLS.
STORM = ((500, True), (1600, False))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    agents: int
    cuts: int
    deadline_seconds: float


FULL = Size(agents=1250, cuts=3, deadline_seconds=90.0)
QUICK = Size(agents=100, cuts=1, deadline_seconds=30.0)


class Server:
    """A child process that answers each line with one.

    Args:
        folder: Holds its temporary files, so that they go when it was killed.
        arguments: Module and arguments.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # The library tells of each broken handshake.
            env={**os.environ, "GRPC_VERBOSITY": "NONE", "TMPDIR": str(folder)},
        )
        # It ends by itself once its input does, unless it hangs.
        self._take_back = last_step(self.process.kill)
        self._lock = threading.Lock()
        self.first = self._line()

    def ask(self, command: str) -> dict[str, Any]:
        """Its answer; nothing once it is dead."""
        with self._lock:
            try:
                assert self.process.stdin is not None
                self.process.stdin.write(f"{command}\n")
                self.process.stdin.flush()
                answer: dict[str, Any] = json.loads(self._line())
            except (OSError, ValueError):
                return {}
        return answer

    def end(self) -> str:
        """Its last words; a process that hangs is killed."""
        try:
            out, _ = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, _ = self.process.communicate()
        self._take_back()
        return out

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@dataclass(slots=True)
class Seen:
    """What the storms brought."""

    back_seconds: list[float]
    below_seconds: list[float]
    storm_connections: int = 0
    below_cap_agents: int = 0


def run(options: Options) -> Result:
    """Measure; ``--quick`` cuts once, with fewer agents."""
    size = QUICK if options.quick else FULL
    clock = SystemClock()
    with ExitStack() as undo:
        folder = undo.enter_context(ScratchFolder())
        reviews = Server(folder, "benchmarks._storm_reviews", str(REVIEW_SECONDS))
        undo.callback(reviews.end)
        config = folder / "kubeconfig"
        config.write_text(json.dumps(_kubeconfig(int(reviews.first))), encoding="utf-8")
        arguments = (str(size.agents), str(config), str(folder / "ca.crt"))
        replica = Server(folder, "benchmarks._storm_server", *arguments)
        undo.callback(replica.end)
        port = int(json.loads(replica.first)["port"])
        fleet = Fleet(size.agents, port, folder, clock, options.seed)
        undo.callback(fleet.close)
        seen = _storms(size, fleet, replica, port, clock, options.progress)
        counted = replica.ask("count")
        died = replica.process.poll() is not None
        answered = int(reviews.end().split()[-1])
    return _result(size, seen, counted, died, answered)


def _storms(
    size: Size,
    fleet: Fleet,
    replica: Server,
    port: int,
    clock: Clock,
    progress: Callable[[str], None],
) -> Seen:
    seen = Seen([], [])
    took = _until(fleet, clock, size, lambda: _all_raised(fleet))
    progress(f"{size.agents} agents stream and hold raised caps after {took:.1f} s")
    for cut in range(1, size.cuts + 1):
        fleet.new_tokens(cut)
        for agent in fleet.agents:
            agent.mark()
        calm = threading.Event()
        storm = threading.Thread(
            target=_storm, args=(replica.folder, port, calm, seen), daemon=True
        )
        renewal = threading.Thread(target=_renewal, args=(replica, calm), daemon=True)
        storm.start()
        replica.ask("cut")
        renewal.start()
        seen.back_seconds.append(_until(fleet, clock, size, lambda: _all_back(fleet)))
        storm.join()
        renewal.join()
        _until(fleet, clock, size, lambda: _all_raised(fleet))
        for agent in fleet.agents:
            agent.finish(clock.monotonic_ns())
        below = [agent.below_ns / NS_PER_SECOND for agent in fleet.agents]
        seen.below_seconds += below
        seen.below_cap_agents += sum(seconds > 0 for seconds in below)
        progress(
            f"cut {cut}: all back after {seen.back_seconds[-1]:.2f} s, "
            f"{sum(s > 0 for s in below)} agents below their earlier cap, "
            f"longest {max(below):.2f} s"
        )
    return seen


def _all_back(fleet: Fleet) -> bool:
    """Each agent was seen to stream again; renewals move some of them once more meanwhile."""
    return all(agent.back_ns is not None for agent in fleet.agents)


def _all_raised(fleet: Fleet) -> bool:
    return all(agent.cap_watts > GUARANTEED_WATTS + 1.0 for agent in fleet.agents)


def _until(fleet: Fleet, clock: Clock, size: Size, done: Callable[[], bool]) -> float:
    """Seconds until it is so; agents go on meanwhile.

    Raises:
        DeadlineExceededError: if it never is.
    """
    start_ns = clock.monotonic_ns()
    until_ns = start_ns + seconds_to_ns(size.deadline_seconds)
    while not done():
        if fleet.visit_all() > until_ns:
            raise DeadlineExceededError(
                f"after {size.deadline_seconds:g} s {fleet.connected()} of {size.agents} agents "
                "stream"
            )
    return (clock.monotonic_ns() - start_ns) / NS_PER_SECOND


def _storm(folder: Path, port: int, calm: threading.Event, seen: Seen) -> None:
    """What killed the server before, both at once with the agents' return."""
    for connections, garbage in STORM:
        storm = ("benchmarks._connection_storm", str(port), str(connections), str(int(garbage)))
        clients = Server(folder, *storm)
        # They say nothing when they were killed because this process shall end.
        seen.storm_connections += int(clients.first or 0)
        clients.end()
    calm.set()


def _renewal(replica: Server, calm: threading.Event) -> None:
    calm.wait(RENEW_SECONDS)
    replica.ask("renew")


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "storm",
        "contexts": [{"name": "storm", "context": {"cluster": "storm", "user": "storm"}}],
        "clusters": [{"name": "storm", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "storm", "user": {"token": "replica"}}],
    }


def _result(size: Size, seen: Seen, counted: dict[str, Any], died: bool, answered: int) -> Result:
    below = np.array(seen.below_seconds)
    figures: dict[str, float | int | str] = {
        "agents": size.agents,
        "cuts": size.cuts,
        "deaths": int(died),
        "storm_connections": seen.storm_connections,
        "certificate_renewals": counted.get("renewals", 0),
        "failed_ticks": counted.get("failed_ticks", -1),
        "token_reviews": answered,
        "seconds_until_all_back_max": max(seen.back_seconds),
        "seconds_until_all_back_mean": float(np.mean(seen.back_seconds)),
        "agents_below_earlier_cap": seen.below_cap_agents,
        "seconds_below_earlier_cap_p99": float(np.quantile(below, 0.99)),
        "seconds_below_earlier_cap_max": float(below.max()),
    }
    targets = {
        "deaths": Target(at_most=0),
        "failed_ticks": Target(at_least=0, at_most=0),
        "seconds_until_all_back_max": Target(at_most=10.0),
    }
    return Result(figures, targets)
