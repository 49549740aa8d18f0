"""A controller that begins without memory takes breakers to be as hot as their status says."""

from __future__ import annotations

import pytest

from controller.app.fleet import Fleet
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import DOMAINS, make_cluster, make_domain, make_node
from tests.controller_process.test_tick_attacks import Bench
from wattpack.kube.port import JsonObject


def begun(status: JsonObject) -> Bench:
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    cluster = make_cluster(make_node("node-1"))
    cluster.put(DOMAINS, make_domain() | {"status": status})
    return Bench(cluster, fleet)


@pytest.mark.parametrize(
    ("status", "heat"),
    [({}, 0.0), ({"breakerHeatRatio": 0.2}, 0.2), ({"breakerHeatRatio": 1.7}, 1.0)],
)
def test_heat_goes_on_from_the_status(status: JsonObject, heat: float) -> None:
    outcome = begun(status).tick("node-1")
    assert outcome is not None
    assert outcome.decisions.heat.tolist() == pytest.approx([heat])


def test_what_runs_is_not_told_its_own_heat_again() -> None:
    bench = begun({"breakerHeatRatio": 0.2})
    bench.tick("node-1")
    for _ in range(60):
        outcome = bench.tick("node-1")
    assert outcome is not None
    cooled = outcome.decisions.heat.tolist()
    assert cooled[0] < 0.2
    bench.cluster.put(DOMAINS, make_domain() | {"status": {"breakerHeatRatio": 0.9}})
    outcome = bench.tick("node-1")
    assert outcome is not None
    assert outcome.decisions.heat[0] < cooled[0]


@pytest.mark.parametrize(("unanswered_seconds", "left"), [(600, 0.37), (3, 1.0)])
def test_what_no_agent_had_an_answer_for_has_cooled(unanswered_seconds: int, left: float) -> None:
    bench = begun({"breakerHeatRatio": 0.2})
    for second in range(1, 4):
        clock_ns = (1000 + second) * 10**9
        heard_ns = clock_ns - unanswered_seconds * 10**9
        outcome = bench.tick("node-1", clock_ns=clock_ns, highest_since_clock_ns=heard_ns)
    assert outcome is not None
    assert outcome.decisions.heat[0] == pytest.approx(0.2 * left, rel=0.05)
