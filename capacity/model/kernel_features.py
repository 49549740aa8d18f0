"""What is known of a kernel before it runs: its work, the roofs' times, tiles, waves and padding.

Only these go into the learned parts of the model: nothing that must be measured first (clock,
utilisation), so that a kernel that never ran can be priced. All tables are built at once for many
kernels; ``tests/capacity/time_features_oracle.py`` is the same one kernel at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import FORMAT_BYTES, OUTPUT_BYTES, Elementwise, Gemm, Kernel
from capacity.model.residual_trees import TreeFeatures
from capacity.model.roofline import RooflineConstants, RoofTimes
from capacity.roofs import Roofs
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]

GEMM_TILES: Final = (
    (16, 128),
    (64, 64),
    (64, 128),
    (128, 64),
    (128, 128),
    (64, 256),
    (128, 256),
    (256, 128),
    (256, 256),
)
"""Output tiles (m, n) that vendors' libraries choose among; which one is not known beforehand."""

SMOOTH_TILES: Final = ((64, 64), (128, 128), (128, 256))
ATTENTION_TILES: Final = (64, 128)
"""Queries of one thread block."""

GEMM_GROUPS: Final = {name: f"gemm_{8 * width}_bit" for name, width in FORMAT_BYTES.items()}

NEGLIGIBLE: Final = 1e-9
"""Compute time of a kernel without arithmetic, as a share of its memory time: logs stay finite."""


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels of one group on one GPU type.

    Attributes:
        shape: For trees, which take any scale, shape (n, d).
        smooth: For distances: natural logarithms, shape (n, e).
    """

    roofs: RoofTimes
    shape: Floats
    smooth: Floats

    def tree_features(self, constants: RooflineConstants) -> TreeFeatures:
        """``shape`` and where the kernel stands on this GPU's roofline, shape (n, d + 2)."""
        wide = [self.shape, self._standing(constants)]
        return np.column_stack([part.astype(np.float32) for part in wide])

    def smooth_features(self, constants: RooflineConstants) -> Floats:
        """``smooth`` and the same, shape (n, e + 2)."""
        return np.column_stack([self.smooth, self._standing(constants)])

    def _standing(self, constants: RooflineConstants) -> Floats:
        compute = self.roofs.compute_seconds / constants.compute_efficiency
        memory = self.roofs.memory_seconds / constants.bandwidth_efficiency
        launches = np.maximum(compute, memory) / constants.launch_seconds
        return np.log(np.column_stack([compute / memory, launches]))


def kernel_group(kernel: Kernel) -> str:
    """Kernels of one group share a model: products by number format, the rest by class."""
    if isinstance(kernel, Gemm):
        return GEMM_GROUPS[kernel.number_format]
    if isinstance(kernel, Elementwise):
        return "bandwidth"
    return kernel.kernel_class


def kernel_table(group: str, kernels: Sequence[Any], roofs: Roofs) -> KernelTable:
    """The features of kernels that are all of this group.

    Raises:
        InputError: a group that has no model, or a number format that the GPU has no unit for.
    """
    build = _BUILDERS.get(group.split("_", 1)[0])
    if build is None:
        raise InputError("kernel_class", "gemm, attention, collective or bandwidth", group)
    return build(kernels, roofs)


def _columns(kernels: Sequence[Any], *names: str) -> list[Floats]:
    return [np.array([getattr(k, name) for k in kernels], dtype=np.float64) for name in names]


def _by_format(kernels: Sequence[Any], values: Mapping[str, float]) -> Floats:
    return np.array([values[k.number_format] for k in kernels], dtype=np.float64)


def _peaks(kernels: Sequence[Any], roofs: Roofs) -> Floats:
    formats = {k.number_format for k in kernels}
    peaks = {name: roofs.flops_per_second(name) for name in formats}
    for name, peak in sorted(peaks.items()):
        if peak <= 0:
            raise InputError("number_format", f"one that {roofs.model} has units for", name)
    return _by_format(kernels, peaks)


def _gemm_table(kernels: Sequence[Any], roofs: Roofs) -> KernelTable:
    m, n, k = _columns(kernels, "m", "n", "k")
    size = _by_format(kernels, FORMAT_BYTES)
    flops = 2.0 * m * n * k
    weights = size * n * k
    rest = size * m * k + np.maximum(OUTPUT_BYTES, size) * m * n
    moved = weights + rest
    times = RoofTimes(flops / _peaks(kernels, roofs), moved / roofs.bytes_per_second)
    units = roofs.multiprocessors
    tiles = {tile: np.ceil(m / tile[0]) * np.ceil(n / tile[1]) for tile in GEMM_TILES}
    fills = {(a, b): m * n / (np.ceil(t / units) * units * a * b) for (a, b), t in tiles.items()}
    shape = [np.log(column) for column in (m, n, k, flops, moved, flops / moved, n / k, rest)]
    shape += [np.log(moved / roofs.l2_bytes), np.log(weights / roofs.l2_bytes)]
    for (high, wide), count in tiles.items():
        waves = count / units
        traffic = count * (high + wide) * k * size / moved
        split = np.maximum(1.0, np.floor(units / count))
        shape += [np.log(count), waves / np.ceil(waves), np.log(np.ceil(waves))]
        shape += [np.log(fills[high, wide]), np.log(traffic), np.log(k / split)]
    shape += [np.log(np.max(list(fills.values()), axis=0))]
    shape += [_filled(m, 64), _filled(m, 128), _filled(n, 128), _filled(n, 256), _filled(k, 64)]
    smooth = [np.log(m), np.log(n), np.log(k), *(np.log(fills[tile]) for tile in SMOOTH_TILES)]
    return KernelTable(times, np.column_stack(shape), np.column_stack(smooth))


def _filled(sizes: Floats, step: int) -> Floats:
    """Share of the padded size that is real."""
    return np.asarray(sizes / (np.ceil(sizes / step) * step))


def _attention_table(kernels: Sequence[Any], roofs: Roofs) -> KernelTable:
    batch, queries, keys, heads, kv_heads, dim, window, documents = _columns(
        kernels,
        *("batch", "query_tokens", "kv_tokens", "heads", "kv_heads", "head_dim"),
        *("window", "documents"),
    )
    masks = np.array([k.mask for k in kernels], dtype=str)
    size = _by_format(kernels, FORMAT_BYTES)
    pairs = _visible_pairs(masks, queries, keys, window, documents)
    flops = 4.0 * batch * heads * dim * pairs
    read = np.where(masks == "window", np.minimum(keys, queries + window), keys)
    cache = size * 2 * batch * read * kv_heads * dim
    moved = cache + size * 2 * batch * queries * heads * dim
    times = RoofTimes(flops / _peaks(kernels, roofs), moved / roofs.bytes_per_second)
    units = roofs.multiprocessors
    reach = pairs / queries
    shape = [batch, queries, keys, heads, kv_heads, heads / kv_heads, pairs, flops, moved]
    shape += [flops / moved, moved / roofs.l2_bytes, cache / roofs.l2_bytes, reach, dim]
    columns = [np.log(column) for column in shape]
    for rows in ATTENTION_TILES:
        # Decode packs the query heads that share keys into one block's rows.
        for blocks in (
            np.ceil(queries / rows) * batch * heads,
            np.ceil(queries * heads / kv_heads / rows) * batch * kv_heads,
        ):
            waves = blocks / units
            split = np.maximum(1.0, np.floor(units / blocks))
            columns += [np.log(waves), waves / np.ceil(waves), np.log(reach / split)]
    columns += [(masks == mask).astype(np.float64) for mask in ("window", "document", "full")]
    waves = batch * kv_heads * np.ceil(queries / 128) / units
    smooth = [np.log(column) for column in (batch, queries, reach, heads, heads / kv_heads)]
    smooth += [np.log(waves / np.ceil(waves))]
    smooth += [4.0 * ((masks == "window") | (masks == "document"))]
    return KernelTable(times, np.column_stack(columns), np.column_stack(smooth))


def _visible_pairs(
    masks: npt.NDArray[Any], queries: Floats, keys: Floats, window: Floats, documents: Floats
) -> Floats:
    """As ``Attention.visible_pairs``, in closed form for many kernels."""
    before = keys - queries
    whole = np.clip(window - before, 0, queries)
    windowed = whole * before + whole * (whole + 1) / 2 + (queries - whole) * window
    length = queries / documents
    return np.select(
        [masks == "full", masks == "document", masks == "window"],
        [queries * keys, documents * length * (length + 1) / 2, windowed],
        queries * before + queries * (queries + 1) / 2,
    )


def _collective_table(kernels: Sequence[Any], roofs: Roofs) -> KernelTable:
    message, gpus = _columns(kernels, "message_bytes", "gpus")
    moved = np.array([k.bytes_moved for k in kernels], dtype=np.float64)
    seconds = moved / roofs.link_bytes_per_second
    ops = [[float(k.op == op) for op in ("all_reduce", "all_to_all")] for k in kernels]
    logs = np.log(np.column_stack([message, gpus]))
    shape = np.column_stack([logs, np.log(moved), np.array(ops)])
    return KernelTable(RoofTimes(NEGLIGIBLE * seconds, seconds), shape, logs * (1.0, 2.0))


def _stream_table(kernels: Sequence[Any], roofs: Roofs) -> KernelTable:
    moved = np.array([k.bytes_moved for k in kernels], dtype=np.float64)
    seconds = moved / roofs.bytes_per_second
    logs = np.log(moved)[:, None]
    return KernelTable(RoofTimes(NEGLIGIBLE * seconds, seconds), logs, logs)


_BUILDERS: Final[Mapping[str, Callable[[Sequence[Any], Roofs], KernelTable]]] = {
    "gemm": _gemm_table,
    "attention": _attention_table,
    "collective": _collective_table,
    "bandwidth": _stream_table,
}
