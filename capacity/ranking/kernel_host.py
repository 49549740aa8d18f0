"""What the judge needs of the place where kernels run.

Adapters: ``capacity.ranking_process`` (this machine's processor and a simulated device with queues)
and ``capacity.torch_backend`` (CUDA).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.ranked_task import ArrayLibrary, RankedTask
from capacity.ranking.slot_layout import Place, SlotLayout
from capacity.roofs import Roofs

Sync = Literal["stream", "device"]
"""What the kernel's process waits for before it says that a round has ended: the stream that it
called the kernel on, or all of the device."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine.

    Attributes:
        cache_bytes: Last level.
        memory_bytes: That the slots of one trial may take.
        slack_seconds: What a round with runs may cost beyond one without: the first launch after
            a rest, caches that the kernel emptied.
        roofs: None where no datasheet is known.
    """

    product: str
    architecture: str
    software: str
    cache_bytes: float
    memory_bytes: float
    slack_seconds: float
    roofs: Roofs | None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round of runs.

    Attributes:
        wall_seconds: By the judge's clock, from the word to start until the judge held a copy of
            all results. Ranks.
        worked_seconds: The same without the time in which other work kept the device from this
            kernel, where the system tells that; for comparing with the claim only.
        claimed_seconds: By the events of the kernel's process, all runs.
    """

    wall_seconds: float
    worked_seconds: float
    claimed_seconds: float


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """One call of a library by the kernel, seen while it ran.

    Attributes:
        work: Operations of the call, by the shapes it was given.
    """

    name: str
    work: float


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the kernel's process is like after the last run.

    Attributes:
        patched: Names that no longer are what they were before the kernel was loaded.
        calls: Library calls of one run.
    """

    patched: tuple[str, ...]
    calls: tuple[LibraryCall, ...]


class Memory(Protocol):
    """Memory that the kernel's process sees, too, and private copies of it."""

    def write(self, place: Place, values: Any) -> None:
        """Round ``values`` to the layout's format into an operand."""
        ...

    def make_ready(self) -> None:
        """Keep a copy of all operands, and fill all results with what is no number."""
        ...

    def unchanged(self, place: Place) -> bool:
        """Whether an operand still is what it was when it was kept."""
        ...

    def operand(self, place: Place) -> Any:
        """As it was kept, in double precision."""
        ...

    def result(self, place: Place) -> Any:
        """From the last round's copy of the results, in double precision."""
        ...


class Trial(Protocol):
    """One kernel in a process of its own; every method raises ``KernelRefused`` if it ends."""

    def use(self, layout: SlotLayout) -> Memory:
        """Lay the shared memory out anew."""
        ...

    def load(self) -> None:
        """Import the kernel."""
        ...

    def run(self, slots: Sequence[int], sync: Sync) -> RoundReport:
        """One run on each of the slots, in order, without a gap."""
        ...

    def inspect(self) -> Inspection:
        """One more run, watched."""
        ...

    def require_alone(self) -> None:
        """Nothing happens if the kernel left no thread and no process behind.

        Raises:
            KernelRefused: naming what it left.
        """
        ...

    def close(self) -> float:
        """End the process, however it is; minutes that it held the device."""
        ...


class KernelHost(Protocol):
    """A place where kernels run."""

    @property
    def library(self) -> ArrayLibrary:
        """For the formulas."""
        ...

    @property
    def out_of_memory(self) -> tuple[type[Exception], ...]:
        """What the judge's own arrays raise when the kernel left them no room."""
        ...

    def facts(self) -> HostFacts:
        """The machine."""
        ...

    def generator(self, seed: int) -> Any:
        """A function that draws standard normal numbers of a shape."""
        ...

    def open(self, source: KernelSource, arena_bytes: int) -> Trial:
        """Start a process for the kernel; the kernel is not loaded yet."""
        ...

    def start_ahead(self, kernels: int) -> None:
        """Start so many processes now, where starting one takes long; one kernel uses each."""
        ...

    def close(self) -> None:
        """End what was started and not used."""
        ...

    def baselines(self, task: RankedTask) -> tuple[KernelSource, ...]:
        """The tuned library's ways to do the task, in all layouts."""
        ...
