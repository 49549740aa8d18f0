"""The narrow port to NVML: named calls with plain answers, so that they can be recorded.

Adapters: ``gpu.nvml.binding`` (the library), ``gpu.replay.replayed_device`` (a recording) and
``gpu.replay.recorder`` (a wrapper that writes one).
"""

from __future__ import annotations

from typing import Any, Protocol

SYSTEM = -1
"""The device index of calls that concern no device."""

XID_EVENTS = "xidEvents"
"""Not an NVML function: the XID codes in the device's event set since the last call."""

FIELD_VALUES = "nvmlDeviceGetFieldValues"

GPM_METRICS = "gpmMetrics"
"""Not an NVML function: the metrics between the last call's sample of the device and this one's."""


class NvmlCalls(Protocol):
    """NVML by function name."""

    def call(self, name: str, index: int, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        """The answer as numbers, strings, lists and dicts.

        ``nvmlDeviceGetFieldValues`` takes field ids and answers ``[[id, code, value], ...]``, and
        so does ``GPM_METRICS`` with metric ids, None at the first call.

        Args:
            name: The NVML function.
            index: Of the device, or ``SYSTEM``.
            args: After the device handle.

        Raises:
            NvmlFailure: for every code other than success.
        """
        ...

    def close(self) -> None:
        """Let go of the library; idempotent."""
        ...
