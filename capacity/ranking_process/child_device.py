"""What the process of a kernel needs of the device it runs on; loaded before the kernel is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Layout = Mapping[str, Any]
Arrays = tuple[tuple[Any, ...], Any]
"""Operands and result of one slot."""


class NotPlain(Exception):
    """What the kernel returned is no plain array of the task; ``reason`` says how."""

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(evidence)
        self.reason = reason


class ChildDevice(Protocol):
    """The device, with its originals kept."""

    def arrays(self, layout: Layout) -> Sequence[Arrays]:
        """Views of the shared memory."""
        ...

    def mark(self) -> Any:
        """An event on the current stream."""
        ...

    def seconds_between(self, first: Any, last: Any) -> float:
        """Between two events that have passed."""
        ...

    def wait(self, last: Any, *, everything: bool) -> None:
        """Until the event has passed, or until the whole device has nothing to do."""
        ...

    def store(self, result: Any, value: Any) -> None:
        """Copy what a kernel returned, in stream order.

        Raises:
            NotPlain: if it is something else than an array of this type, shape and format.
        """
        ...

    def patched(self) -> list[str]:
        """Names that are not what they were."""
        ...

    def watched(self, call: Callable[..., Any], arrays: Arrays) -> list[tuple[str, float]]:
        """Library calls of one run with their operations."""
        ...


def changed_names(originals: Mapping[tuple[Any, str], Any]) -> list[str]:
    """Which attributes of which objects are no longer the original ones."""
    return [
        f"{getattr(owner, '__name__', owner)}.{name}"
        for (owner, name), original in originals.items()
        if vars(owner).get(name) is not original
    ]


def keep(*owners: tuple[Any, Sequence[str]]) -> dict[tuple[Any, str], Any]:
    """The originals of names that a kernel has no business to change."""
    return {
        (owner, name): vars(owner)[name]
        for owner, names in owners
        for name in names
        if name in vars(owner)
    }
