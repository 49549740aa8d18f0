"""Published power policies as decisions: row power over rating in, clocks and brake out.

POLCA (arXiv 2308.12908), read second-hand, as tabled in docs/simulation.md: above 80 % low priority
is locked to 1275 MHz; above 89 % to 1110 MHz, and if that was not enough high priority to 1305 MHz;
above 100 % the brake (288 MHz on every board) after 5 s; release 5 points below. Commands take 40 s
out of band, readings are 2 s old.

What is not published is decided in the policy's favour. The second step waits until the first one's
command could have worked. A reading above 100 % is above both thresholds, so the brake goes with
the deeper locks; a reading under the brake does not tell what the row wants, so the level stands
while the brake does and until its release shows in readings. The brake is counted when it is
pulled, held until it shows in readings, let go below 89 % less 5; its release brings the locks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from wattpack.errors import InputError

LOW_BASE_MHZ = 1275
LOW_DEEP_MHZ = 1110
HIGH_MHZ = 1305
BRAKE_MHZ = 288
UNLOCKED_MHZ = 0

FIRST_THRESHOLD = 0.80
SECOND_THRESHOLD = 0.89
BRAKE_THRESHOLD = 1.0
HYSTERESIS = 0.05
COMMAND_SECONDS = 40.0
BRAKE_SECONDS = 5.0
READING_SECONDS = 2.0
SETTLED_SECONDS = BRAKE_SECONDS + 2.0 * READING_SECONDS
"""From a brake or its release until a reading is wholly of it: effect, age, span of its mean."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Locked clocks by priority, MHz; 0 unlocks."""

    low_mhz: int
    high_mhz: int


@dataclass(frozen=True, slots=True)
class Command:
    """Clocks to lock and how long that takes; ``brake`` pulls it.

    Attributes:
        clocks: By priority.
        delay_seconds: Until they hold.
        brake: Whether this is the power brake.
    """

    clocks: Clocks
    delay_seconds: float
    brake: bool = False


FREE = Clocks(UNLOCKED_MHZ, UNLOCKED_MHZ)

PolicyName = Literal["no_cap", "one_threshold_low", "one_threshold_all", "polca"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


class ThresholdPolicy:
    """One of the published policies with thresholds; all of them have the brake.

    ``polca``: two thresholds. ``one_threshold_low``: at the second threshold low priority goes to
    1110 MHz. ``one_threshold_all``: at the second threshold every board does. ``no_cap``: nothing
    but the brake.

    Args:
        name: Which.

    Raises:
        InputError: for a name that is none of them.
    """

    def __init__(self, name: PolicyName) -> None:
        if name not in POLICIES:
            raise InputError("policy", " or ".join(POLICIES), name)
        self._name = name
        self._level = 0
        self._works_seconds = 0.0
        self._settled_seconds = -math.inf
        self._wanted = FREE
        self._braked = False
        self.brakes = 0

    @property
    def braked(self) -> bool:
        """Whether the brake is commanded and not released yet."""
        return self._braked

    @property
    def clocks(self) -> Clocks:
        """What is commanded without the brake."""
        return self._wanted

    def decide(self, now_seconds: float, ratio: float) -> Command | None:
        """What to command on a reading, or None.

        Args:
            now_seconds: When it is decided.
            ratio: Row power over rating, as the newest reading says.
        """
        if self._braked:
            return self._release(now_seconds, ratio)
        braked = ratio > BRAKE_THRESHOLD
        if braked or now_seconds >= self._settled_seconds:
            level = self._next_level(now_seconds, ratio)
            if level != self._level:
                self._level = level
                self._works_seconds = now_seconds + COMMAND_SECONDS + READING_SECONDS
        wanted = self._clocks_of(self._level)
        changed, self._wanted = wanted != self._wanted, wanted
        if braked:
            self._braked = True
            self._settled_seconds = now_seconds + SETTLED_SECONDS
            self.brakes += 1
            return Command(Clocks(BRAKE_MHZ, BRAKE_MHZ), BRAKE_SECONDS, brake=True)
        return Command(wanted, COMMAND_SECONDS) if changed else None

    def _release(self, now_seconds: float, ratio: float) -> Command | None:
        """The level's locks in the brake's place, once the brake shows and is not needed."""
        if now_seconds < self._settled_seconds or ratio >= SECOND_THRESHOLD - HYSTERESIS:
            return None
        self._braked = False
        self._settled_seconds = self._works_seconds = now_seconds + SETTLED_SECONDS
        return Command(self._wanted, BRAKE_SECONDS)

    def _next_level(self, now_seconds: float, ratio: float) -> int:
        """0 free, 1 above the first threshold, 2 above the second, 3 still above it."""
        if self._name == "no_cap":
            return 0
        if self._name != "polca":
            held = SECOND_THRESHOLD - (HYSTERESIS if self._level else 0.0)
            return 2 if ratio > held else 0
        above = SECOND_THRESHOLD - (HYSTERESIS if self._level >= 2 else 0.0)
        if ratio > above:
            # The deeper step for low priority is given its time before high priority is touched.
            waited = now_seconds >= self._works_seconds
            again = self._level == 2 and waited and ratio > SECOND_THRESHOLD
            return 3 if again or self._level == 3 else 2
        first = FIRST_THRESHOLD - (HYSTERESIS if self._level >= 1 else 0.0)
        return 1 if ratio > first else 0

    def _clocks_of(self, level: int) -> Clocks:
        if self._name == "one_threshold_low":
            return Clocks(LOW_DEEP_MHZ, UNLOCKED_MHZ) if level else FREE
        if self._name == "one_threshold_all":
            return Clocks(LOW_DEEP_MHZ, LOW_DEEP_MHZ) if level else FREE
        return (
            FREE,
            Clocks(LOW_BASE_MHZ, UNLOCKED_MHZ),
            Clocks(LOW_DEEP_MHZ, UNLOCKED_MHZ),
            Clocks(LOW_DEEP_MHZ, HIGH_MHZ),
        )[level]
