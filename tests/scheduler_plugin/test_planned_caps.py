"""Plans that count work at a power cap: which, where, and what the checker says of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.plan_command import cluster_snapshot
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects.policy_floors import PolicyFloors
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    plans,
    pod_object,
)
from tests.scheduler_plugin.test_placement_metrics import series
from wattpack.api import PowerDomain, PowerPolicy
from wattpack.kube.port import NODES

HALF = CapOption(
    gpu_model="H200",
    kernel_class="training",
    cap_watts=400,
    cap_milli=571,
    watts_milli=584,
    speed_milli=800,
)
"""600 W without a cap, 351 W at it."""


def row(limit: int, pods: int = 8, held: bool = True, **other: Any) -> Snapshot:
    below = node("n", 8, domain="row", class_watts_per_gpu={"training": 600}, caps_held=held)
    waiting = [pod(f"p{i}", 1, kernel_class="training", **other) for i in range(pods)]
    made = snapshot(domain("row", limit), below, *waiting)
    return made.model_copy(update={"cap_options": (HALF,)})


def told(snap: Snapshot) -> list[tuple[int, int]]:
    made = plan(snap)
    assert made.refusals == ()
    return [(p.watts, p.cap_watts) for p in made.placements]


@pytest.mark.parametrize(
    ("snap", "expected"),
    [
        (row(10_000), [(600, 0)] * 8),  # power is plenty
        (row(2_900), [(351, 400)] * 8),
        (row(2_900, pods=4), [(600, 0)] * 4),  # nobody else waits
        (row(2_900, held=False), [(600, 0)] * 4),  # nobody holds caps there
        (row(2_900, least_cap_milli=571), [(351, 400)] * 8),
        (row(2_900, least_cap_milli=572), [(600, 0)] * 4),
        (row(2_900, expected_watts_per_gpu=600), [(600, 0)] * 4),
        (row(2_900).model_copy(update={"cap_options": ()}), [(600, 0)] * 4),
    ],
)
def test_a_plan_counts_on_a_cap_only_where_it_pays_and_may(
    snap: Snapshot, expected: list[tuple[int, int]]
) -> None:
    assert told(snap) == expected


def test_a_share_of_a_board_has_no_cap_of_its_own() -> None:
    below = node("n", 1, domain="row", class_watts_per_gpu={"training": 600}, caps_held=True)
    shares = [pod(f"p{i}", kernel_class="training", gpu_milli=500) for i in range(2)]
    made = snapshot(domain("row", 400), below, *shares)
    assert told(made.model_copy(update={"cap_options": (HALF,)})) == [(300, 0)]


def test_a_promise_counts_at_the_cap_that_it_was_made_with() -> None:
    """Else the same room would be given once in full, or twice."""
    promised = pod("old", 4, kernel_class="training", state=PodState.PROMISED, node="n")
    snap = row(2_900, pods=4)
    for cap, expected in ((400, 1_496), (0, 500), (399, 500)):
        held = promised.model_copy(update={"cap_watts": cap})
        made = snap.model_copy(update={"pods": (*snap.pods, held)})
        room = 2_900 - (4 * 351 if cap == 400 else 4 * 600)
        assert room == expected
        placed = plan(made).placements
        assert len(placed) == room // 351
        assert complaints(made, plan(made)) == ()


@given(st.integers(0, 5_000), st.integers(1, 8), st.integers(0, 1000), st.booleans())
@examples(40)
def test_the_checker_agrees_with_every_plan_and_limits_hold(
    limit: int, pods: int, least: int, held: bool
) -> None:
    snap = row(limit, pods, held, least_cap_milli=least)
    made = plan(snap)
    assert made.refusals == ()
    assert sum(p.watts for p in made.placements) <= limit
    uncapped = plan(snap.model_copy(update={"cap_options": ()}))
    assert len(made.placements) >= len(uncapped.placements)


@pytest.mark.parametrize(
    ("snap", "cap", "watts", "why"),
    [
        (row(2_900), 399, 351, "not on offer"),
        (row(2_900, held=False), 400, 351, "nobody holds caps"),
        (row(2_900, least_cap_milli=600), 400, 351, "policies keep 600"),
        (row(2_900), 400, 350, "350 W stated, 351 W expected"),
        (row(2_900), 0, 351, "351 W stated, 600 W expected"),
    ],
)
def test_the_checker_refuses_caps_that_nobody_offered(
    snap: Snapshot, cap: int, watts: int, why: str
) -> None:
    made = plan(row(10_000))
    wrong = made.model_copy(
        update={
            "snapshot_digest": snap.digest(),
            "placements": tuple(
                p.model_copy(update={"cap_watts": cap, "watts": watts}) for p in made.placements
            ),
        }
    )
    assert any(why in text for text in complaints(snap, wrong))


def test_what_policies_keep_is_the_most_that_any_of_them_keeps() -> None:
    def policy(name: str, **spec: Any) -> dict[str, Any]:
        meta = PowerPolicy.meta
        return {
            "apiVersion": "wattpack.io/v1alpha1",
            "kind": meta.kind,
            "metadata": {"name": name},
            "spec": {"priority": 1} | spec,
        }

    kept = policy("kept", selector={"namespaces": [SPACE]}, floorFraction=0.8)
    more = policy("more", selector={"labels": {"tier": "gold"}}, floorFraction=0.9)
    locks = policy("locks", selector={"priorityClasses": ["live"]}, allowedActuators=["ClockLock"])
    floors = PolicyFloors.of([kept, more, locks, policy("knee")])
    assert floors.least_cap_milli(pod_object("a")) == 800
    assert floors.least_cap_milli(pod_object("b", labels={"tier": "gold"})) == 900
    assert floors.least_cap_milli(pod_object("c", priorityClassName="live")) == 1000
    assert PolicyFloors.of([policy("knee")]).least_cap_milli(pod_object("a")) == 0
    broken = PolicyFloors.of([kept, policy("odd", floorFraction="much")])
    assert broken.least_cap_milli(pod_object("a")) == 1000


def capped_cluster(enforcement: str = "Enforce", **settings: Any) -> Cluster:
    """One server of H200 whose domain has room for some of what waits."""
    cluster = Cluster(**settings)
    cluster.add_nodes("n1")
    cluster.add_accepted(domain_object("row", 5_000, ["n1"], enforcement=enforcement))
    cluster.set_status(PowerDomain, "row", capBandWatts=4_000, drawWatts=0.0)
    for i in range(8):
        cluster.add(pod_object(f"p{i}", annotations={"wattpack.io/kernel-class": "training"}))
    return cluster


def test_in_a_cluster_more_work_is_let_in_at_caps_and_promises_say_so() -> None:
    plain = capped_cluster()
    before = len(plain.loop.step().released)
    cluster = capped_cluster(cap_levels=True)
    result = cluster.loop.step()
    assert len(result.released) > before
    assert result.plan is not None
    caps = {p.cap_watts for p in result.plan.placements}
    assert len(caps) == 1
    told = series(cluster.loop.metrics, "wattpack_placement_capped_gpus")
    level = ("H200-SXM", "training", str(*caps))
    assert told == {level: len(result.released)}
    promises = [p for body in plans(cluster) for p in body["spec"]["promises"]]
    assert {p["capWatts"] for p in promises} == caps
    held = {p.cap_watts for p in cluster.loop.ledger.promises.values()}
    assert held == caps
    # A leader that begins anew reads them there.
    cluster.loop = cluster.new_loop(epoch=1)
    cluster.loop.step()
    assert {p.cap_watts for p in cluster.loop.ledger.promises.values()} == caps
    # Promises that are still open count at it, too.
    assert series(cluster.loop.metrics, "wattpack_placement_capped_gpus") == told
    cluster.loop.metrics.stands_by()
    assert series(cluster.loop.metrics, "wattpack_placement_capped_gpus") == {}


def test_a_snapshot_for_people_has_caps_where_their_scheduler_has() -> None:
    cluster = capped_cluster()
    for settings in (PlacementSettings(), PlacementSettings(cap_levels=True)):
        taken = cluster_snapshot(cluster.api, cluster.clock, settings)
        assert bool(taken.cap_options) == settings.cap_levels
        assert all(node.caps_held == settings.cap_levels for node in taken.nodes)


@pytest.mark.parametrize("why", ["dry_run", "uncontrolled"])
def test_nobody_is_counted_at_a_cap_that_nobody_holds(why: str) -> None:
    cluster = capped_cluster("DryRun" if why == "dry_run" else "Enforce", cap_levels=True)
    if why == "uncontrolled":
        body = cluster.api.get(NODES, "n1")
        # Not a scheduling rule here: work that tolerates it goes there, at full watts.
        taint = {"key": "wattpack.io/uncontrolled", "effect": "PreferNoSchedule"}
        cluster.api.replace(NODES, {**body, "spec": {"taints": [taint]}})
    made = cluster.loop.step().plan
    assert made is not None
    assert made.placements
    assert {p.cap_watts for p in made.placements} == {0}
