"""Features of one kernel at a time, in plain loops over numbers: what the tables must equal."""

from __future__ import annotations

import math

from capacity.kernels import Attention, Gemm
from capacity.model.kernel_features import ATTENTION_TILES, GEMM_TILES, SMOOTH_TILES
from capacity.roofs import Roofs


def gemm_roof_seconds(gemm: Gemm, roofs: Roofs) -> tuple[float, float]:
    peak = roofs.flops_per_second(gemm.number_format)
    return gemm.flops / peak, gemm.bytes_moved / roofs.bytes_per_second


def gemm_shape(gemm: Gemm, roofs: Roofs) -> list[float]:
    size = {"bf16": 2, "fp16": 2, "fp8": 1}[gemm.number_format]
    weights = size * gemm.n * gemm.k
    row = [gemm.m, gemm.n, gemm.k, gemm.flops, gemm.bytes_moved, gemm.flops / gemm.bytes_moved]
    row += [gemm.n / gemm.k, gemm.bytes_moved - weights]
    row += [gemm.bytes_moved / roofs.l2_bytes, weights / roofs.l2_bytes]
    features = [math.log(value) for value in row]
    units = roofs.multiprocessors
    for high, wide in GEMM_TILES:
        count = math.ceil(gemm.m / high) * math.ceil(gemm.n / wide)
        waves = math.ceil(count / units)
        features += [math.log(count), count / units / waves, math.log(waves)]
        features += [math.log(gemm_fill(gemm, roofs, high, wide))]
        features += [math.log(count * (high + wide) * gemm.k * size / gemm.bytes_moved)]
        features += [math.log(gemm.k / max(1, units // count))]
    features += [math.log(max(gemm_fill(gemm, roofs, *tile) for tile in GEMM_TILES))]
    sizes = ((gemm.m, 64), (gemm.m, 128), (gemm.n, 128), (gemm.n, 256), (gemm.k, 64))
    return features + [value / (math.ceil(value / step) * step) for value, step in sizes]


def gemm_smooth(gemm: Gemm, roofs: Roofs) -> list[float]:
    fills = [math.log(gemm_fill(gemm, roofs, *tile)) for tile in SMOOTH_TILES]
    return [math.log(gemm.m), math.log(gemm.n), math.log(gemm.k), *fills]


def gemm_fill(gemm: Gemm, roofs: Roofs, high: int, wide: int) -> float:
    """Share of the multiprocessors' tiles that hold real results."""
    count = math.ceil(gemm.m / high) * math.ceil(gemm.n / wide)
    waves = math.ceil(count / roofs.multiprocessors)
    return gemm.m * gemm.n / (waves * roofs.multiprocessors * high * wide)


def attention_shape(attention: Attention, roofs: Roofs) -> list[float]:
    a = attention
    size = {"bf16": 2, "fp16": 2, "fp8": 1}[a.number_format]
    cache = a.bytes_moved - size * 2 * a.batch * a.query_tokens * a.heads * a.head_dim
    reach = a.visible_pairs / a.query_tokens
    row = [a.batch, a.query_tokens, a.kv_tokens, a.heads, a.kv_heads, a.heads / a.kv_heads]
    row += [a.visible_pairs, a.flops, a.bytes_moved, a.flops / a.bytes_moved]
    row += [a.bytes_moved / roofs.l2_bytes, cache / roofs.l2_bytes, reach, a.head_dim]
    features = [math.log(value) for value in row]
    for rows in ATTENTION_TILES:
        packed = a.query_tokens * a.heads / a.kv_heads
        for blocks in (
            math.ceil(a.query_tokens / rows) * a.batch * a.heads,
            math.ceil(packed / rows) * a.batch * a.kv_heads,
        ):
            waves = blocks / roofs.multiprocessors
            split = max(1, roofs.multiprocessors // blocks)
            features += [math.log(waves), waves / math.ceil(waves), math.log(reach / split)]
    return features + [float(a.mask == mask) for mask in ("window", "document", "full")]
