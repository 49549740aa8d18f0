"""Whether I1 and I2 hold, and why nothing is raised: metrics of the real controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.app.domain_status import StatusThread
from controller.app.fleet import Fleet, Leadership
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    make_cluster,
    make_domain,
    make_node,
)
from tests.controller_process.test_tick_attacks import Bench
from wattpack.kube.port import JsonObject


class Row(Bench):
    """One server below one breaker, with all that its metrics say."""

    def __init__(self, **spec: Any) -> None:
        fleet = Fleet()
        fleet.hello(make_hello("node-1"))
        super().__init__(make_cluster(make_node("node-1")), fleet)
        self.api = EmbeddedKube(self.clock)
        self.domain = self.api.create(DOMAINS, make_domain(**spec))
        self.cluster.put(DOMAINS, self.domain)
        self.status = StatusThread(self.api, self.clock, self.cluster.desired, "test")

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            outcome = self.tick("node-1")
            assert outcome is not None
            self.status.take(outcome)
            self.status.run_once()

    def metric(self, name: str, **labels: str) -> float | None:
        labels = labels or {"domain": "row"}
        registry = self.ticker._metrics.registry
        return registry.get_sample_value(f"wattpack_{name}", labels)

    def watts(self, name: str) -> float:
        found = self.metric(f"domain_{name}_watts")
        assert found is not None
        return found

    def condition(self, kind: str) -> str:
        conditions: list[JsonObject] = self.api.get(DOMAINS, "row")["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == kind)


def test_i1_that_fails_while_running_shows_in_the_metric_and_passes_when_it_holds_again() -> None:
    row = Row(ratingWatts=4_000.0)
    row.pass_seconds(3)
    assert row.watts("guaranteed_case") <= row.watts("guaranteed_limit") == 4_000.0
    another = make_node("node-2")
    row.cluster.put(NODES, another)
    row.fleet.hello(make_hello("node-2"))
    row.pass_seconds(3)
    assert row.watts("guaranteed_case") > row.watts("guaranteed_limit")
    assert row.condition("Degraded") == "True"
    row.cluster.remove(NODES, another)
    row.pass_seconds(45)
    assert row.watts("guaranteed_case") <= row.watts("guaranteed_limit")
    assert row.condition("Degraded") == "False"


def test_i1_counts_the_worst_phase_in_metric_and_conditions_alike() -> None:
    row = Row(ratingWatts=6_000.0, phaseImbalance=1.25)
    row.cluster.put(NODES, make_node("node-2"))
    row.fleet.hello(make_hello("node-2"))
    row.pass_seconds(3)
    assert row.watts("guaranteed_limit") == 4_800.0
    assert 4_800.0 < row.watts("guaranteed_case") < 6_000.0, "only the worst phase is over"
    assert row.condition("Degraded") == "True"


def test_the_worst_case_stands_beside_what_the_breaker_survives() -> None:
    row = Row()
    row.pass_seconds(3)
    assert 0.0 < row.watts("worst") < row.watts("survivable")
    assert row.metric("domain_enforced") == 1.0
    assert Row(enforcement="DryRun").metric("domain_enforced") is None


def test_what_stops_raises_is_told_by_cause_and_by_domain() -> None:
    row = Row()
    row.pass_seconds(1)
    assert row.metric("domain_recovering") == 1.0, "a controller that has just begun"
    row.pass_seconds(20)
    assert row.metric("domain_recovering") == 0.0
    assert row.metric("raises_stopped", cause="lease_not_renewed") == 0.0
    row.leader.leadership = lambda: Leadership(3, True, False)  # type: ignore[method-assign]
    row.pass_seconds(1)
    assert row.metric("raises_stopped", cause="lease_not_renewed") == 1.0
    assert row.metric("raises_stopped", cause="not_leading") == 0.0


@pytest.mark.parametrize("name", ["guaranteed_case", "draw", "worst", "breaker_heat_ratio"])
def test_a_domain_that_is_gone_leaves_no_figure_behind_that_an_alert_could_read(name: str) -> None:
    row = Row()
    other = make_domain("other", members={"nodeSelector": {"row": "other"}})
    row.cluster.put(DOMAINS, other)
    row.pass_seconds(3)
    metric = f"domain_{name}" if name.endswith("ratio") else f"domain_{name}_watts"
    assert row.metric(metric, domain="other") is not None
    row.cluster.remove(DOMAINS, other)
    row.pass_seconds(3)
    assert row.metric(metric, domain="other") is None
    assert row.metric(metric, domain="row") is not None


def test_a_breaker_whose_figures_are_no_numbers_keeps_no_other_from_being_told() -> None:
    row = Row()
    row.cluster.put(DOMAINS, row.api.create(DOMAINS, make_domain("other")))
    outcome = row.tick("node-1")
    assert outcome is not None
    heat = np.where(np.array(outcome.topology.tree.names) == "row", np.nan, 0.5)
    row.status.take(replace(outcome, decisions=replace(outcome.decisions, heat=heat)))
    row.status.run_once()
    assert row.status.failures == 1
    assert "status" not in row.api.get(DOMAINS, "row")
    assert row.api.get(DOMAINS, "other")["status"]["breakerHeatRatio"] == 0.5
