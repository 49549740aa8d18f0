"""Pods that share boards are kept apart where they would slow one another down too much."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.interference.board_share import BoardShare, slow_down
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.kube_objects.part_draws import drawn_milli
from scheduler_plugin.kube_objects.power_view import PowerView
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import BuiltSnapshot, ClusterObjects, build_snapshot
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_cluster import node_object, pod_object
from wattpack.device_requests import CLASS_PREFIX
from wattpack.gangs import GangSources
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE

SHARED = "nvidia.com/gpu.shared"
LIMIT = "wattpack.io/shared-slow-down-limit"
COMPUTE, BANDWIDTH = "wattpack.io/gpu-compute-share", "wattpack.io/gpu-bandwidth-share"


def sharing_node(name: str, limit: str | None = None, boards: int | None = 1) -> JsonObject:
    labels = {LIMIT: limit} if limit is not None else {}
    labels |= {"nvidia.com/gpu.count": str(boards)} if boards is not None else {}
    return node_object(name, 0, offers={SHARED: "40"}, labels=labels)


def sharer(name: str, *shares: float | str, node: str = "") -> JsonObject:
    marks = dict(zip((COMPUTE, BANDWIDTH), map(str, shares), strict=False))
    place = {"nodeName": node} if node else {"schedulingGates": [{"name": GATE}]}
    body = pod_object(name, 0, asks={SHARED: "1"}, annotations=marks, **place)
    body["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return body


def built(nodes: list[JsonObject], pods: list[JsonObject]) -> BuiltSnapshot:
    power = PowerView((), ())
    gangs = GangSources.empty()
    objects = ClusterObjects(
        nodes=tuple(nodes), pods=tuple(pods), power=power, models={}, gangs=gangs
    )
    return build_snapshot(objects, Ledger())


def planned(nodes: list[JsonObject], *pods: JsonObject) -> tuple[dict[str, str], Plan]:
    found = plan(built(nodes, list(pods)).snapshot, deadline_seconds=0.0)
    return {p.uid: p.node for p in found.placements}, found


def test_two_pods_that_would_halve_each_other_s_speed_get_boards_of_their_own() -> None:
    nodes = [sharing_node("a", "1.2"), sharing_node("b", "1.2")]
    places, _ = planned(nodes, sharer("p", 0.9, 0.2), sharer("q", 0.8, 0.1), sharer("r", 0.2, 0.9))
    assert len(places) == 3
    assert places["p"] != places["q"]


def test_a_pod_waits_rather_than_slow_down_who_runs_and_is_told_what_is_short() -> None:
    running = sharer("runs", 0.9, 0.2, node="a")
    places, found = planned([sharing_node("a", "1.2")], running, sharer("waits", 0.8, 0.1))
    assert places == {}
    assert "wattpack.io/shared-compute-milli" in found.pending[0].message


def test_who_shared_before_there_was_a_limit_stays_and_nobody_joins_it() -> None:
    crowd = [sharer(f"runs-{i}", 0.9, 0.9, node="a") for i in range(3)]
    places, _ = planned([sharing_node("a", "1.2")], *crowd, sharer("new", 0.1, 0.1))
    assert places == {}


@pytest.mark.parametrize(
    ("node", "pods"),
    [
        (sharing_node("a"), [sharer("p", 0.9, 0.9), sharer("q", 0.9, 0.9)]),
        (sharing_node("a", "1.0"), [sharer("p"), sharer("q"), sharer("r", 0.9, 0.9)]),
        (sharing_node("a", "1.0", boards=2), [sharer("p", 1, 0.1), sharer("q", 1, 0.1)]),
        (sharing_node("a", "1.1"), [sharer("p", 0.6, 0), sharer("q", 0.5, 0)]),
    ],
    ids=["no limit", "no profile", "two boards", "just within"],
)
def test_without_limit_or_profile_nothing_changes(node: JsonObject, pods: list[JsonObject]) -> None:
    assert len(planned([node], *pods)[0]) == len(pods)


@pytest.mark.parametrize("limit", ["0.9", "nan", "inf", "much", "", "1e9"])
def test_a_limit_that_cannot_be_read_gets_no_promise_of_who_has_a_profile(limit: str) -> None:
    places, _ = planned([sharing_node("a", limit)], sharer("p", 0.1, 0.1), sharer("q"))
    assert places == {"q": "a"}


def test_boards_that_no_label_counts_may_be_one() -> None:
    node = sharing_node("a", "1.0", boards=None)
    assert len(planned([node], sharer("p", 1, 0.1), sharer("q", 1, 0.1))[0]) == 1


@pytest.mark.parametrize(
    ("shares", "names"),
    [
        ((0.5,), BANDWIDTH),
        ((1.5, 0.5), COMPUTE),
        ((0.5, -0.1), BANDWIDTH),
        (("nan", 0.5), COMPUTE),
        (("half", 0.5), COMPUTE),
    ],
)
def test_a_share_that_is_none_is_refused_by_name(shares: tuple[float | str], names: str) -> None:
    found = built([sharing_node("a", "1.2")], [sharer("p", *shares), sharer("good", 0.1, 0.1)])
    assert names in str(found.refused["p"])
    assert "good" in found.pending


def test_whole_boards_and_slices_are_nobody_s_neighbours() -> None:
    alone = pod_object("p", 1, annotations={COMPUTE: "7"}, schedulingGates=[{"name": GATE}])
    alone["metadata"] |= {"uid": "p", "resourceVersion": "1"}
    assert planned([node_object("a", labels={LIMIT: "1.0"})], alone)[0] == {"p": "a"}


PART = st.integers(0, 20).map(lambda n: n / 20)
SHARES = st.lists(st.tuples(PART, PART), min_size=1, max_size=8)


@examples(60)
@given(SHARES, st.integers(20, 40).map(lambda n: n / 20), st.integers(1, 2))
def test_no_plan_breaks_the_limit(
    shares: list[tuple[float, float]], limit: float, boards: int
) -> None:
    nodes = [sharing_node(name, str(limit), boards) for name in "ab"]
    places, _ = planned(nodes, *(sharer(f"p{i}", *pair) for i, pair in enumerate(shares)))
    together = defaultdict(list)
    for uid, node in places.items():
        together[node].append(BoardShare(*shares[int(uid[1:])]))
    for members in together.values():
        assert slow_down(members, boards) <= limit + 1e-9


@pytest.mark.parametrize(
    ("asked", "milli"),
    [
        ({"nvidia.com/gpu": 8, "cpu": 4000, "rdma/hca": 3}, 0),
        ({"nvidia.com/mig-1g.10gb": 2}, 2 * 143),
        ({"nvidia.com/mig-1g.10gb.me": 1}, 143),
        ({"nvidia.com/mig-2g.12gb": 1}, 500),
        ({"nvidia.com/mig-3g.40gb.shared": 1}, 429),
        ({"nvidia.com/mig-9g.900gb": 1}, 1000),
        ({"nvidia.com/gpu.shared": 2}, 2000),
        ({"amd.com/cpx_nps4": 3}, 3 * 167),
        ({CLASS_PREFIX + "gpu.nvidia.com": 2}, 0),
        ({CLASS_PREFIX + "mig.nvidia.com": 2}, 2000),
        (
            {CLASS_PREFIX + "mig.nvidia.com": 3, CLASS_PREFIX + "mig.nvidia.com/1g.10gb": 2},
            1000 + 2 * 143,
        ),
        ({"nvidia.com/gpu.shared": 2**45}, 10**6),
    ],
)
def test_parts_that_are_resources_draw_their_part_of_a_board(
    asked: dict[str, int], milli: int
) -> None:
    assert drawn_milli(asked) == milli
