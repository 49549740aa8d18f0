"""The present simulated time in 8 bytes of shared memory, so that nobody reads an old one.

A message may overtake the conductor's notice to its receiver; memory cannot be overtaken.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from wattpack.errors import InputError


class SharedTime:
    """One aligned 64-bit integer; a store of it is a single machine store.

    Args:
        path: File behind it, None for this process alone.
        create: Whether to make the file.
    """

    def __init__(self, path: Path | None = None, *, create: bool = False) -> None:
        size = mmap.PAGESIZE
        if path is None:
            self._memory = mmap.mmap(-1, size)
        else:
            flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
            descriptor = os.open(path, flags, 0o600)
            try:
                if create:
                    os.ftruncate(descriptor, size)
                elif os.fstat(descriptor).st_size != size:
                    raise InputError("file", f"{size} bytes", os.fstat(descriptor).st_size)
                self._memory = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        self._view = memoryview(self._memory).cast("q")

    def read(self) -> int:
        """Nanoseconds."""
        return int(self._view[0])

    def write(self, now_ns: int) -> None:
        """Let everybody see a new time."""
        self._view[0] = now_ns

    def close(self) -> None:
        """Give the mapping back."""
        self._view.release()
        self._memory.close()
