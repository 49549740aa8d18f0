"""The power tree of accepted specs: ratings after feed loss, membership, what is cut."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from wattpack.api import PowerDomain
from wattpack.api.power_domain import PowerDomainSpec, Redundancy
from wattpack.errors import InputError
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
    assert grid.worst_host_watts("rack") == pytest.approx(950.0)


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
