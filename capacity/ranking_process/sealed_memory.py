"""Memory behind a descriptor that two processes map and neither can take from under the other."""

from __future__ import annotations

import fcntl
import os
from typing import Final

SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Without these the kernel's process could shorten the memory, and the judge would die of it."""


def sealed_memory(nbytes: int) -> int:
    """A descriptor of zeroed memory whose size stays."""
    descriptor = os.memfd_create("wattpack-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor
