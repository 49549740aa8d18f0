"""The benchmark's own Triton kernels: attention under any mask, and the small fused passes.

Attention follows the online-softmax algorithm of FlashAttention-2 (arXiv 2307.08691, algorithm 1);
decode splits the keys over programs and joins the parts (Flash-Decoding). Masks are data: for each
query the first key that it may see, so causal, windowed and document masks are one kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def _attend(
    q_ptr, k_ptr, v_ptr, first_ptr, out_ptr,
    scale, queries, keys, heads, group,
    HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head over the keys that its first query may see up to its own."""
    block = tl.program_id(0)
    batch_head = tl.program_id(1)
    batch = batch_head // heads
    head = batch_head % heads
    kv_heads = heads // group
    q_base = q_ptr + (batch_head.to(tl.int64) * queries) * HEAD_DIM
    kv_offset = ((batch * kv_heads + head // group).to(tl.int64) * keys) * HEAD_DIM
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, HEAD_DIM)
    row_ok = rows < queries
    q = tl.load(q_base + rows[:, None] * HEAD_DIM + dims[None, :], mask=row_ok[:, None], other=0.0)
    first = tl.load(first_ptr + rows, mask=row_ok, other=0)
    last = rows + (keys - queries)
    low = (tl.load(first_ptr + block * BLOCK_Q) // BLOCK_K) * BLOCK_K
    high = tl.minimum((block + 1) * BLOCK_Q + (keys - queries), keys)
    top = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    weight = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, HEAD_DIM], tl.float32)
    for start in range(low, high, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        col_ok = cols < keys
        k = tl.load(
            k_ptr + kv_offset + cols[None, :] * HEAD_DIM + dims[:, None],
            mask=col_ok[None, :], other=0.0,
        )  # fmt: skip
        scores = tl.dot(q, k) * scale
        seen = (cols[None, :] >= first[:, None]) & (cols[None, :] <= last[:, None])
        scores = tl.where(seen & col_ok[None, :], scores, -1.0e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(
            v_ptr + kv_offset + cols[:, None] * HEAD_DIM + dims[None, :],
            mask=col_ok[:, None], other=0.0,
        )  # fmt: skip
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top
    out_rows = out_ptr + (batch_head.to(tl.int64) * queries) * HEAD_DIM
    tl.store(
        out_rows + rows[:, None] * HEAD_DIM + dims[None, :],
        (acc / weight[:, None]).to(out_ptr.dtype.element_ty),
        mask=row_ok[:, None],
    )


@triton.jit
def _decode_part(
    q_ptr, k_ptr, v_ptr, part_ptr, sum_ptr, top_ptr,
    scale, keys, heads, group, splits,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One part of the keys for all query heads that share a key head."""
    pair = tl.program_id(0)
    split = tl.program_id(1)
    kv_heads = heads // group
    batch = pair // kv_heads
    kv_head = pair % kv_heads
    lanes = tl.arange(0, GROUP)
    dims = tl.arange(0, HEAD_DIM)
    lane_ok = lanes < group
    query_heads = batch * heads + kv_head * group + lanes
    q = tl.load(
        q_ptr + query_heads[:, None] * HEAD_DIM + dims[None, :], mask=lane_ok[:, None], other=0.0
    )
    base = pair.to(tl.int64) * keys * HEAD_DIM
    length = tl.cdiv(tl.cdiv(keys, splits), BLOCK_K) * BLOCK_K
    low = split * length
    high = tl.minimum(low + length, keys)
    top = tl.full([GROUP], -1.0e30, tl.float32)
    weight = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD_DIM], tl.float32)
    for start in range(low, high, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        ok = cols < high
        k = tl.load(
            k_ptr + base + cols[None, :] * HEAD_DIM + dims[:, None], mask=ok[None, :], other=0.0
        )
        scores = tl.where(ok[None, :], tl.dot(q, k) * scale, -1.0e30)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(
            v_ptr + base + cols[:, None] * HEAD_DIM + dims[None, :], mask=ok[:, None], other=0.0
        )
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
    acc = tl.load(
        part_ptr + slot[:, None] * HEAD_DIM + dims[None, :], mask=ok[:, None], other=0.0
    )
    out = tl.sum(acc * share[:, None], 0) / total
    tl.store(out_ptr + query_head * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty))


@triton.jit
def _add_norm(x_ptr, res_ptr, weight_ptr, out_ptr, width, BLOCK: tl.constexpr):  # noqa: PLR0913
    """res += x; out = rms_norm(res) * weight, one row a program."""
    row = tl.program_id(0).to(tl.int64) * width
    cols = tl.arange(0, BLOCK)
    ok = cols < width
    total = tl.load(x_ptr + row + cols, mask=ok, other=0.0).to(tl.float32)
    total += tl.load(res_ptr + row + cols, mask=ok, other=0.0).to(tl.float32)
    tl.store(res_ptr + row + cols, total.to(res_ptr.dtype.element_ty), mask=ok)
    norm = total * tl.rsqrt(tl.sum(total * total, 0) / width + 1e-5)
    weight = tl.load(weight_ptr + cols, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + cols, (norm * weight).to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _gate(x_ptr, out_ptr, width, total, BLOCK: tl.constexpr):
    """out = silu(left half of x) * right half."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < total
    row = i // width
    col = i % width
    left = tl.load(x_ptr + row * 2 * width + col, mask=ok, other=0.0).to(tl.float32)
    right = tl.load(x_ptr + row * 2 * width + width + col, mask=ok, other=0.0).to(tl.float32)
    value = left / (1.0 + tl.exp(-left)) * right
    tl.store(out_ptr + i, value.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _rotate_and_cache(
    qkv_ptr, angle_ptr, q_ptr, k_ptr, v_ptr,
    queries, keys, heads, kv_heads,
    HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Rotate queries and keys by position; queries to (b, h, t, d), keys and values to the cache."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    batch = token // queries
    position = token % queries + (keys - queries)
    half: tl.constexpr = HEAD_DIM // 2
    dims = tl.arange(0, half)
    source = qkv_ptr + (token * (heads + 2 * kv_heads) + slot) * HEAD_DIM
    a = tl.load(source + dims).to(tl.float32)
    b = tl.load(source + half + dims).to(tl.float32)
    angle = tl.load(angle_ptr + dims) * position.to(tl.float32)
    is_value = slot >= heads + kv_heads
    cos = tl.where(is_value, 1.0, tl.cos(angle))
    sin = tl.where(is_value, 0.0, tl.sin(angle))
    left = (a * cos - b * sin).to(q_ptr.dtype.element_ty)
    right = (b * cos + a * sin).to(q_ptr.dtype.element_ty)
    if slot < heads:
        out = q_ptr + ((batch * heads + slot) * queries + token % queries) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)
    elif slot < heads + kv_heads:
        out = k_ptr + ((batch * kv_heads + slot - heads) * keys + position) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)
    else:
        out = v_ptr + ((batch * kv_heads + slot - heads - kv_heads) * keys + position) * HEAD_DIM
        tl.store(out + dims, left)
        tl.store(out + half + dims, right)


def attend(q: Any, k: Any, v: Any, first: Any, out: Any, config: Any) -> None:
    """Attention of queries (b, h, t, d) over keys and values (b, kv, s, d).

    Args:
        first: First visible key of each query, int32, shape (t,), non-decreasing.
        out: Written, shape of ``q``.
        config: ``(block_q, block_k, warps, stages)``.
    """
    batch, heads, queries, dim = q.shape
    block_q, block_k, warps, stages = config
    grid = (triton.cdiv(queries, block_q), batch * heads)
    _attend[grid](
        q, k, v, first, out, dim**-0.5 * LOG2_E, queries, k.shape[2], heads, heads // k.shape[1],
        HEAD_DIM=dim, BLOCK_Q=block_q, BLOCK_K=block_k, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def decode(q: Any, k: Any, v: Any, scratch: Any, out: Any, config: Any) -> None:
    """Attention of one query a sequence (b, h, d) over keys and values (b, kv, s, d).

    Args:
        scratch: From ``decode_scratch``.
        config: ``(splits, block_k, warps, stages)``.
    """
    batch, heads, dim = q.shape
    splits, block_k, warps, stages = config
    group = heads // k.shape[1]
    parts, sums, tops = scratch
    _decode_part[(batch * k.shape[1], splits)](
        q, k, v, parts, sums, tops, dim**-0.5 * LOG2_E, k.shape[2], heads, group, splits,
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


def add_norm(x: Any, residual: Any, weight: Any, out: Any) -> None:
    """``residual += x; out = rms_norm(residual) * weight``; rows of ``weight``'s width."""
    width = weight.shape[0]
    block = triton.next_power_of_2(width)
    _add_norm[(x.numel() // width,)](
        x, residual, weight, out, width, BLOCK=block, num_warps=min(16, max(4, block // 512))
    )


def gate(x: Any, out: Any) -> None:
    """``out = silu(left) * right`` of rows (left | right)."""
    block = 1024
    _gate[(triton.cdiv(out.numel(), block),)](
        x, out, out.shape[-1], out.numel(), BLOCK=block, num_warps=4
    )


def rotate_and_cache(qkv: Any, angles: Any, q: Any, k: Any, v: Any) -> None:
    """Queries of ``qkv`` (tokens, h + 2 kv, d) rotated into ``q``, the rest into the caches' end."""
    batch, heads, queries, dim = q.shape
    grid = (batch * queries, heads + 2 * k.shape[1])
    _rotate_and_cache[grid](
        qkv, angles, q, k, v, queries, k.shape[2], heads, k.shape[1], HEAD_DIM=dim, num_warps=1
    )
