"""What every ``KubeApi`` does, whoever answers: one list of behaviours for all adapters.

A test module makes the adapter and runs ``BEHAVIOURS``; each behaviour gets a ``Bench`` with a
namespace of its own and unique names, so that they can share a server.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from wattpack.api import PowerDomain, PowerOverride
from wattpack.kube.port import (
    LEASES,
    NODES,
    PODS,
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    KubeApi,
    KubeError,
    NotFoundError,
    Resource,
    WatchEvent,
)

DOMAINS = PowerDomain.meta.resource
OVERRIDES = PowerOverride.meta.resource
Json = dict[str, Any]


@dataclass
class Bench:
    """An adapter, a namespace that exists, and names that nobody else uses."""

    api: KubeApi
    namespace: str
    prefix: str
    counter: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"{self.prefix}-{next(self.counter)}"

    def pod(self, **spec: Any) -> Json:
        container = {"name": "main", "image": "example.invalid/work:1"}
        metadata = {"name": self.name(), "namespace": self.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container], **spec},
        }

    def create_pod(self, **spec: Any) -> Json:
        return self.api.create(PODS, self.pod(**spec), self.namespace)

    def domain(self, **spec: Any) -> Json:
        return {
            "apiVersion": "wattpack.io/v1alpha1",
            "kind": "PowerDomain",
            "metadata": {"name": self.name()},
            "spec": {"ratingWatts": 1000, **spec},
        }

    def create_domain(self, **spec: Any) -> Json:
        return self.api.create(DOMAINS, self.domain(**spec))

    def changes(
        self, resource: Resource, version: str, count: int, **where: Any
    ) -> list[WatchEvent]:
        """The first changes after a version, bookmarks left out."""
        stream = self.api.watch(resource, version, timeout_seconds=5, **where)
        return list(itertools.islice((e for e in stream if e.type != "BOOKMARK"), count))


def name_of(body: Json) -> str:
    return str(body["metadata"]["name"])


def a_created_object_has_identity_and_can_be_read(bench: Bench) -> None:
    created = bench.create_domain()
    metadata = created["metadata"]
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"].endswith("Z")
    assert bench.api.get(DOMAINS, name_of(created)) == created


def a_second_create_of_a_name_is_refused(bench: Bench) -> None:
    created = bench.create_domain()
    body = {**bench.domain(), "metadata": {"name": name_of(created)}}
    with pytest.raises(AlreadyExistsError):
        bench.api.create(DOMAINS, body)


def a_missing_object_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        bench.api.get(DOMAINS, bench.name())
    with pytest.raises(NotFoundError):
        bench.api.delete(DOMAINS, bench.name())


def defaults_of_the_schema_are_filled_in(bench: Bench) -> None:
    spec = bench.create_domain(breaker={"coolingSeconds": 900})["spec"]
    assert spec["enforcement"] == "DryRun"
    assert spec["breaker"]["curve"] == "RackThermal"
    assert spec["breaker"]["coolingSeconds"] == 900


def an_unknown_field_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(InvalidError, match="ratingKilowatts"):
        bench.create_domain(ratingKilowatts=1)


def a_value_out_of_bounds_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(InvalidError, match="ratingWatts"):
        bench.create_domain(ratingWatts=-1)


def a_value_of_the_wrong_type_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(InvalidError, match="ratingWatts"):
        bench.create_domain(ratingWatts="1000")


def a_validator_across_fields_is_enforced(bench: Bench) -> None:
    with pytest.raises(InvalidError, match=r"points: .*with curve Points"):
        bench.create_domain(breaker={"curve": "Points"})


def an_immutable_field_cannot_be_changed(bench: Bench) -> None:
    body = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerOverride",
        "metadata": {"name": bench.name()},
        "spec": {
            "target": {"node": "a"},
            "capWatts": 300,
            "reason": "test",
            "expiresAt": "2030-01-01T00:00:00Z",
        },
    }
    created = bench.api.create(OVERRIDES, body)
    created["spec"]["target"] = {"node": "b"}
    with pytest.raises(InvalidError, match="cannot be changed"):
        bench.api.replace(OVERRIDES, created)


def a_replace_of_an_old_version_conflicts(bench: Bench) -> None:
    first = bench.create_domain()
    second = bench.api.replace(DOMAINS, {**first, "spec": {**first["spec"], "ratingWatts": 2000}})
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    with pytest.raises(ConflictError):
        bench.api.replace(DOMAINS, {**first, "spec": {**first["spec"], "ratingWatts": 3000}})


def a_replace_without_a_version_is_refused_for_our_kinds(bench: Bench) -> None:
    created = bench.create_domain()
    del created["metadata"]["resourceVersion"]
    with pytest.raises(InvalidError, match="resourceVersion"):
        bench.api.replace(DOMAINS, created)


def a_replace_that_changes_nothing_is_no_write(bench: Bench) -> None:
    created = bench.create_domain()
    assert (
        bench.api.replace(DOMAINS, created)["metadata"]["resourceVersion"]
        == (created["metadata"]["resourceVersion"])
    )


def the_generation_counts_changes_of_the_spec_only(bench: Bench) -> None:
    created = bench.create_domain()
    labelled = {**created, "metadata": {**created["metadata"], "labels": {"a": "b"}}}
    labelled = bench.api.replace(DOMAINS, labelled)
    assert labelled["metadata"]["generation"] == 1
    labelled["status"] = {"drawWatts": 5}
    reported = bench.api.replace(DOMAINS, labelled, subresource="status")
    assert reported["metadata"]["generation"] == 1
    reported["spec"]["ratingWatts"] = 1500
    assert bench.api.replace(DOMAINS, reported)["metadata"]["generation"] == 2


def the_status_is_written_only_through_its_subresource(bench: Bench) -> None:
    body = {**bench.domain(), "status": {"drawWatts": 1}}
    created = bench.api.create(DOMAINS, body)
    assert not created.get("status")
    created["status"] = {"drawWatts": 2}
    assert not bench.api.replace(DOMAINS, created).get("status")
    created["spec"]["ratingWatts"] = 5000
    reported = bench.api.replace(DOMAINS, created, subresource="status")
    assert reported["status"]["drawWatts"] == 2
    assert reported["spec"]["ratingWatts"] == 1000


def a_list_is_filtered_by_labels(bench: Bench) -> None:
    for tier in ("gold", "silver"):
        pod = bench.pod()
        pod["metadata"]["labels"] = {"tier": tier, "bench": bench.prefix}
        bench.api.create(PODS, pod, bench.namespace)

    def count(selector: str) -> int:
        return len(bench.api.list(PODS, bench.namespace, f"bench={bench.prefix},{selector}").items)

    assert count("tier=gold") == 1
    assert count("tier!=gold") == 1
    assert count("tier in (gold,silver)") == 2
    assert count("tier notin (gold)") == 1
    assert count("tier") == 2
    assert count("!tier") == 0


def a_list_is_filtered_by_fields(bench: Bench) -> None:
    one, other = bench.create_pod(), bench.create_pod()

    def names(selector: str) -> set[str]:
        return set(map(name_of, bench.api.list(PODS, bench.namespace, "", selector).items))

    assert names(f"metadata.name={name_of(one)}") == {name_of(one)}
    assert name_of(one) not in names(f"metadata.name!={name_of(one)}")
    assert {name_of(one), name_of(other)} <= names("spec.nodeName=,status.phase=Pending")


def an_unknown_field_selector_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidError):
        bench.api.list(PODS, bench.namespace, "", "spec.containers=main")


def a_watch_tells_each_change_once_and_in_order(bench: Bench) -> None:
    start = bench.api.list(DOMAINS).resource_version
    created = bench.create_domain()
    created["spec"]["ratingWatts"] = 2000
    bench.api.replace(DOMAINS, created)
    bench.api.delete(DOMAINS, name_of(created))
    where = {"field_selector": f"metadata.name={name_of(created)}"}
    events = bench.changes(DOMAINS, start, 3, **where)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))


def a_watch_tells_when_an_object_leaves_its_selector(bench: Bench) -> None:
    start = bench.api.list(DOMAINS).resource_version
    body = bench.domain()
    body["metadata"]["labels"] = {"watched": bench.prefix}
    created = bench.api.create(DOMAINS, body)
    created["metadata"]["labels"] = {}
    bench.api.replace(DOMAINS, created)
    events = bench.changes(DOMAINS, start, 2, label_selector=f"watched={bench.prefix}")
    assert [event.type for event in events] == ["ADDED", "DELETED"]


def a_watch_ends_at_its_time_out(bench: Bench) -> None:
    start = bench.api.list(DOMAINS).resource_version
    stream = bench.api.watch(DOMAINS, start, timeout_seconds=1)
    assert all(event.type == "BOOKMARK" for event in stream)


def a_garbled_version_is_refused(bench: Bench) -> None:
    with pytest.raises(KubeError):
        list(bench.api.watch(DOMAINS, "not-a-version", timeout_seconds=1))


def an_apply_creates_and_then_changes(bench: Bench) -> None:
    body = bench.domain()
    created = bench.api.apply(DOMAINS, body, field_manager="one")
    assert created["spec"]["ratingWatts"] == 1000
    body["spec"]["ratingWatts"] = 1200
    assert bench.api.apply(DOMAINS, body, field_manager="one")["spec"]["ratingWatts"] == 1200


def an_apply_that_changes_nothing_is_no_write(bench: Bench) -> None:
    body = bench.domain()
    first = bench.api.apply(DOMAINS, body, field_manager="one")
    again = bench.api.apply(DOMAINS, body, field_manager="one")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def an_applied_field_that_is_no_longer_named_is_given_up(bench: Bench) -> None:
    body = bench.domain(phases=3)
    body["metadata"]["labels"] = {"kept": "1", "dropped": "1"}
    bench.api.apply(DOMAINS, body, field_manager="one")
    body["metadata"]["labels"] = {"kept": "1"}
    del body["spec"]["phases"]
    after = bench.api.apply(DOMAINS, body, field_manager="one")
    assert after["metadata"]["labels"] == {"kept": "1"}
    assert after["spec"]["phases"] == 1, "the default is back"


def a_field_that_another_manager_owns_too_stays(bench: Bench) -> None:
    body = bench.domain()
    body["metadata"]["labels"] = {"shared": "1"}
    bench.api.apply(DOMAINS, body, field_manager="one")
    bench.api.apply(DOMAINS, body, field_manager="two")
    body["metadata"].pop("labels")
    after = bench.api.apply(DOMAINS, body, field_manager="one")
    assert after["metadata"]["labels"] == {"shared": "1"}


def an_unforced_apply_conflicts_with_the_owner_of_a_field(bench: Bench) -> None:
    body = bench.domain()
    bench.api.apply(DOMAINS, body, field_manager="one")
    body["spec"]["ratingWatts"] = 1300
    with pytest.raises(ConflictError, match="ratingWatts"):
        bench.api.apply(DOMAINS, body, field_manager="two", force=False)
    forced = bench.api.apply(DOMAINS, body, field_manager="two")
    assert forced["spec"]["ratingWatts"] == 1300
    body["spec"]["ratingWatts"] = 1000
    with pytest.raises(ConflictError, match="ratingWatts"):
        bench.api.apply(DOMAINS, body, field_manager="one", force=False)


def two_managers_share_a_list_of_conditions(bench: Bench) -> None:
    created = bench.create_domain()

    def condition(kind: str, status: str) -> Json:
        entry = {"type": kind, "status": status, "reason": "Test"}
        return {
            "apiVersion": created["apiVersion"],
            "kind": created["kind"],
            "metadata": {"name": name_of(created)},
            "status": {"conditions": [entry]},
        }

    for manager, kind in (("one", "Ready"), ("two", "Accepted")):
        bench.api.apply(
            DOMAINS, condition(kind, "True"), field_manager=manager, subresource="status"
        )
    after = bench.api.apply(
        DOMAINS, condition("Ready", "False"), field_manager="one", subresource="status"
    )
    states = {entry["type"]: entry["status"] for entry in after["status"]["conditions"]}
    assert states == {"Ready": "False", "Accepted": "True"}
    emptied = condition("Ready", "True")
    emptied["status"] = {"drawWatts": 3}
    after = bench.api.apply(DOMAINS, emptied, field_manager="one", subresource="status")
    assert [entry["type"] for entry in after["status"]["conditions"]] == ["Accepted"]


def an_applied_status_leaves_the_spec_alone(bench: Bench) -> None:
    created = bench.create_domain()
    body = {
        "apiVersion": created["apiVersion"],
        "kind": created["kind"],
        "metadata": {"name": name_of(created)},
        "status": {"drawWatts": 700},
    }
    after = bench.api.apply(DOMAINS, body, field_manager="one", subresource="status")
    assert after["status"]["drawWatts"] == 700
    assert after["spec"] == created["spec"]
    assert after["metadata"]["generation"] == 1


def a_status_of_a_missing_object_is_not_found(bench: Bench) -> None:
    body = {**bench.domain(), "status": {"drawWatts": 1}}
    with pytest.raises(NotFoundError):
        bench.api.apply(DOMAINS, body, field_manager="one", subresource="status")


def a_json_patch_applies_all_operations_or_none(bench: Bench) -> None:
    created = bench.create_domain()
    name = name_of(created)
    good = {"op": "replace", "path": "/spec/ratingWatts", "value": 4000}
    with pytest.raises(InvalidError):
        bench.api.patch_json(DOMAINS, name, [good, {"op": "remove", "path": "/spec/nothing"}])
    assert bench.api.get(DOMAINS, name)["spec"]["ratingWatts"] == 1000
    test = {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]}
    assert bench.api.patch_json(DOMAINS, name, [test, good])["spec"]["ratingWatts"] == 4000


def a_json_patch_whose_test_fails_conflicts(bench: Bench) -> None:
    created = bench.create_domain()
    operations: list[Json] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "0"},
        {"op": "replace", "path": "/spec/ratingWatts", "value": 4000},
    ]
    with pytest.raises(ConflictError):
        bench.api.patch_json(DOMAINS, name_of(created), operations)
    assert bench.api.get(DOMAINS, name_of(created))["spec"]["ratingWatts"] == 1000


def a_delete_with_another_uid_conflicts(bench: Bench) -> None:
    created = bench.create_domain()
    with pytest.raises(ConflictError):
        bench.api.delete(DOMAINS, name_of(created), uid="00000000-0000-4000-8000-000000000000")
    bench.api.delete(DOMAINS, name_of(created), uid=created["metadata"]["uid"])
    with pytest.raises(NotFoundError):
        bench.api.get(DOMAINS, name_of(created))


def a_finalizer_holds_an_object_until_it_is_removed(bench: Bench) -> None:
    body = bench.domain()
    body["metadata"]["finalizers"] = ["wattpack.io/restore-caps"]
    name = name_of(bench.api.create(DOMAINS, body))
    bench.api.delete(DOMAINS, name)
    terminating = bench.api.get(DOMAINS, name)
    assert terminating["metadata"]["deletionTimestamp"]
    bench.api.patch_json(DOMAINS, name, [{"op": "remove", "path": "/metadata/finalizers"}])
    with pytest.raises(NotFoundError):
        bench.api.get(DOMAINS, name)


def a_gate_can_be_removed_and_the_pod_pinned_in_one_patch(bench: Bench) -> None:
    pod = bench.create_pod(schedulingGates=[{"name": "wattpack.io/placement"}])
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "add", "path": "/spec/affinity", "value": affinity},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]
    after = bench.api.patch_json(PODS, name_of(pod), operations, bench.namespace)
    assert not after["spec"].get("schedulingGates")
    assert after["spec"]["affinity"] == affinity
    assert not after["status"].get("conditions")


def a_dry_run_of_a_patch_is_judged_and_stores_nothing(bench: Bench) -> None:
    pod = bench.create_pod(schedulingGates=[{"name": "wattpack.io/placement"}])
    place: Json = {"namespace": bench.namespace, "dry_run": True}
    released = [{"op": "remove", "path": "/spec/schedulingGates"}]
    after = bench.api.patch_json(PODS, name_of(pod), released, **place)
    assert not after["spec"].get("schedulingGates")
    stored = bench.api.get(PODS, name_of(pod), bench.namespace)
    assert stored["spec"]["schedulingGates"] == [{"name": "wattpack.io/placement"}]
    assert stored["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    renamed = [{"op": "replace", "path": "/spec/containers/0/name", "value": "other"}]
    with pytest.raises(InvalidError):
        bench.api.patch_json(PODS, name_of(pod), renamed, **place)
    stale = [{"op": "test", "path": "/metadata/resourceVersion", "value": "0"}, *released]
    with pytest.raises(ConflictError):
        bench.api.patch_json(PODS, name_of(pod), stale, **place)
    with pytest.raises(NotFoundError):
        bench.api.patch_json(PODS, bench.name(), released, **place)


def a_gate_cannot_be_added_later(bench: Bench) -> None:
    pod = bench.create_pod()
    gates = [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "a.io/b"}]}]
    with pytest.raises(InvalidError, match=r"schedulingGates|spec"):
        bench.api.patch_json(PODS, name_of(pod), gates, bench.namespace)


def node_affinity_of_an_ungated_pod_cannot_change(bench: Bench) -> None:
    pod = bench.create_pod()
    selector = [{"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}]
    with pytest.raises(InvalidError):
        bench.api.patch_json(PODS, name_of(pod), selector, bench.namespace)


def node_affinity_of_a_gated_pod_cannot_be_loosened(bench: Bench) -> None:
    gates = [{"name": "wattpack.io/placement"}]
    pod = bench.create_pod(schedulingGates=gates, nodeSelector={"zone": "a"})
    path = {"path": "/spec/nodeSelector/zone"}
    with pytest.raises(InvalidError):
        bench.api.patch_json(PODS, name_of(pod), [{"op": "remove", **path}], bench.namespace)
    tighter = [{"op": "add", "path": "/spec/nodeSelector/disk", "value": "ssd"}]
    after = bench.api.patch_json(PODS, name_of(pod), tighter, bench.namespace)
    assert after["spec"]["nodeSelector"] == {"zone": "a", "disk": "ssd"}


def an_evicted_pod_goes_away(bench: Bench) -> None:
    pod = bench.create_pod()
    bench.api.evict(name_of(pod), bench.namespace, uid=pod["metadata"]["uid"])
    with pytest.raises(NotFoundError):
        bench.api.get(PODS, name_of(pod), bench.namespace)


def an_eviction_of_another_uid_conflicts(bench: Bench) -> None:
    pod = bench.create_pod()
    with pytest.raises(ConflictError):
        bench.api.evict(name_of(pod), bench.namespace, uid="00000000-0000-4000-8000-000000000000")


def a_lease_is_taken_by_compare_and_swap(bench: Bench) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": bench.name(), "namespace": bench.namespace},
        "spec": {"holderIdentity": "a", "leaseTransitions": 1, "leaseDurationSeconds": 15},
    }
    created = bench.api.create(LEASES, body, bench.namespace)
    created["spec"]["holderIdentity"] = "b"
    bench.api.replace(LEASES, created, bench.namespace)
    created["spec"]["holderIdentity"] = "c"
    with pytest.raises(ConflictError):
        bench.api.replace(LEASES, created, bench.namespace)


def node_status_is_written_apart(bench: Bench) -> None:
    name = bench.name()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
    bench.api.create(NODES, node)
    body = {**node, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    del body["spec"]
    after = bench.api.apply(NODES, body, field_manager="kubelet", subresource="status")
    assert after["status"]["capacity"]["nvidia.com/gpu"] == "8"
    bench.api.delete(NODES, name)


BEHAVIOURS: tuple[Callable[[Bench], None], ...] = (
    a_created_object_has_identity_and_can_be_read,
    a_second_create_of_a_name_is_refused,
    a_missing_object_is_not_found,
    defaults_of_the_schema_are_filled_in,
    an_unknown_field_is_refused_by_name,
    a_value_out_of_bounds_is_refused_by_name,
    a_value_of_the_wrong_type_is_refused_by_name,
    a_validator_across_fields_is_enforced,
    an_immutable_field_cannot_be_changed,
    a_replace_of_an_old_version_conflicts,
    a_replace_without_a_version_is_refused_for_our_kinds,
    a_replace_that_changes_nothing_is_no_write,
    the_generation_counts_changes_of_the_spec_only,
    the_status_is_written_only_through_its_subresource,
    a_list_is_filtered_by_labels,
    a_list_is_filtered_by_fields,
    an_unknown_field_selector_is_refused,
    a_watch_tells_each_change_once_and_in_order,
    a_watch_tells_when_an_object_leaves_its_selector,
    a_watch_ends_at_its_time_out,
    a_garbled_version_is_refused,
    an_apply_creates_and_then_changes,
    an_apply_that_changes_nothing_is_no_write,
    an_applied_field_that_is_no_longer_named_is_given_up,
    a_field_that_another_manager_owns_too_stays,
    an_unforced_apply_conflicts_with_the_owner_of_a_field,
    two_managers_share_a_list_of_conditions,
    an_applied_status_leaves_the_spec_alone,
    a_status_of_a_missing_object_is_not_found,
    a_json_patch_applies_all_operations_or_none,
    a_json_patch_whose_test_fails_conflicts,
    a_delete_with_another_uid_conflicts,
    a_finalizer_holds_an_object_until_it_is_removed,
    a_gate_can_be_removed_and_the_pod_pinned_in_one_patch,
    a_dry_run_of_a_patch_is_judged_and_stores_nothing,
    a_gate_cannot_be_added_later,
    node_affinity_of_an_ungated_pod_cannot_change,
    node_affinity_of_a_gated_pod_cannot_be_loosened,
    an_evicted_pod_goes_away,
    an_eviction_of_another_uid_conflicts,
    a_lease_is_taken_by_compare_and_swap,
    node_status_is_written_apart,
)
