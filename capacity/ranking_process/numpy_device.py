"""Numpy and the queued device, as the process of a kernel sees them."""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from capacity.ranking_process import queued_device
from capacity.ranking_process.child_device import Arrays, Layout, NotPlain, changed_names, keep

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns",
          "clock_gettime", "clock_gettime_ns", "process_time", "process_time_ns")  # fmt: skip
_EVENT, _SYNCHRONIZE, _LAUNCH = (
    queued_device.Event, queued_device.synchronize, queued_device.launch,
)  # fmt: skip
_COPY = np.copyto
_ORIGINALS = keep(
    (importlib.import_module("time"), CLOCKS),
    (queued_device, ("Event", "Stream", "synchronize", "launch", "current_stream", "_now_ns")),
    (queued_device.Event, ("record", "synchronize", "elapsed_seconds", "_pass")),
    (queued_device.Stream, ("add", "synchronize", "idle")),
    (np, ("copyto", "matmul", "dot", "ndarray")),
)


class NumpyDevice:
    """This machine's processor.

    Args:
        arena: ``fd`` of the shared memory and its length.
    """

    def __init__(self, arena: dict[str, Any]) -> None:
        self._memory = mmap.mmap(int(arena["fd"]), int(arena["nbytes"]))

    def arrays(self, layout: Layout) -> Sequence[Arrays]:
        """float32 views."""
        return [
            (tuple(self._view(*place) for place in slot["operands"]), self._view(*slot["result"]))
            for slot in layout["slots"]
        ]

    def mark(self) -> Any:
        """Passes at once unless something is queued."""
        event = _EVENT()
        event.record()
        return event

    def seconds_between(self, first: Any, last: Any) -> float:
        """Host time at which the queue got there."""
        return float(first.elapsed_seconds(last))

    def wait(self, last: Any, *, everything: bool) -> None:
        """Drain one queue or all."""
        if everything:
            _SYNCHRONIZE()
        last.synchronize()

    def store(self, result: Any, value: Any) -> None:
        """Behind what the kernel queued."""
        if type(value) is not np.ndarray:
            raise NotPlain("not_a_plain_array", f"returned a {type(value).__name__}")
        if value.shape != result.shape or value.dtype != result.dtype:
            raise NotPlain("wrong_shape", f"returned {value.dtype} {value.shape}")
        if queued_device.current_stream().idle:
            _COPY(result, value)
        else:
            _LAUNCH(_COPY, result, value)

    def patched(self) -> list[str]:
        """Clocks, events and copies."""
        return changed_names(_ORIGINALS)

    def watched(self, call: Callable[..., Any], arrays: Arrays) -> list[tuple[str, float]]:
        """By operands that tell which library functions they are given to."""
        seen: list[tuple[str, float]] = []
        operands, result = arrays
        told = [_telling(np.array(operand), seen) for operand in operands]
        call(told, np.array(result))
        _SYNCHRONIZE()
        return seen

    def _view(self, offset: int, shape: list[int]) -> Any:
        count = int(np.prod(shape))
        return np.frombuffer(self._memory, np.float32, count, offset).reshape(shape)


def _telling(array: Any, seen: list[tuple[str, float]]) -> Any:
    """The array as one that notes the products it takes part in."""

    class Telling(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
            if ufunc is np.matmul:
                seen.append(("matmul", _work(inputs)))
            named = {key: _plain(value) for key, value in kwargs.items()}
            return getattr(ufunc, method)(*map(_plain, inputs), **named)

        def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
            name = getattr(function, "__name__", "")
            if name in {"dot", "inner", "tensordot", "einsum", "multi_dot"}:
                arrays = [value for value in arguments if isinstance(value, np.ndarray)]
                seen.append((name, _work(arrays)))
            return function(*map(_plain, arguments), **{k: _plain(v) for k, v in named.items()})

    return array.view(Telling)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


def _work(arrays: Sequence[Any]) -> float:
    """Operations of a product of two matrices, whichever way round they lie."""
    if len(arrays) < 2 or arrays[0].ndim < 2 or arrays[1].ndim < 2:
        return 0.0
    (a, b), (c, d) = arrays[0].shape[-2:], arrays[1].shape[-2:]
    shared = b if b in (c, d) else a
    return float(2.0 * arrays[0].size * arrays[1].size / max(1, shared))


def open_device(arena: dict[str, Any]) -> NumpyDevice:
    """The device of this process."""
    return NumpyDevice(arena)
