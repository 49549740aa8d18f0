"""The event loop under gRPC's asynchronous streams.

The library has one queue of finished operations for all loops of a process: whichever loop finds
one hands it to the loop that began it. An operation that was cancelled at the very end of a loop is
found after that, by another loop, which then fails with a traceback for each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

__all__ = ["GrpcEventLoop"]

_Ts = TypeVarTuple("_Ts")


class GrpcEventLoop(asyncio.SelectorEventLoop):
    """Takes what comes after it was closed, and does nothing with it."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run soon; a callback that comes too late is dropped."""
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)
