"""NVML return codes and the typed error that each one becomes."""

from __future__ import annotations

from gpu.device import (
    GpuError,
    GpuInvalidArgument,
    GpuLost,
    GpuNoPermission,
    GpuNotSupported,
    GpuTimeout,
    GpuUnavailable,
)


class NvmlFailure(Exception):
    """An NVML call returned a code other than success.

    Args:
        code: nvmlReturn_t.
        call: The NVML function.
    """

    def __init__(self, code: int, call: str) -> None:
        self.code = code
        self.call = call
        super().__init__(f"{call}: {code}")


NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13

# nvmlReturn_t of nvml.h, driver 580. INSUFFICIENT_SIZE and ALREADY_INITIALIZED are handled inside
# the library binding and would be a defect here, hence the permanent error.
ERRORS: dict[int, tuple[str, type[GpuError]]] = {
    1: ("UNINITIALIZED", GpuUnavailable),
    2: ("INVALID_ARGUMENT", GpuInvalidArgument),
    3: ("NOT_SUPPORTED", GpuNotSupported),
    4: ("NO_PERMISSION", GpuNoPermission),
    5: ("ALREADY_INITIALIZED", GpuInvalidArgument),
    6: ("NOT_FOUND", GpuNotSupported),
    7: ("INSUFFICIENT_SIZE", GpuInvalidArgument),
    8: ("INSUFFICIENT_POWER", GpuUnavailable),
    9: ("DRIVER_NOT_LOADED", GpuUnavailable),
    10: ("TIMEOUT", GpuTimeout),
    11: ("IRQ_ISSUE", GpuUnavailable),
    12: ("LIBRARY_NOT_FOUND", GpuUnavailable),
    13: ("FUNCTION_NOT_FOUND", GpuNotSupported),
    14: ("CORRUPTED_INFOROM", GpuUnavailable),
    15: ("GPU_IS_LOST", GpuLost),
    16: ("RESET_REQUIRED", GpuLost),
    17: ("OPERATING_SYSTEM", GpuUnavailable),
    18: ("LIB_RM_VERSION_MISMATCH", GpuUnavailable),
    19: ("IN_USE", GpuUnavailable),
    20: ("MEMORY", GpuUnavailable),
    21: ("NO_DATA", GpuNotSupported),
    22: ("VGPU_ECC_NOT_SUPPORTED", GpuNotSupported),
    23: ("INSUFFICIENT_RESOURCES", GpuUnavailable),
    24: ("FREQ_NOT_SUPPORTED", GpuInvalidArgument),
    25: ("ARGUMENT_VERSION_MISMATCH", GpuNotSupported),
    26: ("DEPRECATED", GpuNotSupported),
    27: ("NOT_READY", GpuUnavailable),
    28: ("GPU_NOT_FOUND", GpuLost),
    29: ("INVALID_STATE", GpuUnavailable),
    30: ("RESET_TYPE_NOT_SUPPORTED", GpuNotSupported),
    999: ("UNKNOWN", GpuUnavailable),
}

ADVICE = {
    4: "run the actuator, which alone may write, as root",
    9: "load the NVIDIA driver (is nvidia-smi working on this machine?)",
    12: "libnvidia-ml.so.1 was not found: install the NVIDIA driver, or pass it into the container",
    16: "reset the GPU or reboot the node",
    18: "the driver was updated without a reload: reboot the node or reload the module",
}
"""What a person can do about a code."""


def typed_error(failure: NvmlFailure, device: str) -> GpuError:
    """The failure as the device port's error; an unknown code is retryable."""
    name, kind = ERRORS.get(failure.code, (f"code {failure.code}", GpuUnavailable))
    advice = ADVICE.get(failure.code)
    message = f"{device}: {failure.call}: {name}" + (f"; {advice}" if advice else "")
    return kind(message)
