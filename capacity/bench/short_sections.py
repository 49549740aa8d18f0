"""The sections of few seconds: idleness, element-wise kernels, arrivals, the launch-bound batch."""

from __future__ import annotations

from itertools import product
from typing import Final, get_args

from capacity.bench.bench_point import BenchPoint, BoardFacts
from capacity.bench.board_settings import BoardSetting
from capacity.bench.decoder_shapes import SMALL_MODEL
from capacity.kernels import (
    Attention,
    ContextState,
    Elementwise,
    ElementwiseOp,
    Gemm,
    Idle,
    LaunchMode,
)

WIDTHS: Final[dict[ElementwiseOp, tuple[int, ...]]] = {
    "norm": (2048, 4096, 8192),
    "rotate": (1280, 3072, 6144),
    "gate": (3584, 8192, 16384),
}
TOKENS: Final = (1, 8, 64, 256, 2048, 8192)
QUICK_TOKENS: Final = (1, 64, 2048)

ARRIVING: Final = (
    Gemm(1, 6144, 4096), Gemm(8, 4096, 4096), Gemm(16, 28672, 4096), Gemm(64, 4096, 14336),
    Gemm(1, 10240, 8192), Gemm(16, 1280, 8192),
)  # fmt: skip
"""Products of decode steps: timed back to back and as they come one by one."""

CAPPED: Final = (
    Gemm(4096, 4096, 4096),
    Attention("decode", 64, 1, 4096, 32, 8),
    Gemm(16, 28672, 4096),
    Attention("prefill", 1, 8192, 8192, 32, 8),
)
CAP_SHARES: Final = (0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
LOCK_SHARES: Final = (0.5, 0.7, 0.85)

TRANSITION_BATCHES: Final = (1, 4, 16, 64, 128, 256, 512, 1024)
TRANSITION_CONTEXT: Final = 512


def idle(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """What the board draws while nothing runs, where it tells watts."""
    if not board.tells_power:
        return []
    states: tuple[ContextState, ...] = get_args(ContextState)
    return [BenchPoint("idle", Idle(state), "warm", measures_power=True) for state in states]


def elementwise(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Warm, since the kernel before left its arrays in the cache; power on one large pass each."""
    points = []
    for op, widths in WIDTHS.items():
        chosen, tokens = (widths[1:2], QUICK_TOKENS) if quick else (widths, TOKENS)
        points += [
            BenchPoint(
                "elementwise", Elementwise(op, count, width), "warm",
                measures_power=not quick and (count, width) == (tokens[-1], widths[1]),
            )
            for width, count in product(chosen, tokens)
        ]  # fmt: skip
    return points


def arrivals(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """The same products back to back and in exponential gaps."""
    shapes = ARRIVING[:2] if quick else ARRIVING
    return [
        point
        for shape in shapes
        for point in (
            BenchPoint("arrivals", shape),
            BenchPoint("arrivals", shape, timing_mode="arrivals", launch_mode="eager"),
        )
    ]


def caps(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Four kinds of work under shares of the limit and of the highest clock, and under neither."""
    if not board.limit_watts:
        return []
    limits = [BoardSetting(cap_watts=round(share * board.limit_watts)) for share in CAP_SHARES]
    locks = [
        BoardSetting(lock_max_mhz=round(share * board.max_clock_mhz / 15) * 15)
        for share in LOCK_SHARES
    ]
    return [
        BenchPoint("caps", kernel, measures_power=True, setting=setting)
        for kernel, setting in product(CAPPED[: 2 if quick else 4], (*limits, *locks))
    ]


def transition(board: BoardFacts, quick: bool, seed: int) -> list[BenchPoint]:
    """Decode steps of a small stack, launched one by one and as a graph: where do they meet?"""
    batches = TRANSITION_BATCHES[::2] if quick else TRANSITION_BATCHES
    modes: tuple[LaunchMode, ...] = ("eager", "graph")
    return [
        BenchPoint(
            "transition", SMALL_MODEL.step("decode", batch, 1, TRANSITION_CONTEXT),
            launch_mode=mode,
        )
        for batch, mode in product(batches, modes)
    ]  # fmt: skip
