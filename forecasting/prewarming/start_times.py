"""How long a replica takes until it works, and what has to be ordered now because of it.

order ──────── start (a distribution) ────────► works
now                                            now + lead: until then only older orders help
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartTimes:
    """How long a replica takes until it works.

    Attributes:
        lead_seconds: A quantile of it, for example ``KnownWork.lead_seconds``.
        decision_seconds: Until the next decision: what is needed before that one's orders work has
            to be ordered now.
    """

    lead_seconds: float
    decision_seconds: float

    def steps(self, step_seconds: float) -> int:
        """Steps of a forecast that only orders of now and before can serve."""
        return max(1, math.ceil((self.lead_seconds + self.decision_seconds) / step_seconds - 1e-9))
