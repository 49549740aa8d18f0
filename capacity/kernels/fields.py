"""What the fields of kernels may hold: words of fixed lists, and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final, Literal, get_args

from wattpack.errors import InputError
from wattpack.units import require_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NumberFormat = Literal["bf16", "fp16", "fp8", "fp32"]
Phase = Literal["prefill", "decode"]
Mask = Literal["full", "causal", "window", "document"]
StreamPattern = Literal["copy", "triad", "read"]
ElementwiseOp = Literal["norm", "rotate", "gate"]
ContextState = Literal["none", "open"]
LaunchMode = Literal["eager", "graph"]
CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]

FORMAT_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
"""Bytes of one element."""

OUTPUT_BYTES: Final = 2
"""Products of narrow formats leave the matrix units as 16-bit numbers."""

_LARGEST: Final = 2**40

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "number_format": get_args(NumberFormat),
    "phase": get_args(Phase),
    "mask": get_args(Mask),
    "pattern": get_args(StreamPattern),
    "mode": get_args(LaunchMode),
    "Collective.op": get_args(CollectiveOp),
    "Elementwise.op": get_args(ElementwiseOp),
    "context": get_args(ContextState),
}


def require_fields(kernel: DataclassInstance, zero_ok: tuple[str, ...] = ()) -> None:
    """Sizes are positive integers, words are known ones.

    Raises:
        InputError: naming the field.
    """
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        own = f"{type(kernel).__name__}.{field.name}"
        choices = _CHOICES.get(own) or _CHOICES.get(field.name)
        if choices is not None:
            if value not in choices:
                raise InputError(field.name, f"one of {choices}", value)
            continue
        low = 0 if field.name in zero_ok else 1
        require_number(field.name, value, minimum=low, maximum=_LARGEST)
        if not isinstance(value, int):
            raise InputError(field.name, "an integer", value)
