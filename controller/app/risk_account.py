"""How often windows went wrong at each risk that decisions were made at: the budget of violations.

A window begins with a forecast that is believed and lasts as long as that one reaches; at a risk it
is broken when ten minutes of measured draw are above what decisions counted on at that risk: the
peak of what ran when it began, and what was promised since to work that came. It counts when it is
broken or over, whichever comes first, and the next begins when it is over: windows do not overlap,
so their misses may be held against a binomial law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from forecasting.decisions import RiskBand, risk_bands
from forecasting.forecast_book import Outlook

BIN_SECONDS: Final = 600.0
"""Of a forecast: nothing inside a bin was promised."""

Key = tuple[str, float]

_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(slots=True)
class _Window:
    """One domain's window; monotonic seconds.

    ``peak_watts`` is what was expected at each risk. ``nominal_watts`` is what work below the
    domain was promised when it began, None where ``peak_watts`` has what may start in it.
    """

    until_seconds: float
    peak_watts: Mapping[float, float]
    bin_until_seconds: float
    nominal_watts: float | None = None
    came_watts: float = 0.0
    broken: set[float] = field(default_factory=set)
    sum_watts: float = 0.0
    readings: int = 0

    def hear(self, nominal_watts: float | None) -> None:
        """What is promised now: the most that has come since the window began is allowed."""
        if self.nominal_watts is not None and nominal_watts is not None:
            self.came_watts = max(self.came_watts, nominal_watts - self.nominal_watts)


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
        unix_seconds: float,
        nominal_watts: Mapping[str, float] = _NOTHING,
    ) -> None:
        """Take in measured draws.

        Args:
            measured_watts: Of domains, draws that rest on readings.
            outlooks: What is expected of domains.
            now_seconds: Monotonic.
            unix_seconds: The same moment.
            nominal_watts: What work below domains was promised, as far as that is known.
        """
        for name, window in list(self._open.items()):
            if now_seconds >= window.bin_until_seconds:
                self._end_bin(name, window)
                window.bin_until_seconds = now_seconds + BIN_SECONDS
            if now_seconds >= window.until_seconds:
                del self._open[name]
                for risk in window.peak_watts.keys() - window.broken:
                    self.windows[name, risk] += 1
        for name, draw in measured_watts.items():
            nominal, under_way = nominal_watts.get(name), self._open.get(name)
            if under_way is None and (said := outlooks.get(name)) is not None:
                under_way = _begun(said, self._risks, (now_seconds, unix_seconds), nominal)
                if under_way is not None:
                    self._open[name] = under_way
            if under_way is not None:
                under_way.hear(nominal)
                under_way.sum_watts += draw
                under_way.readings += 1

    def forget(self) -> None:
        """Another replica leads and counts; windows under way are nobody's."""
        self._open.clear()

    def _end_bin(self, name: str, window: _Window) -> None:
        if window.readings:
            mean = window.sum_watts / window.readings
            for risk, peak in window.peak_watts.items():
                if mean > peak + window.came_watts and risk not in window.broken:
                    window.broken.add(risk)
                    self.windows[name, risk] += 1
                    self.violations[name, risk] += 1
        window.sum_watts, window.readings = 0.0, 0


def _begun(
    outlook: Outlook,
    risks: Sequence[float],
    now: tuple[float, float],
    nominal_watts: float | None,
) -> _Window | None:
    """A window of a forecast that is believed; ``now`` is monotonic and Unix time."""
    if outlook.is_fallback or outlook.source is None:
        return None
    now_seconds, unix_seconds = now
    left_seconds = outlook.source.window_end_seconds - unix_seconds
    if left_seconds < BIN_SECONDS:
        return None
    told = nominal_watts is not None and outlook.source.running is not None
    peak = outlook.running_peak if told else outlook.peak
    return _Window(
        until_seconds=now_seconds + left_seconds,
        peak_watts={risk: peak.at_risk(risk) for risk in risks},
        bin_until_seconds=now_seconds + BIN_SECONDS,
        nominal_watts=nominal_watts if told else None,
    )
