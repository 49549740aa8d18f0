"""Times of attention and all-reduces that were never measured, from 60 and from 12 points.

Tables of capacity/reference/kernels. Attention holds out whole (heads, kv_heads) pairs, all-reduce
whole message sizes, from all types and from the choice of the points. Masks and prefill above 16K
are in no public table: they are judged on the shipped rows of a whole run, each priced by a model
that saw no row of its head layout. ``--measurements FILE`` judges other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks._kernel_times import (
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
from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.kernels import Attention
from capacity.model.gpu_model import GpuModel, fit_times, kernel_rows, timed_rows
from capacity.model.hold_outs import out_of_fold
from capacity.model.kernel_features import kernel_group, kernel_table
from capacity.model.kernel_samples import Floats, Indices, TimeSamples
from capacity.model.reference_kernels import (
    ATTENTION_GPUS,
    COLLECTIVE_GPUS,
    reference_all_reduces,
    reference_attention,
)
from capacity.model.roofline import fit_constants

NAME = "attention_latency"
SUMMARY = "attention from 60 points and all-reduce from 12, head layouts and sizes held out"
TAKES_ARGUMENTS = True
USAGE: Final = OWN_ROWS_USAGE
POINTS: Final = 60
REDUCES: Final = 12
DRAWS: Final = {False: 3, True: 1}
OWN_POINTS: Final = 20
LONG_TOKENS: Final = 16384

TARGETS: Final = {
    "prefill_H200_60_mape_percent": Target(at_most=8.0),
    "decode_H200_60_mape_percent": Target(at_most=8.0),
    "prefill_B200_60_mape_percent": Target(at_most=8.0),
    "decode_B200_60_mape_percent": Target(at_most=8.0),
    "all_reduce_nccl_H200_12_mape_percent": Target(at_most=10.0),
    "all_reduce_nccl_B200_12_mape_percent": Target(at_most=10.0),
    "prefill_window_own_H200_mape_percent": Target(at_most=8.0),
    "prefill_document_own_H200_mape_percent": Target(at_most=8.0),
    "prefill_above_16k_own_H200_mape_percent": Target(at_most=8.0),
}
PUBLISHED: Final = {"published_NeuSight_batched_products_unseen_gpu_percent": 13.8}


def run(options: Options) -> Result:
    """Measure; ``--quick`` draws two random designs."""
    figures: dict[str, float | int | str] = dict(PUBLISHED)
    own = own_rows(options.arguments)
    for phase in ("prefill", "decode"):
        group = f"attention_{phase}"
        tables = splits(ATTENTION_GPUS, reference_attention, group)
        for gpu in ("H200-SXM", "B200-SXM", "H100-SXM"):
            options.progress(f"{phase} on {gpu}")
            name = f"{phase}_{gpu.removesuffix('-SXM')}"
            others = others_of(tables, gpu)
            figures |= _judged(name, tables[gpu], others, POINTS, options)
        if own is not None and len(own.of_class(group)):
            split = own_split(own, group, OWN_POINTS)
            count = min(POINTS, len(split.train))
            others = others_of(tables, split.roofs.model)
            figures |= _judged(f"{phase}_measured", split, others, count, options)
    for kind in ("nccl", "vllm_graph"):
        figures |= _all_reduces(kind, _reader(kind), options)
    for gpu, name in WHOLE_RUNS.items():
        figures |= own_prefill_figures(gpu.removesuffix("-SXM"), shipped_rows(name))
    return Result(rounded(figures), TARGETS)


def own_prefill_figures(name: str, rows: Sequence[MeasurementRow]) -> dict[str, float]:
    """Errors by mask and beyond 16K on own prefill rows, whole head layouts held out."""
    model = GpuModel.from_rows(rows)
    timed = [
        row for row in timed_rows(kernel_rows(rows))
        if isinstance(row.kernel, Attention) and row.kernel.phase == "prefill"
    ]  # fmt: skip
    kernels = [row.kernel for row in timed if isinstance(row.kernel, Attention)]
    seconds = model.free_seconds(timed)

    def predict(fitted: Indices, held: Indices) -> Floats:
        seen = [timed[index] for index in fitted.tolist()]
        times = fit_times(seen, seconds[fitted])
        return times.seconds([kernels[index] for index in held.tolist()])

    made = out_of_fold(kernels, predict)
    figures: dict[str, float] = {}
    for part, chosen in (
        ("window", [kernel.mask == "window" for kernel in kernels]),
        ("document", [kernel.mask == "document" for kernel in kernels]),
        ("above_16k", [kernel.query_tokens > LONG_TOKENS for kernel in kernels]),
    ):
        kept = np.array(chosen)
        figures[f"prefill_{part}_own_{name}_rows"] = float(kept.sum())
        figures[f"prefill_{part}_own_{name}_mape_percent"] = mape_percent(made[kept], seconds[kept])
    return figures


def _reader(kind: str) -> Callable[[str], TimeSamples]:
    return lambda gpu: reference_all_reduces(gpu, kind)


def _all_reduces(
    kind: str, read: Callable[[str], TimeSamples], options: Options
) -> dict[str, float]:
    tables = splits(COLLECTIVE_GPUS, read, "collective")
    figures: dict[str, float] = {}
    for gpu in ("H200-SXM", "B200-SXM", "H100-SXM", "A100-SXM"):
        name = f"all_reduce_{kind}_{gpu.removesuffix('-SXM')}"
        others = others_of(tables, gpu)
        figures |= _judged(name, tables[gpu], others, REDUCES, options)
    return figures


def _judged(
    name: str,
    split: Split,
    others: tuple[TimeSamples, ...],
    count: int,
    options: Options,
) -> dict[str, float]:
    group = kernel_group(split.train.kernels[0])
    designed = split.designed(count)
    random = split.random_errors(count, DRAWS[options.quick], options.seed, others)
    table = kernel_table(group, designed.kernels, split.roofs)
    held = kernel_table(group, split.held.kernels, split.roofs)
    constants = fit_constants(table.roofs, designed.seconds)
    plain = mape_percent(constants.seconds(held.roofs), split.held.seconds)
    return {
        f"{name}_held_rows": float(len(split.held)),
        f"{name}_{count}_mape_percent": split.error(designed, others),
        f"{name}_{count}_alone_mape_percent": split.error(designed),
        f"{name}_{count}_random_mape_percent": float(random.mean()),
        f"{name}_{count}_three_constants_mape_percent": plain,
    }
