"""The breaker that feeds a node, as placement sees it, and which domains count at all."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.documents.plan_document import PendingReason
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    pod_object,
    profile_object,
)
from wattpack.api import PowerDomain

IN_ROW = {"row": "a"}
IN_RACK = {"rack": "1"}
EVERYWHERE = {"labels": {"nvidia.com/gpu.product": "NVIDIA-H200", **IN_ROW, **IN_RACK}}


def selecting(name: str, rating_watts: float, labels: dict[str, str], **spec: Any) -> Any:
    return domain_object(name, rating_watts, [], **spec) | {
        "spec": {"ratingWatts": rating_watts, "members": {"nodeSelector": labels}, **spec}
    }


def one_node() -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1", **EVERYWHERE)
    cluster.add(profile_object())
    cluster.add(pod_object("p"))
    return cluster


def why_pending(cluster: Cluster) -> tuple[str, str]:
    return cluster.loop.step().pending[f"{SPACE}/p"]


def test_a_node_of_a_row_and_of_its_rack_is_held_by_the_racks_breaker() -> None:
    cluster = one_node()
    cluster.add_accepted(selecting("a-row", 100_000, IN_ROW))
    cluster.add_accepted(selecting("rack-1", 700, IN_RACK, parent="a-row"))
    reason, text = why_pending(cluster)
    assert reason == PendingReason.POWER_DOMAIN_FULL
    assert "rack-1" in text


def test_a_node_in_two_branches_gets_no_promise_and_is_named() -> None:
    cluster = one_node()
    cluster.add_accepted(selecting("rack-1", 100_000, IN_RACK))
    cluster.add_accepted(selecting("row", 100_000, IN_ROW))
    reason, text = why_pending(cluster)
    assert reason == PendingReason.GPU_POWER_UNKNOWN
    assert "n1" in text


def test_a_domain_that_was_never_accepted_limits_nothing() -> None:
    cluster = one_node()
    cluster.add(selecting("row", 700, IN_ROW))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_parents_in_a_circle_that_nobody_accepted_stop_no_placement() -> None:
    cluster = one_node()
    cluster.add(selecting("a", 100_000, IN_ROW, parent="b"))
    cluster.add(selecting("b", 100_000, IN_RACK, parent="a"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


@pytest.mark.parametrize("parent", ["b", "gone"])
def test_a_tree_read_at_two_moments_still_limits_its_members(parent: str) -> None:
    cluster = one_node()
    cluster.add_accepted(selecting("a", 700, IN_ROW, parent=parent))
    cluster.add_accepted(selecting("b", 100_000, {"row": "other"}, parent="a"))
    reason, text = why_pending(cluster)
    assert reason == PendingReason.POWER_DOMAIN_FULL
    assert text.startswith("a needs")


def test_the_spec_that_runs_counts_and_not_the_newest() -> None:
    cluster = one_node()
    body = cluster.add(selecting("row", 100_000, IN_ROW))
    runs = {**body["spec"], "ratingWatts": 700}
    cluster.set_status(PowerDomain, "row", acceptedSpec=runs)
    assert why_pending(cluster)[0] == PendingReason.POWER_DOMAIN_FULL


@pytest.mark.parametrize(
    ("redundancy", "fits"),
    [
        ({"mode": "KofN", "feeds": 4, "requiredFeeds": 1}, False),
        ({"mode": "KofN", "feeds": 4, "requiredFeeds": 3}, True),
    ],
)
def test_without_a_word_of_the_controller_the_rating_after_feed_loss_counts(
    redundancy: dict[str, Any], fits: bool
) -> None:
    cluster = one_node()
    cluster.add_accepted(selecting("row", 1_300, IN_ROW, redundancy=redundancy))
    assert bool(cluster.loop.step().released) is fits


def test_a_servers_worst_is_declared_at_the_breaker_and_counts_once() -> None:
    """9 idle-board and host figures below one breaker: 1,000 W at the breaker are 1,000 W."""
    cluster = one_node()
    host = {"worstWatts": 1_000.0, "idleWatts": 300.0}
    # 8 idle boards 560 / 0.94 = 596 W, the host 1,000 W, one board at worst 665 / 0.94 = 708 W.
    limit = 596 + 1_000 + 708
    body = selecting("row", 100_000, IN_ROW, nonGpuPerNode=host)
    cluster.add(body)
    cluster.set_status(PowerDomain, "row", capBandWatts=limit + 20)
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_servers_of_a_rack_that_never_ran_use_up_the_rows_room() -> None:
    """8 idle boards take 596 W of the row, be their rack accepted or not; its rating counts not."""
    cluster = one_node()
    cluster.add_accepted(selecting("row", 100_000, {"no": "one"}))
    cluster.add(selecting("rack-1", 1, IN_RACK, parent="row"))
    cluster.set_status(PowerDomain, "row", capBandWatts=600)
    reason, text = why_pending(cluster)
    assert reason == PendingReason.POWER_DOMAIN_FULL
    assert text.startswith("row needs")


@pytest.mark.parametrize(("room", "fits"), [(596 + 708 + 20, False), (596 + 708 + 1_020, True)])
def test_a_server_below_a_refused_rack_counts_with_the_racks_figure_for_one(
    room: int, fits: bool
) -> None:
    """8 idle boards 596 W, one board at worst 708 W, and the host's 1,000 W of the refused rack."""
    cluster = one_node()
    cluster.add_accepted(selecting("row", 100_000, {"no": "one"}))
    host = {"worstWatts": 1_000.0, "idleWatts": 300.0}
    cluster.add(selecting("rack-1", 1, IN_RACK, parent="row", nonGpuPerNode=host))
    cluster.set_status(PowerDomain, "row", capBandWatts=room)
    assert bool(cluster.loop.step().released) is fits


@pytest.mark.parametrize("parent", ["rack-1", "nobody", None])
def test_a_refused_rack_below_nobody_stops_no_placement(parent: str | None) -> None:
    cluster = one_node()
    cluster.add_accepted(selecting("row", 100_000, {"no": "one"}))
    above = {} if parent is None else {"parent": parent}
    cluster.add(selecting("rack-1", 1, IN_RACK, **above))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]
