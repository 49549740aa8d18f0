"""A replaced gauge shows what it was told last, and takes away nothing that stays."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from wattpack.replaced_gauge import ReplacedGauge


class Recorded(Gauge):
    """A gauge that notes which series it loses."""

    def remove(self, *labels: str) -> None:
        LOST.append(labels)
        super().remove(*labels)


LOST: list[tuple[str, ...]] = []


@pytest.fixture(autouse=True)
def _nothing_lost() -> None:
    LOST.clear()


def test_series_that_stay_are_never_away() -> None:
    registry = CollectorRegistry()
    gauge = ReplacedGauge(Recorded("watts", "Of domains", ("domain", "risk"), registry=registry))
    gauge.show({("row", "0.01"): 1.0, ("hall", "0.01"): 2.0})
    gauge.show({("row", "0.01"): 3.0, ("rack", "0.05"): 4.0})
    assert LOST == [("hall", "0.01")]
    shown = {tuple(s.labels.values()): s.value for m in registry.collect() for s in m.samples}
    assert shown == {("row", "0.01"): 3.0, ("rack", "0.05"): 4.0}


def test_a_single_label_is_its_value() -> None:
    registry = CollectorRegistry()
    gauge = ReplacedGauge(Gauge("servers", "Of reasons", ("reason",), registry=registry))
    gauge.show({"odd": 1.0})
    gauge.show({"silent": 2.0})
    shown = {s.labels["reason"]: s.value for m in registry.collect() for s in m.samples}
    assert shown == {"silent": 2.0}
