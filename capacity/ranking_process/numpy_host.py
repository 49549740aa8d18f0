"""The judge's side of kernels on this machine's processor, float32."""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import numpy as np

from capacity.numpy_backend import HostMeter
from capacity.ranking.kernel_host import HostFacts, Trial
from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.ranked_task import RankedTask
from capacity.ranking.slot_layout import Place, SlotLayout
from capacity.ranking_process.process_limits import Limits
from capacity.ranking_process.process_trial import ProcessTrial
from capacity.ranking_process.sealed_memory import sealed_memory
from wattpack.clock import Clock
from wattpack.errors import InputError

BASELINES: Final = {
    "gemm": ("gemm_out", "gemm_returned", "gemm_transposed"),
    "attention_prefill": ("attention_batched", "attention_by_head"),
    "attention_decode": ("attention_batched", "attention_by_head"),
    "bandwidth": ("triad_in_place", "triad_returned"),
}
BASELINE_MODULE: Final = "capacity.ranking_process.numpy_baselines"
CACHE_BYTES: Final = 2**21
LARGEST_ARENA: Final = 2**28
SLACK_SECONDS: Final = 3e-4


class NumpyLibrary:
    """Numpy for the formulas."""

    exp = staticmethod(np.exp)
    sqrt = staticmethod(np.sqrt)

    def row_maximum(self, x: Any, /) -> Any:
        """Over the last axis."""
        return x.max(-1)

    def counting(self, size: int, /) -> Any:
        """0 to ``size`` - 1."""
        return np.arange(size, dtype=np.float64)


class NumpyHost:
    """This machine's processor."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        self._clock = clock
        self._limits = limits or Limits(load_seconds=20.0, round_seconds=10.0, memory_bytes=2**31)
        self.library = NumpyLibrary()

    out_of_memory: Final[tuple[type[Exception], ...]] = (MemoryError,)

    def facts(self) -> HostFacts:
        """No datasheet, float32."""
        return HostFacts(
            product=HostMeter().state().product,
            architecture="numpy",
            software=f"numpy {np.__version__}, python {platform.python_version()}",
            cache_bytes=CACHE_BYTES,
            memory_bytes=LARGEST_ARENA,
            slack_seconds=SLACK_SECONDS,
            roofs=None,
        )

    def generator(self, seed: int) -> Callable[[tuple[int, ...]], Any]:
        """Standard normal numbers."""
        rng = np.random.default_rng(seed)
        return lambda shape: rng.standard_normal(shape, dtype=np.float32)

    def open(self, source: KernelSource, arena_bytes: int) -> Trial:
        """A process and its shared memory."""
        return ProcessTrial(source, NumpyArena(arena_bytes), self._clock, self._limits)

    def start_ahead(self, kernels: int) -> None:
        """A process without PyTorch starts in a tenth of a second."""

    def close(self) -> None:
        """Nothing was started ahead."""

    def baselines(self, task: RankedTask) -> tuple[KernelSource, ...]:
        """The library's ways."""
        if task.number_format != "fp32":
            raise InputError("number_format", "fp32 on a processor", task.number_format)
        text = files("capacity.ranking_process").joinpath("numpy_baselines.py").read_text("utf-8")
        return tuple(
            KernelSource(f"numpy:{name}", BASELINE_MODULE, name, text, trusted=True)
            for name in BASELINES[task.name]
        )


class NumpyArena:
    """Memory behind a descriptor, which the kernel's process inherits."""

    device: Final = "capacity.ranking_process.numpy_device"
    on_processor: Final = True
    driver_threads: Final[tuple[str, ...]] = ()

    def __init__(self, nbytes: int) -> None:
        self._fd = sealed_memory(nbytes)
        self._memory = mmap.mmap(self._fd, nbytes)
        self.fds = (self._fd,)
        self.told = {"fd": self._fd, "nbytes": nbytes}

    def lay_out(self, layout: SlotLayout) -> NumpyMemory:
        """Views."""
        return NumpyMemory(self._memory, layout)

    def close(self) -> None:
        """The kernel's process is gone; views may still be held."""
        os.close(self._fd)


class NumpyMemory:
    """Views of the shared memory, and private copies."""

    def __init__(self, memory: mmap.mmap, layout: SlotLayout) -> None:
        everything = np.frombuffer(memory, np.float32, layout.nbytes // 4)
        self._operands, self._results = np.split(everything, [layout.results_at // 4])
        self._results_at = layout.results_at
        self._kept = np.empty_like(self._operands)
        self._copy = np.empty_like(self._results)

    def write(self, place: Place, values: Any) -> None:
        """Round to float32."""
        _view(self._operands, place)[...] = values

    def make_ready(self) -> None:
        """Keep the operands, poison the results."""
        np.copyto(self._kept, self._operands)
        self._results.fill(np.nan)

    def take_results(self) -> None:
        """Copy all results at once."""
        np.copyto(self._copy, self._results)

    def unchanged(self, place: Place) -> bool:
        """Bit by bit."""
        now, kept = (_view(flat, place).view(np.uint32) for flat in (self._operands, self._kept))
        return bool(np.array_equal(now, kept))

    def operand(self, place: Place) -> Any:
        """As it was made."""
        return _view(self._kept, place).astype(np.float64)

    def result(self, place: Place) -> Any:
        """Of the copy; signalling NaNs that a kernel left become quiet ones without a warning."""
        with np.errstate(invalid="ignore"):
            return _view(self._copy, place, self._results_at).astype(np.float64)


def _view(flat: Any, place: Place, base: int = 0) -> Any:
    start = (place.offset - base) // 4
    return flat[start : start + int(np.prod(place.shape))].reshape(place.shape)
