"""Carries writes out on the boards: in order, with a read-back, never waiting for a hung driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from actuator.lease_entry import Outcome, Write, WriteKind, watts_match
from gpu.device import GpuDevice
from gpu.workers.deadline_executor import Abandoned, DeadlineExecutor
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

DEADLINE_NS = NS_PER_SECOND // 2
"""A write and its read-back take 10 to 80 ms (DynamoLLM and Perseus report that much for clock
changes); a board that needs longer than this is treated as hung."""

STUCK = "the driver call has not returned"


class Hands(Protocol):
    """How writes reach the boards of one node."""

    def carry_out(self, plans: Mapping[str, tuple[Write, ...]]) -> dict[str, Outcome]:
        """Do each board's writes in order up to the first failure, then read its limits back."""
        ...

    def close(self) -> None:
        """Let the boards go."""
        ...


def carry_out_one(device: GpuDevice, writes: tuple[Write, ...], abandoned: Abandoned) -> Outcome:
    """One board's writes and read-back; errors become part of the outcome."""
    done: list[Write] = []
    failed: Write | None = None
    error = ""
    for write in writes:
        if abandoned():
            return Outcome(done=tuple(done), error=STUCK, failed=write)
        try:
            if done and not _in_force(device, done[-1]):
                error = f"{done[-1].kind} had no effect, {write.kind} was not tried"
                break
            _write(device, write)
        except Exception as problem:  # one board's fault never stops the others
            failed, error = write, _text(problem)
            break
        done.append(write)
    try:
        limits = device.limits()
    except Exception as problem:  # as above
        return Outcome(done=tuple(done), error=error or _text(problem), failed=failed)
    return Outcome(limits.limit_watts, limits.enforced_limit_watts, tuple(done), error, failed)


def _in_force(device: GpuDevice, write: Write) -> bool:
    """Whether a limit can be seen on the board, before what it replaces is released.

    NVML cannot read a clock lock back: there the driver's answer has to do.
    """
    if write.kind is not WriteKind.POWER_LIMIT or write.cap_watts is None:
        return True
    return watts_match(device.limits().limit_watts, write.cap_watts)


def _write(device: GpuDevice, write: Write) -> None:
    if write.kind is WriteKind.POWER_LIMIT and write.cap_watts is not None:
        device.set_power_limit(write.cap_watts)
    elif write.kind is WriteKind.LOCK_CLOCKS and write.max_mhz is not None:
        device.lock_clocks(write.max_mhz)
    else:
        device.reset_clocks()


def _text(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:200]


class InlineHands:
    """Calls the boards in the caller's thread: simulated boards, which never hang."""

    def __init__(self, devices: Iterable[GpuDevice]) -> None:
        self._devices = {device.identity.uuid: device for device in devices}

    def carry_out(self, plans: Mapping[str, tuple[Write, ...]]) -> dict[str, Outcome]:
        """One board after the other."""
        return {
            uuid: carry_out_one(self._devices[uuid], writes, _never)  # type: ignore[index]
            for uuid, writes in plans.items()
        }

    def close(self) -> None:
        """Nothing is held."""


def _never() -> bool:
    return False


class WorkerHands:
    """All boards at the same time, and one deadline for all of them together.

    A board whose call has not returned is reported as stuck at once from then on, until it
    returns; what its late call did is found by the next read-back.
    """

    def __init__(
        self, devices: Iterable[GpuDevice], clock: Clock, deadline_ns: int = DEADLINE_NS
    ) -> None:
        self._devices = {str(device.identity.uuid): device for device in devices}
        self._executor = DeadlineExecutor(clock, deadline_ns=deadline_ns, stall_ns=0)

    def carry_out(self, plans: Mapping[str, tuple[Write, ...]]) -> dict[str, Outcome]:
        """All boards at the same time."""
        jobs = {
            uuid: partial(carry_out_one, self._devices[uuid], writes)
            for uuid, writes in plans.items()
        }
        results = self._executor.run(jobs)
        return {uuid: _outcome(writes, results.get(uuid)) for uuid, writes in plans.items()}

    def close(self) -> None:
        """Ask every worker to end; a stuck one ends with the process."""
        self._executor.close()


def _outcome(writes: tuple[Write, ...], result: Outcome | Exception | None) -> Outcome:
    if isinstance(result, Outcome):
        return result
    error = STUCK if result is None else _text(result)
    return Outcome(error=error, failed=writes[0] if writes else None)
