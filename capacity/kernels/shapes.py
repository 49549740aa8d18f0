"""Kernels as plain JSON values, and back: how rows of measurements hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from capacity.kernels.arithmetic import Attention, Gemm
from capacity.kernels.between import Collective, Idle, LaunchChain
from capacity.kernels.decoder_step import DecoderStep
from capacity.kernels.passes import Elementwise, MemoryStream
from wattpack.errors import InputError

Kernel = (
    Gemm | Attention | MemoryStream | Elementwise | Idle | LaunchChain | Collective | DecoderStep
)


_KINDS: Final[Mapping[str, type[Any]]] = {
    "gemm": Gemm,
    "attention_prefill": Attention,
    "attention_decode": Attention,
    "bandwidth": MemoryStream,
    "elementwise": Elementwise,
    "idle": Idle,
    "launch": LaunchChain,
    "collective": Collective,
    "step_prefill": DecoderStep,
    "step_decode": DecoderStep,
}


def kernel_shape(kernel: Kernel) -> dict[str, Any]:
    """The kernel's fields as plain JSON values; with ``kernel_class`` it can be built again."""
    return asdict(kernel)


def kernel_from_shape(kernel_class: str, shape: object) -> Kernel:
    """The kernel that ``kernel_shape`` described.

    Raises:
        InputError: unknown class, unknown or missing key, a size that is no positive integer.
    """
    kind = _KINDS.get(kernel_class)
    if kind is None:
        raise InputError("kernel_class", f"one of {sorted(_KINDS)}", kernel_class)
    if not isinstance(shape, Mapping):
        raise InputError("shape", "a mapping", shape)
    names = {field.name for field in fields(kind)}
    for key in sorted(set(shape) ^ names, key=str):
        expected = "a known key" if key in shape else "a value"
        raise InputError(f"shape.{key}", expected, shape.get(key))
    kernel: Kernel = kind(**shape)
    if kernel.kernel_class != kernel_class:
        raise InputError("kernel_class", f"{kernel.kernel_class} by its shape", kernel_class)
    return kernel
