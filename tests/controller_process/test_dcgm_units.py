"""Profiling fields of dcgm-exporter out of Prometheus."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from controller.app.dcgm_units import FIELDS, DcgmUnits
from forecasting.prometheus import QueryApi
from wattpack.clock import ManualClock
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND

BOARDS: Any = SimpleNamespace(gpu_uuids=("GPU-a", "GPU-b"), n_gpus=2)
SHARES = dict(zip(FIELDS.values(), ("0.98", "0.92", "0.03", "0.83"), strict=True))


class Exporter:
    """A Prometheus that scraped dcgm-exporter ``age_seconds`` ago."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance_seconds(1000)
        self.age_seconds = 20.0
        self.series: dict[str, list[tuple[dict[str, str], Any]]] = {
            name: [({"UUID": "GPU-a"}, value)] for name, value in SHARES.items()
        }
        self.down = False
        client = httpx.Client(transport=httpx.MockTransport(self.handle))
        self.units = DcgmUnits(
            QueryApi("http://prometheus:9090", "query", client=client), self.clock, 90.0
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            return httpx.Response(503)
        (query,) = parse_qs(request.content.decode())["query"]
        name = query.removeprefix("timestamp(").removesuffix(")")
        at = str(self.clock.wall_time_ns() / NS_PER_SECOND - self.age_seconds)
        result = [
            {"metric": labels, "value": [0, value if name == query else at]}
            for labels, value in self.series[name]
        ]
        data = {"resultType": "vector", "result": result}
        return httpx.Response(200, json={"status": "success", "data": data})

    def read(self) -> FloatArray:
        self.units.run_once()
        return self.units.units(BOARDS)


def unknown(shares: FloatArray) -> list[bool]:
    return [bool(lost) for lost in np.isnan(shares).all(axis=0)]


def test_the_four_fields_of_a_board_are_its_units() -> None:
    shares = Exporter().read()
    assert shares[:, 0].tolist() == [0.98, 0.92, 0.03, 0.83]
    assert unknown(shares) == [False, True]


def test_fields_age_out_when_prometheus_goes_away() -> None:
    exporter = Exporter()
    exporter.read()
    exporter.down = True
    exporter.clock.advance_seconds(60)
    assert unknown(exporter.read()) == [False, True]
    exporter.clock.advance_seconds(15)
    assert unknown(exporter.read()) == [True, True]


def test_samples_that_are_old_already_are_missing() -> None:
    exporter = Exporter()
    exporter.age_seconds = 100.0
    assert unknown(exporter.read()) == [True, True]


@pytest.mark.parametrize("field", SHARES)
def test_a_board_that_lacks_a_field_is_unknown(field: str) -> None:
    """dcgm-exporter leaves out what its counters' file or the board does not offer."""
    exporter = Exporter()
    exporter.series[field] = []
    assert unknown(exporter.read()) == [True, True]


@pytest.mark.parametrize("value", ["NaN", "-0.1", "1.01", "+Inf"])
def test_a_share_that_cannot_be_leaves_the_board_unknown(value: str) -> None:
    exporter = Exporter()
    exporter.series["DCGM_FI_PROF_DRAM_ACTIVE"] = [({"UUID": "GPU-a"}, value)]
    assert unknown(exporter.read()) == [True, True]


def test_parts_of_a_board_are_not_the_board() -> None:
    exporter = Exporter()
    for name, value in SHARES.items():
        exporter.series[name] = [
            ({"UUID": "GPU-a", "GPU_I_ID": "3"}, value),
            ({"UUID": "GPU-b"}, value),
            ({"UUID": "GPU-b"}, value),
        ]
    assert unknown(exporter.read()) == [True, True]


@pytest.mark.parametrize("value", [12, None, "1_0", "many"])
def test_what_is_no_prometheus_answer_is_told_once_and_keeps_the_last(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = Exporter()
    exporter.read()
    exporter.series["DCGM_FI_PROF_SM_ACTIVE"] = [({"UUID": "GPU-a"}, value)]
    with caplog.at_level(logging.WARNING):
        shares = [exporter.read() for _ in range(3)]
    assert unknown(shares[-1]) == [False, True]
    assert len(caplog.records) == 1
