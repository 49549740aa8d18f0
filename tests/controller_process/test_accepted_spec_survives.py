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
