"""What was accepted runs on, whoever leads next."""

from __future__ import annotations

from controller.app.fleet import Fleet
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import DOMAINS, Cluster, make_domain, make_node
from wattpack.kube.port import NODES, JsonObject


def refused_row(**status: object) -> JsonObject:
    """A row that ran watched only, and whose newest spec is refused: not every load is declared."""
    return {**make_domain(enforcement="Enforce", loadDeclaredComplete=False), "status": status}


def make_fleet() -> Fleet:
    fleet = Fleet()
    fleet.hello(make_hello("node-1"))
    return fleet


def test_a_replica_that_starts_late_runs_the_spec_that_was_accepted_before() -> None:
    earlier = make_domain(enforcement="DryRun", ratingWatts=30_000.0)["spec"]
    row = refused_row(acceptedSpec=earlier)
    cluster = Cluster((DOMAINS, row), (NODES, make_node("node-1")))
    topology = cluster.desired.topology(make_fleet())
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [30_000.0]
    assert [(r.name, r.reason) for r in cluster.desired.refusals()] == [("row", "LoadNotDeclared")]


def test_a_spec_that_nobody_ever_accepted_does_not_run() -> None:
    cluster = Cluster((DOMAINS, refused_row()), (NODES, make_node("node-1")))
    assert cluster.desired.topology(make_fleet()) is None


def test_what_this_replica_accepted_counts_more_than_an_older_status() -> None:
    fleet, cluster = make_fleet(), Cluster((NODES, make_node("node-1")))
    first = make_domain(ratingWatts=50_000.0)
    cluster.put(DOMAINS, first)
    assert cluster.desired.topology(fleet) is not None
    older = make_domain(ratingWatts=30_000.0)["spec"]
    cluster.put(DOMAINS, refused_row(acceptedSpec=older), old=first)
    topology = cluster.desired.topology(fleet)
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [50_000.0]


def test_a_spec_that_broke_i1_stays_refused_until_every_server_was_heard_again() -> None:
    """A new leader hears one agent first; the others still draw power."""
    earlier = make_domain(ratingWatts=40_000.0)["spec"]
    condition = {
        "type": "Accepted",
        "status": "False",
        "reason": "BreaksI1",
        "message": "domain row could draw more than its rating",
        "observedGeneration": 1,
    }
    row = make_domain(ratingWatts=5_000.0)
    row["status"] = {"acceptedSpec": earlier, "conditions": [condition]}
    nodes = [(NODES, make_node(f"node-{i}", gpus=2)) for i in (1, 2)]
    cluster = Cluster((DOMAINS, row), *nodes)
    fleet = make_fleet()
    topology = cluster.desired.topology(fleet)
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [40_000.0]
    told = {r.name: (r.reason, r.message) for r in cluster.desired.refusals()}
    assert told["row"] == ("BreaksI1", condition["message"])
    fleet.hello(make_hello("node-2"))
    topology = cluster.desired.topology(fleet)
    assert topology is not None
    # Two servers of two boards each fit below 5 kW: judged anew, the spec runs.
    assert topology.tree.rating_watts.tolist() == [5_000.0]
    assert "row" not in {r.name for r in cluster.desired.refusals()}


def test_a_spec_that_only_older_rules_accepted_is_no_reason_to_refuse_the_mended_one() -> None:
    """It stays in the status until the next verdict, which is written of what was read."""
    senseless = make_domain(breaker={"curve": "Points"})["spec"]
    row = {**make_domain(ratingWatts=50_000.0), "status": {"acceptedSpec": senseless}}
    cluster = Cluster((DOMAINS, row), (NODES, make_node("node-1")))
    topology = cluster.desired.topology(make_fleet())
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [50_000.0]
    assert cluster.desired.refusals() == ()
