"""A node that has just come is left for a while to the pods that it was brought for."""

from __future__ import annotations

import pytest

from scheduler_plugin.promises.new_nodes import LEFT_TO_OTHERS_NS
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import NAMESPACES, PODS
from wattpack.object_names import OPT_IN_LABEL, OPT_IN_VALUE
from wattpack.units import NS_PER_SECOND

LEFT_SECONDS = LEFT_TO_OTHERS_NS // NS_PER_SECOND


@pytest.fixture
def grown(cluster: Cluster) -> Cluster:
    """A pod that no node could serve was let go; then a node came that can."""
    labels = {OPT_IN_LABEL: OPT_IN_VALUE}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}}
    cluster.api.create(NAMESPACES, space)
    cluster.add(pod_object("brought-for", 16))
    cluster.loop.step()
    cluster.clock.advance_seconds(61)
    cluster.loop.step()
    body = cluster.pod("brought-for")
    assert not body["spec"].get("schedulingGates")
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.api.replace(PODS, body | {"status": {"conditions": [why]}}, SPACE, subresource="status")
    cluster.add(pod_object("came-later", 16))
    cluster.loop.step()
    cluster.add_nodes("new", gpus=16)
    return cluster


def test_who_came_later_does_not_take_it(grown: Cluster) -> None:
    grown.add(pod_object("small", 8))
    assert set(grown.loop.step().released) == {f"{SPACE}/small"}, "old nodes are nobody's"
    grown.clock.advance_seconds(LEFT_SECONDS - 1)
    assert grown.loop.step().released == {}
    grown.api.bind("brought-for", SPACE, "new")
    ((reason, _),) = grown.loop.step().pending.values()
    assert reason == "InsufficientGpus"


def test_it_is_free_for_all_once_nobody_waits_for_it(grown: Cluster) -> None:
    assert grown.loop.step().released == {}
    grown.api.delete(PODS, "brought-for", SPACE, grace_period_seconds=0)
    assert grown.loop.step().released == {f"{SPACE}/came-later": "new"}


def test_after_a_while_it_is_planned_like_any_other(grown: Cluster) -> None:
    assert grown.loop.step().released == {}
    grown.clock.advance_seconds(LEFT_SECONDS)
    assert grown.loop.step().released == {f"{SPACE}/came-later": "new"}


def test_a_node_too_small_for_who_waits_was_not_brought_for_it(grown: Cluster) -> None:
    for name in ("a", "b", "c"):
        grown.add(pod_object(name, 8))
    grown.add_nodes("half")
    assert sorted(grown.loop.step().released.values()) == ["half", "n1", "n2"]
