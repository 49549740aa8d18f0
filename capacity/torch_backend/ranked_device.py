"""PyTorch, as the process of a kernel sees it."""

from __future__ import annotations

import base64
import importlib
import mmap
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from capacity.ranking_process.child_device import Arrays, Layout, NotPlain, changed_names, keep
from wattpack.clock import SystemClock

FORMATS: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns",
          "clock_gettime", "clock_gettime_ns", "process_time")  # fmt: skip
WHOLE = 1e30
"""Operations of a fused attention: it is the whole task whatever its size."""

_now_ns = SystemClock().monotonic_ns
_EVENT = torch.cuda.Event
_RECORD, _ELAPSED, _WAIT = _EVENT.record, _EVENT.elapsed_time, _EVENT.synchronize
_SYNCHRONIZE = torch.cuda.synchronize
_COPY = torch.Tensor.copy_
_ORIGINALS = keep(
    (importlib.import_module("time"), CLOCKS),
    (torch.cuda, ("Event", "Stream", "synchronize", "current_stream", "stream", "default_stream")),
    (_EVENT, ("record", "elapsed_time", "synchronize", "query", "wait")),
    (torch.cuda.Stream, ("synchronize", "query", "wait_event", "wait_stream", "record_event")),
    (torch.Tensor, ("copy_", "__eq__")),
    (torch, ("empty", "allclose", "mm", "matmul")),
)


class TorchDevice:
    """A GPU, or the processor through PyTorch.

    Args:
        arena: A handle of the judge's GPU memory, or a descriptor.
    """

    def __init__(self, arena: dict[str, Any]) -> None:
        self._cuda = "handle" in arena
        if self._cuda:
            build, arguments = pickle.loads(base64.b64decode(arena["handle"]))
            self._memory = build(*arguments)
            torch.cuda.set_device(self._memory.device)
        else:
            shared = mmap.mmap(int(arena["fd"]), int(arena["nbytes"]))
            self._memory = torch.frombuffer(shared, dtype=torch.uint8)
        torch.set_num_threads(1)
        matmul = torch.backends.cuda.matmul
        matmul.allow_bf16_reduced_precision_reduction = False
        matmul.allow_fp16_reduced_precision_reduction = False
        matmul.allow_tf32 = False
        self._settings = _settings()
        self._warm_up()

    def arrays(self, layout: Layout) -> Sequence[Arrays]:
        """Views of the judge's memory."""
        dtype = FORMATS[layout["number_format"]]
        return [
            (
                tuple(self._view(dtype, *place) for place in slot["operands"]),
                self._view(dtype, *slot["result"]),
            )
            for slot in layout["slots"]
        ]

    def mark(self) -> Any:
        """On the stream that the kernel is called on."""
        if not self._cuda:
            return _now_ns()
        event = _EVENT(enable_timing=True)
        _RECORD(event)
        return event

    def seconds_between(self, first: Any, last: Any) -> float:
        """Device time."""
        if not self._cuda:
            return float(last - first) / 1e9
        return float(_ELAPSED(first, last)) / 1e3

    def wait(self, last: Any, *, everything: bool) -> None:
        """For the event or for all streams."""
        if self._cuda:
            _WAIT(last)
            if everything:
                _SYNCHRONIZE()

    def store(self, result: Any, value: Any) -> None:
        """In stream order."""
        if type(value) is not torch.Tensor:
            raise NotPlain("not_a_plain_array", f"returned a {type(value).__name__}")
        if value.shape != result.shape or value.dtype != result.dtype:
            raise NotPlain("wrong_shape", f"returned {value.dtype} {tuple(value.shape)}")
        if value.device != result.device:
            raise NotPlain("not_a_plain_array", f"returned a tensor on {value.device}")
        _COPY(result, value)

    def patched(self) -> list[str]:
        """Clocks, events, and the precision of the library."""
        names = changed_names(_ORIGINALS)
        return names + [k for k, v in _settings().items() if v != self._settings[k]]

    def watched(self, call: Callable[..., Any], arrays: Arrays) -> list[tuple[str, float]]:
        """By what reaches PyTorch's dispatcher."""
        operands, result = arrays
        watch = _Watch()
        with watch:
            call(operands, result)
        if self._cuda:
            _SYNCHRONIZE()
        return watch.seen

    def _view(self, dtype: torch.dtype, offset: int, shape: list[int]) -> Any:
        count = 1
        for size in shape:
            count *= size
        nbytes = count * torch.empty((), dtype=dtype).element_size()
        return self._memory[offset : offset + nbytes].view(dtype).view(shape)

    def _warm_up(self) -> None:
        """What the library starts by itself (threads, handles) is there before the kernel."""
        if not self._cuda:
            return
        x = torch.ones((64, 64), dtype=torch.bfloat16, device=self._memory.device)
        torch.nn.functional.scaled_dot_product_attention((x @ x)[None, None], x[None, None],
                                                         x[None, None])  # fmt: skip
        _SYNCHRONIZE()


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Notes products and fused attentions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(function)
        arrays = [value for value in args if isinstance(value, torch.Tensor) and value.ndim >= 2]
        if "scaled_dot_product" in name or "attention" in name:
            self.seen.append((name, WHOLE))
        elif any(word in name for word in ("mm", "matmul", "linear")) and len(arrays) >= 2:
            left, right = arrays[-2:]
            self.seen.append((name, 2.0 * left.numel() * right.shape[-1]))
        return function(*args, **(kwargs or {}))


def _settings() -> dict[str, Any]:
    matmul = torch.backends.cuda.matmul
    return {
        "allow_bf16_reduced_precision_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "allow_fp16_reduced_precision_reduction": matmul.allow_fp16_reduced_precision_reduction,
        "allow_tf32": matmul.allow_tf32,
    }


def open_device(arena: dict[str, Any]) -> TorchDevice:
    """The device of this process."""
    return TorchDevice(arena)
