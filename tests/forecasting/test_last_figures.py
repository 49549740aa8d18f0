"""Metrics of a history that cannot be read stay, age and say so; then they go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.memory_source import MemorySource
from forecasting.series_source import Floats, SeriesId
from tests.forecasting.test_forecaster_process import RESOURCE, World, _diurnal
from wattpack.errors import InputError

KEPT = ("peak", "observed", "fallback", "data_timestamp_seconds", "judged_windows", "replicas")


class Outages(World):
    """Two services, one of which can be away, and what is exported of them."""

    def __init__(self) -> None:
        super().__init__()
        self.source.values = {"chat": _diurnal(), "code": _diurnal()}
        for name in ("chat", "code"):
            target = {"workload": name, "series": name, "unit": "requests"}
            self.add(name, target=target, replicas={"rate": 7.0, "startSeconds": 180})

    def shown(self, figure: str, name: str, **labels: str) -> float | None:
        found = {"namespace": "power", "name": name, **labels}
        if figure == "peak":
            found["level"] = "0.99"
        return self.process.metrics.registry.get_sample_value(f"wattpack_forecast_{figure}", found)

    def figures(self, name: str) -> dict[str, float | None]:
        return {figure: self.shown(figure, name) for figure in KEPT}

    def is_away(self, name: str) -> bool:
        return self.shown("flags", name, flag="history-away") == 1.0

    def later(self, seconds: float = 600.0) -> bool:
        self.clock.advance_seconds(seconds)
        return self.process.tick()


@pytest.fixture
def world() -> Outages:
    made = Outages()
    assert made.process.tick()
    return made


def cut_off(world: Outages, how: str) -> None:
    if how == "one":
        world.source.failing = {"chat"}
    else:
        world.source.down = True


@pytest.mark.parametrize("how", ["one", "all"])
def test_last_figures_stay_until_nobody_may_believe_them(world: Outages, how: str) -> None:
    before = world.figures("chat")
    assert all(value is not None and np.isfinite(value) for value in before.values())
    assert not world.is_away("chat")
    cut_off(world, how)
    for _ in range(2):
        world.later()
        assert world.figures("chat") == before
        assert world.is_away("chat")
    assert world.is_away("code") is (how == "all")
    # dataUntil, a step and two rounds.
    world.later()
    assert world.figures("chat") == dict.fromkeys(KEPT)
    assert world.is_away("chat")
    world.source.failing, world.source.down = set(), False
    world.later()
    after = world.figures("chat")
    assert None not in after.values()
    assert after["data_timestamp_seconds"] != before["data_timestamp_seconds"]
    assert not world.is_away("chat")


@pytest.mark.parametrize("how", ["one", "all"])
def test_an_object_that_is_gone_takes_its_figures_along(world: Outages, how: str) -> None:
    cut_off(world, how)
    world.later(60.0)
    world.kube.delete(RESOURCE, "chat", "power")
    world.later(60.0)
    assert world.figures("chat") == dict.fromkeys(KEPT)
    assert not world.is_away("chat")
    assert None not in world.figures("code").values()


@pytest.mark.parametrize("how", ["one", "all"])
def test_a_restart_in_an_outage_shows_what_the_process_before_did(world: Outages, how: str) -> None:
    before = world.figures("chat")
    world.process = ForecasterProcess(world.clock, world.kube, world.source)
    cut_off(world, how)
    world.later(300.0)
    after = world.figures("chat")
    assert after == pytest.approx(before, rel=1e-5)
    assert world.is_away("chat")
    world.later(1800.0)
    assert world.shown("replicas", "chat") is None


def test_a_refused_series_has_no_figures(world: Outages, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: MemorySource, series: Sequence[SeriesId], *more: int) -> Floats:
        if "chat" in series:
            raise InputError("series", "an expression", "chat")
        return fetch(self, series, *more)

    fetch = MemorySource.fetch
    monkeypatch.setattr(MemorySource, "fetch", refuse)
    world.later()
    assert world.figures("chat") == dict.fromkeys(KEPT)
    assert not world.is_away("chat")
    assert None not in world.figures("code").values()


def test_figures_age_also_where_objects_cannot_be_listed(world: Outages) -> None:
    before = world.figures("chat")
    world.kube.down = True
    assert not world.later()
    assert world.figures("chat") == before
    world.later(1800.0)
    assert world.figures("chat") == dict.fromkeys(KEPT)
