"""How often windows went wrong at each risk that decisions were made at: the budget of violations.

A window begins with a forecast that is believed and lasts as long as that one reaches; at a risk it
is broken when ten minutes of measured draw are above what the forecast said at that risk. It counts
when it is broken or over, whichever comes first, and the next begins when it is over: windows do
not overlap, so their misses may be held against a binomial law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from forecasting.decisions import RiskBand, risk_bands
from forecasting.forecast_book import Outlook

BIN_SECONDS: Final = 600.0
"""Of a forecast: nothing inside a bin was promised."""

Key = tuple[str, float]


@dataclass(slots=True)
class _Window:
    """One domain's window; monotonic seconds."""

    until_seconds: float
    promised_watts: Mapping[float, float]
    bin_until_seconds: float
    broken: set[float] = field(default_factory=set)
    sum_watts: float = 0.0
    readings: int = 0


class RiskAccount:
    """Counts since this replica began to lead.

    Args:
        risks: Of priorities; each of them is accounted for.

    Attributes:
        windows: Finished or broken ones, by domain and risk.
        violations: Of these the broken ones.
    """

    def __init__(self, risks: Sequence[RiskBand] | None = None) -> None:
        self._risks = sorted({band.risk for band in risks or risk_bands({})})
        self._open: dict[str, _Window] = {}
        self.windows: Counter[Key] = Counter()
        self.violations: Counter[Key] = Counter()

    def take(
        self,
        measured_watts: Mapping[str, float],
        outlooks: Mapping[str, Outlook],
        now_seconds: float,
    ) -> None:
        """Take in measured draws.

        Args:
            measured_watts: Of domains, draws that rest on readings.
            outlooks: What is expected of domains.
            now_seconds: Monotonic.
        """
        for name, window in list(self._open.items()):
            if now_seconds >= window.bin_until_seconds:
                self._end_bin(name, window)
                window.bin_until_seconds = now_seconds + BIN_SECONDS
            if now_seconds >= window.until_seconds:
                del self._open[name]
                for risk in window.promised_watts.keys() - window.broken:
                    self.windows[name, risk] += 1
        for name, draw in measured_watts.items():
            under_way = self._open.get(name) or self._begun(name, outlooks.get(name), now_seconds)
            if under_way is not None:
                under_way.sum_watts += draw
                under_way.readings += 1

    def forget(self) -> None:
        """Another replica leads and counts; windows under way are nobody's."""
        self._open.clear()

    def _begun(self, name: str, outlook: Outlook | None, now_seconds: float) -> _Window | None:
        if outlook is None or outlook.is_fallback or outlook.source is None:
            return None
        reach = outlook.source.window_end_seconds - outlook.source.window_start_seconds
        promised = {risk: outlook.peak.at_risk(risk) for risk in self._risks}
        made = _Window(now_seconds + reach, promised, now_seconds + BIN_SECONDS)
        self._open[name] = made
        return made

    def _end_bin(self, name: str, window: _Window) -> None:
        if window.readings:
            mean = window.sum_watts / window.readings
            for risk, promised in window.promised_watts.items():
                if mean > promised and risk not in window.broken:
                    window.broken.add(risk)
                    self.windows[name, risk] += 1
                    self.violations[name, risk] += 1
        window.sum_watts, window.readings = 0.0, 0
