"""A kernel's time from three constants of the GPU: launch, compute and bandwidth efficiency.

Source: Williams et al., "Roofline: an insightful visual performance model" (CACM 2009), with a
smooth maximum of the two roofs (a kernel near the ridge overlaps them only partly) and the time
of a launch that does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SHARPNESS: Final = 2.0
"""Of the smooth maximum; of 2, 3, 4 and 8 the best on matrix products of the H200 and B200."""

TYPICAL_LOGS: Final = np.log([3e-6, 0.7, 0.8])
"""Launch seconds, compute and bandwidth efficiency where nothing is known; six measured types lie
between 2 and 5 us, 0.63 and 0.82, 0.73 and 0.84."""

TYPICAL_SPREAD: Final = np.array([0.7, 0.3, 0.3])
"""How far, in log units, a type may lie from the typical."""

_ERROR_SCALE: Final = 0.1
"""What three constants leave unexplained, in log units (11-17 % of matrix products)."""

_SMALLEST_ERROR: Final = 0.03
_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class RoofTimes:
    """How long the datasheet says that each kernel takes at least, each of shape (n,)."""

    compute_seconds: Floats
    memory_seconds: Floats


@dataclass(frozen=True, slots=True)
class RooflineConstants:
    """What a fit found for one GPU and one kind of kernel.

    Attributes:
        compute_efficiency: Share of the datasheet's operations a second that large kernels reach.
        bandwidth_efficiency: The same of its bytes a second.
    """

    launch_seconds: float
    compute_efficiency: float
    bandwidth_efficiency: float

    @classmethod
    def from_logs(cls, logs: Floats) -> RooflineConstants:
        """The constants whose natural logarithms these are, shape (3,)."""
        launch, compute, bandwidth = np.exp(logs).tolist()
        return cls(launch, compute, bandwidth)

    def logs(self) -> Floats:
        """Shape (3,)."""
        return np.log([self.launch_seconds, self.compute_efficiency, self.bandwidth_efficiency])

    def seconds(self, roofs: RoofTimes) -> Floats:
        """Shape (n,)."""
        compute = roofs.compute_seconds / self.compute_efficiency
        memory = roofs.memory_seconds / self.bandwidth_efficiency
        busy = (compute**SHARPNESS + memory**SHARPNESS) ** (1 / SHARPNESS)
        return np.asarray(self.launch_seconds + busy)


def fit_constants(
    roofs: RoofTimes,
    seconds: Floats,
    typical: Floats = TYPICAL_LOGS,
    spread: Floats = TYPICAL_SPREAD,
) -> RooflineConstants:
    """The constants that explain the times best, drawn to the typical where the times say little.

    Relative errors count by their size, not its square, so a few odd kernels bend nothing:
    Gauss-Newton on re-weighted squares.

    Args:
        typical: Natural logarithms of the three constants, shape (3,); ``spread`` likewise.
    """
    logs = np.array(typical, dtype=np.float64)
    nudges = 1e-4 * np.eye(3)

    def errors(at: Floats) -> Floats:
        return np.asarray(np.log(RooflineConstants.from_logs(at).seconds(roofs) / seconds))

    for _ in range(_STEPS if len(seconds) else 0):
        error = errors(logs)
        weight = _ERROR_SCALE / np.maximum(np.abs(error), _SMALLEST_ERROR) / _ERROR_SCALE**2
        slopes = np.stack([(errors(logs + n) - errors(logs - n)) / 2e-4 for n in nudges], axis=1)
        curvature = (slopes * weight[:, None]).T @ slopes + np.diag(1 / spread**2)
        downhill = (slopes * weight[:, None]).T @ error + (logs - typical) / spread**2
        logs = logs + np.clip(np.linalg.solve(curvature, -downhill), -0.5, 0.5)
    return RooflineConstants.from_logs(logs)
