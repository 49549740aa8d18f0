"""How much slower jobs run on a GPU that is held back, as the capacity model says.

The boards give watts; their ratio to what the work wanted is read on capacity's throughput curve of
the kernel class. A clock lock slows training and batch work with the clock. Servers have a model of
their own (``serving_steps``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capacity.capacity_table import ProfileTable, class_index, throughput
from capacity.gpu_profile import KERNEL_CLASSES, GpuProfile

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

TRAINING, BATCH = (int(i) for i in class_index(["training", "batch"]))


@dataclass(frozen=True, slots=True)
class GpuTypes:
    """Constants of every GPU of the row.

    Attributes:
        table: Profiles of the types in use.
        model: Position of each GPU's type in the table, (n_gpus,).
        context_watts: Draw with an idle context, (n_gpus,).
        full_watts: Draw of each kernel class without a cap, (classes, n_gpus).
        full_throughput: What capacity's curve gives at that draw, (classes, n_gpus).
    """

    table: ProfileTable
    model: Integers
    context_watts: Floats
    full_watts: Floats
    full_throughput: Floats

    @classmethod
    def of(cls, profiles: list[GpuProfile], of_gpu: list[int]) -> GpuTypes:
        """The types of a row whose i-th GPU has profile ``of_gpu[i]``."""
        context = np.array([profiles[p].context_watts for p in of_gpu])
        table, model = ProfileTable.of(profiles), np.array(of_gpu, dtype=np.intp)
        kernels = range(len(KERNEL_CLASSES))
        full = np.array([table.p50_watts[model, kernel] for kernel in kernels])
        uncapped = [
            throughput(table, model, np.full(len(model), kernel, dtype=np.intp), full[kernel])
            for kernel in kernels
        ]
        return cls(table, model, context, full, np.array(uncapped))

    def class_watts(self, kernel: int) -> Floats:
        """Draw of a kernel class without a cap, (n_gpus,)."""
        return np.asarray(self.full_watts[kernel], dtype=np.float64)

    def speed(self, kernel: int, drawn_over_wanted: Floats, clock_ratio: Floats) -> Floats:
        """Relative speed of a kernel class on each GPU, (n_gpus,).

        Args:
            kernel: ``TRAINING`` or ``BATCH``.
            drawn_over_wanted: Watts drawn over watts wanted at the present clock, (n_gpus,).
            clock_ratio: Locked over highest clock, 1 without a lock, (n_gpus,).
        """
        classes = np.full(len(self.model), kernel, dtype=np.intp)
        ratio = np.clip(drawn_over_wanted, 0.0, 1.0)
        capped = throughput(self.table, self.model, classes, ratio * self.full_watts[kernel])
        uncapped = self.full_throughput[kernel]
        return np.asarray(np.minimum(1.0, capped / uncapped) * clock_ratio, dtype=np.float64)
