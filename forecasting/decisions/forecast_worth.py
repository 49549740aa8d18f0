"""What a forecast is worth to who decides by it: the loss with it gone, halved, or raised.

A consumer that loses nothing when the forecast is halved does not use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from forecasting.series_source import Floats

Action = TypeVar("Action")

FORECAST_CHANGES: Final[Mapping[str, float | None]] = {
    "as_is": 1.0,
    "removed": None,
    "halved": 0.5,
    "raised_half": 1.5,
}
"""By name the factor on every value; None: the consumer has no forecast and falls back."""


def losses_by_change(
    forecast: Floats,
    decide: Callable[[Floats | None], Action],
    loss: Callable[[Action], float],
) -> dict[str, float]:
    """A consumer's loss under every change of its forecast.

    Args:
        forecast: Quantiles or paths, of any shape.
        decide: From a forecast, or from none, to what is done.
        loss: Of what was done, by what then happened.
    """
    found = {}
    for name, factor in FORECAST_CHANGES.items():
        found[name] = loss(decide(None if factor is None else forecast * factor))
    return found
