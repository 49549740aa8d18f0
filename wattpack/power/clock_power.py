"""How a board's power follows its clock: the one figure that agent and controller assume.

The simulated boards have their own, because they judge what agent and controller make of it.
"""

from __future__ import annotations

CLOCK_POWER_EXPONENT = 2.2
"""Dynamic power over clock, P ~ f^2.2, between f (fixed voltage) and f^3. Assumed; the closed loop
corrects it, and I1 and I2 count a clock lock as no reduction at all."""
