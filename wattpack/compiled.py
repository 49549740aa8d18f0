"""How kernels are compiled: with numba (extra ``simulation``), or not at all.

Every kernel has a form in numpy that stays the one to read, the oracle and what runs without numba.
Kernels do the same arithmetic in the same order, so they give the same bits; logarithms and powers
stay with numpy, whose own differ from the C library's in the last one.

A compiled kernel is kept beside its module and made again when *that file* changes. So a kernel and
all that it calls stand in one file, and constants of other files come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    from numba import njit
except (ImportError, OSError):  # Absent, or there with a library of its own that is not.
    njit = None

P = ParamSpec("P")
R = TypeVar("R")

AVAILABLE = njit is not None


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function compiled where numba is there; divisions by 0 give what numpy's do.

    Nothing checks indexes there: who calls a kernel answers for its lengths.
    """
    if njit is None:
        return function
    try:
        made: Callable[P, R] = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # Nowhere to keep it: every process compiles its own.
        made = njit(error_model="numpy")(function)
    return made
