"""What a GPU does besides computing: nothing, launches, exchanges with other GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.kernels.fields import CollectiveOp, ContextState, LaunchMode, require_fields
from wattpack.errors import InputError


class _NothingComputed:
    """Neither arithmetic nor memory."""

    __slots__ = ()

    @property
    def flops(self) -> float:
        """None."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Idle(_NothingComputed):
    """Nothing runs: what the board draws before a process opens it, and after."""

    context: ContextState

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def kernel_class(self) -> str:
        """``idle``."""
        return "idle"


@dataclass(frozen=True, slots=True)
class LaunchChain(_NothingComputed):
    """``kernels`` launches that do nothing: what the host and the queue cost."""

    kernels: int
    mode: LaunchMode

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def kernel_class(self) -> str:
        """``launch``."""
        return "launch"


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over ``gpus`` GPUs; ``message_bytes`` is what each GPU contributes."""

    op: CollectiveOp
    message_bytes: int
    gpus: int

    def __post_init__(self) -> None:
        require_fields(self)
        if self.gpus < 2:
            raise InputError("gpus", "at least 2", self.gpus)

    @property
    def kernel_class(self) -> str:
        """``collective``."""
        return "collective"

    @property
    def flops(self) -> float:
        """None worth counting."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """What crosses one GPU's links (nccl-tests' bus convention).

        Each GPU contributes ``message_bytes``: gathered from all, that is n - 1 messages in.
        """
        share = (self.gpus - 1) / self.gpus
        factors = {"all_reduce": 2 * share, "all_gather": self.gpus - 1.0, "send_recv": 1.0}
        return self.message_bytes * factors.get(self.op, share)
