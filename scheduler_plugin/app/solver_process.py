"""The solver in its own process: killed at the deadline, and the incumbent survives.

Parent and child speak lines of JSON over pipes. The child sends the greedy plan first and the
final plan last; whatever the parent holds when the child hangs, crashes or runs out of memory is
the answer, after the parent's own checker has agreed to it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
from typing import IO, Protocol

from scheduler_plugin.checker import complaints
from scheduler_plugin.plan_document import Plan, parse_plan
from scheduler_plugin.snapshot import Snapshot, parse_snapshot
from scheduler_plugin.solve import SearchSettings, plan, refused
from wattpack.clock import Clock, SystemClock
from wattpack.errors import InputError
from wattpack.units import seconds_to_ns

#: How long after the search's deadline the child may still tidy up, compile and explain.
GRACE_SECONDS = 0.5
#: Of the deadline for finding the plan; the rest is for what makes an answer of it. Assumed.
SEARCH_SHARE = 0.8
#: Without an incumbent by then, the child is taken for stuck (import and greedy take below 2 s).
START_SECONDS = 10.0
_COMMAND = (sys.executable, "-m", "scheduler_plugin.app.solver_process")


class Planner(Protocol):
    """Something that turns a snapshot into a plan in bounded time."""

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """A plan that the checker accepted, possibly one that places nothing.

        Args:
            snapshot: What is known.
            moves: Whether running pods that have a price may leave their nodes.
        """
        ...


class InProcessPlanner:
    """The planner in the caller's thread: deterministic, for the twin, tests and offline use."""

    def __init__(self, deadline_seconds: float = 1.0, seed: int = 0, workers: int = 1) -> None:
        self._deadline_seconds = deadline_seconds
        self._seed = seed
        self._workers = workers

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """The plan of ``scheduler_plugin.solve``."""
        return plan(
            snapshot,
            deadline_seconds=self._deadline_seconds,
            seed=self._seed,
            settings=SearchSettings(workers=self._workers, moves=moves),
        )


class ProcessPlanner:
    """The planner in a child that is started once, reused, and replaced after any trouble.

    Args:
        clock: Only for the deadline.
        deadline_seconds: What the search may take.
        seed: Of the search.
        workers: Of CP-SAT.
        command: What to start; tests give one that hangs or dies.
    """

    def __init__(
        self,
        clock: Clock,
        deadline_seconds: float = 1.0,
        seed: int = 0,
        workers: int = 1,
        command: tuple[str, ...] = _COMMAND,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._options = {"deadline_seconds": deadline_seconds, "seed": seed, "workers": workers}
        self._command = command
        self._start_seconds = start_seconds
        self._child: _Child | None = None
        self.failures = 0

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        """The child's last good plan; the greedy one computed here if it sent none."""
        wait_seconds = self._deadline_seconds + GRACE_SECONDS
        if self._child is None:
            self._child = _Child(self._command, self._clock)
            wait_seconds += self._start_seconds
        options = self._options | {"moves": moves}
        answer = self._child.ask(snapshot, options, seconds_to_ns(wait_seconds))
        if answer.final is None:
            self.failures += 1
            self.close()
        digest = snapshot.digest()
        refusals: tuple[str, ...] = ()
        for candidate in (answer.final, answer.incumbent):
            if candidate is None:
                continue
            wrong = complaints(snapshot, candidate, digest=digest)
            if not wrong:
                return candidate.model_copy(update={"refusals": candidate.refusals + refusals})
            refusals += wrong
        if refusals:
            return refused(snapshot, digest, refusals)
        return plan(snapshot, deadline_seconds=0.0)

    def close(self) -> None:
        """Kill the child; the next plan starts a new one."""
        if self._child is not None:
            self._child.kill()
            self._child = None


class _Answer:
    """What has come back so far."""

    def __init__(self) -> None:
        self.incumbent: Plan | None = None
        self.final: Plan | None = None


class _Child:
    """One child process and the thread that reads it."""

    def __init__(self, command: tuple[str, ...], clock: Clock) -> None:
        self._clock = clock
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Ctrl-C in a terminal goes to the whole group: the child ends when its pipe closes.
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._wake = clock.new_wake()
        self._answer = _Answer()
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="planner-reader", daemon=True)
        self._reader.start()

    def ask(self, snapshot: Snapshot, options: dict[str, float], wait_ns: int) -> _Answer:
        """Whatever the child says until it is done, dies, or time is up."""
        with self._lock:
            self._answer = answer = _Answer()
        request = json.dumps({"options": options, "snapshot": snapshot.model_dump_json()})
        writer = threading.Thread(target=self._write, args=(request,), daemon=True)
        writer.start()
        deadline_ns = self._clock.monotonic_ns() + wait_ns
        while self._clock.wait_until(deadline_ns, self._wake):
            with self._lock:
                if answer.final is not None or self._closed:
                    break
        with self._lock:
            result = _Answer()
            result.incumbent, result.final = answer.incumbent, answer.final
            return result

    def kill(self) -> None:
        """End the process and wait for its reader."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                _close_quietly(stream)

    def _write(self, request: str) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(request + "\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            # The child is gone; its reader has seen the end of the stream and says so.
            self._wake.set()

    def _read(self) -> None:
        stream = self._process.stdout
        for line in stream or ():
            if not self._take(line):
                break
        with self._lock:
            self._closed = True
        self._wake.set()

    def _take(self, line: str) -> bool:
        """Keep one message; False for anything that is none, which ends the conversation."""
        kind, _, text = line.partition(" ")
        try:
            received = parse_plan(text, "planner process")
        except InputError:
            return False
        with self._lock:
            if kind == "final":
                self._answer.final = received
            else:
                self._answer.incumbent = received
        self._wake.set()
        return True


def _close_quietly(stream: IO[str]) -> None:
    """A pipe to a dead process may fail while flushing; nothing is lost by that."""
    try:
        stream.close()
    except OSError:
        return


def serve(source: IO[str], sink: IO[str], clock: Clock) -> None:
    """Answer requests until the parent closes the pipe.

    The clock's limit counts all that the plan takes, not CP-SAT's time alone, and ends the search a
    little before the deadline: what is found has still to be put in order, judged and explained.
    """

    def send(kind: str, value: Plan) -> None:
        sink.write(f"{kind} {value.model_dump_json()}\n")
        sink.flush()

    # Before the first request, whose deadline must not pay for it.
    importlib.import_module("scheduler_plugin.cpsat")
    for line in source:
        request = json.loads(line)
        snapshot = parse_snapshot(request["snapshot"], "planner request")
        options = request["options"]
        deadline_seconds = float(options["deadline_seconds"])
        search_seconds = SEARCH_SHARE * deadline_seconds
        final = plan(
            snapshot,
            deadline_seconds=deadline_seconds,
            seed=int(options["seed"]),
            settings=SearchSettings(
                int(options["workers"]),
                search_seconds,
                moves=bool(options.get("moves", False)),
                clock=clock,
            ),
            on_plan=lambda value: send("incumbent", value),
        )
        send("final", final)


def main() -> None:
    """Serve the parent; one that is gone before the answer is ready no longer wants it."""
    try:
        serve(sys.stdin, sys.stdout, SystemClock())
    except BrokenPipeError:
        # What is still buffered would fail once more when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
