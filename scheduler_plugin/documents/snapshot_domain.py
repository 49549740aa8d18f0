"""The power tree of a snapshot.

A domain whose load is counted at several risks (ADR 40) stands there once a risk, one above the
other: the strictest has the domain's name and counts only pods of ``least_priority`` and above.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from scheduler_plugin.documents.snapshot_amounts import WattsInt
from scheduler_plugin.documents.value import Id, Label, Value

__all__ = ["AT_RISK", "PowerDomain", "domain_words"]

AT_RISK: Final = "@"
"""Between the name of a domain, which cannot have it, and the risk that a row counts it at."""


def domain_words(name: str) -> str:
    """A row of the tree in words: ``row@0.5`` is no object, but the row at the risk of 50 %."""
    domain, _, risk = name.rpartition(AT_RISK)
    try:
        return f"{domain} (at the risk of {100 * float(risk):g} %)" if domain else name
    except ValueError:
        return name


class PowerDomain(Value):
    """One node of the power tree.

    Attributes:
        limit_watts: The upper edge of the cap band.
        used_watts: Forecast p99 (or the worst, without a forecast) of everything that is bound.
        guaranteed_margin_watts: What I1 leaves; negative means that nothing may be added, to
            nobody, whatever the priority.
        least_priority: Pods below it neither ask for room here nor take any; None for none.
        at_risk_of: The domain whose load this counts at a higher risk; empty for a domain itself.
    """

    name: Id
    parent: Label = ""
    limit_watts: WattsInt
    used_watts: WattsInt = 0
    guaranteed_margin_watts: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
    least_priority: Annotated[int, Field(ge=-(2**31), le=2**31)] | None = None
    at_risk_of: Label = ""

    def counts(self, priority: int) -> bool:
        """Whether pods of a priority ask for room here and take it."""
        return self.least_priority is None or priority >= self.least_priority
