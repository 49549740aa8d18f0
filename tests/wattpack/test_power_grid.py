"""The power tree of accepted specs: ratings after feed loss, membership, what is cut."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from wattpack.api import PowerDomain
from wattpack.api.power_domain import PowerDomainSpec, Redundancy
from wattpack.errors import InputError
from wattpack.power.feasibility import LoadTree, survivable_watts
from wattpack.power.member_claims import MemberClaim, MemberIndex, claim_of, newest_claims
from wattpack.power.power_grid import Feeding, PowerGrid, accepted_domains, rating_after_feed_loss


def spec(parent: str | None = None, **fields: Any) -> PowerDomainSpec:
    body = {"ratingWatts": 60_000.0, **({"parent": parent} if parent else {}), **fields}
    named = {"apiVersion": "wattpack.io/v1alpha1", "kind": "PowerDomain", "metadata": {"name": "x"}}
    return PowerDomain.from_json({**named, "spec": body}).spec


def selecting(parent: str | None = None, **labels: str) -> PowerDomainSpec:
    return spec(parent, members={"nodeSelector": labels})


def left_after_the_worst_declared_loss(feed_watts: float, feeds: int, lost: int) -> float:
    """By counting: after each way of losing that many feeds, what the others bear together."""
    ways = itertools.combinations(range(feeds), lost)
    return min(feed_watts * (feeds - len(way)) for way in ways)


#: docs/architecture.md and the words of the object: none = one feed; 2N = two, either carries all;
#: k of N = any k carry all, so N - k may be lost. (mode, feeds, required, feeds lost at worst).
DECLARED = [
    ("None", 1, 1, 0),
    ("2N", 2, 1, 1),
    *[("KofN", n, k, n - k) for n in range(2, 17) for k in range(1, n)],
]


@pytest.mark.parametrize(("mode", "feeds", "required", "lost"), DECLARED)
def test_a_rating_is_what_is_left_after_the_worst_loss_that_is_declared(
    mode: Any, feeds: int, required: int, lost: int
) -> None:
    redundancy = Redundancy(mode=mode, feeds=feeds, required_feeds=required)
    expected = left_after_the_worst_declared_loss(100_000.0, feeds, lost)
    assert rating_after_feed_loss(100_000.0, redundancy) == expected
    if feeds > 1:
        assert expected <= left_after_the_worst_declared_loss(100_000.0, feeds, 1)


def test_four_feeds_of_100_kw_of_which_two_are_required_are_rated_200_kw() -> None:
    redundancy = {"mode": "KofN", "feeds": 4, "requiredFeeds": 2}
    grid = PowerGrid.of({"row": spec(ratingWatts=100_000.0, redundancy=redundancy)})
    assert grid.tree.rating_watts.tolist() == [200_000.0]
    assert grid.rating_watts("row") == 200_000.0


def test_the_highest_load_ratio_keeps_below_the_short_time_pick_up() -> None:
    grid = PowerGrid.of({"a": spec(breaker={"shortTimePickupRatio": 1.6}), "b": spec()})
    assert grid.tree.max_load_ratio.tolist() == pytest.approx([1.28, 1.5])


def test_the_lowest_pick_up_that_is_accepted_lets_load_reach_the_rating() -> None:
    grid = PowerGrid.of({"a": spec(breaker={"shortTimePickupRatio": 1.25})})
    assert grid.tree.max_load_ratio.tolist() == [1.0]
    with pytest.raises(InputError, match="shortTimePickupRatio"):
        spec(breaker={"shortTimePickupRatio": 1.249})


def test_the_highest_load_ratio_is_no_higher_than_the_curve_tells() -> None:
    points = [{"loadRatio": 1.1, "tripSeconds": 400.0}, {"loadRatio": 1.3, "tripSeconds": 100.0}]
    grid = PowerGrid.of({"a": spec(breaker={"curve": "Points", "points": points})})
    assert grid.tree.max_load_ratio.tolist() == [1.3]


@pytest.mark.parametrize("mode", ["None", "2N", "KofN"])
def test_what_ups_and_transformer_bear_bounds_a_jump_with_and_without_their_reserve(
    mode: str,
) -> None:
    ups = [{"loadRatio": 1.1, "tripSeconds": 60.0}, {"loadRatio": 1.15, "tripSeconds": 1.0}]
    counts = {"feeds": 3, "requiredFeeds": 2} if mode == "KofN" else {}
    plain = {"mode": mode, **counts}
    reserve = {"useReserve": True, "feedShare": {"prometheusQuery": "share"}}
    domains = {
        "bare": spec(redundancy=plain),
        "fed": spec(redundancy=plain | {"overloadCurve": ups}),
    }
    if mode != "None":
        domains["used"] = spec(redundancy=plain | {"overloadCurve": ups} | reserve)
    tree = PowerGrid.of(domains).tree
    of = dict(zip(tree.names, tree.max_load_ratio.tolist(), strict=True))
    assert of.pop("bare") == 1.5
    assert set(of.values()) == {1.15}
    load = LoadTree(tree, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    n = len(tree.names)
    watts = survivable_watts(load, np.zeros(n), 5.8, np.full(n, 0.5)) / tree.rating_watts
    borne = dict(zip(tree.names, watts.tolist(), strict=True))
    # 5.8 s are half of 11.6, which the curve bears between its two points.
    assert borne.pop("bare") == pytest.approx(1.5)
    assert all(1.1 < ratio < 1.15 for ratio in borne.values())


def test_cold_points_count_a_quarter_and_parents_come_first() -> None:
    points = [{"loadRatio": 1.2, "tripSeconds": 400.0}, {"loadRatio": 2.0, "tripSeconds": 40.0}]
    breaker = {"curve": "Points", "points": points, "thermalColdCurve": True}
    grid = PowerGrid.of({"a": spec("row"), "row": spec(breaker=breaker)})
    assert grid.tree.names == ("row", "a")
    assert grid.tree.curves[0].trip_seconds == (100.0, 10.0)
    assert grid.path("a") == ("a", "row")


def test_the_deepest_domain_of_a_branch_feeds_a_node_whatever_the_names() -> None:
    tree = {"a-row": selecting(row="a"), "rack-1": selecting("a-row", rack="1", row="a")}
    grid = PowerGrid.of(tree)
    assert grid.feeding("n", {"row": "a", "rack": "1"}) == Feeding("rack-1")
    assert grid.feeding("n", {"row": "a"}) == Feeding("a-row")
    assert grid.feeding("n", {"rack": "1"}) == Feeding("")


def test_a_node_in_two_branches_is_named_with_everything_that_claims_it() -> None:
    named = spec("row", members={"nodeNames": ["n"]})
    grid = PowerGrid.of({"row": selecting(row="a"), "z": named, "b": selecting("row", rack="1")})
    feeding = grid.feeding("n", {"row": "a", "rack": "1"})
    assert feeding == Feeding("b", ("z",))
    with pytest.raises(InputError, match=r"node n.*\['b', 'z'\]"):
        feeding.require_one_branch("n")


@pytest.mark.parametrize("parent", ["b", "nobody"])
def test_what_is_judged_together_must_be_a_tree_and_what_is_read_is_cut_to_one(parent: str) -> None:
    specs = {"a": spec(parent), "b": spec("a")}
    with pytest.raises(InputError, match=r"spec\.parent"):
        PowerGrid.of(specs)
    grid = PowerGrid.of_read(specs)
    assert set(grid.cut) == ({"a", "b"} if parent == "b" else {"a"})
    assert grid.path("b")[0] == "b"


def test_a_child_of_a_circle_keeps_its_parent() -> None:
    grid = PowerGrid.of_read({"a": spec("b"), "b": spec("a"), "c": spec("a")})
    assert grid.path("c") == ("c", "a")


def test_a_watt_counts_at_the_lowest_efficiency_on_its_path() -> None:
    grid = PowerGrid.of(
        {
            "row": spec(supplyEfficiency=0.9),
            "rack": spec(
                "row", supplyEfficiency=0.95, nonGpuPerNode={"worstWatts": 900.0, "idleWatts": 0.0}
            ),
        }
    )
    assert grid.path_efficiency("rack") == 0.9
    assert grid.path_efficiency("") == 1.0
    # 900 W at the rack are 855 W DC, and 950 W at the row.
    assert grid.worst_host_watts(Feeding("rack")) == pytest.approx(950.0)


def test_only_accepted_specs_are_read_and_the_newest_is_not_looked_at() -> None:
    runs = {"ratingWatts": 5_000.0}
    bodies: list[dict[str, Any]] = [
        {"metadata": {"name": "never"}, "spec": runs},
        {"metadata": {"name": "broken"}, "spec": {"no": 1}, "status": {"acceptedSpec": runs}},
        {"metadata": {"name": "odd"}, "spec": runs, "status": {"acceptedSpec": {"no": 1}}},
    ]
    found = accepted_domains(bodies)
    assert list(found) == ["broken"]
    assert found["broken"].spec.rating_watts == 5_000.0


def claim(parent: str | None = None, worst: float = 0.0, **labels: str) -> MemberClaim:
    members, host = {"nodeSelector": labels}, {"worstWatts": worst}
    return claim_of(spec(parent, members=members, nonGpuPerNode=host))


#: Newest specs of domains that never ran, and where a server of rack 1 counts below an accepted row
#: that selects none of them.
REFUSED = [
    ("its parent runs", {"r1": claim("row", rack="1")}, "row", ("r1",)),
    (
        "through a parent that is refused as well",
        {"r1": claim("pod", rack="1"), "pod": claim("row")},
        "row",
        ("r1",),
    ),
    ("it is its own parent", {"r1": claim("r1", rack="1")}, "", ("r1",)),
    (
        "its parents lead in a circle",
        {"r1": claim("a", rack="1"), "a": claim("b"), "b": claim("a")},
        "",
        ("r1",),
    ),
    ("its parent is not there", {"r1": claim("gone", rack="1")}, "", ("r1",)),
    ("it names no parent", {"r1": claim(None, rack="1")}, "", ("r1",)),
    (
        "two of them claim the same server",
        {"r2": claim("row", rack="1"), "r1": claim("row", rack="1")},
        "row",
        ("r1", "r2"),
    ),
    (
        "two levels of them claim it",
        {"r1": claim("pod", rack="1"), "pod": claim("row", rack="1")},
        "row",
        ("pod", "r1"),
    ),
    ("nobody claims it", {"r1": claim("row", rack="2")}, "", ()),
    ("what runs wants more servers", {"row": claim(None, rack="1")}, "row", ("row",)),
]


@pytest.mark.parametrize(
    ("claims", "fed_by", "through"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_i1_servers_of_a_domain_that_does_not_run_count_in_the_nearest_one_above_that_does(
    claims: dict[str, MemberClaim], fed_by: str, through: tuple[str, ...]
) -> None:
    grid = PowerGrid.of({"row": spec("site"), "site": spec()}, claims)
    assert grid.feeding("n", {"rack": "1"}) == Feeding(fed_by, (), through)
    assert set(grid.specs) == {"row", "site"}
    assert grid.rating_watts("row") == 60_000.0


def test_what_an_accepted_domain_claims_no_refused_one_takes_to_another_branch() -> None:
    specs = {"a": spec(), "r1": selecting("a", rack="1"), "b": spec()}
    everything = {"x": claim("b", os="linux"), "r1": claim("b", rack="1"), "b": claim(os="linux")}
    grid = PowerGrid.of(specs, everything)
    assert grid.feeding("n", {"rack": "1", "os": "linux"}) == Feeding("r1")


def test_a_server_that_only_the_site_selects_counts_in_the_row_that_a_refused_rack_names() -> None:
    specs = {"site": selecting(os="linux"), "row": spec("site"), "far": spec("row")}
    grid = PowerGrid.of(specs, {"r1": claim("row", rack="1"), "far": claim("row", os="linux")})
    labels = {"os": "linux", "rack": "1"}
    assert grid.feeding("n", labels) == Feeding("row", (), ("r1",))
    assert grid.feeding("n", {"os": "linux"}) == Feeding("site")


def test_refused_racks_of_two_rows_that_claim_one_server_are_both_named() -> None:
    claims = {"r1": claim("a", rack="1"), "r2": claim("b", rack="1")}
    grid = PowerGrid.of({"a": spec(), "b": spec()}, claims)
    feeding = grid.feeding("n", {"rack": "1"})
    assert feeding == Feeding("a", ("b",), ("r1",))
    with pytest.raises(InputError, match=r"node n.*\['a', 'b'\]"):
        feeding.require_one_branch("n")


def test_a_server_that_counts_elsewhere_draws_the_larger_of_both_declarations() -> None:
    claims = {"r1": claim("row", worst=900.0, rack="1"), "r2": claim("row", worst=1.0, rack="2")}
    grid = PowerGrid.of({"row": spec(nonGpuPerNode={"worstWatts": 300.0})}, claims)
    watts = {
        rack: grid.worst_host_watts(grid.feeding("n", {"rack": rack})) for rack in ("1", "2", "3")
    }
    assert watts == pytest.approx({"1": 900.0, "2": 300.0, "3": 0.0})


def test_a_server_that_counts_elsewhere_has_no_line_over_its_gpus() -> None:
    told = {"worstWatts": 300.0, "worstAtRestWatts": 200.0, "wattsPerGpuWatt": 0.1}
    claims = {"r1": claim("row", worst=100.0, rack="1")}
    members = {"nodeSelector": {"rack": "2"}}
    grid = PowerGrid.of({"row": spec(nonGpuPerNode=told, members=members)}, claims)
    found = {rack: grid.host_line(grid.feeding("n", {"rack": rack})) for rack in ("1", "2")}
    assert found == {"1": None, "2": (200.0, 0.1)}


def test_of_the_newest_spec_only_what_concerns_membership_has_to_be_readable() -> None:
    selects = {"members": {"nodeNames": ["n"]}, "parent": "row"}
    bodies: list[dict[str, Any]] = [
        {"metadata": {"name": "odd"}, "spec": {**selects, "ratingWatts": "much", "new": 1}},
        {"metadata": {"name": "deep"}, "spec": {"members": {"nodeNames": "n"}}},
        {"metadata": {"name": "text"}, "spec": "text"},
        {"metadata": {"name": "none"}},
    ]
    found = newest_claims(bodies)
    assert set(found) == {"odd"}
    assert found["odd"].parent == "row"


@pytest.mark.parametrize(
    ("odd", "parent"),
    [({"nonGpuPerNode": {"worstWatts": -1}}, "row"), ({"parent": 5}, None), ({}, "row")],
)
def test_one_odd_field_beside_them_hides_no_servers(
    odd: dict[str, Any], parent: str | None
) -> None:
    told = {"members": {"nodeNames": ["n"]}, "parent": "row", **odd}
    found = newest_claims([{"metadata": {"name": "rack"}, "spec": told}])
    assert found["rack"] == MemberClaim(parent, spec(members=told["members"]).members, 0.0)


def test_a_chain_of_thousands_of_refused_domains_is_followed_to_its_end() -> None:
    chain = {f"d{i}": claim(f"d{i + 1}", rack=str(i)) for i in range(20_000)}
    chain["d20000"] = claim("row")
    grid = PowerGrid.of({"row": spec()}, chain)
    assert grid.feeding("n", {"rack": "0"}) == Feeding("row", (), ("d0",))
    chain["d20000"] = claim("d7")
    assert PowerGrid.of({"row": spec()}, chain).feeding("n", {"rack": "0"}).domain == ""


def test_a_label_that_a_whole_site_carries_leads_to_no_more_domains_than_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    racks = {f"rack-{i}": selecting(datacenter="a", rack=f"r{i}") for i in range(200)}
    grid = PowerGrid.of(racks)
    asked: list[str] = []
    selects = MemberIndex._selects

    def counting(index: MemberIndex, domain: str, labels: Mapping[str, str]) -> bool:
        asked.append(domain)
        return selects(index, domain, labels)

    monkeypatch.setattr(MemberIndex, "_selects", counting)
    assert grid.feeding("n", {"datacenter": "a", "rack": "r17"}) == Feeding("rack-17")
    assert asked == ["rack-17"]
