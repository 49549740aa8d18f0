"""One window of a backtest: what was promised, and what came."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from wattpack.errors import InputError

DECILES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels that losses of steps are means over."""

LEVELS: Final = (*DECILES, 0.95, 0.99)
FAN_LEVELS: Final = (0.1, 0.5, 0.9, 0.99)
MODELS: Final = ("forecast", "seasonal naive", "last value")


@dataclass(frozen=True, slots=True)
class TierLoss:
    """What one model behind a forecast was worth in a window.

    Attributes:
        model: Its name.
        weight: Its share of the forecast.
        loss: As ``Window.losses``, of what it said by itself; None without an answer.
    """

    model: str
    weight: float
    loss: float | None


@dataclass(frozen=True, slots=True)
class Window:
    """One promise and what came of it.

    Attributes:
        series: Name.
        origin_seconds: When it was made, Unix time.
        method: What made it, as the status says.
        peaks: Published quantiles of the window's peak at ``LEVELS``; empty without an answer.
        peak: The highest bin that came; None where too little was observed.
        maxima: Highest bins of the days of ``MAXIMA_DAYS`` before.
        scale: Mean change from one day to the next before; None where nothing is known.
        bins: Observed bins of the window.
        total: Sum of their values.
        losses: Of each of ``MODELS``: sum over bins of the mean quantile loss of ``DECILES``.
        below: Bins at or below the steps' quantile of each of ``LEVELS``; ties count half up to
            the median.
        fan: Steps' quantiles at ``FAN_LEVELS``.
        tiers: Models behind the forecast; empty for a fall-back.
    """

    series: str
    origin_seconds: int
    method: str
    peaks: tuple[float, ...]
    peak: float | None
    maxima: tuple[float | None, ...]
    scale: float | None
    bins: int
    total: float
    losses: tuple[float | None, ...]
    below: tuple[float, ...]
    fan: tuple[tuple[float, ...], ...]
    tiers: tuple[TierLoss, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether there were both a promise and a peak to hold it against."""
        return bool(self.peaks) and self.peak is not None

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold."""
        return asdict(self)

    @classmethod
    def read(cls, given: dict[str, Any]) -> Window:
        """What ``to_json`` made, after JSON has made lists of tuples.

        Raises:
            InputError: for anything else.
        """
        try:
            plain: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in given.items()
            }
            plain["fan"] = tuple(tuple(path) for path in plain["fan"])
            plain["tiers"] = tuple(TierLoss(**one) for one in plain["tiers"])
            return cls(**plain)
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError("window", "a window as a backtest keeps it", str(error)) from error
