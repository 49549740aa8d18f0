"""Why a GPU's cap is below its request: the names that decisions, console and twin share."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["RAISES_STOPPED", "CapReason"]


class CapReason(IntEnum):
    """What has to change until a cap is lifted; ``explain`` spells each out (console.cap_texts).

    Numbers are what the live view carries: a released one keeps its meaning.
    """

    NOT_CAPPED = 0
    DOMAIN_BAND = 1  # a domain above it reached its cap band
    SURVIVABLE_JUMP = 2  # I2: everything at its cap at once would heat the breaker too far
    BRAKE = 3  # predicted heat > 0.5 or load above r_max
    WAITING_FOR_READ_BACK = 4  # I6: the power is promised but still held elsewhere
    RAISE_RATE = 5  # restoring is rate-limited
    OVERRIDE = 6  # a PowerOverride
    STARTING = 7  # I4: a new leader raises nothing for one ttl
    UNCONTROLLED = 8  # no actuator or no fresh report: budgeted at its default limit
    DRY_RUN = 9  # would be capped; a domain above it is in DryRun
    RECOVERING = 10  # I6: after a mass expiry or a start, not heard for long enough or not cool
    LEASE_NOT_RENEWED = 11  # I4: the leader could not renew its Lease, so it raises nothing
    EPOCH_BEHIND = 12  # I4: an actuator knows a higher epoch than the leader's Lease
    NOT_LEADING = 13  # this replica commands nobody
    UNTRUSTED = 14  # I7: drew over 110 % of every cap it could hold; budgeted at its maximum


RAISES_STOPPED = (
    CapReason.NOT_LEADING,
    CapReason.LEASE_NOT_RENEWED,
    CapReason.EPOCH_BEHIND,
    CapReason.STARTING,
)
"""What stops a whole replica from raising anything, what lasts longest first."""
