"""What the benchmark needs of the code that runs kernels, whoever made the GPU.

Adapters: ``capacity.torch_backend`` (CUDA and ROCm), ``capacity.numpy_backend`` (this machine's
processor), ``capacity.simulated_backend`` (boards of the twin). A new one is one module that
passes the contract test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from capacity.bench.bench_point import BoardFacts
from capacity.bench.measurement_row import CacheState
from capacity.kernels import Kernel, LaunchMode
from wattpack.errors import PermanentError


class KernelUnavailable(PermanentError):
    """This backend cannot run the kernel on this board; the point is skipped and said so."""


@dataclass(frozen=True, slots=True)
class Software:
    """Which code runs the kernels.

    Attributes:
        architecture: For example ``sm_90``, ``numpy`` or ``simulated``.
        multiprocessors: As the runtime counts them; 0 where there are none.
        kernel_source_sha256: Over the backend's own kernels.
    """

    architecture: str
    multiprocessors: int
    cuda: str
    torch: str
    kernel_source_sha256: str


class PendingLaunch(Protocol):
    """Runs that are queued."""

    def done(self) -> bool:
        """Whether the last one has ended; does not block."""
        ...

    def seconds(self) -> float:
        """Device time from the first run's start to the last one's end; blocks until then."""
        ...


class LoadedKernel(Protocol):
    """A kernel with its operands in memory."""

    @property
    def implementation(self) -> str:
        """Which code it is."""
        ...

    @property
    def runs_per_launch(self) -> int:
        """Runs of the kernel in one launch."""
        ...

    def launch(self, count: int) -> PendingLaunch:
        """Queue ``count`` launches and return at once."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class KernelBackend(Protocol):
    """One GPU and a way to run kernels on it."""

    def software(self) -> Software:
        """Versions."""
        ...

    def facts(self) -> BoardFacts:
        """What the plan has to know."""
        ...

    def fingerprint(self) -> str:
        """A hash of how this GPU and software round: equal for equal ones, run after run."""
        ...

    def load(
        self, kernel: Kernel, cache_state: CacheState, seed: int, launch_mode: LaunchMode = "graph"
    ) -> LoadedKernel:
        """Make random operands and warm the kernel up.

        Args:
            launch_mode: ``eager`` launches run by run, one run a launch, as a framework without
                graphs does.

        Raises:
            KernelUnavailable: if this board or software has no such kernel.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
