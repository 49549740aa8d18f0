"""How fast caps may rise: what a domain's rate pays in a tick, in whole watts of every board.

A rate that pays less than a watt a board in one tick saves for it: each board then has its watt
every 2^k seconds, so that domains below one another have it at the same ticks; k is the least at
which that is no faster than the rate. Ticks that pay more than that use their own time alone. So
over any ticks in a row, of whatever lengths, caps rise by no more than the rate pays in that time
and one whole watt of every board.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree
from wattpack.units import NS_PER_SECOND

__all__ = ["RaiseRate"]

# Sums of seconds are exact to far less.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RaiseRate:
    """What domains' rates pay now.

    Attributes:
        watts_per_second: Raise of the sum of caps that each domain bears, AC, infinite where
            nothing limits it, (n_domains,).
        paid_seconds: For so much time this tick pays: a pause is not made up for by one large
            raise.
        saved_seconds: For so much before it nothing was raised, (n_domains,).
        last_ns: Time of the last tick, -1 before the first.
        now_ns: Time of this one.
    """

    watts_per_second: FloatArray
    paid_seconds: float
    saved_seconds: FloatArray
    last_ns: int
    now_ns: int

    @property
    def paid_watts(self) -> FloatArray:
        """What this tick pays, AC, (n_domains,)."""
        endless = np.full_like(self.watts_per_second, np.inf)
        finite = np.isfinite(self.watts_per_second)
        return np.multiply(self.watts_per_second, self.paid_seconds, out=endless, where=finite)

    def in_whole_watts(self, load: LoadTree, one_each: FloatArray) -> FloatArray:
        """What may be raised in this tick, DC; under a watt a board, a whole one at times.

        Args:
            load: The tree.
            one_each: A watt for every board that is to be raised, DC, (n_domains,).
        """
        rate_dc = self.paid_watts / load.gpu_factor
        slow = rate_dc < one_each
        if not some(slow) or self.last_ns < 0:
            return rate_dc
        needed_seconds = self._seconds_for(load, one_each)[slow]
        period_seconds = np.exp2(np.ceil(np.log2(needed_seconds)))
        begun = np.floor(self.now_ns / NS_PER_SECOND / period_seconds)
        due = begun > np.floor(self.last_ns / NS_PER_SECOND / period_seconds)
        # Time that a longer tick paid for is not paid for once more.
        due &= self._saved_by_now(load)[slow] >= needed_seconds * (1.0 - _ROUNDING)
        given = rate_dc.copy()
        given[slow] = np.where(due, one_each[slow], 0.0)
        return given

    def saved_after(self, load: LoadTree, raised_watts: FloatArray) -> FloatArray:
        """For how much time nothing was raised, (n_domains,), once boards rise, (n_gpus,)."""
        if not some(raised_watts):
            return self.saved_seconds + self._seconds
        return self._saved_by_now(load) - self._seconds_for(load, load.sum_gpus(raised_watts))

    @property
    def _seconds(self) -> float:
        return 0.0 if self.last_ns < 0 else (self.now_ns - self.last_ns) / NS_PER_SECOND

    def _saved_by_now(self, load: LoadTree) -> FloatArray:
        """With this tick's time; of what was saved before, a watt of every board counts."""
        most = self._seconds_for(load, load.gpus_below)
        return np.minimum(self.saved_seconds, most) + self._seconds

    def _seconds_for(self, load: LoadTree, raise_dc: FloatArray) -> FloatArray:
        """How long the rates take to pay a raise, (n_domains,) each."""
        return raise_dc * load.gpu_factor / self.watts_per_second
