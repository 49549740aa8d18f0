"""The benchmark's kernels on one GPU through PyTorch."""

from __future__ import annotations

import hashlib
import math
from importlib.resources import files
from typing import Any, Final

import torch

from capacity.bench.bench_point import BoardFacts
from capacity.bench.measurement_row import CacheState
from capacity.bench.operand_copies import operand_copies
from capacity.bench.ports import KernelUnavailable, LoadedKernel, Software
from capacity.kernels import (
    FORMAT_BYTES,
    Attention,
    Collective,
    DecoderStep,
    Elementwise,
    Gemm,
    Idle,
    Kernel,
    LaunchChain,
    LaunchMode,
    MemoryStream,
    NumberFormat,
)
from capacity.torch_backend import attention_kernels, elementwise_kernels
from capacity.torch_backend.collectives import CollectiveGroup
from capacity.torch_backend.decoder_stack import DecoderStack
from capacity.torch_backend.recorded_launch import HostAndDevice, RecordedLaunch, Repeats, Work
from capacity.torch_backend.rounding import numeric_fingerprint
from capacity.torch_backend.tuning import TunedConfigs
from wattpack.clock import Clock

LAUNCH_SECONDS: Final = 0.002
"""Aimed length of one recorded launch."""

MAX_RUNS: Final = 400

_SOURCES: Final = ("triton_kernels.py", "attention_kernels.py", "decoder_stack.py")


class TorchBackend:
    """One GPU.

    Args:
        device: ``cuda:N``; ``cpu`` runs the same operations without graphs, for tests.
        tuned: Winners of earlier tuning, and where new ones go.
        clock: Times what has no events of its own.
    """

    def __init__(self, device: str, tuned: TunedConfigs, clock: Clock) -> None:
        self._device = torch.device(device)
        self._place = HostAndDevice(self._device, clock)
        self._tuned = tuned
        self._eager = False
        self._stack: DecoderStack | None = None
        self._group: CollectiveGroup | None = None
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            self._properties: Any = torch.cuda.get_device_properties(self._device)
        else:
            self._properties = None

    def software(self) -> Software:
        """Versions of the runtime and of the kernels in this package."""
        board = self._properties
        return Software(
            architecture=f"sm_{board.major}{board.minor}" if board else "cpu",
            multiprocessors=board.multi_processor_count if board else 0,
            cuda=str(torch.version.cuda or torch.version.hip or ""),
            torch=torch.__version__,
            kernel_source_sha256=kernel_source_sha256(),
        )

    def facts(self) -> BoardFacts:
        """Memory, cache and number formats of the board."""
        if self._properties is None:
            return BoardFacts(2**31, 2**20)
        free, _ = torch.cuda.mem_get_info(self._device)
        formats: tuple[NumberFormat, ...] = ("bf16",)
        if (self._properties.major, self._properties.minor) >= (8, 9):
            formats = ("bf16", "fp8")
        gpus = torch.cuda.device_count() if self._device.index == 0 else 1
        return BoardFacts(free, self._properties.L2_cache_size, formats, gpus)

    def fingerprint(self) -> str:
        """How this GPU and its libraries round fixed inputs, four digits for each way."""
        return numeric_fingerprint(self._device)

    def load(
        self, kernel: Kernel, cache_state: CacheState, seed: int, launch_mode: LaunchMode = "graph"
    ) -> LoadedKernel:
        """Random operands, kernel warmed up and recorded."""
        torch.manual_seed(seed)
        self._eager = launch_mode == "eager"
        if not isinstance(kernel, DecoderStep):
            self._stack = None
        try:
            match kernel:
                case Gemm():
                    return self._gemm(kernel, cache_state)
                case Attention():
                    return self._attention(kernel, cache_state)
                case MemoryStream():
                    return self._stream(kernel, cache_state)
                case Elementwise():
                    return self._elementwise(kernel, cache_state)
                case LaunchChain():
                    return self._chain(kernel)
                case Idle():
                    raise KernelUnavailable("idleness is nothing to load")
                case DecoderStep():
                    return self._step(kernel)
                case Collective():
                    return self._collective(kernel)
        except torch.cuda.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise KernelUnavailable(f"{kernel}: not enough memory") from error

    def close(self) -> None:
        """Give everything back."""
        self._stack = None
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    # -- the kernels -----------------------------------------------------------------------------

    def _gemm(self, kernel: Gemm, cache_state: CacheState) -> RecordedLaunch:
        copies = self._copies(kernel, cache_state)
        xs = [self._normal((kernel.m, kernel.k)) for _ in range(copies)]
        ws = [self._normal((kernel.n, kernel.k), kernel.k**-0.5) for _ in range(copies)]
        ys = [self._empty((kernel.m, kernel.n)) for _ in range(copies)]
        if kernel.number_format == "fp8":
            return self._record(_fp8_product(xs, ws, ys), kernel, copies, "cublaslt:fp8")
        if kernel.number_format == "fp32":
            raise KernelUnavailable("fp32 products are not benchmarked")

        def product(copy: int) -> None:
            torch.mm(xs[copy], ws[copy].T, out=ys[copy])

        return self._record(product, kernel, copies, "cublas")

    def _attention(self, kernel: Attention, cache_state: CacheState) -> RecordedLaunch:
        copies = self._copies(kernel, cache_state)
        works = attention_kernels.implementations(kernel, copies, self._device, self._tuned)
        best: RecordedLaunch | None = None
        best_seconds = math.inf
        for name, work in works:
            try:
                loaded = self._record(work, kernel, copies, name)
            except RuntimeError:
                continue  # this library has no such kernel for the shape; another one has
            seconds = min(loaded.launch(1).seconds() for _ in range(3))
            if seconds / loaded.runs_per_launch < best_seconds:
                best, best_seconds = loaded, seconds / loaded.runs_per_launch
        if best is None:
            raise KernelUnavailable(f"no library runs {kernel}")
        return best

    def _stream(self, kernel: MemoryStream, cache_state: CacheState) -> RecordedLaunch:
        copies = self._copies(kernel, cache_state)
        elements = max(1, kernel.buffer_bytes // FORMAT_BYTES["bf16"])
        a = [self._normal((elements,)) for _ in range(copies)]
        b = [self._normal((elements,)) for _ in range(copies)]
        c = [self._empty((elements,)) for _ in range(copies)]
        total = [torch.empty((), dtype=torch.float32, device=self._device) for _ in range(copies)]

        def run(copy: int) -> None:
            if kernel.pattern == "copy":
                c[copy].copy_(a[copy])
            elif kernel.pattern == "triad":
                torch.add(a[copy], b[copy], alpha=0.5, out=c[copy])
            else:
                torch.sum(a[copy], dim=(), dtype=torch.float32, out=total[copy])

        return self._record(run, kernel, copies, "torch")

    def _elementwise(self, kernel: Elementwise, cache_state: CacheState) -> RecordedLaunch:
        copies = self._copies(kernel, cache_state)
        work = elementwise_kernels.work(kernel, copies, self._device)
        return self._record(work, kernel, copies, "triton")

    def _chain(self, kernel: LaunchChain) -> RecordedLaunch:
        cell = torch.zeros(1, device=self._device)

        def run(_: int) -> None:
            for _ in range(kernel.kernels):
                cell.add_(1)

        eager = kernel.mode == "eager"
        return RecordedLaunch(run, self._place, f"torch:{kernel.mode}", eager=eager)

    def _step(self, kernel: DecoderStep) -> RecordedLaunch:
        if self._stack is None or not self._stack.fits(kernel):
            self._stack = None
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            self._stack = DecoderStack(kernel, self._device, self._tuned)
        step, name = self._stack.step(kernel)
        return RecordedLaunch(step, self._place, name, eager=self._eager, waits=not self._eager)

    def _collective(self, kernel: Collective) -> LoadedKernel:
        if self._device != torch.device("cuda", 0) or torch.cuda.device_count() < kernel.gpus:
            raise KernelUnavailable(f"collectives start on GPU 0 of at least {kernel.gpus}")
        if self._group is None or self._group.gpus != kernel.gpus:
            self._group = CollectiveGroup(kernel.gpus)
        return self._group.load(kernel)

    # -- operands --------------------------------------------------------------------------------

    def _copies(self, kernel: Kernel, cache_state: CacheState) -> int:
        return operand_copies(kernel, self.facts().l2_bytes, cache_state)

    def _record(self, work: Work, kernel: Kernel, copies: int, name: str) -> RecordedLaunch:
        if self._eager:
            return RecordedLaunch(work, self._place, name, repeats=Repeats(copies, 1), eager=True)
        probe = RecordedLaunch(work, self._place, name, repeats=Repeats(copies, copies))
        one = min(probe.launch(1).seconds() for _ in range(2)) / copies
        runs = min(MAX_RUNS, max(1, round(LAUNCH_SECONDS / max(one, 1e-7))))
        runs = max(copies, runs // copies * copies)
        if runs == copies:
            return probe
        return RecordedLaunch(work, self._place, name, repeats=Repeats(copies, runs))

    def _normal(self, shape: tuple[int, ...], scale: float = 1.0) -> Any:
        made = torch.randn(shape, dtype=torch.bfloat16, device=self._device)
        return made if scale == 1.0 else made.mul_(scale)

    def _empty(self, shape: tuple[int, ...]) -> Any:
        """Poisoned, so that an element that is never written shows."""
        return torch.full(shape, float("nan"), dtype=torch.bfloat16, device=self._device)


def _fp8_product(xs: list[Any], ws: list[Any], ys: list[Any]) -> Work:
    """Products of 8-bit operands with one scale a tensor, 16-bit results."""
    narrow = torch.float8_e4m3fn
    one = torch.ones((), dtype=torch.float32, device=xs[0].device)
    xs8 = [x.to(narrow) for x in xs]
    ws8 = [w.mul(16.0).to(narrow) for w in ws]
    xs.clear()
    ws.clear()

    def product(copy: int) -> None:
        torch._scaled_mm(
            xs8[copy], ws8[copy].T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
            out=ys[copy],
        )  # fmt: skip

    return product


def kernel_source_sha256() -> str:
    """Over the bytes of this package's own kernels."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(files("capacity.torch_backend").joinpath(name).read_bytes())
    return digest.hexdigest()


def tuning_key(product: str, driver: str) -> str:
    """What winners of tuning are valid for: this type, these versions, these sources."""
    runtime = torch.version.cuda or torch.version.hip or ""
    return "|".join((product, driver, runtime, torch.__version__, kernel_source_sha256()))


def relative_error(out: Any, reference: Any) -> float:
    """‖out − reference‖ / ‖reference‖ in double precision."""
    gap = (out.double() - reference.double()).norm() / reference.double().norm()
    return float(gap)


def open_torch_backend(index: int, tuned: TunedConfigs, clock: Clock) -> TorchBackend:
    """The backend of one GPU.

    Raises:
        KernelUnavailable: if PyTorch sees no such GPU.
    """
    if index >= torch.cuda.device_count():
        raise KernelUnavailable(f"PyTorch sees {torch.cuda.device_count()} GPUs, wanted {index}")
    return TorchBackend(f"cuda:{index}", tuned, clock)
