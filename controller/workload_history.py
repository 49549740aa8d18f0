"""What every board showed over the last two minutes, by second, and what that looks like.

Arrays by GPU, no objects: a column is forgotten when another named pod takes the board. A second in
which nobody has it is no word on that: an agent that reconnects names its pods with its first
report only. Such a second is kept as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from capacity.catalogue.telemetry_features import Telemetry, features
from capacity.catalogue.workload_classifier import Verdict, WorkloadClassifier
from wattpack.power.domain_tree import FloatArray

SIGNALS: Final = 4
"""Draw, utilisation, memory utilisation, SM clock over the highest."""

WINDOW: Final = 120
"""Seconds kept: what the classifier was fitted on."""

CAPPED_SHARE: Final = 0.99
"""Of the default limit: a limit below is a cap."""

HELD_SHARE: Final = 0.9
"""Draw over cap from which the cap may be what holds the board."""

BUSY_SHARE: Final = 0.3
"""Draw over limit above which a utilisation of 0 is none that the board tells."""


class WorkloadHistory:
    """The ring of all boards."""

    def __init__(self) -> None:
        self._uuids: tuple[str, ...] = ()
        self._pods: tuple[str, ...] = ()
        #: The last named pod of each board: whose past the column holds.
        self._told_of: tuple[str, ...] = ()
        self._ring = np.full((WINDOW, SIGNALS, 0), np.nan, dtype=np.float32)
        self._next = 0

    def add(
        self, uuids: Sequence[str], pods: Sequence[str], draw_watts: FloatArray, signals: FloatArray
    ) -> None:
        """One second of every board.

        Args:
            pods: Of each board, empty for none, (n_gpus,).
            draw_watts: (n_gpus,), NaN where unknown.
            signals: Utilisation, memory utilisation and clock share, (3, n_gpus).
        """
        self._follow(tuple(uuids), tuple(pods))
        of_a_pod = np.array([bool(pod) for pod in pods], dtype=np.bool_)
        self._ring[self._next] = np.where(of_a_pod, np.vstack([draw_watts, signals]), np.nan)
        self._next = (self._next + 1) % WINDOW

    def boards_of_pods(self) -> dict[str, list[int]]:
        """Columns of each pod's boards."""
        found: dict[str, list[int]] = {}
        for index, pod in enumerate(self._pods):
            if pod:
                found.setdefault(pod, []).append(index)
        return found

    def remembered_pods(self) -> set[str]:
        """Pods whose past is kept: those on boards, and the last ones of boards without a pod."""
        return {pod for pod in self._told_of if pod}

    def verdict(
        self, boards: Sequence[int], limit_watts: FloatArray, classifier: WorkloadClassifier
    ) -> Verdict | None:
        """From the mean features of the boards; None where too little was seen.

        Args:
            limit_watts: Default limits, (n_gpus,).
        """
        rows = [self._features(i, float(limit_watts[i])) for i in boards if limit_watts[i] > 0]
        seen = [row for row in rows if row is not None]
        return classifier.classify(_mean_of(seen)) if seen else None

    def _features(self, index: int, limit_watts: float) -> FloatArray | None:
        ordered = np.roll(self._ring[:, :, index], -self._next, axis=0).astype(np.float64)
        draw, busy, memory, clock = ordered.T
        silent = (busy == 0) & (draw > BUSY_SHARE * limit_watts)
        return features(
            Telemetry(
                draw, limit_watts, np.where(silent, np.nan, busy), memory,
                np.full(WINDOW, np.nan), clock,
            )
        )  # fmt: skip

    def _follow(self, uuids: tuple[str, ...], pods: tuple[str, ...]) -> None:
        """Columns in the new order; boards that are new, or have another pod, begin empty."""
        if uuids == self._uuids and pods == self._pods:
            return
        known = {uuid: i for i, uuid in enumerate(self._uuids)}
        ring = np.full((WINDOW, SIGNALS, len(uuids)), np.nan, dtype=np.float32)
        told_of = list(pods)
        for index, (uuid, pod) in enumerate(zip(uuids, pods, strict=True)):
            old = known.get(uuid)
            if old is not None and (not pod or self._told_of[old] in ("", pod)):
                ring[:, :, index] = self._ring[:, :, old]
                told_of[index] = pod or self._told_of[old]
        self._uuids, self._pods, self._ring = uuids, pods, ring
        self._told_of = tuple(told_of)


def of_the_work(
    draw_watts: FloatArray, limit_watts: FloatArray, default_limit_watts: FloatArray
) -> FloatArray:
    """Draws that tell of the work: a board that is held at a cap shows the cap, so NaN, (n,)."""
    capped = limit_watts < CAPPED_SHARE * default_limit_watts
    held = capped & (draw_watts > HELD_SHARE * limit_watts)
    return np.where(held, np.nan, draw_watts)


def _mean_of(rows: Sequence[FloatArray]) -> FloatArray:
    """Of the boards that know each feature, NaN where none does."""
    table = np.array(rows)
    known = np.isfinite(table)
    counts = known.sum(axis=0)
    sums = np.where(known, table, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
