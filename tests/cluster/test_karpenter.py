"""Karpenter brings nodes for what we let go, and takes nodes away under us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.kube_objects.node_facts import is_ready
from tests.cluster.cluster_processes import eventually
from tests.cluster.conftest import needs_tool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.karpenter_world import (
    CLAIMS,
    PRESENT,
    ROOT,
    SPACE,
    World,
    install_karpenter,
)

pytestmark = pytest.mark.cluster

KEPT = {"karpenter.sh/do-not-disrupt": "true"}


@pytest.fixture(scope="module")
def plane(fresh_control_plane: ControlPlane) -> ControlPlane:
    needs_tool("karpenter")
    if fresh_control_plane.kind == "external":
        pytest.skip("a cluster of somebody else may have a Karpenter in earnest")
    fresh_control_plane.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "crds"))
    install_karpenter(fresh_control_plane)
    return fresh_control_plane


@pytest.fixture(scope="module")
def furnished(plane: ControlPlane) -> Iterator[World]:
    made = World(plane)
    made.furnish()
    yield made
    made.loop.close()


@pytest.fixture
def world(furnished: World) -> Iterator[World]:
    path = f"/api/v1/nodes/{PRESENT}"
    eventually("it is ready", lambda: is_ready(furnished.plane.request("GET", path).body))
    yield furnished
    furnished.clear()


def _brings_for(world: World, name: str, gpus: int) -> str:
    """Let a pod go that no present node can serve; the node that Karpenter brings for it."""
    world.add(name, gpus)
    world.step()
    eventually(f"{name} is let go", lambda: world.step() and not world.is_gated(name))
    return eventually(f"{name} runs", lambda: world.node_of(name) or None)


def test_gated_pods_bring_no_node_and_those_let_go_do(world: World) -> None:
    world.add("large", 16)
    world.add("first", 8)
    world.add("second", 8)
    result = world.step()
    assert len(result.released) == 1, "the present node takes one of the two"
    assert result.pending[f"{SPACE}/large"][0] == PendingReason.LARGER_THAN_ANY_NODE
    # Karpenter acts on a pod that came later, so it has seen the gated ones and left them.
    world.add("later", 0, gated=False, nodeSelector={"karpenter.sh/nodepool": "gpus"})
    node = eventually("a node for the later pod", lambda: world.node_of("later") or None)
    assert node in world.brought()
    assert len(world.claims()) == 1
    assert world.is_gated("large")
    eventually("large is let go", lambda: world.step() and not world.is_gated("large"))
    node = eventually("large runs", lambda: world.node_of("large") or None)
    assert world.brought()[node]["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "g-16"
    assert len(world.claims()) == 2
    assert world.is_gated("first") != world.is_gated("second"), "who waits for room stays"


def test_a_node_that_came_is_planned_like_any_other(world: World) -> None:
    node = _brings_for(world, "large", 16)
    world.delete("large")
    world.add("a", 8)
    world.add("b", 8)
    world.add("c", 8)
    assert sorted(world.step().released.values()) == sorted([node, node, PRESENT])
    for name in "abc":
        eventually(f"{name} runs", lambda n=name: world.node_of(n))
    assert len(world.claims()) == 1


def test_a_node_on_its_way_out_gets_no_promise(world: World) -> None:
    node = _brings_for(world, "large", 16)
    world.delete("large")
    world.add("present", 8, nodeSelector={"kubernetes.io/hostname": PRESENT})
    world.add("stays", 8, annotations=KEPT)
    assert set(world.step().released.values()) == {PRESENT, node}
    eventually("it runs", lambda: world.node_of("stays") == node)
    world.plane.request("DELETE", f"{CLAIMS}/{world.claims()[0]['metadata']['name']}")

    def leaves() -> bool:
        body = world.brought()[node]
        taints = {taint["key"] for taint in body["spec"].get("taints") or ()}
        return (
            bool(body["metadata"].get("deletionTimestamp")) and "karpenter.sh/disrupted" in taints
        )

    eventually("Karpenter drains it", leaves)
    world.add("waits", 8, tolerations=[{"operator": "Exists"}])
    eventually("the planner has seen it", lambda: not world.step().released)
    assert world.is_gated("waits"), "8 GPUs are free where nobody goes any more"
    world.delete("stays")
    eventually("the node is gone", lambda: node not in world.brought(), 30.0)
    world.delete("present")
    eventually("its room is taken", lambda: world.step().released == {f"{SPACE}/waits": PRESENT})


def test_a_pin_to_a_node_that_was_taken_away_is_given_up_at_once(world: World) -> None:
    node = _brings_for(world, "large", 16)
    world.delete("large")
    world.plane.stop_process("binder")
    try:
        world.add("pinned", 16)
        assert world.step().released == {f"{SPACE}/pinned": node}
        for claim in world.claims():
            world.plane.request("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        eventually("the node is gone", lambda: node not in world.brought(), 30.0)
    finally:
        world.plane.start_binder()
    eventually("the pin is given up", lambda: world.step() and "pinned" not in world.seen(), 10.0)
    assert world.claims() == [], "a pod with a pin brings no node"
    assert _brings_for(world, "anew", 16) in world.brought()


def test_a_node_goes_to_the_pod_that_it_was_brought_for(world: World) -> None:
    """Even if a gated pod could be pinned to it before kube-scheduler looks again."""
    world.add("first", 16)
    world.step()
    eventually("first is let go", lambda: world.step() and not world.is_gated("first"))
    eventually("kube-scheduler has looked", lambda: world.is_unschedulable("first"))
    world.plane.stop_process("binder")
    try:
        world.add("second", 16)
        eventually("a node is ready for it", lambda: any(map(is_ready, world.brought().values())))
        seen = world.loop.reader.standing_nodes
        eventually("the planner sees it", lambda: seen() & world.brought().keys())
        assert not world.step().released
    finally:
        world.plane.start_binder()
    assert eventually("first runs", lambda: world.node_of("first") or None) in world.brought()
    assert world.is_gated("second")
    assert len(world.claims()) == 1


@pytest.mark.slow
def test_an_empty_node_is_given_back_by_karpenter(world: World) -> None:
    """Consolidation looks every 10 s and waits 15 s more before it acts."""
    node = _brings_for(world, "large", 16)
    world.add("small", 8)
    assert world.step().released == {f"{SPACE}/small": PRESENT}
    world.delete("large")
    eventually("the node is gone", lambda: node not in world.brought(), 60.0)
    eventually("it was given back", lambda: not world.claims())
    eventually("small runs", lambda: world.node_of("small") == PRESENT)
    world.step()
    assert _brings_for(world, "again", 16) != node
