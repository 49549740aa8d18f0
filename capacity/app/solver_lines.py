"""Keeps the solver's own lines away from standard output.

HiGHS 1.12 prints a few lines (times of its sub-solvers on a slow machine) with C's printf, whatever
its options say. C keeps them in a buffer of its own until it is full or the process ends: sending
the descriptor elsewhere while the solver runs is not enough.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["solver_lines_dropped"]


@contextmanager
def solver_lines_dropped() -> Iterator[None]:
    """Nothing that anybody writes to descriptor 1 meanwhile is seen; of the whole process."""
    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        c_library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
