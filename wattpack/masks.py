"""Questions to arrays of marks, asked a hundred times a tick.

``ndarray.any`` and ``all`` pass through Python: 1.3 us for 416 marks, where counting them takes
0.2 us (numpy 2, measured with ``timeit``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["every", "some"]


def some(marks: NDArray[Any]) -> bool:
    """Whether any is set, of whatever shape; of none, none."""
    return bool(np.count_nonzero(marks))


def every(marks: NDArray[Any]) -> bool:
    """Whether all are set, of whatever shape; of none, all."""
    return int(np.count_nonzero(marks)) == marks.size
