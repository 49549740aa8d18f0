"""The event loop under gRPC's asynchronous streams.

The library has one queue of finished operations for all loops of a process: whichever loop finds
one hands it to the loop that began it. An operation that was cancelled at the very end of a loop is
found after that, by another loop, which then fails with a traceback for each stream.

It also reports each message or status that meets a peer which has just left as a failure of the
server, with a traceback: an agent that goes away is the most ordinary end of a stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

import grpc

__all__ = ["GrpcEventLoop"]

_Ts = TypeVarTuple("_Ts")


def _no_ordinary_end(record: logging.LogRecord) -> bool:
    """False for what the library says when a peer left while something was on its way to it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


logging.getLogger("grpc._cython.cygrpc").addFilter(_no_ordinary_end)


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
