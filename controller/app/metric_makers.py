"""How the controller's metrics are made, and how counters follow what others have counted."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


def makers(registry: CollectorRegistry) -> tuple[Callable[..., Gauge], Callable[..., Counter]]:
    """Makers of metrics under the project's prefix: name, text, labels."""

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"wattpack_{name}", text, labels, registry=registry)

    def counter(name: str, text: str, *labels: str) -> Counter:
        return Counter(f"wattpack_{name}", text, labels, registry=registry)

    return gauge, counter


class RisingCounters:
    """Counters whose owners count by themselves since the process began."""

    def __init__(self) -> None:
        self._totals: dict[Counter, float] = {}

    def raise_to(self, counter: Counter, total: float) -> None:
        """Bring a counter to what its owner has counted."""
        counter.inc(max(0.0, total - self._totals.get(counter, 0.0)))
        self._totals[counter] = total
