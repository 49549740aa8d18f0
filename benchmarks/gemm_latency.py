"""Times of matrix products that were never measured: from 60 shapes, with other types, with all.

Tables of six GPU types (capacity/reference/kernels). Held out are whole unordered {n, k} pairs,
from all types and number formats, also from the choice of the shapes. Beside the model: its three
constants alone, a forest that knows only m, n and k, and what others published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from benchmarks._kernel_times import (
    GEMM_GROUP,
    Split,
    mape_percent,
    others_of,
    own_rows,
    own_split,
    rounded,
    splits,
)
from benchmarks._own_rows import USAGE as OWN_ROWS_USAGE
from benchmarks.runner import Options, Result, Target
from capacity.bench.designed_shapes import diverse_subset, gemm_features
from capacity.kernels import Gemm
from capacity.model.kernel_features import kernel_table
from capacity.model.kernel_samples import Indices, TimeSamples
from capacity.model.reference_kernels import GEMM_GPUS, reference_gemms
from capacity.model.residual_trees import TreeFeatures, grow_trees
from capacity.model.roofline import fit_constants
from capacity.model.time_model import fit_time_model
from wattpack.clock import SystemClock

NAME = "gemm_latency"
SUMMARY = "matrix products never measured, from 60 shapes, with other GPU types, with all rows"
TAKES_ARGUMENTS = True
USAGE: Final = OWN_ROWS_USAGE
SHAPES: Final = 60
DRAWS: Final = {False: 20, True: 2}
MILLION: Final = 1_000_000

TARGETS: Final = {
    "H200_60_alone_mape_percent": Target(at_most=7.0),
    "H200_60_with_others_mape_percent": Target(at_most=4.5),
    "H200_all_rows_mape_percent": Target(at_most=2.5),
    "B200_60_alone_mape_percent": Target(at_most=9.0),
    "B200_60_with_others_mape_percent": Target(at_most=8.0),
    "B200_all_rows_mape_percent": Target(at_most=4.0),
    "design_gain_ratio_min": Target(at_least=0.15),
    "seconds_for_1e6_predictions": Target(at_most=5.0),
}
PUBLISHED: Final = {
    "published_GPPerf_mean_error_percent": 15.57,
    "published_NeuSight_matrix_products_unseen_gpu_percent": 13.9,
}


def run(options: Options) -> Result:
    """Measure; ``--quick`` draws two random designs and leaves the fits on all rows out."""
    tables = splits(GEMM_GPUS, reference_gemms, GEMM_GROUP)
    figures: dict[str, float | int | str] = dict(PUBLISHED)
    for gpu, name in (("H200-SXM", "H200"), ("B200-SXM", "B200"), ("A100-SXM", "A100")):
        options.progress(f"{name}: {len(tables[gpu].held)} products held out")
        figures |= _from_sixty(name, tables[gpu], others_of(tables, gpu), options)
        if not options.quick:
            figures |= _from_all(name, tables[gpu])
    gains = [value for key, value in figures.items() if key.endswith("design_gain_ratio")]
    figures["design_gain_ratio_min"] = min(float(gain) for gain in gains)
    if not options.quick:
        figures["seconds_for_1e6_predictions"] = _seconds_for_a_million(tables)
    if (own := own_rows(options.arguments)) is not None:
        figures |= _measured(own_split(own, GEMM_GROUP, SHAPES), tables)
    targets = {key: target for key, target in TARGETS.items() if key in figures}
    return Result(rounded(figures), targets)


def _from_sixty(
    name: str, split: Split, others: tuple[TimeSamples, ...], options: Options
) -> dict[str, float]:
    """Errors from the designed shapes, and from others' designs."""
    designed = split.designed(SHAPES)
    alone = split.error(designed)
    random = split.random_errors(SHAPES, DRAWS[options.quick], options.seed)
    diverse = split.train.take(_diverse(split.train))
    return {
        f"{name}_held_rows": float(len(split.held)),
        f"{name}_60_alone_mape_percent": alone,
        f"{name}_60_with_others_mape_percent": split.error(designed, others),
        f"{name}_60_three_constants_mape_percent": _constants_error(split, designed),
        f"{name}_60_forest_of_sizes_mape_percent": _forest_error(split, designed),
        f"{name}_60_random_alone_mape_percent": float(random.mean()),
        f"{name}_60_diverse_alone_mape_percent": split.error(diverse),
        f"{name}_60_design_gain_ratio": 1 - alone / float(random.mean()),
    }


def _from_all(name: str, split: Split) -> dict[str, float]:
    """Errors where every training row is known."""
    return {
        f"{name}_all_rows_mape_percent": split.error(split.train),
        f"{name}_all_rows_three_constants_mape_percent": _constants_error(split, split.train),
        f"{name}_all_rows_forest_of_sizes_mape_percent": _forest_error(split, split.train),
    }


def _measured(split: Split, tables: Mapping[str, Split]) -> dict[str, float]:
    """The same for rows of another GPU, completed by all shipped types but its own."""
    others = others_of(tables, split.roofs.model)
    designed = split.designed(SHAPES)
    return {
        "measured_held_rows": float(len(split.held)),
        "measured_60_alone_mape_percent": split.error(designed),
        "measured_60_with_others_mape_percent": split.error(designed, others),
        "measured_60_three_constants_mape_percent": _constants_error(split, designed),
    }


def _diverse(train: TimeSamples) -> Indices:
    """The determinantal design of the benchmark's plan, among as many candidates."""
    some = np.random.default_rng(0).choice(len(train), min(len(train), 2_500), replace=False)
    shapes = [k for k in train.take(some).kernels if isinstance(k, Gemm)]
    return np.asarray(some[diverse_subset(gemm_features(shapes), SHAPES)])


def _constants_error(split: Split, own: TimeSamples) -> float:
    """The roofline without any correction."""
    constants = fit_constants(kernel_table(GEMM_GROUP, own.kernels, split.roofs).roofs, own.seconds)
    held = kernel_table(GEMM_GROUP, split.held.kernels, split.roofs)
    return mape_percent(constants.seconds(held.roofs), split.held.seconds)


def _forest_error(split: Split, own: TimeSamples) -> float:
    """A forest that is told the sizes and nothing of what they mean."""
    forest = grow_trees(_sizes(own), np.log(own.seconds), 100)
    return mape_percent(np.exp(forest.predict(_sizes(split.held))), split.held.seconds)


def _sizes(samples: TimeSamples) -> TreeFeatures:
    sizes = [(k.m, k.n, k.k) for k in samples.kernels if isinstance(k, Gemm)]
    return np.array(sizes, dtype=np.float32)


def _seconds_for_a_million(tables: Mapping[str, Split]) -> float:
    split = tables["H200-SXM"]
    model = fit_time_model(split.designed(SHAPES), split.roofs, others_of(tables, "H200-SXM"))
    held = split.held.kernels
    many = (held * (MILLION // len(held) + 1))[:MILLION]
    clock = SystemClock()
    begun = clock.monotonic_ns()
    model.seconds(many)
    return (clock.monotonic_ns() - begun) / 1e9
