"""How a board's power follows its clock when the node's agent cuts at once: whatever runs there.

The simulated boards have their own figure, because they judge what the agent makes of it.
"""

from __future__ import annotations

CLOCK_POWER_EXPONENT = 2.2
"""Dynamic power over clock, P ~ f^2.2, between f (fixed voltage) and f^3. Assumed; the limit
that is set with the lock holds what the lock does not."""
