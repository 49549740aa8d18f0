"""Tokens of the requests that are forecast, as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from forecasting.peak_quantiles import NAMED_LEVELS
from forecasting.targets import TargetKey

_LABELS = ("namespace", "name")


class TokenMetrics:
    """Gauges that are replaced as a whole after each round.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._peak = Gauge(
            "wattpack_forecast_token_peak",
            "Quantile of the highest step in tokens a second, of requests whose lengths are told",
            (*_LABELS, "level"), registry=registry,
        )  # fmt: skip
        self._length = Gauge(
            "wattpack_forecast_request_tokens",
            "Length of a request of the last hours, tokens: mean and p99",
            (*_LABELS, "of"), registry=registry,
        )  # fmt: skip

    def show(self, statuses: Mapping[TargetKey, Mapping[str, Any]]) -> None:
        """Replace all by what statuses tell, by object."""
        self._peak.clear()
        self._length.clear()
        for key, status in statuses.items():
            if (tokens := status.get("tokens")) is not None:
                for name, level in NAMED_LEVELS.items():
                    self._peak.labels(*key, f"{level:g}").set(tokens[name])
                self._length.labels(*key, "mean").set(tokens["mean"])
                self._length.labels(*key, "p99").set(tokens["requestP99"])
