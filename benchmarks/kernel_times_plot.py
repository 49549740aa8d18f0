"""Predicted against measured times of held-out products (``benchmarks.kernel_times_plot``).

Writes docs/images/kernel-times.png; needs matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib
import numpy as np

from benchmarks._kernel_times import GEMM_GROUP, mape_percent, others_of, splits
from capacity.model.reference_kernels import GEMM_GPUS, reference_gemms
from capacity.model.time_model import fit_time_model

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "kernel-times.png"
SHAPES: Final = 60
CASES: Final = (("H200-SXM", ()), ("B200-SXM", ()), ("B200-SXM", ("RTX-PRO-6000",)))
COUNTS: Final = (60, 60, 15)


def main() -> None:
    """Draw one panel a case: error over measured time, with the 90 % interval's median width."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    tables = splits(GEMM_GPUS, reference_gemms, GEMM_GROUP)
    figure, axes = pyplot.subplots(1, len(CASES), figsize=(13, 4), sharey=True)
    for axis, (gpu, without), count in zip(axes, CASES, COUNTS, strict=True):
        split = tables[gpu]
        model = fit_time_model(split.designed(count), split.roofs, others_of(tables, gpu, without))
        made = model.seconds(split.held.kernels)
        low, high = model.interval(split.held.kernels, 0.9)
        order = np.argsort(split.held.seconds)
        micro = split.held.seconds[order] * 1e6
        axis.scatter(micro, (made / split.held.seconds)[order], s=2, alpha=0.3, label="held out")
        for bound in (low, high):
            smooth = np.convolve((bound / made)[order], np.ones(301) / 301, mode="valid")
            axis.plot(
                micro[150:-150], smooth, color="C1", label="90 % interval" if bound is low else None
            )
        error = mape_percent(made, split.held.seconds)
        known = f"{count} shapes" + (", no Blackwell known" if without else "")
        axis.set(xscale="log", title=f"{split.roofs.model}, {known}: {error:.1f} %")
        axis.set(xlabel="measured time (us)", ylim=(0.5, 1.6))
        axis.axhline(1, color="black", linewidth=0.5)
    axes[0].set_ylabel("predicted over measured")
    axes[0].legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=80)


if __name__ == "__main__":
    main()
