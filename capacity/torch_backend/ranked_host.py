"""The judge's side of kernels on a GPU: memory that it owns and the kernel's process maps.

The memory is one allocation of its own (CUDA maps whole allocations into the other process, so
nothing else of the judge may lie in it), zeroed before it is shown.
"""

from __future__ import annotations

import base64
import gc
import math
import mmap
import os
import pickle
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import reduce_tensor

from capacity.ranking.kernel_host import HostFacts, Trial
from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.ranked_task import RankedTask
from capacity.ranking.slot_layout import Place, SlotLayout
from capacity.ranking_process.kernel_process import StartedChild
from capacity.ranking_process.process_limits import Limits
from capacity.ranking_process.process_trial import ProcessTrial
from capacity.ranking_process.sealed_memory import sealed_memory
from capacity.roofs import find_roofs
from capacity.torch_backend.ranked_device import FORMATS
from wattpack.clock import Clock

BLOCK: Final = 2**21
LEAST_ARENA: Final = 2**25
"""PyTorch gives a tensor of this size an allocation of its own."""

LARGEST_ARENA: Final = 6 * 2**30
SLACK_SECONDS: Final = 1e-3
"""Rounds of 64 products on an H100 took 0.35 ms more than their events told."""

BASELINES: Final = {
    "gemm": ("mm_cublas", "mm_cublaslt", "mm_transposed", "linear"),
    "attention_prefill": ("flash", "cudnn", "efficient"),
    "attention_decode": ("flash", "cudnn", "efficient"),
    "bandwidth": ("triad",),
}
BASELINE_MODULE: Final = "capacity.torch_backend.ranked_baselines"


class TorchLibrary:
    """PyTorch for the formulas."""

    exp = staticmethod(torch.exp)
    sqrt = staticmethod(torch.sqrt)

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def row_maximum(self, x: Any, /) -> Any:
        """Over the last axis."""
        return x.amax(-1)

    def counting(self, size: int, /) -> Any:
        """0 to ``size`` - 1."""
        return torch.arange(size, dtype=torch.float64, device=self._device)


class TorchHost:
    """One GPU; ``cpu`` takes the same way without one, for tests."""

    def __init__(self, device: str, clock: Clock, limits: Limits | None = None) -> None:
        self._device = torch.device(device)
        self._clock, self._limits = clock, limits or Limits()
        self.library = TorchLibrary(self._device)
        self._started: list[StartedChild] = []
        self._facts = self._look()
        self._arena: TorchArena | None = None

    out_of_memory: Final[tuple[type[Exception], ...]] = (torch.OutOfMemoryError, MemoryError)

    def facts(self) -> HostFacts:
        """As they were when nothing was allocated yet."""
        return self._facts

    def _look(self) -> HostFacts:
        software = f"torch {torch.__version__}"
        if self._device.type == "cpu":
            return HostFacts("CPU", "cpu", software, 2**21, 2**28, SLACK_SECONDS, None)
        board: Any = torch.cuda.get_device_properties(self._device)
        free, _ = torch.cuda.mem_get_info(self._device)
        return HostFacts(
            product=board.name,
            architecture=f"sm_{board.major}{board.minor}",
            software=software,
            cache_bytes=board.L2_cache_size,
            memory_bytes=min(LARGEST_ARENA, free // 4),
            slack_seconds=SLACK_SECONDS,
            roofs=find_roofs(board.name),
        )

    def generator(self, seed: int) -> Callable[[tuple[int, ...]], Any]:
        """Standard normal numbers, where the operands are."""
        source = torch.Generator(self._device).manual_seed(seed)
        return lambda shape: torch.randn(
            shape, generator=source, device=self._device, dtype=torch.float32
        )

    def open(self, source: KernelSource, arena_bytes: int) -> Trial:
        """A process that maps the judge's memory.

        Trials follow one another in the same memory: a process that was killed never gives its
        hold on shared memory back, so PyTorch would keep one piece a kernel.
        """
        arena = self._arena
        if arena is None or arena.nbytes < arena_bytes or self._device.type == "cpu":
            arena = self._arena = TorchArena(self._device, arena_bytes)
        arena.clear()
        started = self._started.pop() if self._started else None
        return ProcessTrial(source, arena, self._clock, self._limits, started)

    def start_ahead(self, kernels: int) -> None:
        """Let so many processes import PyTorch now; each is used for one kernel."""
        if self._device.type == "cuda":  # a descriptor would have to be inherited
            self._started += [StartedChild(TorchArena.device) for _ in range(kernels)]

    def close(self) -> None:
        """End what was started and not used."""
        while self._started:
            self._started.pop().close()

    def baselines(self, task: RankedTask) -> tuple[KernelSource, ...]:
        """The library's ways."""
        text = files("capacity.torch_backend").joinpath("ranked_baselines.py").read_text("utf-8")
        return tuple(
            KernelSource(f"torch:{name}", BASELINE_MODULE, name, text, trusted=True)
            for name in BASELINES[task.name]
        )


class TorchArena:
    """One allocation."""

    device: Final = "capacity.torch_backend.ranked_device"
    driver_threads: Final = ("cuda", "nv", "pt_")

    def __init__(self, device: torch.device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.on_processor = device.type == "cpu"
        self.fds: tuple[int, ...] = ()
        if device.type == "cpu":
            descriptor = sealed_memory(nbytes)
            self.fds = (descriptor,)
            shared = mmap.mmap(descriptor, nbytes)
            self._memory: Any = torch.frombuffer(shared, dtype=torch.uint8)
            self.told: dict[str, Any] = {"fd": descriptor, "nbytes": nbytes}
            return
        gc.collect()
        torch.cuda.empty_cache()  # no block of earlier work may be taken again
        whole = max(LEAST_ARENA, -(-nbytes // BLOCK) * BLOCK)
        self._memory = torch.zeros(whole, dtype=torch.uint8, device=device)
        handle = pickle.dumps(reduce_tensor(self._memory))
        self.told = {"handle": base64.b64encode(handle).decode()}

    def clear(self) -> None:
        """Nothing of an earlier trial is left, neither there nor in the judge's cache."""
        gc.collect()
        self._memory.zero_()
        if self._memory.is_cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def lay_out(self, layout: SlotLayout) -> TorchMemory:
        """Views."""
        return TorchMemory(self._memory, layout)

    def close(self) -> None:
        """After the kernel's process has ended."""
        for descriptor in self.fds:
            os.close(descriptor)


class TorchMemory:
    """Views of the shared memory, and private copies."""

    def __init__(self, memory: Any, layout: SlotLayout) -> None:
        self._dtype = FORMATS[layout.number_format]
        self._operands = memory[: layout.results_at]
        self._results = memory[layout.results_at : layout.nbytes]
        self._results_at = layout.results_at
        self._kept = torch.empty_like(self._operands)
        self._copy = torch.empty_like(self._results)

    def write(self, place: Place, values: Any) -> None:
        """Round to the format."""
        self._view(self._operands, place).copy_(values)

    def make_ready(self) -> None:
        """Keep the operands, poison the results."""
        self._kept.copy_(self._operands)
        self._results.view(self._dtype).fill_(math.nan)
        self._synchronize()

    def take_results(self) -> None:
        """Returns when the copy is there."""
        self._copy.copy_(self._results)
        self._synchronize()

    def unchanged(self, place: Place) -> bool:
        """Bit by bit."""
        now, kept = (
            self._view(flat, place).view(torch.uint8) for flat in (self._operands, self._kept)
        )
        return bool(torch.equal(now, kept))

    def operand(self, place: Place) -> Any:
        """As it was made."""
        return self._view(self._kept, place).double()

    def result(self, place: Place) -> Any:
        """Of the copy."""
        return self._view(self._copy, place, self._results_at).double()

    def _view(self, flat: Any, place: Place, base: int = 0) -> Any:
        nbytes = math.prod(place.shape) * self._dtype.itemsize
        start = place.offset - base
        return flat[start : start + nbytes].view(self._dtype).view(place.shape)

    def _synchronize(self) -> None:
        if self._results.is_cuda:
            torch.cuda.synchronize()
