"""Demo and twin judge a new forecast as the forecaster on a cluster does: at once, not by round."""

from __future__ import annotations

import threading
from typing import Any

from simulation.app.running_demo import DemoRow
from simulation.app.twin_run import TwinRun
from simulation.kube.embedded_api import EmbeddedKube
from simulation.row_objects import domain_series
from tests.forecasting.test_forecaster_process import NOWHERE
from tests.simulation.twin_builders import small_scenario
from wattpack.api import DemandForecast
from wattpack.kube.port import JsonObject
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.units import NS_PER_SECOND

RESOURCE = DemandForecast.meta.resource


def forecast(name: str, **spec: Any) -> JsonObject:
    values: JsonObject = {"target": {"powerDomain": "row", "series": domain_series("row")}} | spec
    body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "spec": values}
    return body | {"metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}}


class Writer:
    """Writes two forecasts at one second and reads what was said of them five seconds later."""

    def __init__(self, api: EmbeddedKube, at: int) -> None:
        self._api, self._at = api, at
        self.told: dict[str, dict[str, str]] = {}
        self.done = threading.Event()

    def second(self, second: int) -> None:
        if second == self._at:
            self._api.create(RESOURCE, forecast("good"), SYSTEM_NAMESPACE)
            self._api.create(RESOURCE, forecast("bad", events=[NOWHERE]), SYSTEM_NAMESPACE)
        if second == self._at + 5:
            for name in ("good", "bad"):
                status = self._api.get(RESOURCE, name, SYSTEM_NAMESPACE).get("status") or {}
                self.told[name] = {c["type"]: c["reason"] for c in status.get("conditions", [])}
            self.done.set()


def test_a_forecast_that_is_written_during_a_twin_run_is_judged_within_five_seconds() -> None:
    run = TwinRun(small_scenario(), lambda world, _: writer.second(world.now_ns // NS_PER_SECOND))
    writer = Writer(run.api, 10)
    run.run()
    assert writer.told["good"] == {"Accepted": "Valid", "Ready": "AwaitingRound"}
    assert writer.told["bad"]["Accepted"] == "SpecRefused"


def test_a_forecast_that_is_written_during_the_demo_is_judged_within_five_seconds() -> None:
    row = DemoRow(small_scenario(), speed=None, replicas=1)
    writer = Writer(row.api, 10)
    row.watch.observe(lambda now_ns: writer.second(now_ns // NS_PER_SECOND), lambda _: None)
    try:
        row.start()
        assert writer.done.wait(60.0), row.failure
    finally:
        row.stop()
    assert writer.told["good"] == {"Accepted": "Valid", "Ready": "AwaitingRound"}
    assert writer.told["bad"]["Accepted"] == "SpecRefused"
