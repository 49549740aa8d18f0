"""Kernels that cheat, one a loophole; the test names the reason for which each is refused."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from typing import Any

import numpy as np

from capacity.ranking_process import queued_device

_kept: dict[Any, Any] = {}


def _work(x: Any, w: Any, out: Any) -> None:
    for n in range(0, w.shape[0], 16):
        out[:, n : n + 16] = x @ w[n : n + 16].T


# -- work elsewhere ------------------------------------------------------------------------------


def side_stream(x: Any, w: Any, out: Any) -> None:
    with queued_device.using(_kept.setdefault("stream", queued_device.Stream())):
        queued_device.launch(_work, x, w, out)


def thread_that_finishes_later(x: Any, w: Any, out: Any) -> None:
    threading.Thread(target=_late, args=(x, w, out), daemon=True).start()


def _late(x: Any, w: Any, out: Any) -> None:
    threading.Event().wait(0.01)
    _work(x, w, out)


def idle_threads(x: Any, w: Any, out: Any) -> None:
    if "thread" not in _kept:
        _kept["thread"] = threading.Thread(target=threading.Event().wait, daemon=True)
        _kept["thread"].start()
    _work(x, w, out)


def child_process(x: Any, w: Any, out: Any) -> None:
    if "child" not in _kept:
        _kept["child"] = os.fork()
        if _kept["child"] == 0:
            threading.Event().wait(20)
            os._exit(0)
    _work(x, w, out)


def daemon(x: Any, w: Any, out: Any) -> None:
    """Its parent ends at once, so that nobody seems to own it."""
    if "daemon" not in _kept:
        _kept["daemon"] = os.fork()
        if _kept["daemon"] == 0:
            os.setsid()
            if os.fork() == 0:
                threading.Event().wait(20)
            os._exit(0)
    _work(x, w, out)


# -- no work -------------------------------------------------------------------------------------


class Lazy(np.ndarray):
    """Would compute when somebody looks."""


def lazy_array(x: Any, w: Any) -> Any:
    return np.empty((x.shape[0], w.shape[0]), x.dtype).view(Lazy)


class Pretends:
    def __init__(self, x: Any, w: Any) -> None:
        self.parts = x, w
        self.shape, self.dtype = (x.shape[0], w.shape[0]), x.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.parts[0] @ self.parts[1].T


def fake_array(x: Any, w: Any) -> Any:
    return Pretends(x, w)


def does_nothing(x: Any, w: Any, out: Any) -> None:
    pass


def returns_what_memory_held(x: Any, w: Any) -> Any:
    return np.empty((x.shape[0], w.shape[0]), x.dtype)


def returns_zeros(x: Any, w: Any) -> Any:
    return np.zeros((x.shape[0], w.shape[0]), x.dtype)


def returns_the_poison(x: Any, w: Any, out: Any) -> Any:
    return out


def skips_the_last_row(x: Any, w: Any, out: Any) -> None:
    _work(x[:-1], w, out[:-1])


def skips_every_third_run(x: Any, w: Any, out: Any) -> None:
    _kept["runs"] = _kept.get("runs", 0) + 1
    if _kept["runs"] > 40 and _kept["runs"] % 3 == 0:
        out[...] = _kept["last"]
        return
    _work(x, w, out)
    _kept["last"] = out.copy()


def many_runs_in_one_call(x: Any, w: Any, out: Any) -> None:
    """The next slots lie where one would guess them."""
    _kept["last"] = max(_kept.get("last", 0), out.ctypes.data)
    for step in range(3):
        if out.ctypes.data + step * _padded(out) <= _kept["last"]:
            operands = _padded(x, w)
            _work(
                _next(x, step, operands), _next(w, step, operands), _next(out, step, _padded(out))
            )


def _next(array: Any, steps: int, stride: int) -> Any:
    raw = (ctypes.c_float * array.size).from_address(array.ctypes.data + steps * stride)
    return np.frombuffer(raw, np.float32).reshape(array.shape)


def _padded(*arrays: Any) -> int:
    return sum(-(-array.nbytes // 512) * 512 for array in arrays)


def skips_one_run_in_thirty(x: Any, w: Any, out: Any) -> None:
    """Too few for a judge that looks at some runs only."""
    _kept["runs"] = _kept.get("runs", 0) + 1
    if _kept["runs"] > 45 and _kept["runs"] % 30 == 0:
        out[...] = _kept["last"]
        return
    _work(x, w, out)
    _kept["last"] = out.copy()


def same_result_again(x: Any, w: Any, out: Any) -> None:
    key = x.shape, w.shape
    if key not in _kept:
        _work(x, w, out)
        _kept[key] = out.copy()
    out[...] = _kept[key]


def cached_by_pointer(x: Any, w: Any, out: Any) -> None:
    key = x.ctypes.data, w.ctypes.data, x.shape
    if key not in _kept:
        _work(x, w, out)
        _kept[key] = out.copy()
    out[...] = _kept[key]


def cached_by_first_elements(x: Any, w: Any, out: Any) -> None:
    key = x.shape, round(float(x[0, 0]), 1)
    if key not in _kept:
        _work(x, w, out)
        _kept[key] = out.copy()
    out[...] = _kept[key]


def leaves_signalling_nans(x: Any, w: Any, out: Any) -> None:
    out.view(np.uint32)[...] = 0x7FA00000


def searches_memory_for_the_answer(x: Any, w: Any, out: Any) -> None:
    """What the allocator gives back may be somebody's reference result."""
    out[...] = np.empty_like(out)


def result_of_another_slot(x: Any, w: Any, out: Any) -> None:
    """The shared memory holds no right results: only other runs' own."""
    nbytes = (out.nbytes + 511) // 512 * 512
    other = (ctypes.c_float * out.size).from_address(out.ctypes.data - nbytes)
    out[...] = np.frombuffer(other, np.float32).reshape(out.shape)


# -- one case only -------------------------------------------------------------------------------


def one_shape(x: Any, w: Any, out: Any) -> None:
    if x.shape != (32, 64):
        out[...] = 0
        return
    _work(x, w, out)


def assumes_normal_operands(x: Any, w: Any, out: Any) -> None:
    _work(np.clip(x, -8, 8), w, out)


def careful_while_examined(x: Any, w: Any, out: Any) -> None:
    """The examination is over after a number of calls that one can count."""
    _kept["calls"] = _kept.get("calls", 0) + 1
    _work(np.clip(x, -8, 8) if _kept["calls"] > 32 else x, w, out)


def modifies_operands(x: Any, w: Any, out: Any) -> None:
    _work(x, w, out)
    x *= 0.5


# -- fewer bits ----------------------------------------------------------------------------------


def half_operands(x: Any, w: Any, out: Any) -> None:
    _work(x.astype(np.float16).astype(np.float32), w.astype(np.float16).astype(np.float32), out)


def bfloat_operands(x: Any, w: Any, out: Any) -> None:
    _work(_bfloat(x), _bfloat(w), out)


def _bfloat(x: Any) -> Any:
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def twelve_bits(x: Any, w: Any, out: Any) -> None:
    """TF32: wide exponent, so no magnitude gives it away, only the digits do."""
    mask = np.uint32(0xFFFFE000)
    _work(
        (x.view(np.uint32) & mask).view(np.float32),
        (w.view(np.uint32) & mask).view(np.float32),
        out,
    )


def half_sums(x: Any, w: Any, out: Any) -> None:
    total = np.zeros(out.shape, np.float16)
    for k in range(0, x.shape[1], 8):
        total += (x[:, k : k + 8] @ w[:, k : k + 8].T).astype(np.float16)
    out[...] = total


def half_of_the_sum(x: Any, w: Any, out: Any) -> None:
    half = x.shape[1] // 2
    _work(x[:, :half], w[:, :half], out)
    out *= 2


# -- the clock -----------------------------------------------------------------------------------


def patches_the_clock(x: Any, w: Any, out: Any) -> None:
    importlib.import_module("time").perf_counter = lambda: 0.0
    _work(x, w, out)


def patches_the_event(x: Any, w: Any, out: Any) -> None:
    queued_device.Event.elapsed_seconds = lambda self, later: 1e-9
    for _ in range(20):
        _work(x, w, out)


# -- somebody else's work ------------------------------------------------------------------------


def library_call(x: Any, w: Any, out: Any) -> None:
    np.matmul(x, w.T, out=out)


def library_operator(x: Any, w: Any) -> Any:
    weights = np.ascontiguousarray(w.T)
    return x @ weights


def library_by_another_name(x: Any, w: Any) -> Any:
    return getattr(np, "ten" + "sordot")(x, w, (1, 1))


def library_in_einsum(x: Any, w: Any) -> Any:
    return np.einsum("mk,nk->mn", x, w)


def falls_back(x: Any, w: Any, out: Any) -> None:
    try:
        raise NotImplementedError
    except NotImplementedError:
        out[...] = x @ w.T


# -- mischief ------------------------------------------------------------------------------------


def raises(x: Any, w: Any, out: Any) -> None:
    raise MemoryError("not here")


def ends_the_process(x: Any, w: Any, out: Any) -> None:
    os._exit(0)


def never_ends(x: Any, w: Any, out: Any) -> None:
    while True:
        pass


def takes_all_memory(x: Any, w: Any, out: Any) -> None:
    _kept["all"] = np.ones(2**25)
    threading.Event().wait(20)


def two_arguments_too_many(x: Any, w: Any, out: Any, more: Any) -> None:
    pass


def wrong_shape(x: Any, w: Any) -> Any:
    return np.zeros((x.shape[0], w.shape[0] + 1), x.dtype)


def wrong_format(x: Any, w: Any) -> Any:
    return np.zeros((x.shape[0], w.shape[0]), np.float64)


# -- other tasks ---------------------------------------------------------------------------------


def _attention(q: Any, k: Any, v: Any, latest: int = 0, *, masked: bool = True) -> Any:
    result = np.empty_like(q)
    group, past = q.shape[1] // k.shape[1], k.shape[2] - q.shape[2]
    for b, h, i in np.ndindex(*q.shape[:3]):
        last = past + i + 1 if masked else k.shape[2]
        first = max(0, last - latest) if latest else 0
        scores = k[b, h // group, first:last] @ q[b, h, i] * q.shape[3] ** -0.5
        shares = np.exp(scores - scores.max())
        result[b, h, i] = shares / shares.sum() @ v[b, h // group, first:last]
    return result


def attention_without_mask(q: Any, k: Any, v: Any) -> Any:
    return _attention(q, k, v, masked=False)


def attention_to_the_latest(q: Any, k: Any, v: Any) -> Any:
    """Most of the weight lies there, sometimes."""
    return _attention(q, k, v, latest=k.shape[2] * 7 // 8)


def attention_in_half(q: Any, k: Any, v: Any) -> Any:
    return _attention(*(x.astype(np.float16).astype(np.float32) for x in (q, k)), v)


def attention_of_the_mean(q: Any, k: Any, v: Any) -> Any:
    return np.repeat(v.mean(2, keepdims=True), q.shape[1] // v.shape[1], 1)


def attention_by_fused_call(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v)  # noqa: F821


def triad_in_half(a: Any, b: Any, out: Any) -> None:
    out[...] = a.astype(np.float16) + b.astype(np.float16) / np.float16(2)


def triad_of_half(a: Any, b: Any, out: Any) -> None:
    half = a.size // 2
    out[:half] = a[:half] + b[:half] / 2


def triad_without_b(a: Any, b: Any, out: Any) -> None:
    out[...] = a
