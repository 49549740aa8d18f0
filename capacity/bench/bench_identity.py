"""What a measured row is true for: the board, its settings and the software."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

SCHEMA_VERSION: Final = 1
"""Of the rows in a results file."""

FINGERPRINT_PART_DIGITS: Final = 4
SILENT_PART: Final = "0" * FINGERPRINT_PART_DIGITS
"""A way of rounding that a board lacks, or that changes from one computation to the next."""

SIMULATED_DRIVER: Final = "simulated"
"""What the simulated backend's boards tell as their driver."""

_OWN: Final = {"run_id", "image_digest", "gpu_uuid_hash", "numeric_fingerprint"}
"""What differs between boards and runs whose rows may stand in for one another."""


@dataclass(frozen=True, slots=True)
class BenchIdentity:
    """What a row is true for; together with the kernel it is the cache key of a result.

    Attributes:
        gpu_uuid_hash: First 16 hex digits of SHA-256 over the UUID: tells boards apart, no more.
        architecture: For example ``sm_90``; the name of a simulated or host backend otherwise.
        power_limit_watts: Limit in force while the row was measured; 0 for what has none.
        sm_clock_lock_mhz: Upper end of a clock lock, None without one.
        kernel_source_sha256: Over the sources of the backend's own kernels.
        numeric_fingerprint: How the board and its libraries round fixed inputs, in parts of four
            digits; empty in rows of before it was kept.
    """

    run_id: str
    gpu_product: str
    gpu_uuid_hash: str
    architecture: str
    vbios: str
    driver: str
    cuda: str
    torch: str
    image_digest: str
    kernel_source_sha256: str
    power_limit_watts: float
    sm_clock_lock_mhz: int | None = None
    numeric_fingerprint: str = ""

    @property
    def is_simulated(self) -> bool:
        """Whether no board was measured."""
        return self.driver == SIMULATED_DRIVER

    @property
    def cache_key(self) -> str:
        """Equal for runs whose rows may stand in for one another."""
        key = {name: value for name, value in asdict(self).items() if name not in _OWN}
        text = json.dumps({"schema": SCHEMA_VERSION, **key}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
