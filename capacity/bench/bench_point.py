"""One kernel to be measured, and what of the board decides which ones are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from capacity.bench.board_settings import AS_IT_STANDS, BoardSetting
from capacity.bench.measurement_row import CacheState, TimingMode
from capacity.kernels import Kernel, LaunchMode, NumberFormat, kernel_shape

Section = Literal[
    "idle", "bandwidth", "elementwise", "gemm", "arrivals", "attention", "launch", "transition",
    "collectives", "repeat", "validation", "steps", "caps",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchPoint:
    """One kernel to be measured."""

    section: Section
    kernel: Kernel
    cache_state: CacheState = "cold"
    measures_power: bool = False
    timing_mode: TimingMode = "continuous"
    launch_mode: LaunchMode = "graph"
    setting: BoardSetting = AS_IT_STANDS

    @property
    def key(self) -> str:
        """Names the point in a results file, so that a run can be resumed."""
        shape = json.dumps(kernel_shape(self.kernel), sort_keys=True)
        key = f"{self.section}|{self.kernel.kernel_class}|{shape}|{self.cache_state}"
        how = (self.timing_mode, self.launch_mode)
        parts = [key] if how == ("continuous", "graph") else [key, *how]
        if self.setting:
            parts.append(str(self.setting))
        return "|".join(parts)


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """What the plan has to know of the board.

    Attributes:
        memory_bytes: Free memory.
        formats: Number formats that its matrix units take.
        gpus: GPUs that the run may use together.
        tells_power: Without it only times are measured.
        limit_watts: Of which section ``caps`` takes shares; 0: no caps. Likewise the clock.
    """

    memory_bytes: int
    l2_bytes: int
    formats: tuple[NumberFormat, ...] = ("bf16",)
    gpus: int = 1
    tells_power: bool = True
    limit_watts: float = 0.0
    max_clock_mhz: int = 0
