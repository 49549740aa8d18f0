"""What can go wrong when a GPU profile is asked for.

InputError (wattpack.errors)
├── UnknownGpuModel      the driver's product name has no profile: the caller must not guess (I8)
└── UnknownServingModel  no iteration times are known for that language model or parallelism
"""

from __future__ import annotations

from collections.abc import Iterable

from wattpack.errors import InputError
from wattpack.near_names import one_of


class UnknownGpuModel(InputError):
    """No profile exists for this product name; budget the device at its maximum or add a profile.

    Args:
        got: The name that was looked up.
        known: The names that have a profile.
    """

    def __init__(self, got: str, known: Iterable[str]) -> None:
        super().__init__("gpuModel", one_of(got, sorted(known)), got)


class UnknownServingModel(InputError):
    """No iteration times are known for this combination of GPU, language model and parallelism."""

    def __init__(self, got: str, known: Iterable[str]) -> None:
        super().__init__("servingModel", one_of(got, sorted(known)), got)
