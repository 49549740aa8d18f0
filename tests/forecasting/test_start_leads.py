"""The lead time of a forecast is that of the work which really runs there."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.startup_time import startup_time
from simulation.kube import EmbeddedKube
from tests.forecasting.test_forecaster_process import World
from tests.scheduler_plugin.placement_cluster import domain_object, node_object, pod_object
from wattpack.api import PowerDomain, WorkloadProfile
from wattpack.kube.port import NODES, PODS, ForbiddenError, ObjectList, Resource
from wattpack.object_names import CLASSIFIED_LABEL

SLOW, QUICK = "train-moe", "decoder-decode"


def lead_of(entry: str) -> float:
    return startup_time(shipped_catalogue()[entry]).quantile(0.95)


class Row(World):
    """One domain with a child; a forecast of each."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("a", "b", "elsewhere"):
            self.kube.create(NODES, node_object(name))
        self.domain("row", ["a"])
        self.domain("rack", ["b"], parent="row")
        self.add("row")
        self.add("rack", target={"powerDomain": "rack", "series": "domain:row"})

    def domain(self, name: str, nodes: list[str], **spec: Any) -> None:
        resource = PowerDomain.meta.resource
        body = self.kube.create(resource, domain_object(name, 1e5, nodes, **spec))
        body["status"] = {"acceptedSpec": body["spec"]}
        self.kube.replace(resource, body, subresource="status")

    def runs(
        self, name: str, workload: str, node: str, phase: str = "Running", space: str = "team"
    ) -> None:
        labels = {"wattpack.io/workload": workload} if workload else {}
        body = pod_object(name, labels=labels, nodeName=node)
        body["metadata"]["namespace"] = space
        made = self.kube.create(PODS, body, space)
        made["status"] = {"phase": phase}
        self.kube.replace(PODS, made, space, subresource="status")

    def profile(self, name: str, workload: str, space: str = "team") -> None:
        body = {
            "apiVersion": "wattpack.io/v1alpha1", "kind": "WorkloadProfile",
            "metadata": {"name": name, "namespace": space},
            "spec": {"kind": "Serving", "workload": workload, "kernelMix": {}},
        }  # fmt: skip
        self.kube.create(WorkloadProfile.meta.resource, body, space)

    def lead(self, name: str) -> dict[str, Any] | None:
        assert self.process.tick()
        return self.status(name).get("lead")


@pytest.fixture
def row() -> Row:
    return Row()


def test_a_domain_orders_as_far_ahead_as_the_slowest_start_below_it(row: Row) -> None:
    assert lead_of(SLOW) > lead_of(QUICK)
    row.runs("quick", QUICK, "a")
    row.runs("slow", SLOW, "b")
    row.runs("far", SLOW, "elsewhere")
    row.runs("also", QUICK, "b")
    found = row.lead("row")
    assert found is not None
    assert (found["workload"], found["kinds"]) == (SLOW, 2)
    assert found["seconds"] == pytest.approx(lead_of(SLOW), abs=0.1)


def test_only_what_runs_below_a_domain_counts_for_it(row: Row) -> None:
    row.runs("quick", QUICK, "b")
    row.runs("slow", SLOW, "a")
    row.runs("over", SLOW, "b", phase="Succeeded")
    row.runs("silent", "", "b")
    row.runs("wrong", "no-such-work", "b")
    found = row.lead("rack")
    assert found is not None
    assert (found["workload"], found["kinds"]) == (QUICK, 1)


def test_what_is_needed_within_the_lead_time_lies_below_the_window_s_highest_step(row: Row) -> None:
    row.runs("quick", QUICK, "a")
    found = row.lead("row")
    assert found is not None
    highest = {p["level"]: max(p["values"]) for p in row.status("row")["quantiles"]}
    assert 0 < found["p50"] < found["p95"] < found["p99"] <= highest[0.99]
    # At this hour the series rises: within minutes it needs less than within six hours.
    assert found["p50"] < highest[0.5]


def test_a_profile_names_the_entry_whose_start_counts(row: Row) -> None:
    row.profile("chat", SLOW)
    row.runs("mine", "chat", "a")
    found = row.lead("row")
    assert found is not None
    assert found["workload"] == "chat"
    assert found["seconds"] == pytest.approx(lead_of(SLOW), abs=0.1)


def test_profiles_of_one_name_in_two_namespaces_are_two_kinds_of_work(row: Row) -> None:
    for space, entry in (("a-team", SLOW), ("b-team", QUICK)):
        row.profile("chat", entry, space)
        row.runs("mine", "chat", "a", space=space)
    found = row.lead("row")
    assert found is not None
    assert found["seconds"] == pytest.approx(lead_of(SLOW), abs=0.1)
    assert found["kinds"] == 2


@pytest.mark.parametrize("confidence", [0.97, 0.9])
def test_a_profile_that_was_classified_speaks_for_pods_without_a_label_if_it_is_sure(
    row: Row, confidence: float
) -> None:
    row.runs("mine", "", "a", space="power")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "owner-of-mine"}
    body = {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "WorkloadProfile",
        "metadata": {
            "name": "replicaset-rs", "namespace": "power", "ownerReferences": [owner],
            "labels": {CLASSIFIED_LABEL: "bandwidth"},
        },
        "spec": {"kind": "Training", "workload": SLOW, "kernelMix": {}, "confidence": confidence},
    }  # fmt: skip
    row.kube.create(WorkloadProfile.meta.resource, body, "power")
    target = {"workload": "replicaset-rs", "series": "domain:row", "unit": "requests"}
    row.add("chat", target=target)
    for found in (row.lead("row"), row.status("chat").get("lead")):
        if confidence < 0.95:
            # The likeliest entry of a class may start three times as fast as what runs.
            assert found is None
        else:
            assert found is not None
            assert found["seconds"] == pytest.approx(lead_of(SLOW), abs=0.1)


def test_a_workload_s_forecast_takes_that_workload_s_start(row: Row) -> None:
    row.add("chat", target={"workload": QUICK, "series": "domain:row", "unit": "requests"})
    found = row.lead("chat")
    assert found is not None
    assert found["workload"] == QUICK


def test_a_window_that_ends_before_the_replica_works_has_the_lead_time_alone(row: Row) -> None:
    row.add("short", horizonSeconds=600, stepSeconds=600)
    row.runs("slow", SLOW, "a")
    row.clock.advance_seconds(590)
    found = row.lead("short")
    assert found is not None
    assert "p99" not in found


@pytest.mark.parametrize("workload", ["", "no-such-work"])
def test_where_nobody_says_what_runs_there_is_no_lead_time(row: Row, workload: str) -> None:
    row.runs("silent", workload, "a")
    assert row.lead("row") is None


def test_the_metric_says_the_same_and_goes_with_the_work(row: Row) -> None:
    row.runs("quick", QUICK, "a")
    found = row.lead("row")
    assert found is not None
    text = generate_latest(row.process.metrics.registry).decode()
    labels = f'name="row",namespace="power",workload="{QUICK}"'
    assert f"wattpack_forecast_lead_seconds{{{labels}}} {found['seconds']}" in text
    assert 'wattpack_forecast_lead_peak{level="0.99",name="row"' in text
    row.kube.delete(PODS, "quick", "team")
    row.clock.advance_seconds(600)
    assert row.lead("row") is None
    assert f'workload="{QUICK}"' not in generate_latest(row.process.metrics.registry).decode()


def test_a_forecaster_that_may_not_see_pods_still_forecasts(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    row.runs("quick", QUICK, "a")
    before = EmbeddedKube.list

    def refused(self: EmbeddedKube, resource: Resource, *args: Any, **kwargs: Any) -> ObjectList:
        if resource is PODS:
            raise ForbiddenError("pods is forbidden")
        return before(self, resource, *args, **kwargs)

    monkeypatch.setattr(EmbeddedKube, "list", refused)
    assert row.lead("row") is None
    assert row.ready("row")["status"] == "True"
