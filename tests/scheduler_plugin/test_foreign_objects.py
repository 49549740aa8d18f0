"""Objects of kinds that others define may hold anything in any field: they spoil no other."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_plugin.app.gang_reader import GangReader
from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects.kueue_workloads import (
    MOST_MEMBERS,
    activated,
    answered,
    asked_of_us,
)
from scheduler_plugin.kube_objects.power_view import PowerView
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import ClusterObjects, build_snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, node_object, pod_object
from tests.scheduler_plugin.test_gang_kinds import OWNERS
from wattpack.kube.port import JOBS, JsonObject

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    "x",
    "9" * 30,
    [],
    {},
    ["a"],
    [None],
    {"a": 1},
    10**30,
)
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": pod_object("t", 4)["spec"]}


def spoilt(body: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something else could stand, at any depth."""
    if where:
        yield where
    inner = (
        body.items()
        if isinstance(body, dict)
        else enumerate(body)
        if isinstance(body, list)
        else ()
    )
    for key, value in inner:
        yield from spoilt(value, (*where, key))


def with_junk(body: JsonObject, field: str) -> Iterator[JsonObject]:
    for where in spoilt(body.get(field, {}), (field,)):
        for junk in JUNK:
            odd = copy.deepcopy(body)
            at: Any = odd
            for key in where[:-1]:
                at = at[key]
            at[where[-1]] = junk
            yield odd


class Served:
    """An API that has these objects of one kind, and Jobs."""

    def __init__(self, *bodies: JsonObject, jobs: tuple[JsonObject, ...] = ()) -> None:
        self.bodies, self.jobs = bodies, jobs

    def objects(self, kinds: tuple[Any, ...]) -> tuple[JsonObject, ...]:
        return self.jobs if kinds == (JOBS,) else self.bodies


@pytest.mark.parametrize("name", OWNERS)
def test_an_owner_with_anything_in_any_field_hides_no_other_owners_size(name: str) -> None:
    marks, spec = OWNERS[name]
    pod = pod_object("p", **copy.deepcopy(marks))
    good = {"metadata": {"name": "g", "namespace": SPACE}, "spec": spec}
    said = _sizes(Served(good), pod)
    assert said
    for odd in with_junk(good, "spec"):
        odd["metadata"] = {"name": "odd", "namespace": SPACE}
        assert said.items() <= _sizes(Served(odd, good), pod).items()


def _sizes(served: Served, pod: JsonObject) -> dict[str, Any]:
    kinds: ServedKinds = served  # type: ignore[assignment]
    sizes = GangReader(kinds).sources([pod]).sizes
    (found,) = sizes.values()
    return dict(found)


def test_a_job_with_anything_in_any_field_stops_no_planning_of_job_sets() -> None:
    marks, spec = OWNERS["JobSet"]
    pod = pod_object("p", **copy.deepcopy(marks))
    good = {"metadata": {"name": "g", "namespace": SPACE}, "spec": spec}
    labels = {"jobset.sigs.k8s.io/jobset-name": "g"}
    job = {
        "metadata": {"name": "j", "namespace": SPACE, "labels": labels},
        "spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE},
        "status": {"succeeded": 1},
    }
    other = {"metadata": {"name": "other", "namespace": SPACE}, "spec": spec}
    for field in ("spec", "status"):
        for odd in with_junk(job, field):
            assert _sizes(Served(good, other, jobs=(odd,)), pod)[f"{SPACE}/other"].least == 3


WORKLOAD = {
    "metadata": {"name": "w", "uid": "u", "namespace": SPACE},
    "spec": {
        "priority": 1,
        "podSets": [
            {"name": "main", "count": 2, "template": TEMPLATE, "topologyRequest": {"required": "a"}}
        ],
    },
    "status": {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admissionChecks": [{"name": "places", "state": "Pending", "message": ""}],
        "admission": {
            "podSetAssignments": [
                {"name": "main", "count": 2, "flavors": {"nvidia.com/gpu": "flavor"}}
            ]
        },
        "reclaimablePods": [{"name": "main", "count": 1}],
    },
}
CHECK = {
    "metadata": {"name": "places"},
    "spec": {"controllerName": "wattpack.io/placement"},
    "status": {"conditions": [{"type": "Active", "status": "False"}]},
}
FLAVOR = {
    "metadata": {"name": "flavor"},
    "spec": {"nodeLabels": {"a": "b"}, "tolerations": [{"key": "x", "operator": "Exists"}]},
}


def answer_and_plan(odd: JsonObject, check: JsonObject, flavor: JsonObject) -> None:
    """The other Workload is asked about and planned, whatever stands in this one."""
    plain = copy.deepcopy(WORKLOAD)
    plain["metadata"] = {"name": "other", "uid": "o", "namespace": SPACE}
    del plain["status"]["admission"]  # type: ignore[attr-defined]
    asked = asked_of_us([odd, plain], [CHECK, check], [flavor])
    assert {a.label for a in asked} >= {"other"}
    assert all(answered(one, "Ready", "", "now") for one in asked)
    gangs = tuple(one.gang for one in asked if one.gang is not None)
    objects = ClusterObjects(
        nodes=(node_object("n"),), pods=(), power=PowerView((), ()), models={}, expected=gangs
    )
    planned = build_snapshot(objects, Ledger()).snapshot.pods
    assert sum(pod.gang == f"{SPACE}/gang/other" for pod in planned) == 1
    activated(check, "now")


@pytest.mark.parametrize("field", ["spec", "status"])
def test_a_workload_with_anything_in_any_field_spoils_no_other(field: str) -> None:
    for odd in with_junk(WORKLOAD, field):
        answer_and_plan(odd, CHECK, FLAVOR)


def test_checks_and_flavors_with_anything_in_any_field_spoil_no_workload() -> None:
    for field in ("spec", "status"):
        for odd in with_junk(CHECK, field):
            odd["metadata"] = {"name": "odd"}
            answer_and_plan(WORKLOAD, odd, FLAVOR)
    for odd in with_junk(FLAVOR, "spec"):
        answer_and_plan(WORKLOAD, CHECK, odd)


def test_a_workload_of_more_pods_than_can_be_planned_waits() -> None:
    huge = copy.deepcopy(WORKLOAD)
    huge["spec"]["podSets"][0]["count"] = 2**31 - 1  # type: ignore[index]
    del huge["status"]["admission"]  # type: ignore[attr-defined]
    assert asked_of_us([huge], [CHECK], [FLAVOR]) == []
    huge["spec"]["podSets"][0]["count"] = MOST_MEMBERS + 1  # type: ignore[index]
    assert len(asked_of_us([huge], [CHECK], [FLAVOR])) == 1
