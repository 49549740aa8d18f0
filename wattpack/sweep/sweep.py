"""Cases of a sweep, run one after the other, in processes of this machine, or on a Dask cluster.

Whoever sweeps has a function of one job and a list of jobs, and gets rows as they are finished,
each with its job's number, so that what ends first is kept first. Rows depend on no place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

Job = TypeVar("Job")
Made = TypeVar("Made")


class Sweep(Protocol):
    """Where cases are run."""

    def rows(self, work: Callable[[Any], Made], jobs: Sequence[Any]) -> Iterator[tuple[int, Made]]:
        """Number of a job and what it made, in the order in which they end.

        Args:
            work: A function of a module, or a partial of one; Dask takes any function.
            jobs: What can be pickled.
        """
        ...


class OneByOne:
    """In this process."""

    def rows(self, work: Callable[[Any], Made], jobs: Sequence[Any]) -> Iterator[tuple[int, Made]]:
        """In the order of the jobs."""
        return ((number, work(job)) for number, job in enumerate(jobs))


@dataclass(frozen=True, slots=True)
class Processes:
    """In processes of this machine.

    Attributes:
        count: How many.
    """

    count: int

    def rows(self, work: Callable[[Any], Made], jobs: Sequence[Any]) -> Iterator[tuple[int, Made]]:
        """As they end."""
        # A pool that takes its processes with it when this one is told to end.
        with get_context("spawn").Pool(self.count) as pool:
            yield from pool.imap_unordered(partial(_numbered, work), list(enumerate(jobs)))


def _numbered(work: Callable[[Job], Made], job: tuple[int, Job]) -> tuple[int, Made]:
    return job[0], work(job[1])


def sweep_of(scheduler: str | None, code: Callable[[], str], processes: int = 1) -> Sweep:
    """Where the command line wants cases to run.

    Args:
        scheduler: Address of a Dask scheduler, or None for this machine.
        code: Digest of the code that a row depends on; workers must have the same.
        processes: Here, without a scheduler.

    Raises:
        InputError: if Dask is not installed.
    """
    if scheduler is not None:
        from wattpack.sweep.dask_sweep import DaskSweep

        return DaskSweep(scheduler, code)
    return OneByOne() if processes == 1 else Processes(processes)
