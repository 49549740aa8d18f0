"""The highest reading of each board since the report that a controller heard last.

    readings ──> highest since the newest report, and since the one that was heard
    answer that echoes a report's nonce ──> that report was heard

After a silence the first report tells the highest of all of it, so that the controller can reckon
the breakers' heat again (``controller/gap_heat.py``). A board that could not be read for a moment,
or whose readings were not believed, tells nothing of that silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.sampler import DeviceSample
from wattpack.units import GpuUuid

__all__ = ["HighestReadings", "HighestTold"]

_UNKNOWN = float("inf")


@dataclass(frozen=True, slots=True)
class HighestTold:
    """What a report tells.

    Attributes:
        since_clock_ns: The actuator's clock at the report that was heard last.
        watts: By UUID; boards whose highest is unknown are missing.
    """

    since_clock_ns: int
    watts: Mapping[GpuUuid, float] = field(default_factory=dict)


class HighestReadings:
    """Of one node's boards."""

    def __init__(self) -> None:
        self._heard: dict[GpuUuid, float] = {}
        self._newest: dict[GpuUuid, float] = {}
        self._nonce = 0
        self._newest_clock_ns = self._heard_clock_ns = 0

    def saw(self, samples: Sequence[DeviceSample]) -> None:
        """Take one round of readings in."""
        for sample in samples:
            uuid, reading = sample.identity.uuid, sample.reading
            fresh = sample.fresh and reading is not None
            watts = reading.draw_watts if fresh and reading is not None else _UNKNOWN
            self._newest[uuid] = max(self._newest.get(uuid, 0.0), watts)

    def reported(self, nonce: int, clock_ns: int) -> HighestTold | None:
        """What the report with this nonce tells; None before any report was heard."""
        for uuid, watts in self._newest.items():
            self._heard[uuid] = max(self._heard.get(uuid, 0.0), watts)
        self._newest = {}
        self._nonce, self._newest_clock_ns = nonce, clock_ns
        if not self._heard_clock_ns:
            return None
        known = {uuid: watts for uuid, watts in self._heard.items() if watts < _UNKNOWN}
        return HighestTold(self._heard_clock_ns, known)

    def answered(self, nonce: int) -> None:
        """A controller answered the report with this nonce; older ones say nothing new."""
        if nonce and nonce == self._nonce:
            self._heard, self._heard_clock_ns = dict(self._newest), self._newest_clock_ns
