"""When a node's draw has risen so much since its last report that the controller must know now.

A report a second leaves a jump untold for up to a second, which is a sixth of what a breaker has to
bear until leases end. So the agent reports at once; the controller ticks at once when what was
reported together rises by 2 % of the rating (``controller/app/fleet.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.sampler import DeviceSample
from wattpack.units import NS_PER_MS

RISE_SHARE = 0.10
"""Of the default limits of the boards that are read. Servers of a row report at different moments
of a second, so that a slower rise of many of them is told by some of them soon enough. Assumed."""

REST_NS = 250 * NS_PER_MS
"""Between two reports: a rise lasts a second in a board's own average, and is told while it goes on
by at most four reports; work that swings each second costs no more than that."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """What the newest report said.

    Attributes:
        at_ns: When, on the agent's clock; -1 before the first.
        draw_watts: Of the boards that could be read, by UUID.
    """

    at_ns: int = -1
    draw_watts: Mapping[str, float] = field(default_factory=dict)


def told(samples: Sequence[DeviceSample], now_ns: int) -> LastReport:
    """What a report of these samples says."""
    known = {
        str(sample.identity.uuid): sample.reading.draw_watts
        for sample in samples
        if sample.fresh and sample.reading is not None
    }
    return LastReport(now_ns, known)


def calls_for_report(last: LastReport, samples: Sequence[DeviceSample], now_ns: int) -> bool:
    """Whether the boards that were told of draw by ``RISE_SHARE`` more by now."""
    if last.at_ns < 0 or now_ns - last.at_ns < REST_NS:
        return False
    risen = highest = 0.0
    for sample in samples:
        reading, limits = sample.reading, sample.limits
        before = last.draw_watts.get(str(sample.identity.uuid))
        if before is None or limits is None or reading is None or not sample.fresh:
            continue
        risen += reading.draw_watts - before
        highest += limits.default_watts
    return risen > RISE_SHARE * highest > 0.0
