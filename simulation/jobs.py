"""Training and batch pods: how far their work has come, and what it draws.

A training job's members step together: it moves at the speed of its slowest GPU, and only once all
declared members run; at the end of each step every member waits in the exchange and draws less.
A batch pod draws a constant share of a hot kernel and is finished after its declared work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WINDOW_SECONDS = 10.0
"""Slowdown of a job is judged over windows of this length."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """Constants of one pod's work.

    Attributes:
        group: Number of the training job that it belongs to, -1 for batch.
        group_size: Members that must run together.
        duration_seconds: Work at full speed; infinite for training.
        load_ratio: Draw over the class's draw.
        step_seconds: Training step at full speed.
    """

    group: int
    group_size: int
    duration_seconds: float
    load_ratio: float
    step_seconds: float


class JobFleet:
    """All training and batch pods that run; a slot number stays with a pod while it lives.

    Args:
        n_slots: Most pods at one time.
        n_groups: Training jobs.
        dip_ratio: Draw in the exchange over full draw.
        dip_share: Share of a step spent in the exchange.

    Attributes:
        last_work_seconds: Work that each slot did in the last step, (slots,).
    """

    def __init__(self, n_slots: int, n_groups: int, dip_ratio: float, dip_share: float) -> None:
        self._dip_ratio, self._dip_share = dip_ratio, dip_share
        self._used = np.zeros(n_slots, dtype=np.bool_)
        self._group = np.full(n_slots, -1, dtype=np.int64)
        self._group_size = np.ones(n_slots)
        self._duration = np.full(n_slots, np.inf)
        self._load = np.ones(n_slots)
        self._step_seconds = np.ones(n_slots)
        self._progress = np.zeros(n_slots)
        self._group_progress = np.zeros(max(1, n_groups))
        self._window_work = np.zeros(n_slots)
        self._window_elapsed = np.zeros(n_slots)
        self.last_work_seconds = np.zeros(n_slots)

    def add(self, shape: JobShape, done_seconds: float = 0.0) -> int:
        """Start a pod with the work that it has already done; its slot."""
        slot = int(np.flatnonzero(~self._used)[0])
        self._used[slot] = True
        self._group[slot], self._group_size[slot] = shape.group, shape.group_size
        self._duration[slot], self._load[slot] = shape.duration_seconds, shape.load_ratio
        self._step_seconds[slot] = shape.step_seconds
        self._progress[slot] = done_seconds
        self._window_work[slot] = self._window_elapsed[slot] = 0.0
        return slot

    def remove(self, slot: int) -> float:
        """Stop a pod; the seconds of work that it has done."""
        self._used[slot] = False
        self._group[slot] = -1
        return float(self._progress[slot])

    def _running(self) -> NDArray[np.bool_]:
        """Pods whose gang is complete, (slots,)."""
        member = self._used & (self._group >= 0)
        present = np.bincount(self._group[member], minlength=len(self._group_progress))
        whole = present[np.maximum(self._group, 0)] >= self._group_size
        return self._used & (whole | (self._group < 0))

    def draw_ratio(self) -> Floats:
        """Draw of each slot over its class's draw; 0 where a gang waits, (slots,)."""
        phase = (self._group_progress[np.maximum(self._group, 0)] / self._step_seconds) % 1.0
        dip = (self._group >= 0) & (phase >= 1.0 - self._dip_share)
        level = np.where(dip, self._dip_ratio, 1.0) * self._load
        return np.where(self._running(), level, 0.0)

    def step(self, seconds: float, speed: Floats) -> NDArray[np.intp]:
        """Work for one step; the slots of batch pods that are finished.

        Args:
            seconds: Length of the step.
            speed: Relative speed of each pod's slowest GPU, (slots,).
        """
        running = self._running()
        together = np.where(running, speed, 0.0)
        slowest = np.full(len(self._group_progress), np.inf)
        member = running & (self._group >= 0)
        np.minimum.at(slowest, self._group[member], speed[member])
        slowest[~np.isfinite(slowest)] = 0.0
        together[member] = slowest[self._group[member]]
        self._group_progress += slowest * seconds
        self._progress += together * seconds
        self.last_work_seconds = together * seconds
        self._window_work += together * seconds
        self._window_elapsed += np.where(running, seconds, 0.0)
        return np.flatnonzero(self._used & (self._progress >= self._duration))

    def take_windows(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Slowdowns of windows that are full, and whether each is training, (n,) both."""
        full = self._window_elapsed >= WINDOW_SECONDS - 1e-9
        slowdown = self._window_elapsed[full] / np.maximum(self._window_work[full], 1e-3)
        training = self._group[full] >= 0
        self._window_work[full] = self._window_elapsed[full] = 0.0
        return slowdown, training
