"""Servers below a breaker that was refused draw through the breakers above it, and count there."""

from __future__ import annotations

from typing import Any

import pytest

from controller.app.domain_status import StatusThread
from controller.app.fleet import Fleet
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    Cluster,
    make_domain,
    make_node,
)
from tests.controller_process.test_tick_attacks import Bench as Ticking
from wattpack.kube.port import EVENTS, JsonObject

#: Too little for one server at its lowest limits: refused from its first write (I1).
TOO_SMALL = 1_000.0


def rack(name: str = "rack-1", parent: str = "row", **spec: Any) -> JsonObject:
    values = {"ratingWatts": TOO_SMALL, "members": {"nodeSelector": {"rack": name}}, **spec}
    return make_domain(name, parent=parent, **values)


def row_without_members(**spec: Any) -> JsonObject:
    silent_host = {"worstWatts": 1.0, "idleWatts": 0.0}
    return make_domain(**{"members": {}, "nonGpuPerNode": silent_host, **spec})


class Bench:
    """A row that selects nobody, two servers of rack 1: one reports, one is silent."""

    def __init__(self, *domains: JsonObject) -> None:
        nodes = [make_node("heard", rack="rack-1"), make_node("silent", gpus=8, rack="rack-1")]
        self.cluster = Cluster(*[(DOMAINS, d) for d in domains], *[(NODES, n) for n in nodes])
        self.fleet = Fleet()
        self.fleet.hello(make_hello("heard"))

    def counted(self) -> dict[str, str]:
        """The domain in which each server counts."""
        topology = self.cluster.desired.topology(self.fleet)
        assert topology is not None
        names = topology.tree.names
        return {
            node: names[domain]
            for node, domain in zip(
                topology.node_names, topology.domain_of_node.tolist(), strict=True
            )
        }

    def accepted(self) -> set[str]:
        self.counted()
        return set(self.cluster.desired.accepted_domains())

    def told(self, name: str) -> str:
        """Why the domain's newest spec does not run; empty if it does."""
        self.cluster.desired.topology(self.fleet)
        found = [r.message for r in self.cluster.desired.refusals() if r.name == name]
        return found[0] if found else ""


BOTH_IN_ROW = {"heard": "row", "silent": "row"}


def test_i1_servers_of_a_rack_that_never_ran_count_in_the_row_above_it() -> None:
    bench = Bench(row_without_members(), rack())
    assert bench.counted() == BOTH_IN_ROW
    assert bench.accepted() == {"row"}
    topology = bench.cluster.desired.running()
    assert topology is not None
    # Boards: two that report 700 W, eight of a silent server at the largest that is known.
    of_silent = topology.node_of_gpu == topology.node_names.index("silent")
    assert (topology.default_limit_watts[of_silent] >= 1000.0).all()
    assert of_silent.sum() == 8
    # The rack's figure for one server counts, its rating does not.
    assert topology.node_worst_watts / 0.94 == pytest.approx([900.0, 900.0])
    assert topology.tree.names == ("row",)
    assert topology.tree.rating_watts.tolist() == [40_000.0]


def test_the_rack_says_where_its_servers_count() -> None:
    bench = Bench(row_without_members(), rack())
    assert bench.told("rack-1").endswith("; its 2 servers count in row")


@pytest.mark.parametrize(
    ("parent", "end"),
    [
        ("rack-1", "its 2 servers count nowhere: no accepted domain above it is known"),
        ("nobody", "its 2 servers count nowhere: no accepted domain above it is known"),
    ],
)
def test_a_rack_below_nobody_says_that_its_servers_count_nowhere(parent: str, end: str) -> None:
    bench = Bench(row_without_members(), rack(parent=parent))
    assert bench.counted() == {}
    assert bench.told("rack-1").endswith(end)


def test_through_a_refused_parent_servers_count_in_the_one_above_it() -> None:
    middle = make_domain("middle", parent="row", members={}, loadDeclaredComplete=False)
    bench = Bench(row_without_members(), middle, rack(parent="middle"))
    assert bench.counted() == BOTH_IN_ROW
    assert bench.accepted() == {"row"}


def test_a_rack_that_is_mended_takes_its_servers_over_and_falls_silent() -> None:
    bench = Bench(row_without_members(), rack())
    assert bench.counted() == BOTH_IN_ROW
    mended = rack(ratingWatts=20_000.0)
    bench.cluster.put(DOMAINS, mended, rack())
    assert bench.counted() == {"heard": "rack-1", "silent": "rack-1"}
    assert bench.told("rack-1") == ""


def test_a_refused_rack_that_is_deleted_gives_its_servers_up() -> None:
    bench = Bench(row_without_members(), rack())
    bench.counted()
    bench.cluster.remove(DOMAINS, rack())
    assert bench.counted() == {}


def test_two_refused_racks_that_claim_the_same_servers_count_them_once() -> None:
    twin = rack("twin", members={"nodeSelector": {"rack": "rack-1"}})
    bench = Bench(row_without_members(), rack(), twin)
    assert bench.counted() == BOTH_IN_ROW
    for name in ("rack-1", "twin"):
        assert bench.told(name).endswith("; its 2 servers count in row")


def test_a_refused_selector_that_matches_everything_moves_nothing_that_is_accepted() -> None:
    other = make_domain("other", members={"nodeSelector": {"rack": "rack-1"}})
    wild = rack("wild", members={"nodeSelector": {"row": "row"}})
    bench = Bench(row_without_members(), other, wild)
    assert bench.counted() == {"heard": "other", "silent": "other"}
    assert "count" not in bench.told("wild")


def test_a_refused_selector_that_matches_every_server_takes_those_that_nobody_else_has() -> None:
    """Safe and dear: they are told, and leave with the mend."""
    home = make_domain("home", members={"nodeNames": ["heard"]})
    wild = rack("wild", members={"nodeSelector": {"row": "row"}})
    bench = Bench(row_without_members(), home, wild)
    assert bench.counted() == {"heard": "home", "silent": "row"}
    assert bench.told("wild").endswith("; its 1 server counts in row")
    bench.cluster.put(DOMAINS, rack("wild", members={}), wild)
    assert bench.counted() == {"heard": "home"}


def test_refused_racks_of_two_rows_with_one_server_name_it_and_both_rows() -> None:
    twin = rack("twin", parent="b-row", members={"nodeSelector": {"rack": "rack-1"}})
    bench = Bench(row_without_members(), make_domain("b-row", members={}), rack(), twin)
    assert bench.counted() == {"heard": "b-row", "silent": "b-row"}
    assert "['b-row', 'row']" in bench.told("heard")


def test_servers_of_a_refused_rack_leave_the_rows_own_servers_less() -> None:
    own = {"members": {"nodeNames": ["own"]}, "ratingWatts": 4_000.0}
    owed: list[float] = []
    for domains in ([make_domain(**own)], [make_domain(**own), rack()]):
        cluster = Cluster(*[(DOMAINS, d) for d in domains])
        for name in ("own", "other"):
            cluster.put(NODES, make_node(name, rack="rack-1" if name == "other" else "none"))
        fleet = Fleet()
        fleet.hello(make_hello("own"))
        fleet.hello(make_hello("other"))
        topology = cluster.desired.topology(fleet)
        assert topology is not None
        of_own = topology.node_of_gpu == topology.node_names.index("own")
        owed.append(float(topology.guaranteed_watts[of_own].sum()))
    assert owed[1] < owed[0]


def test_a_change_of_the_row_is_judged_with_the_servers_that_count_in_it() -> None:
    bench = Bench(row_without_members(), rack())
    bench.counted()
    tiny = row_without_members(ratingWatts=1_500.0)
    bench.cluster.put(DOMAINS, tiny, row_without_members())
    assert bench.counted() == BOTH_IN_ROW
    assert "I1" in bench.told("row")
    topology = bench.cluster.desired.running()
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [40_000.0]


@pytest.mark.parametrize(("watts", "is_refused"), [(1_400.0, True), (1_600.0, False)])
def test_a_row_overfull_by_a_refused_racks_servers_takes_what_helps_it_and_nothing_worse(
    watts: float, is_refused: bool
) -> None:
    overfull = row_without_members(ratingWatts=1_500.0)
    bench = Bench(overfull, rack())
    assert bench.accepted() == {"row"}
    bench.cluster.put(DOMAINS, row_without_members(ratingWatts=watts), overfull)
    assert bool(bench.told("row")) is is_refused
    assert bench.counted() == BOTH_IN_ROW


def test_beside_a_refused_rack_another_one_is_judged_as_if_it_were_alone() -> None:
    """The row bears one of them: its servers draw in either case, with its limit they are safer."""
    other = rack("other", members={"nodeNames": ["late"]}, ratingWatts=20_000.0)
    bench = Bench(row_without_members(ratingWatts=4_000.0), rack(), other)
    bench.fleet.hello(make_hello("late"))
    assert bench.accepted() == {"row", "other"}
    assert bench.counted() == {**BOTH_IN_ROW, "late": "other"}


def test_what_a_running_domain_wants_beside_its_members_counts_in_it_if_nobody_has_it() -> None:
    """Refused for its load that is not declared; the server that it names is there all the same."""
    bench = Bench(make_domain(members={"nodeNames": ["heard"]}))
    assert bench.counted() == {"heard": "row"}
    wider = make_domain(members={"nodeNames": ["heard", "silent"]}, loadDeclaredComplete=False)
    bench.cluster.put(DOMAINS, wider, make_domain())
    assert bench.counted() == BOTH_IN_ROW
    assert bench.told("row").endswith("; 1 server more than was accepted counts in it")


def test_an_unreadable_newest_spec_still_says_which_servers_it_feeds() -> None:
    bench = Bench(row_without_members(), rack(ratingWatts="much"))
    assert bench.counted() == BOTH_IN_ROW
    assert bench.told("rack-1").endswith("; its 2 servers count in row")


def test_members_that_change_in_a_spec_that_stays_unreadable_are_followed() -> None:
    odd = rack(ratingWatts="much")
    bench = Bench(row_without_members(), odd)
    assert bench.counted() == BOTH_IN_ROW
    fewer = rack(ratingWatts="much", members={"nodeNames": ["heard"]})
    bench.cluster.put(DOMAINS, fewer, odd)
    assert bench.counted() == {"heard": "row"}


class Told(Ticking):
    """A row above a rack that was refused, with all that people may look at."""

    def __init__(self, *domains: JsonObject) -> None:
        bench = Bench(*domains)
        super().__init__(bench.cluster, bench.fleet)
        self.api = EmbeddedKube(self.clock)
        for body in domains:
            self.api.create(DOMAINS, body)
        self.status = StatusThread(self.api, self.clock, self.cluster.desired, "test")

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            outcome = self.tick("heard")
            assert outcome is not None
            self.status.take(outcome)
            self.status.run_once()

    def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        stored = self.api.get(DOMAINS, name)["status"]
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in stored["conditions"]}

    def events(self) -> list[tuple[str, str, str]]:
        found = self.api.list(EVENTS, namespace="default").items
        return [(e["regarding"]["name"], e["reason"], e["note"]) for e in found]

    def feed(self) -> list[tuple[str, str, str]]:
        """What the console's decision feed has."""
        view = self.ticker.live()
        assert view is not None
        return [(d.domain, d.kind, d.message) for d in view.decisions]

    def metrics(self) -> str:
        return self.ticker._metrics.text().decode()


HERE = "2 servers count here for rack-1, which is not in use"
NOWHERE = "its 2 servers count nowhere: no accepted domain above it is known"


def test_the_row_the_rack_the_feed_events_and_metrics_all_say_whose_servers_count_where() -> None:
    bench = Told(row_without_members(), rack())
    bench.pass_seconds(12)
    ready = bench.conditions("row")["Ready"]
    assert ready[:2] == ("True", "Controlled")
    assert ready[2].endswith(f"; {HERE}")
    assert bench.api.get(DOMAINS, "row")["status"]["members"] == 2
    assert bench.conditions("rack-1")["Accepted"][2].endswith("; its 2 servers count in row")
    assert ("row", "ServersCountedAside", HERE) in bench.feed()
    assert ("row", "ServersCountedAside", HERE) in bench.events()
    assert 'wattpack_servers_counted_aside{domain="rack-1"} 2.0' in bench.metrics()
    assert "wattpack_servers_uncounted{" not in bench.metrics()


def test_servers_that_count_nowhere_are_told_by_name_event_and_metric() -> None:
    bench = Told(row_without_members(), rack(parent="gone"))
    bench.pass_seconds(12)
    assert bench.conditions("rack-1")["Accepted"][2].endswith(f"; {NOWHERE}")
    assert ("rack-1", "ServersUncounted", NOWHERE) in bench.feed()
    assert ("rack-1", "ServersUncounted", NOWHERE) in bench.events()
    assert 'wattpack_servers_uncounted{domain="rack-1"} 2.0' in bench.metrics()
    assert "count" not in bench.conditions("row")["Ready"][2]


def test_a_row_whose_caps_do_not_fit_names_the_refused_rack_among_its_load() -> None:
    bench = Told(row_without_members(ratingWatts=1_500.0), rack())
    bench.pass_seconds(12)
    status, reason, message = bench.conditions("row")["Ready"]
    assert (status, reason) == ("False", "GuaranteedCapsDoNotFit")
    assert message.endswith(f"; {HERE}")
    # Nobody vouches for a guaranteed cap of the silent server: it counts at its default limits.
    assert " with 1 of 2 servers at their default limits: no guaranteed cap is certain" in message


def test_a_budget_that_looks_like_kilowatts_is_told_and_rules_all_the_same() -> None:
    window = {"start": "00:00", "end": "23:59", "budgetWatts": 34.0}
    bench = Told(row_without_members(budgets=[window]), rack())
    bench.pass_seconds(12)
    status, _, message = bench.conditions("row")["Accepted"]
    assert status == "True"
    assert "spec.budgets[0].budgetWatts: 34 W is less than 1 % of ratingWatts (40000 W)" in message


def test_when_the_rack_is_mended_everything_falls_silent_again() -> None:
    bench = Told(row_without_members(), rack())
    bench.pass_seconds(12)
    bench.cluster.put(DOMAINS, rack(ratingWatts=20_000.0), rack())
    bench.pass_seconds(12)
    assert "count" not in bench.conditions("row")["Ready"][2]
    assert bench.feed()[0][:2] == ("row", "ServersCountedBack")
    assert "wattpack_servers_counted_aside{" not in bench.metrics()
    assert [kind for _, kind, _ in bench.feed()].count("ServersCountedAside") == 1
