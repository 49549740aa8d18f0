"""A GPU type that was never seen: 15 measured products and the datasheet, or the datasheet alone.

H200: types of its architecture are known (H100). B200: its architecture is not, since the RTX PRO
6000 is removed. Held out as in ``gemm_latency``; intervals are those of the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks._kernel_times import (
    GEMM_GROUP,
    Split,
    others_of,
    own_rows,
    own_split,
    rounded,
    splits,
)
from benchmarks._own_rows import USAGE as OWN_ROWS_USAGE
from benchmarks.runner import Options, Result, Target
from capacity.model.kernel_samples import TimeSamples
from capacity.model.reference_kernels import GEMM_GPUS, reference_gemms
from capacity.model.time_model import fit_time_model

NAME = "new_gpu"
SUMMARY = "a GPU type never seen: 15 products and its datasheet, or the datasheet alone"
TAKES_ARGUMENTS = True
USAGE: Final = OWN_ROWS_USAGE
SHAPES: Final = 15
DRAWS: Final = {False: 20, True: 2}
COVERAGE: Final = 0.9

TARGETS: Final = {
    "H200_15_mape_percent": Target(at_most=5.5),
    "B200_without_its_architecture_15_mape_percent": Target(at_most=13.0),
}
PUBLISHED: Final = {
    "published_NeuSight_matrix_products_unseen_gpu_percent": 13.9,
    "published_cycle_simulator_mean_error_percent": 13.98,
}


def run(options: Options) -> Result:
    """Measure; ``--quick`` draws two random designs."""
    tables = splits(GEMM_GPUS, reference_gemms, GEMM_GROUP)
    figures: dict[str, float | int | str] = dict(PUBLISHED)
    cases: Sequence[tuple[str, str, tuple[str, ...]]] = (
        ("H200", "H200-SXM", ()),
        ("B200_without_its_architecture", "B200-SXM", ("RTX-PRO-6000",)),
    )
    for name, gpu, without in cases:
        options.progress(name)
        others = others_of(tables, gpu, without)
        figures |= _judged(name, tables[gpu], others, options)
    if (own := own_rows(options.arguments)) is not None:
        split = own_split(own, GEMM_GROUP, SHAPES)
        figures |= _judged("measured", split, others_of(tables, split.roofs.model), options)
    return Result(rounded(figures), TARGETS)


def _judged(
    name: str, split: Split, others: tuple[TimeSamples, ...], options: Options
) -> dict[str, float]:
    designed = split.designed(SHAPES)
    few = fit_time_model(designed, split.roofs, others)
    none = fit_time_model(split.nothing(), split.roofs, others)
    random = split.random_errors(SHAPES, DRAWS[options.quick], options.seed, others)
    figures = {
        f"{name}_15_mape_percent": split.error_of(few),
        f"{name}_15_alone_mape_percent": split.error(designed),
        f"{name}_15_random_mape_percent": float(random.mean()),
        f"{name}_datasheet_alone_mape_percent": split.error_of(none),
    }
    for label, model in (("15", few), ("datasheet_alone", none)):
        low, high = model.interval(split.held.kernels, COVERAGE)
        held = (split.held.seconds >= low) & (split.held.seconds <= high)
        figures[f"{name}_{label}_90_percent_interval_coverage_ratio"] = float(held.mean())
        figures[f"{name}_{label}_90_percent_interval_width_ratio"] = float(np.median(high / low))
    return figures
