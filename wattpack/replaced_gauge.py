"""Gauges whose series are replaced without a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Gauge

Labels = TypeVar("Labels", bound=str | tuple[str, ...])
"""Values of a gauge's labels; of a single label its value alone."""


class ReplacedGauge:
    """Shows exactly what it was last told; a reader in between never sees less than both tell.

    Args:
        gauge: With labels; nobody else sets it.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: frozenset[tuple[str, ...]] = frozenset()

    def show(self, values: Mapping[Labels, float]) -> None:
        """Show these series and no others."""
        told = {_labels(key): value for key, value in values.items()}
        for gone in self._shown - told.keys():
            self._gauge.remove(*gone)
        for labels, value in told.items():
            self._gauge.labels(*labels).set(value)
        self._shown = frozenset(told)


def _labels(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
