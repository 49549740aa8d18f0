"""What one run measures: sections of points, in an order that favours nobody.

A full run has the sections of ``FULL`` in their order; ``collectives`` only where there are several
GPUs. ``validation`` and ``steps`` are asked for by name: points that judge a model fitted on the
others, and whole decoder stacks; so is ``caps``, where somebody may set them. Sections of few
seconds stand in ``short_sections``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final, get_args

import numpy as np

from capacity.bench import short_sections
from capacity.bench.bench_point import BenchPoint, BoardFacts, Section
from capacity.bench.decoder_shapes import STEP_MODELS
from capacity.bench.designed_shapes import attention_features, diverse_subset, gemm_features
from capacity.kernels import (
    Attention,
    Collective,
    DecoderStep,
    Gemm,
    Kernel,
    LaunchChain,
    LaunchMode,
    Mask,
    MemoryStream,
    NumberFormat,
    StreamPattern,
)
from capacity.model.hold_outs import hold_out_folds
from wattpack.errors import InputError

FULL: Final[tuple[Section, ...]] = (
    "idle", "bandwidth", "elementwise", "gemm", "arrivals", "attention", "launch", "transition",
    "collectives", "repeat",
)  # fmt: skip

GEMM_SHAPES: Final = 60
QUICK_GEMM_SHAPES: Final = 15
ATTENTION_SHAPES: Final = 60
QUICK_ATTENTION_SHAPES: Final = 12
WINDOWED_SHAPES: Final = 8
"""At large the design takes one window of 30 prefills, too few to judge them by."""
REPEATED: Final = 5
LEAST_REPEATED_BYTES: Final = 2**24

LATTICE: Final = 2000
LATTICE_SEED: Final = 11
"""Candidates of the design. On the public H200 and H100 tables (folds inside their training parts,
products of 256 to 16,384) 60 designed points of so spread candidates leave 5.5 and 6.2 %, of powers
of two over model layers 7.6 %."""

LAYER_ALIGNMENT: Final = 256
"""Widths of the decoders whose steps are measured are multiples of it, but for one vocabulary's
share. Libraries take other kernels for other widths: a design without aligned products priced the
products of prefill steps 6 to 8 % too long."""

JUDGED_FOLD: Final = 0
WIDE_TURN: Final = 10
WIDE_LAYERS: Final[tuple[tuple[int, int], ...]] = (
    (28672, 4096), (57344, 8192), (34816, 5120), (128256, 4096), (151936, 5120), (201088, 2880),
)  # fmt: skip
"""(n, k): gated layers of 8B, 70B and 14B models, and three vocabularies."""

TOKEN_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)

HEAD_LAYOUTS: Final = ((32, 8), (64, 8), (8, 1), (16, 16), (40, 8))
"""(heads, kv_heads) as they stand on one GPU."""


STACKED: Final = ("steps", "transition")

LARGEST_GEMM_BYTES: Final = 2**31
"""Nobody computes 16,384 rows of logits; such a product takes longer than a burst may."""

LARGEST_POINT_BYTES: Final = 24 * 2**30
"""No point asks for more operand memory than this; a stack may take what the board has."""


def bench_plan(
    board: BoardFacts, sections: Sequence[Section], *, quick: bool, seed: int
) -> tuple[BenchPoint, ...]:
    """The points of a run, shuffled inside each section.

    Raises:
        InputError: for an unknown section.
    """
    makers = {
        "idle": short_sections.idle,
        "bandwidth": _bandwidth,
        "elementwise": short_sections.elementwise,
        "gemm": _gemms,
        "arrivals": short_sections.arrivals,
        "attention": _attentions,
        "launch": _launches,
        "transition": short_sections.transition,
        "collectives": _collectives,
        "repeat": _repeats,
        "validation": _validation,
        "steps": _steps,
        "caps": short_sections.caps,
    }
    points: list[BenchPoint] = []
    for section in sections:
        if section not in get_args(Section):
            raise InputError("sections", f"some of {get_args(Section)}", section)
        made = makers[section](board, quick, seed)
        fitting = [p for p in made if _operand_bytes(p.kernel) <= _room(board, p.kernel)]
        if not board.tells_power:
            fitting = [replace(p, measures_power=False) for p in fitting]
        points += _shuffled(fitting, section, seed)
    return tuple(points)


def _shuffled(points: list[BenchPoint], section: str, seed: int) -> list[BenchPoint]:
    """Random order, so that heat and drift hit no family of shapes; stacks stay together."""
    digest = hashlib.sha256(f"{section}|{seed}".encode()).digest()
    order = np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(len(points))
    shuffled = [points[i] for i in order]
    if section in STACKED:
        # One stack's weights are made once: building them takes longer than measuring a step.
        shuffled.sort(
            key=lambda p: (getattr(p.kernel, "layers", 0), getattr(p.kernel, "phase", ""))
        )
    return shuffled


def _operand_bytes(kernel: Kernel) -> float:
    if isinstance(kernel, DecoderStep):
        return kernel.weight_bytes + kernel.cache_bytes + 4e9
    return kernel.bytes_moved


def _room(board: BoardFacts, kernel: Kernel) -> float:
    if isinstance(kernel, DecoderStep):
        return 0.9 * board.memory_bytes
    return min(LARGEST_POINT_BYTES, 0.4 * board.memory_bytes)


def _bandwidth(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Three sizes above the cache, one inside it, and small ones where the launch counts."""
    large = [8 * board.l2_bytes, 32 * board.l2_bytes] if quick else [
        8 * board.l2_bytes, 32 * board.l2_bytes, 64 * board.l2_bytes,
    ]  # fmt: skip
    patterns: tuple[StreamPattern, ...] = ("copy", "triad", "read")
    points = [
        BenchPoint("bandwidth", MemoryStream(pattern, size), measures_power=size == large[-1])
        for pattern, size in product(patterns, large)
    ]
    resident = board.l2_bytes // 4
    points += [
        BenchPoint("bandwidth", MemoryStream("copy", size), "warm", size == resident)
        for size in (2**14, 2**18, 2**20, 2**22, resident)
    ]
    return points


def gemm_candidates(number_format: NumberFormat = "bf16") -> list[Gemm]:
    """Layers 256 to 16,384 wide over 1 to 8,192 tokens, none that models are judged on.

    Each size is as likely as its double, so that few tokens and small layers have their share.
    """
    draw = np.random.default_rng(LATTICE_SEED)
    tokens = (2 ** draw.uniform(0, 13, LATTICE)).astype(int)
    n, k = (64 * (2 ** draw.uniform(2, 8, LATTICE)).round().astype(int) for _ in range(2))
    sizes = zip(tokens.tolist(), n.tolist(), k.tolist(), strict=True)
    every = [Gemm(a, b, c, number_format) for a, b, c in sizes]
    every += [_aligned(gemm) for gemm in every]
    every = list(dict.fromkeys(every))
    folds = hold_out_folds(every)
    return [gemm for gemm, fold in zip(every, folds, strict=True) if fold != JUDGED_FOLD]


def _aligned(gemm: Gemm) -> Gemm:
    """The nearest product of whole tiles."""
    m, n, k = (
        max(1, round(size / LAYER_ALIGNMENT)) * LAYER_ALIGNMENT for size in (gemm.m, gemm.n, gemm.k)
    )
    return replace(gemm, m=m if gemm.m >= LAYER_ALIGNMENT else gemm.m, n=n, k=k)


def wide_candidates(number_format: NumberFormat = "bf16") -> list[Gemm]:
    """Layers wider than that: gates and vocabularies of models that are run in practice."""
    every = [Gemm(m, n, k, number_format) for (n, k), m in product(WIDE_LAYERS, TOKEN_COUNTS)]
    return [g for g in every if g.bytes_moved <= LARGEST_GEMM_BYTES]


def designed_gemms(count: int, number_format: NumberFormat = "bf16") -> list[Gemm]:
    """The ``count`` products to measure; prefixes are designs, too.

    One in ten is a wide one; of the others every second is aligned as decoder layers are.
    """
    wide = _diverse(wide_candidates(number_format), count // WIDE_TURN)
    every = gemm_candidates(number_format)
    aligned = np.array([is_aligned(gemm) for gemm in every])
    features = gemm_features(every)
    usual = [every[i] for i in diverse_subset(features, count - len(wide), odd_turns=aligned)]
    return [
        wide[turn // WIDE_TURN] if turn % WIDE_TURN == WIDE_TURN - 1
        else usual[turn - turn // WIDE_TURN]
        for turn in range(count)
    ]  # fmt: skip


def is_aligned(gemm: Gemm) -> bool:
    """Both widths fill whole tiles, as those of decoder layers do, and so do many tokens."""
    sizes = (gemm.n, gemm.k, gemm.m if gemm.m >= LAYER_ALIGNMENT else 0)
    return all(size % LAYER_ALIGNMENT == 0 for size in sizes)


def _diverse(candidates: list[Gemm], count: int) -> list[Gemm]:
    if not count:
        return []
    return [candidates[i] for i in diverse_subset(gemm_features(candidates), count)]


def _gemms(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    count = QUICK_GEMM_SHAPES if quick else GEMM_SHAPES
    points = [BenchPoint("gemm", g, measures_power=not quick or i < 10)
              for i, g in enumerate(designed_gemms(count))]  # fmt: skip
    points += [BenchPoint("gemm", p.kernel, "warm") for p in points[: count // 5]]
    if "fp8" in board.formats:
        narrow = [g for g in designed_gemms(4 * count, "fp8") if _takes_fp8(g)]
        points += [
            BenchPoint("gemm", g, measures_power=not quick and i < 8)
            for i, g in enumerate(narrow[: count // 2 if not quick else 6])
        ]
    return points


def _takes_fp8(gemm: Gemm) -> bool:
    """The 8-bit matrix units want operands in rows of 16 bytes."""
    return gemm.n % 16 == 0 and gemm.k % 16 == 0


def attention_candidates() -> list[Attention]:
    """Prefill and decode of the usual head layouts, causal, windowed and by document."""
    shapes: list[Attention] = []
    for heads, kv_heads in HEAD_LAYOUTS:
        for batch, tokens in product((1, 2, 4, 8), (1024, 2048, 4096, 8192, 16384, 32768, 131072)):
            if batch * tokens > 131072 or (tokens > 32768 and heads > 8):
                continue
            masks: list[tuple[Mask, int, int]] = [("causal", 0, 1)]
            if tokens >= 8192:
                masks += [("window", 4096, 1), ("document", 0, tokens // 2048)]
            shapes += [
                Attention(
                    "prefill", batch, tokens, tokens, heads, kv_heads, 128, mask, window, docs
                )
                for mask, window, docs in masks
            ]
        for batch, context in product(
            (1, 4, 16, 32, 64, 128, 256), (512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)
        ):
            if batch * context <= 2**21:
                shapes.append(Attention("decode", batch, 1, context, heads, kv_heads))
    return shapes


def _attentions(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Half prefill, half decode, and windows on top; power on the first of each."""
    count = QUICK_ATTENTION_SHAPES if quick else ATTENTION_SHAPES
    points: list[BenchPoint] = []
    for phase in ("prefill", "decode"):
        fitting = [
            a for a in attention_candidates()
            if a.phase == phase and a.bytes_moved <= _room(board, a)
        ]  # fmt: skip
        chosen = _diverse_attentions(fitting, count // 2)
        windowed = [a for a in fitting if a.mask == "window"]
        if windowed and not quick:
            chosen += _diverse_attentions(windowed, WINDOWED_SHAPES)
        points += [
            BenchPoint("attention", shape, measures_power=rank < (2 if quick else 12))
            for rank, shape in enumerate(dict.fromkeys(chosen))
        ]
    return points


def _diverse_attentions(candidates: list[Attention], count: int) -> list[Attention]:
    chosen = diverse_subset(attention_features(candidates), min(count, len(candidates)))
    return [candidates[i] for i in chosen]


def _launches(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    modes: tuple[LaunchMode, ...] = ("eager", "graph")
    return [
        BenchPoint("launch", LaunchChain(kernels, mode))
        for kernels, mode in product((1, 20, 200), modes)
    ]


def _collectives(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    if board.gpus < 2:
        return []
    sizes = [2**e for e in ((12, 18, 24, 28) if quick else range(10, 32, 2))]
    return [
        BenchPoint("collectives", Collective(op, size, board.gpus))
        for op, size in product(("all_reduce", "all_gather", "reduce_scatter", "send_recv"), sizes)
    ]


def _repeats(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Designed products that neither limit nor launch holds, again: has the board changed?"""
    count = QUICK_GEMM_SHAPES if quick else GEMM_SHAPES
    cool = [p.kernel for p in _gemms(board, quick, seed)[:count]
            if isinstance(p.kernel, Gemm) and p.kernel.m <= 64 and p.measures_power
            and p.kernel.bytes_moved > LEAST_REPEATED_BYTES]  # fmt: skip
    return [BenchPoint("repeat", g, measures_power=True) for g in cool[:REPEATED]]


def _validation(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Products of layers that no other section has: 100 at large, 60 that leave the board cool."""
    rng = np.random.default_rng(seed)
    known = {frozenset((g.n, g.k)) for g in designed_gemms(GEMM_SHAPES)}
    points: list[BenchPoint] = []
    wanted = (10, 6) if quick else (100, 60)
    for small, count in zip((False, True), wanted, strict=True):
        made = 0
        while made < count:
            n, k = (int(64 * round(2 ** rng.uniform(2, 6 if small else 8))) for _ in range(2))
            m = int(2 ** rng.uniform(0, 6 if small else 13))
            if frozenset((n, k)) in known:
                continue
            points.append(
                BenchPoint("validation", Gemm(m, n, k), measures_power=small or made % 3 == 0)
            )
            made += 1
    return points


def _steps(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Prefill of 128 to 8,192 tokens, decode at batch 1 to 256 and context 512 to 8,192."""
    prompts = (512, 4096) if quick else (128, 256, 512, 1024, 2048, 4096, 8192)
    batches = (1, 32) if quick else (1, 4, 16, 32, 64, 128, 256)
    contexts = (2048,) if quick else (512, 2048, 8192)
    points: list[BenchPoint] = []
    for model in STEP_MODELS.values():
        points += [
            BenchPoint("steps", model.step("prefill", 1, t, t), measures_power=True)
            for t in prompts
        ]
        points += [
            BenchPoint("steps", model.step("decode", b, 1, c), measures_power=True)
            for b, c in product(batches, contexts)
        ]
    return points
