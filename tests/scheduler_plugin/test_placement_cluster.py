"""The planner against an embedded API: gated, planned, pinned, bound; and leaving."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app.release import release_all, uninstall
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    events,
    gang_pod,
    plans,
    pod_object,
)
from wattpack.kube.port import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    JsonObject,
    NotFoundError,
    Resource,
)
from wattpack.object_names import GATE, OPT_IN_LABEL, OPT_IN_VALUE


def test_a_managed_pod_is_gated_planned_pinned_and_bound(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 2))
    assert pod_facts.gates(cluster.pod("p")) == [GATE]
    result = cluster.loop.step()
    assert list(result.released) == [f"{SPACE}/p"]
    assert pod_facts.gates(cluster.pod("p")) == []
    assert pod_facts.pinned_node(cluster.pod("p")) == result.released[f"{SPACE}/p"]
    cluster.bind()
    assert pod_facts.node_name(cluster.pod("p")) == result.released[f"{SPACE}/p"]
    assert cluster.loop.step().outcome == "idle"
    assert cluster.loop.ledger.promises == {}


def test_promises_are_written_before_the_first_pod_is_released() -> None:
    cluster = Cluster()
    written: list[str] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

        def create(self, resource: Resource, *rest: Any) -> JsonObject:
            written.append(resource.plural)
            return cluster.api.create(resource, *rest)

        def patch_json(self, resource: Resource, *rest: Any, **options: Any) -> JsonObject:
            written.append(resource.plural)
            return cluster.api.patch_json(resource, *rest, **options)

    cluster.loop = cluster.new_loop(Recording())  # type: ignore[arg-type]
    cluster.add_nodes("n1")
    cluster.add(pod_object("p"))
    cluster.loop.step()
    assert written == ["placementplans", "pods"]
    spec = plans(cluster)[0]["spec"]
    assert [(p["name"], p["node"]) for p in spec["promises"]] == [("p", "n1")]
    assert plans(cluster)[0]["status"]["state"] == "Applied"


def test_nothing_is_promised_twice_before_pods_are_bound(cluster: Cluster) -> None:
    for i in range(4):
        cluster.add(pod_object(f"a{i}", 4))
    assert len(cluster.loop.step().released) == 4
    cluster.add(pod_object("late", 1))
    result = cluster.loop.step()
    assert result.released == {}
    assert result.pending[f"{SPACE}/late"][0] == "InsufficientGpus"


def test_a_pod_left_pending_gets_its_reason_as_event_and_in_the_plan(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    assert events(cluster)[0][1].startswith("LargerThanAnyNode: no eligible node has 16 GPUs")
    assert plans(cluster)[0]["spec"]["pending"][0]["reason"] == "LargerThanAnyNode"


def test_an_unchanged_question_is_not_asked_again(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    assert cluster.loop.step().outcome == "planned"
    again = cluster.loop.step()
    assert again.outcome == "unchanged"
    assert f"{SPACE}/p" in again.pending
    assert len(events(cluster)) == len(plans(cluster)) == 1
    cluster.add(pod_object("q", 1))
    assert cluster.loop.step().outcome == "planned"


def test_a_bare_pod_only_prefers_its_node(cluster: Cluster) -> None:
    cluster.add(pod_object("p", owned=False))
    cluster.loop.step()
    affinity = cluster.pod("p")["spec"]["affinity"]["nodeAffinity"]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]


def test_every_required_term_is_pinned(cluster: Cluster) -> None:
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [n]}]}
        for n in ("n2", "n3")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    cluster.add(pod_object("p", affinity={"nodeAffinity": required}))
    cluster.loop.step()
    pinned = cluster.pod("p")["spec"]["affinity"]["nodeAffinity"]
    pinned_terms = pinned["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [t["matchFields"][0]["values"] for t in pinned_terms] == [["n2"], ["n2"]]


def test_an_empty_term_which_matches_nothing_stays_so_and_the_others_are_pinned(
    cluster: Cluster,
) -> None:
    """The API server lets nobody add to it, and with our pin it would match the node."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}, {}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    cluster.add(pod_object("p", affinity={"nodeAffinity": required}))
    (node,) = cluster.loop.step().released.values()
    pinned = cluster.pod("p")["spec"]["affinity"]["nodeAffinity"]
    first, second = pinned["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert first["matchFields"][0]["values"] == [node]
    assert second == {}
    assert pod_facts.pinned_node(cluster.pod("p")) == node


def test_shadow_mode_reports_and_touches_no_pod() -> None:
    cluster = Cluster(Mode.SHADOW)
    cluster.add_nodes("n1")
    metadata = {"name": SPACE, "labels": {OPT_IN_LABEL: OPT_IN_VALUE}}
    cluster.add(pod_object("p", 16))
    assert cluster.loop.step().outcome == "idle"
    cluster.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.add(pod_object("q", 1))
    before = [cluster.pod("p"), cluster.pod("q")]
    result = cluster.loop.step()
    assert result.released == {}
    assert [cluster.pod("p"), cluster.pod("q")] == before
    assert plans(cluster)[0]["spec"].get("promises", []) == []
    assert plans(cluster)[0]["spec"]["pending"][0]["name"] == "p"


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_leaving_manage_releases_what_was_held(mode: Mode) -> None:
    cluster = Cluster()
    cluster.add(pod_object("p"))
    assert pod_facts.is_gated(cluster.pod("p"))
    cluster.settings = PlacementSettings(mode=mode)
    cluster.loop = cluster.new_loop()
    cluster.loop.step()
    assert not pod_facts.is_gated(cluster.pod("p"))


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_whom_an_old_replica_gates_after_leaving_manage_is_released_too(mode: Mode) -> None:
    cluster = Cluster()
    manages, cluster.settings = cluster.settings, PlacementSettings(mode=mode)
    cluster.loop = cluster.new_loop()
    cluster.loop.step()
    cluster.settings = manages
    cluster.add(pod_object("late"))
    assert pod_facts.is_gated(cluster.pod("late"))
    cluster.loop.step()
    assert not pod_facts.is_gated(cluster.pod("late"))


def test_mode_off_does_nothing() -> None:
    cluster = Cluster(Mode.OFF)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().outcome == "idle"


def test_release_all_leaves_no_gated_pod_and_serves_plain_pods_before_gangs(
    cluster: Cluster,
) -> None:
    cluster.add(gang_pod("a-member", 2))
    cluster.add(gang_pod("b-member", 2))
    cluster.add(pod_object("z-plain"))
    order: list[str] = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

        def patch_json(
            self, resource: Resource, name: str, *rest: Any, **options: Any
        ) -> JsonObject:
            order.append(name)
            return cluster.api.patch_json(resource, name, *rest, **options)

    outcome = release_all(Watching())  # type: ignore[arg-type]
    assert (outcome.released, outcome.left) == (3, 0)
    assert order == ["z-plain", "a-member", "b-member"]
    assert not any(pod_facts.is_gated(pod) for pod in cluster.api.list(PODS).items)


def test_uninstall_removes_the_webhook_first(cluster: Cluster) -> None:
    name = "wattpack-placement"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [],
    }
    cluster.api.create(MUTATING_WEBHOOKS, body)
    cluster.add(pod_object("p"))
    assert uninstall(cluster.api, name).left == 0
    with pytest.raises(NotFoundError):
        cluster.api.get(MUTATING_WEBHOOKS, name)
    assert uninstall(cluster.api, name).released == 0
