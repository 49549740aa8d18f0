"""One kernel in its process, with the memory that it shares with the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from capacity.ranking.kernel_host import Inspection, LibraryCall, Memory, RoundReport, Sync
from capacity.ranking.kernel_source import KernelSource
from capacity.ranking.kernel_verdict import KernelRefused
from capacity.ranking.slot_layout import SlotLayout
from capacity.ranking_process.kernel_process import KernelProcess, StartedChild, printable
from capacity.ranking_process.process_limits import Limits
from wattpack.clock import Clock
from wattpack.units import ns_to_seconds


class SharedMemory(Memory, Protocol):
    """Memory that can copy all results in one go."""

    def take_results(self) -> None:
        """Returns when the copy is there."""
        ...


class Arena(Protocol):
    """Memory that two processes see."""

    @property
    def device(self) -> str:
        """Module of the device in the kernel's process."""
        ...

    @property
    def told(self) -> Mapping[str, Any]:
        """What that device needs to find the memory."""
        ...

    @property
    def on_processor(self) -> bool:
        """Whether the processor is the device: then its time is known to the system."""
        ...

    @property
    def driver_threads(self) -> tuple[str, ...]:
        """How names of threads begin that the device's driver starts when it needs them."""
        ...

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that the process inherits."""
        ...

    def lay_out(self, layout: SlotLayout) -> SharedMemory:
        """Views of the arrays."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class ProcessTrial:
    """See ``capacity.ranking.kernel_host.Trial``."""

    def __init__(
        self, source: KernelSource, arena: Arena, clock: Clock, limits: Limits,
        started: StartedChild | None = None,
    ) -> None:  # fmt: skip
        self._source, self._arena, self._clock = source, arena, clock
        self._memory: SharedMemory | None = None
        self._operands = 0
        child = started or StartedChild(arena.device, arena.fds)
        try:
            self._process = KernelProcess(child, arena.told, clock, limits)
        except BaseException:
            arena.close()
            raise

    def use(self, layout: SlotLayout) -> Memory:
        """Lay out anew."""
        self._process.run({"do": "use", "layout": layout.as_dict()})
        self._operands = len(layout.slots[0].operands)
        self._memory = self._arena.lay_out(layout)
        return self._memory

    def load(self) -> None:
        """Import the kernel."""
        self._process.load({
            "do": "load", "module": self._source.module, "function": self._source.function,
            "operands": self._operands,
        })  # fmt: skip

    def run(self, slots: Sequence[int], sync: Sync) -> RoundReport:
        """From the word to start until the results are copied."""
        if self._memory is None:
            raise RuntimeError("use comes first")
        before = self._process.processor_seconds()
        start_ns = self._clock.monotonic_ns()
        answer = self._process.run({"do": "run", "slots": list(slots), "sync": sync})
        self._memory.take_results()
        wall_ns = self._clock.monotonic_ns() - start_ns
        wall_seconds = ns_to_seconds(wall_ns)
        worked = self._process.processor_seconds() - before
        return RoundReport(
            wall_seconds,
            worked if self._arena.on_processor and worked > 0 else wall_seconds,
            _number(answer, "claimed_seconds"),
        )

    def inspect(self) -> Inspection:
        """Watched unless it is the benchmark's own."""
        answer = self._process.run({"do": "inspect", "watch": not self._source.trusted})
        try:
            calls = tuple(LibraryCall(str(name), float(work)) for name, work in answer["calls"])
            patched = tuple(printable(str(name)) for name in answer["patched"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise KernelRefused("raised", "its process talks nonsense") from error
        return Inspection(patched, calls)

    def require_alone(self) -> None:
        """No thread, no process."""
        self._process.require_alone(self._arena.driver_threads)

    def close(self) -> float:
        """End the process and give the memory back."""
        minutes = self._process.close()
        self._memory = None
        self._arena.close()
        return minutes


def _number(answer: Mapping[str, Any], key: str) -> float:
    try:
        return float(answer[key])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise KernelRefused("raised", "its process talks nonsense") from error
