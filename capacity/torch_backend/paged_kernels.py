"""Triton kernels of a served decoder: sequences of unequal length in one cache.

As ``triton_kernels``, but positions, places in the cache and lengths are data, so that one recorded
graph serves any mixture of sequences. The cache of a layer has the shape (places, key heads, d);
each sequence lies in it contiguously. Decode splits each sequence's keys over programs and joins
the parts (Flash-Decoding).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def _rotate_and_place(
    qkv_ptr, angle_ptr, position_ptr, place_ptr, q_ptr, k_ptr, v_ptr,
    heads, kv_heads, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Rotate by position; queries to (t, h, d), keys and values to their places."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    position = tl.load(position_ptr + token).to(tl.float32)
    place = tl.load(place_ptr + token).to(tl.int64)
    half: tl.constexpr = HEAD_DIM // 2
    dims = tl.arange(0, half)
    source = qkv_ptr + (token * (heads + 2 * kv_heads) + slot) * HEAD_DIM
    a = tl.load(source + dims).to(tl.float32)
    b = tl.load(source + half + dims).to(tl.float32)
    angle = tl.load(angle_ptr + dims) * position
    is_value = slot >= heads + kv_heads
    cos = tl.where(is_value, 1.0, tl.cos(angle))
    sin = tl.where(is_value, 0.0, tl.sin(angle))
    left = (a * cos - b * sin).to(q_ptr.dtype.element_ty)
    right = (b * cos + a * sin).to(q_ptr.dtype.element_ty)
    if slot < heads:
        out = q_ptr + (token * heads + slot) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)
    elif slot < heads + kv_heads:
        out = k_ptr + (place * kv_heads + slot - heads) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)
    else:
        out = v_ptr + (place * kv_heads + slot - heads - kv_heads) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)


@triton.jit
def _decode_part(
    q_ptr, k_ptr, v_ptr, start_ptr, length_ptr, part_ptr, sum_ptr, top_ptr,
    scale, heads, group, splits,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One part of one sequence's keys for all query heads that share a key head."""
    pair = tl.program_id(0)
    split = tl.program_id(1)
    kv_heads = heads // group
    sequence = pair // kv_heads
    kv_head = pair % kv_heads
    start = tl.load(start_ptr + sequence).to(tl.int64)
    keys = tl.load(length_ptr + sequence)
    lanes = tl.arange(0, GROUP)
    dims = tl.arange(0, HEAD_DIM)
    lane_ok = lanes < group
    query_heads = sequence * heads + kv_head * group + lanes
    q = tl.load(
        q_ptr + query_heads[:, None] * HEAD_DIM + dims[None, :], mask=lane_ok[:, None], other=0.0
    )
    stride = kv_heads * HEAD_DIM
    base = start * stride + kv_head * HEAD_DIM
    length = tl.cdiv(tl.cdiv(keys, splits), BLOCK_K) * BLOCK_K
    low = split * length
    high = tl.minimum(low + length, keys)
    top = tl.full([GROUP], -1.0e30, tl.float32)
    weight = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD_DIM], tl.float32)
    for begin in range(low, high, BLOCK_K):
        cols = begin + tl.arange(0, BLOCK_K)
        ok = cols < high
        rows = cols.to(tl.int64) * stride
        k = tl.load(k_ptr + base + rows[None, :] + dims[:, None], mask=ok[None, :], other=0.0)
        scores = tl.where(ok[None, :], tl.dot(q, k) * scale, -1.0e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + base + rows[:, None] + dims[None, :], mask=ok[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top
    slot = query_heads.to(tl.int64) * splits + split
    tl.store(part_ptr + slot[:, None] * HEAD_DIM + dims[None, :], acc, mask=lane_ok[:, None])
    tl.store(sum_ptr + slot, weight, mask=lane_ok)
    tl.store(top_ptr + slot, top, mask=lane_ok)


@triton.jit
def _decode_join(
    part_ptr, sum_ptr, top_ptr, out_ptr, splits,
    HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Join the parts of one query head."""
    query_head = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, SPLITS)
    dims = tl.arange(0, HEAD_DIM)
    ok = parts < splits
    slot = query_head * splits + parts
    top = tl.load(top_ptr + slot, mask=ok, other=-1.0e30)
    share = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(share * tl.load(sum_ptr + slot, mask=ok, other=0.0), 0)
    acc = tl.load(part_ptr + slot[:, None] * HEAD_DIM + dims[None, :], mask=ok[:, None], other=0.0)
    out = tl.sum(acc * share[:, None], 0) / total
    tl.store(out_ptr + query_head * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty))


def rotate_and_place(
    qkv: Any, angles: Any, positions: Any, places: Any, q: Any, cache: tuple[Any, Any]
) -> None:
    """Queries of ``qkv`` (t, h + 2 kv, d) rotated into ``q`` (t, h, d), the rest into the cache."""
    k, v = cache
    tokens, heads, dim = q.shape
    grid = (tokens, heads + 2 * k.shape[1])
    _rotate_and_place[grid](
        qkv, angles, positions, places, q, k, v, heads, k.shape[1], HEAD_DIM=dim, num_warps=1
    )


def decode(
    q: Any, cache: tuple[Any, Any], starts: Any, lengths: Any, scratch: Any, out: Any,
    config: tuple[int, ...],
) -> None:  # fmt: skip
    """Attention of one query a sequence (b, h, d) over its range of the cache.

    Args:
        starts: First place of each sequence, int32, shape (b,).
        lengths: Keys of each sequence, at least one, int32, shape (b,).
        scratch: From ``decode_scratch``.
        config: ``(splits, block_k, warps, stages)``.
    """
    k, v = cache
    batch, heads, dim = q.shape
    splits, block_k, warps, stages = config
    group = heads // k.shape[1]
    parts, sums, tops = scratch
    _decode_part[(batch * k.shape[1], splits)](
        q, k, v, starts, lengths, parts, sums, tops, dim**-0.5 * LOG2_E, heads, group, splits,
        HEAD_DIM=dim, GROUP=max(16, triton.next_power_of_2(group)), BLOCK_K=block_k,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    _decode_join[(batch * heads,)](
        parts, sums, tops, out, splits, HEAD_DIM=dim,
        SPLITS=max(2, triton.next_power_of_2(splits)), num_warps=4,
    )  # fmt: skip


def decode_scratch(batch: int, heads: int, dim: int, splits: int, device: Any) -> Any:
    """Room for the parts of ``decode``."""
    parts = torch.empty((batch * heads * splits, dim), dtype=torch.float32, device=device)
    sums = torch.empty(batch * heads * splits, dtype=torch.float32, device=device)
    return parts, sums, torch.empty_like(sums)
