"""The node's own limit, kept at once and without the network: a pure decision.

The controller keeps every domain; this is the fast path for the one domain that a node can see
whole: itself. It only ever lowers, and never below a guaranteed cap, for which I1 has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattpack.power.clock_power import CLOCK_POWER_EXPONENT
from wattpack.units import require_number

ACT_AT = 1.0
"""Share of the limit at which to cut: the controller's bands lie below it."""

CUT_TO = 0.95
"""Share of the limit to cut to: the target band of the design."""


@dataclass(frozen=True, slots=True)
class GuardedDevice:
    """What the guard needs to know of one GPU.

    Attributes:
        draw_watts: The larger of average and instantaneous power; for a device that cannot be read,
            the most it could be drawing.
        limit_watts: Power limit as read back.
        guaranteed_watts: The cap that lease expiry falls to.
        sm_clock_mhz: 0 if unknown: then no clock is locked.
    """

    uuid: str
    draw_watts: float
    limit_watts: float
    guaranteed_watts: float
    sm_clock_mhz: int = 0

    def __post_init__(self) -> None:
        require_number("draw_watts", self.draw_watts, minimum=0.0, unit="W")
        require_number("limit_watts", self.limit_watts, exclusive_minimum=0.0, unit="W")
        require_number("guaranteed_watts", self.guaranteed_watts, exclusive_minimum=0.0, unit="W")


@dataclass(frozen=True, slots=True)
class Cut:
    """A lower cap for one GPU, with a clock lock that works within milliseconds.

    Attributes:
        lock_max_mhz: None to lock nothing.
    """

    uuid: str
    cap_watts: float
    lock_max_mhz: int | None = None


def emergency_cuts(
    devices: Sequence[GuardedDevice], limit_watts: float, other_watts: float = 0.0
) -> tuple[Cut, ...]:
    """Lower caps that bring the node to 95 % of its limit; none while it is below the limit.

    What lies above the guaranteed caps is cut in proportion, so that nobody falls below the
    guaranteed cap before everybody is there. If even that is not enough, every GPU gets its
    guaranteed cap.

    Args:
        devices: Of the node.
        limit_watts: For GPUs and the rest of the node together.
        other_watts: What the node draws without its GPUs.
    """
    require_number("limit_watts", limit_watts, exclusive_minimum=0.0, unit="W")
    require_number("other_watts", other_watts, minimum=0.0, unit="W")
    total = other_watts + sum(device.draw_watts for device in devices)
    if total <= ACT_AT * limit_watts:
        return ()
    excess = total - CUT_TO * limit_watts
    room = sum(max(0.0, device.draw_watts - device.guaranteed_watts) for device in devices)
    share = min(1.0, excess / room) if room > 0 else 1.0
    cuts = []
    for device in devices:
        above = max(0.0, device.draw_watts - device.guaranteed_watts)
        cap = device.guaranteed_watts + (1.0 - share) * above
        if cap < device.limit_watts:
            cuts.append(Cut(device.uuid, cap, _lock(device, cap)))
    return tuple(cuts)


def _lock(device: GuardedDevice, cap_watts: float) -> int | None:
    if device.sm_clock_mhz <= 0 or device.draw_watts <= cap_watts:
        return None
    ratio = float((cap_watts / device.draw_watts) ** (1.0 / CLOCK_POWER_EXPONENT))
    return max(1, int(device.sm_clock_mhz * ratio))
