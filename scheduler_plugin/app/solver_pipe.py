"""What the scheduler and its solver process say to one another.

To the child: pickled requests, by nobody but its parent. Back: lines of text, each parsed and
judged before anybody believes it.

    child:  ready                 once, when everything is imported
    parent: SolverRequest
    child:  incumbent NUMBER PLAN as soon as there is one, and when there is a better one
    child:  final NUMBER PLAN     at the end, or
    child:  out-of-memory         and it ends
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from scheduler_plugin.documents.snapshot_stream import SnapshotChange

__all__ = ["FINAL", "INCUMBENT", "OUT_OF_MEMORY", "READY", "SolverRequest", "requests"]

READY: Final = "ready"
INCUMBENT: Final = "incumbent"
FINAL: Final = "final"
OUT_OF_MEMORY: Final = "out-of-memory"


@dataclass(frozen=True, slots=True)
class SolverRequest:
    """One question.

    Attributes:
        change: From the snapshot before to this one.
        deadline_seconds: What the whole cycle may take.
        deadline_ns: When it ends, on the monotonic clock that both processes share.
        number: Of the question; answers repeat it, for one may be late.
    """

    change: SnapshotChange
    deadline_seconds: float
    deadline_ns: int
    seed: int
    workers: int
    moves: bool
    number: int = 1

    def to_bytes(self) -> bytes:
        """What ``requests`` reads."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def requests(source: IO[bytes]) -> Iterator[SolverRequest]:
    """Until the parent closes the pipe."""
    while True:
        try:
            request = pickle.load(source)
        except EOFError:
            return
        if not isinstance(request, SolverRequest):
            raise TypeError(f"a request, not {type(request).__name__}")
        yield request
