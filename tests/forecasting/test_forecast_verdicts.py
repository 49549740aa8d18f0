"""A new or changed DemandForecast is judged within seconds, without waiting for a round."""

from __future__ import annotations

from typing import Any

import pytest

from forecasting.app.forecast_verdicts import LOOK_SECONDS, VerdictThread
from tests.forecasting.test_forecaster_process import NOWHERE, RESOURCE, World
from wattpack.kube.informer import Informer
from wattpack.kube.port import InvalidError


class Judged(World):
    """A forecaster whose verdict thread follows the objects."""

    def __init__(self) -> None:
        super().__init__()
        self.informer = Informer(self.kube, self.clock, RESOURCE)
        self.verdicts = VerdictThread(
            self.clock, self.kube, self.informer.list, self.process.metrics
        )

    def look(self) -> None:
        self.informer.pump()
        self.verdicts.run_once()

    def change(self, name: str, **spec: Any) -> None:
        body = self.kube.get(RESOURCE, name, "power")
        self.kube.replace(RESOURCE, {**body, "spec": body["spec"] | spec}, "power")

    def found(self, name: str) -> dict[str, tuple[str, str]]:
        return {
            kind: (c["status"], c["reason"])
            for kind in ("Accepted", "Ready")
            for c in [self.condition(name, kind)]
        }


@pytest.fixture
def world() -> Judged:
    return Judged()


def test_a_look_comes_often_enough_for_ten_seconds() -> None:
    assert LOOK_SECONDS <= 5


def test_a_new_object_is_judged_before_any_round(world: Judged) -> None:
    world.add("row")
    world.add("sure", events=[NOWHERE])
    world.look()
    assert world.found("row") == {
        "Accepted": ("True", "Valid"),
        "Ready": ("False", "AwaitingRound"),
    }
    assert world.found("sure")["Accepted"] == ("False", "SpecRefused")
    assert "timeZone: expected" in world.condition("sure", "Accepted")["message"]


def test_a_changed_spec_is_judged_and_its_old_figures_are_not_ready(world: Judged) -> None:
    world.add("row")
    world.process.tick()
    before = world.status("row")["p99"]
    world.change("row", events=[NOWHERE])
    world.look()
    assert world.found("row")["Accepted"] == ("False", "SpecRefused")
    world.change("row", events=[], levels=[0.5, 0.9])
    world.look()
    assert world.found("row")["Accepted"] == ("True", "Valid")
    assert world.found("row")["Ready"] == ("False", "AwaitingRound")
    assert world.status("row")["p99"] == before
    world.process.tick()
    assert world.ready("row")["status"] == "True"


def test_what_a_round_said_is_left_alone_and_nothing_is_written_twice(world: Judged) -> None:
    world.add("row")
    world.process.tick()
    world.look()
    told = world.kube.get(RESOURCE, "row", "power")
    world.look()
    assert world.kube.get(RESOURCE, "row", "power") == told
    assert world.ready("row")["status"] == "True"


def test_a_copy_that_is_behind_does_not_write_over_a_round(world: Judged) -> None:
    world.add("row")
    world.informer.pump()
    world.process.tick()
    world.verdicts.run_once()
    assert world.ready("row")["status"] == "True"


def test_a_verdict_that_the_api_did_not_take_is_told_at_a_later_look(
    world: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("row")
    with monkeypatch.context() as patched:
        patched.setattr(world.kube, "apply", _refuse)
        world.look()
        assert not world.status("row")
    world.look()
    assert world.found("row")["Accepted"] == ("True", "Valid")


def test_an_object_made_anew_is_judged_anew(world: Judged) -> None:
    world.add("row")
    world.look()
    world.kube.delete(RESOURCE, "row", "power")
    world.add("row")
    world.look()
    assert world.found("row")["Accepted"] == ("True", "Valid")


def _refuse(*args: Any, **kwargs: Any) -> None:
    raise InvalidError("not now")
