"""What one pod's work looks like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodWork:
    """One pod.

    Attributes:
        workload: Profile or catalogue entry, empty for unknown work.
        bound: What binds by telemetry: compute, bandwidth, outside, starved or unknown; empty
            where the label speaks or too little was seen.
        confidence: Probability of ``bound``; 1 for a label.
        source: ``label``, ``telemetry`` or empty.
    """

    workload: str
    bound: str
    confidence: float
    source: str
