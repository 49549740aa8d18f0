"""The solver's process: answers its parent until that closes the pipe.

The deadline is the parent's: reading the question, greedy orders, search, causes and the answer
fit into it by these shares. Memory is bounded, so that a search that runs wild ends this process
and not its container.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Final

from scheduler_plugin.app.solver_pipe import (
    FINAL,
    INCUMBENT,
    OUT_OF_MEMORY,
    READY,
    SolverRequest,
    requests,
)
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot_stream import SnapshotReceiver
from scheduler_plugin.solve import SearchSettings, plan
from wattpack.clock import Clock, SystemClock
from wattpack.units import NS_PER_SECOND

MIB: Final = 1024 * 1024
SEARCH_SHARE: Final = 0.6
"""Of the deadline, when the search ends, less what the first plan took (``solve``); a round under
way may take a tenth more (assumed)."""

EXPLAIN_SHARE: Final = 0.9
"""The same for sets of changes that would let pods in, which take 0.2 to 0.3 s at 1,000 nodes; then
come the checkers, here and there, and what the last look at a pod still took."""


def serve(source: IO[bytes], sink: IO[str], clock: Clock) -> None:
    """Answer requests until the parent closes the pipe, or memory ends, which it is told."""

    def send(*words: str) -> None:
        sink.write(" ".join(words) + "\n")
        sink.flush()

    def send_plan(kind: str, number: str, made: Plan) -> None:
        send(kind, number, made.model_dump_json())

    # Before the first request, whose deadline must not pay for it.
    importlib.import_module("scheduler_plugin.solver.cpsat")
    receiver = SnapshotReceiver()
    send(READY)
    try:
        for request in requests(source):
            number = str(request.number)
            final = _answer(request, receiver, clock, partial(send_plan, INCUMBENT, number))
            send_plan(FINAL, number, final)
            gc.collect()
    except MemoryError:
        send(OUT_OF_MEMORY)


def _answer(
    request: SolverRequest,
    receiver: SnapshotReceiver,
    clock: Clock,
    on_plan: Callable[[Plan], None],
) -> Plan:
    snapshot, digest = receiver.follow(request.change)
    whole = request.deadline_seconds
    left = (request.deadline_ns - clock.monotonic_ns()) / NS_PER_SECOND
    settings = SearchSettings(
        request.workers,
        max(0.0, left - (1.0 - SEARCH_SHARE) * whole),
        request.moves,
        clock,
        max(0.0, left - (1.0 - EXPLAIN_SHARE) * whole),
    )
    return plan(
        snapshot,
        deadline_seconds=whole,
        seed=request.seed,
        settings=settings,
        on_plan=on_plan,
        digest=digest,
    )


def main() -> None:
    """Serve the parent; one that is gone before the answer is ready no longer wants it."""
    limit_bytes = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 0
    if limit_bytes:
        # Of what may be written to; files that are mapped and room that is only reserved are free.
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    # A snapshot is many small objects, none of them in a circle: to visit them again and again
    # would double the time of a cycle. What else is in circles is collected after each answer.
    gc.disable()
    try:
        serve(sys.stdin.buffer, sys.stdout, SystemClock())
    except BrokenPipeError:
        # What is still buffered would fail once more when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
