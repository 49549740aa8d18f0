"""Verdicts in order: each kernel against the best of the tuned library's ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from capacity.ranking.kernel_verdict import PLAUSIBLE, Timing, Verdict
from wattpack.errors import PermanentError


class NoBaseline(PermanentError):
    """No way of the tuned library ran: there is nothing to rank against."""


@dataclass(frozen=True, slots=True)
class RankedKernel:
    """One line.

    Attributes:
        speed: Times as fast as the best baseline of each shape, geometric mean; 0 if refused.
        by_shape: The same by shape.
    """

    verdict: Verdict
    baseline: bool
    speed: float
    by_shape: tuple[float, ...]

    @property
    def doubts(self) -> tuple[str, ...]:
        """The judge's, and a speed that is not to be believed without a look."""
        fast = not self.baseline and any(speed > PLAUSIBLE for speed in self.by_shape)
        return (*self.verdict.doubts, *(["faster_than_plausible"] if fast else []))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; times in microseconds."""
        verdict = self.verdict
        return {
            "kernel": verdict.kernel,
            "kernel_source_sha256": verdict.source_sha256,
            "baseline": self.baseline,
            "verdict": "refused" if verdict.refused else "ranked",
            "reason": verdict.reason,
            "evidence": verdict.evidence,
            "speed": round(self.speed, 4),
            "doubts": list(self.doubts),
            "device_minutes": round(verdict.device_minutes, 4),
            "seed": verdict.seed,
            "shapes": [
                {
                    "shape": shape.shape,
                    "error_units": round(shape.worst_error, 3),
                    "times": [_time(timing) for timing in shape.timings],
                }
                for shape in verdict.shapes
            ],
        }


def rank(baselines: Sequence[Verdict], kernels: Sequence[Verdict]) -> list[RankedKernel]:
    """Fastest first, refused last.

    Raises:
        NoBaseline: with the reasons, if none of the library's ways ran.
    """
    ran = [verdict for verdict in baselines if not verdict.refused]
    if not ran:
        words = "; ".join(f"{v.kernel} {v.reason}: {v.evidence[:80]}" for v in baselines)
        raise NoBaseline(f"no baseline ran: {words}")
    best = [min(_seconds(v, i) for v in ran) for i in range(len(ran[0].shapes))]
    lines = [
        _ranked(verdict, best, baseline=known)
        for known, verdicts in ((True, ran), (False, kernels))
        for verdict in verdicts
    ]
    return sorted(lines, key=lambda line: (line.verdict.refused, -line.speed))


def _ranked(verdict: Verdict, best: Sequence[float], *, baseline: bool) -> RankedKernel:
    if verdict.refused:
        return RankedKernel(verdict, baseline, 0.0, ())
    speeds = tuple(seconds / _seconds(verdict, i) for i, seconds in enumerate(best))
    mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
    return RankedKernel(verdict, baseline, mean, speeds)


def _seconds(verdict: Verdict, shape: int) -> float:
    """Of the first cache state that could be had: cold wherever there is room for it."""
    return verdict.shapes[shape].timings[0].median_seconds


def _time(timing: Timing) -> dict[str, Any]:
    return {
        "l2_state": timing.cache_state,
        "median_us": round(timing.median_seconds * 1e6, 3),
        "p10_us": round(timing.p10_seconds * 1e6, 3),
        "p90_us": round(timing.p90_seconds * 1e6, 3),
        "events_us": round(timing.device_seconds * 1e6, 3),
        "runs": timing.runs,
    }
