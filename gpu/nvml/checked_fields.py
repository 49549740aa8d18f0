"""Field values in place of single NVML calls, each only where this board showed that both agree.

One ``nvmlDeviceGetFieldValues`` call answers many questions at the cost of about one, but what a
field holds differs between boards and drivers, and no document says for all of them which single
call it equals. So a field is compared with its call first, and again now and then; one that ever
differed is not used on this board any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

# Field identifiers of nvml.h.
POWER_AVERAGE = 185
POWER_INSTANT = 186
MEMORY_TEMPERATURE = 82
ENFORCED_LIMIT = 190  # NVML_FI_DEV_POWER_CURRENT_LIMIT
SET_LIMIT = 192  # NVML_FI_DEV_POWER_REQUESTED_LIMIT
ECC_CORRECTED = 5  # NVML_FI_DEV_ECC_SBE_AGG_TOTAL
ECC_UNCORRECTED = 6  # NVML_FI_DEV_ECC_DBE_AGG_TOTAL

POWER = (POWER_AVERAGE, POWER_INSTANT)
LIMITS = (ENFORCED_LIMIT, SET_LIMIT)
RARE = (MEMORY_TEMPERATURE, ECC_CORRECTED, ECC_UNCORRECTED)

CHECK_EVERY = 60
"""Compare again with every 60th use: once a minute for limits."""


class CheckedFields:
    """What one board's fields are worth."""

    def __init__(self) -> None:
        self._uses: dict[int, int] = {}
        self._refuted: set[int] = set()
        self._not_offered: set[int] = set()

    def worth_asking(self, *fields: int) -> tuple[int, ...]:
        """Those that the board offers and that never differed from their call."""
        left_out = self._not_offered | self._refuted
        return tuple(field for field in fields if field not in left_out)

    def note(self, field: int, code: int) -> None:
        """Take in the return code of one field of an answer."""
        if code != 0 and field not in POWER:
            self._not_offered.add(field)

    def check_next(self, *fields: int) -> None:
        """Compare these with their calls at the next use: something was just written."""
        for field in fields:
            self._uses.pop(field, None)

    def agrees(self, field: int) -> bool:
        """Whether the field may stand for its call now, without asking."""
        return self._uses.get(field, CHECK_EVERY) < CHECK_EVERY

    def value(self, field: int, values: Mapping[int, float], ask: Callable[[], T]) -> T | float:
        """The field's value where it is known to equal the call's, the call's otherwise.

        Args:
            field: Which.
            values: The answer of one field-values call; the field may be missing.
            ask: The single call of the same meaning.
        """
        offered = values.get(field)
        if offered is None or field in self._refuted:
            return ask()
        if self.agrees(field):
            self._uses[field] += 1
            return offered
        called = ask()
        if called == offered:
            self._uses[field] = 0
        elif called is not None:
            self._refuted.add(field)
        return called
