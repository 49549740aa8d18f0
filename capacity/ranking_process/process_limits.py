"""How much a kernel's process may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds.

    Attributes:
        load_seconds: For an import; compilers are slow.
        round_seconds: For one round of runs.
        memory_bytes: Resident host memory.
    """

    load_seconds: float = 120.0
    round_seconds: float = 60.0
    memory_bytes: float = 16 * 2.0**30
