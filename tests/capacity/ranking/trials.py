"""Builders of trials."""

from __future__ import annotations

from pathlib import Path

from capacity.kernels import Attention, Gemm, MemoryStream
from capacity.ranking.kernel_judge import KernelJudge
from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.kernel_verdict import Verdict
from capacity.ranking.ranked_task import RankedTask
from capacity.ranking.trial_timing import TrialRule
from capacity.ranking_process.numpy_host import NumpyHost
from capacity.ranking_process.process_limits import Limits
from wattpack.clock import SystemClock

GEMM = RankedTask("gemm", Gemm(32, 48, 64, "fp32"))
PREFILL = RankedTask(
    "attention_prefill", Attention("prefill", 1, 24, 48, 4, 2, 16, number_format="fp32")
)
DECODE = RankedTask(
    "attention_decode", Attention("decode", 2, 1, 64, 4, 2, 16, number_format="fp32")
)
TRIAD = RankedTask("bandwidth", MemoryStream("triad", 2**15))
QUICK = TrialRule(rounds=4, wanted_runs=8, most_runs=8, empty_rounds=3, second_looks=20)
LIMITS = Limits(load_seconds=60.0, round_seconds=30.0, memory_bytes=2e8)


def source(file: Path, function: str) -> KernelSource:
    return KernelSource(f"{file.name}:{function}", str(file), function, file.read_text("utf-8"))


def verdict_on(
    file: Path, function: str, task: RankedTask = GEMM, limits: Limits = LIMITS
) -> Verdict:
    host = NumpyHost(SystemClock(), limits)
    return KernelJudge(host, QUICK).try_kernel(source(file, function), [task])
