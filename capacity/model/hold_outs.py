"""Which kernels an honest error must hold out together.

A layer's product at another batch, or a head layout at another length, lets a model read the
answer off its neighbours; so products go by unordered {n, k}, attention by (heads, kv_heads),
collectives by message size, over all GPUs and number formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import Attention, Collective, Gemm, Kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

FOLDS: Final = 4


def hold_out_group(kernel: Kernel) -> str:
    """Kernels with equal text stand or fall together."""
    if isinstance(kernel, Gemm):
        return f"{min(kernel.n, kernel.k)},{max(kernel.n, kernel.k)}"
    if isinstance(kernel, Attention):
        return f"{kernel.heads},{kernel.kv_heads}"
    if isinstance(kernel, Collective):
        return f"{kernel.message_bytes}"
    return repr(kernel)


def hold_out_folds(kernels: Sequence[Kernel], level: int = 0) -> npt.NDArray[np.int64]:
    """A fold of 0 to 3 for each kernel, shape (n_kernels,).

    Args:
        level: 0 is the split that benchmarks hold out (fold 0). Each further level splits the
            groups anew and independently, for calibration and tuning inside the rest.
    """
    return np.array([_fold(hold_out_group(kernel), level) for kernel in kernels], dtype=np.int64)


def out_of_fold(kernels: Sequence[Kernel], predict: Callable[[Indices, Indices], Floats]) -> Floats:
    """Predictions for every kernel from fits that saw no kernel of its group, shape (n_kernels,).

    Args:
        predict: Given the indices to fit on and those to predict, the predictions of these.
    """
    folds = hold_out_folds(kernels)
    made = np.full(len(kernels), np.nan)
    for fold in range(FOLDS):
        held = np.flatnonzero(folds == fold)
        if held.size:
            made[held] = predict(np.flatnonzero(folds != fold), held)
    return made


@lru_cache(maxsize=65536)
def _fold(group: str, level: int) -> int:
    digest = int(hashlib.sha256(group.encode()).hexdigest(), 16)
    return (digest // int(FOLDS**level)) % FOLDS
