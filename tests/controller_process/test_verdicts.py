"""Every refused object says so in its conditions, with the cause, also one that never ran."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from capacity.profile_library import gpu_profile_object, shipped_library
from controller.app.domain_status import FIELD_MANAGER, StatusThread
from controller.app.fleet import Fleet
from simulation.kube import EmbeddedKube
from tests.controller_process.messages import make_hello
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    OVERRIDES,
    POLICIES,
    Cluster,
    make_domain,
    make_node,
    make_object,
)
from wattpack.api import KINDS, CapacityPlan, DemandForecast, GPUProfile, WorkloadProfile
from wattpack.clock import ManualClock
from wattpack.kube.port import InvalidError, JsonObject, Resource

PUMP = {"name": "pump", "worstWatts": 20.0}
PROFILES = GPUProfile.meta.resource
WORKLOADS = WorkloadProfile.meta.resource
EXPIRES = "2999-01-01T00:00:00Z"


def override(watts: float = 300.0, until: str = EXPIRES, **target: str) -> JsonObject:
    spec = {"target": target, "capWatts": watts, "reason": "test", "expiresAt": until}
    return make_object("PowerOverride", "o", spec)


def profile(**spec: Any) -> JsonObject:
    body = gpu_profile_object(shipped_library().find("H200-SXM"), "")
    return make_object("GPUProfile", "h200", body["spec"] | spec)


def policy(**spec: Any) -> JsonObject:
    return make_object("PowerPolicy", "p", {"priority": 5, **spec})


def workload(name: str = "chat", **spec: Any) -> JsonObject:
    values = {"kind": "Serving", "kernelMix": {"prefill": 0.3, "decode": 0.7}, **spec}
    return make_object("WorkloadProfile", name, values, namespace="team")


VALID = {
    WORKLOADS: workload(),
    PROFILES: profile(),
    DOMAINS: make_domain(),
    POLICIES: policy(),
    OVERRIDES: override(node="node-1"),
}


class Bench:
    """A leading replica's status writer over an API that holds the objects."""

    def __init__(self, *objects: tuple[Resource, JsonObject], agents: bool = True) -> None:
        self.clock = ManualClock()
        self.api = EmbeddedKube(self.clock)
        self.cluster = Cluster((NODES, make_node("node-1")))
        self.fleet = Fleet()
        if agents:
            self.fleet.hello(make_hello("node-1"))
        for resource, body in objects:
            self.put(resource, body)
        self.status = StatusThread(
            self.api, self.clock, self.cluster.desired, "test", leading=lambda: True
        )

    def put(self, resource: Resource, body: JsonObject) -> None:
        try:
            stored = self.api.create(resource, body, _space(resource))
        except InvalidError:
            # As another version's schema let it in: stored whole, seen as it was written.
            spec = VALID[resource]["spec"]
            made = self.api.create(resource, {**body, "spec": spec}, _space(resource))
            stored = {**made, "spec": body["spec"]}
        self.cluster.put(resource, stored)

    def conditions(self, resource: Resource, name: str) -> dict[str, tuple[str, str, str]]:
        """Status, reason and message by type, ten seconds later."""
        for _ in range(10):
            self.clock.advance_seconds(1)
            self.cluster.desired.topology(self.fleet)
            self.status.run_once()
        stored = self.api.get(resource, name, _space(resource))
        found = (stored.get("status") or {}).get("conditions", [])
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}


def _space(resource: Resource) -> str | None:
    return "team" if resource.namespaced else None


REFUSED: list[tuple[Resource, JsonObject, str]] = [
    (DOMAINS, make_domain("x", parent="x"), "spec.parent"),
    (DOMAINS, make_domain("x", parent="nobody"), "nobody"),
    (DOMAINS, make_domain("x", loadDeclaredComplete=False), "loadDeclaredComplete"),
    (DOMAINS, make_domain("x", ratingWatts="much"), "ratingWatts"),
    (DOMAINS, make_domain("x", ratingWatts=10.0, members={}, externalLoads=[PUMP]), "I1"),
    (POLICIES, policy(floorFraction=0.0), "floorFraction"),
    (POLICIES, policy(requestFraction="all"), "requestFraction"),
    (POLICIES, policy(floorFraction=0.9, requestFraction=0.5), "spec.floorFraction"),
    (OVERRIDES, override(domain="nobody"), "nobody"),
    (OVERRIDES, override(node="nobody"), "nobody"),
    (OVERRIDES, override(gpuUuid="nobody"), "nobody"),
    (PROFILES, profile(maxLimitWatts=700_000.0), "maxLimitWatts"),
    (PROFILES, profile(idleWatts="little"), "idleWatts"),
    (OVERRIDES, override() | {"spec": {"target": {}}}, "spec.target"),
    (WORKLOADS, workload(kind="Gaming"), "kind"),
    (WORKLOADS, workload(kernelMix={"decode": 0.7, "prefill": 0.7}), "spec.kernelMix"),
    (WORKLOADS, workload(kernelMix={"raytracing": 1.0}), "raytracing"),
    (WORKLOADS, workload(workload="no-such-work"), "spec.workload"),
]


@pytest.mark.parametrize(("resource", "body", "cause"), REFUSED)
def test_a_refused_object_says_why_within_ten_seconds(
    resource: Resource, body: JsonObject, cause: str
) -> None:
    bench = Bench((resource, body), (DOMAINS, make_domain()))
    found = bench.conditions(resource, body["metadata"]["name"])
    status, reason, message = found["Accepted"]
    assert status == "False"
    assert reason
    assert cause in message
    assert found["Ready"][0] == "False"


@pytest.mark.parametrize(("resource", "body", "cause"), REFUSED)
def test_a_refused_object_keeps_none_of_the_others_from_running(
    resource: Resource, body: JsonObject, cause: str
) -> None:
    bench = Bench((resource, body), (DOMAINS, make_domain()))
    bench.conditions(resource, body["metadata"]["name"])
    topology = bench.cluster.desired.topology(bench.fleet)
    assert topology is not None
    assert topology.tree.names == ("row",)
    assert topology.node_names == ("node-1",)


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        (POLICIES, policy()),
        (PROFILES, profile()),
        (OVERRIDES, override(node="node-1")),
        (OVERRIDES, override(domain="row")),
    ],
)
def test_what_is_in_use_says_so_with_words(resource: Resource, body: JsonObject) -> None:
    bench = Bench((DOMAINS, make_domain()), (resource, body))
    found = bench.conditions(resource, body["metadata"]["name"])
    assert [found[kind][0] for kind in ("Accepted", "Ready")] == ["True", "True"]
    assert all(message for _, _, message in found.values())


def test_a_workload_profile_says_for_whom_it_counts() -> None:
    found = Bench((WORKLOADS, workload())).conditions(WORKLOADS, "chat")
    assert found["Accepted"][0] == "True"
    assert found["Ready"][:2] == ("True", "InUse")
    assert "wattpack.io/workload" in found["Ready"][2]


@pytest.mark.parametrize("resource", list(VALID))
def test_an_object_made_anew_under_the_same_name_is_told_as_the_first_was(
    resource: Resource,
) -> None:
    bench = Bench((resource, VALID[resource]), agents=False)
    name = VALID[resource]["metadata"]["name"]
    first = bench.conditions(resource, name)
    old = bench.api.get(resource, name, _space(resource))
    bench.api.delete(resource, name, _space(resource))
    bench.cluster.remove(resource, old)
    bench.put(resource, VALID[resource])
    assert bench.conditions(resource, name) == first
    assert first


def test_every_kind_with_a_ready_column_is_judged_by_some_process() -> None:
    """DemandForecast and CapacityPlan are the forecaster's; its own tests say the same of them."""
    judged = {*VALID, DemandForecast.meta.resource, CapacityPlan.meta.resource}
    shown = {k.meta.resource for k in KINDS if any(c.name == "Ready" for c in k.meta.columns)}
    assert shown == judged


def test_before_any_agent_a_domain_waits_and_a_circle_is_refused() -> None:
    bench = Bench((DOMAINS, make_domain()), (DOMAINS, make_domain("x", parent="x")), agents=False)
    assert bench.conditions(DOMAINS, "row")["Accepted"][:2] == ("Unknown", "WaitingForAgents")
    assert bench.conditions(DOMAINS, "x")["Accepted"][0] == "False"


def test_a_policy_that_becomes_refused_keeps_its_last_good_spec() -> None:
    bench = Bench((DOMAINS, make_domain()), (POLICIES, policy(selector={"namespaces": ["team"]})))
    good = bench.cluster.desired.topology(bench.fleet)
    stored = bench.api.get(POLICIES, "p")
    bad = {**stored, "spec": {"priority": 900, "floorFraction": 0.0}}
    bench.cluster.put(POLICIES, bad, stored)
    assert bench.conditions(POLICIES, "p")["Accepted"][0] == "False"
    kept = bench.cluster.desired.topology(bench.fleet)
    assert good is not None
    assert kept is not None
    assert kept.priority.tolist() == good.priority.tolist()


def test_what_was_accepted_before_is_not_erased_by_a_verdict() -> None:
    """A new leader that has heard no agent yet must not make placement forget the limits."""
    runs = make_domain()["spec"]
    bench = Bench(agents=False)
    stored = bench.api.create(DOMAINS, make_domain(loadDeclaredComplete=False))
    body = {**stored, "status": {"acceptedSpec": runs}}
    bench.cluster.put(DOMAINS, bench.api.replace(DOMAINS, body, subresource="status"))
    assert bench.conditions(DOMAINS, "row")["Accepted"][0] == "False"
    kept = bench.api.get(DOMAINS, "row")["status"]["acceptedSpec"]
    assert kept["ratingWatts"] == runs["ratingWatts"]


def test_an_unreadable_spec_of_a_domain_that_ran_leaves_the_accepted_one_running() -> None:
    runs = make_domain()["spec"]
    bench = Bench()
    body = make_domain(ratingWatts="much") | {"status": {"acceptedSpec": runs}}
    bench.cluster.put(DOMAINS, body)
    topology = bench.cluster.desired.topology(bench.fleet)
    assert topology is not None
    assert topology.tree.rating_watts.tolist() == [runs["ratingWatts"]]


def test_a_profile_object_moves_the_floor_and_a_refused_one_leaves_it() -> None:
    bench = Bench((DOMAINS, make_domain()), (PROFILES, profile(kneeWatts=500.0)))
    topology = bench.cluster.desired.topology(bench.fleet)
    assert topology is not None
    assert set(topology.floor_watts.tolist()) == {500.0}
    stored = bench.api.get(PROFILES, "h200")
    bench.cluster.put(PROFILES, {**stored, "spec": profile(kneeWatts=900.0)["spec"]}, stored)
    assert bench.conditions(PROFILES, "h200")["Accepted"][0] == "False"
    kept = bench.cluster.desired.topology(bench.fleet)
    assert kept is not None
    assert set(kept.floor_watts.tolist()) == {500.0}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (override(300.0, domain="row"), "300 W is less than 1 % of the rating of row"),
        (override(20.0, node="node-1"), "keep their lowest limit, "),
        (override(300.0, node="node-1", until="2001-01-01T00:00:00Z"), "expired"),
        (override(300.0, node="node-1"), "the newest spec is in use"),
    ],
)
def test_an_override_that_does_other_than_it_seems_says_so(body: JsonObject, said: str) -> None:
    bench = Bench((OVERRIDES, body), (DOMAINS, make_domain("row", ratingWatts=40_000.0)))
    status, _, message = bench.conditions(OVERRIDES, "o")["Accepted"]
    assert status == "True"
    assert said in message


def crowd(bench: Bench, resource: Resource, name: str, count: int) -> None:
    """Somebody else fills the object's status with conditions of their own."""
    stored = bench.api.get(resource, name, _space(resource))
    told = {"status": "True", "reason": "Test", "message": "theirs"}
    theirs = [{"type": f"Theirs{i}", **told} for i in range(count)]
    body = {key: stored[key] for key in ("apiVersion", "kind")} | {
        "metadata": {key: stored["metadata"].get(key) for key in ("name", "namespace")},
        "status": {"conditions": theirs},
    }
    crowded = bench.api.apply(
        resource, body, field_manager="somebody", namespace=_space(resource), subresource="status"
    )
    bench.cluster.put(resource, crowded, stored)


@pytest.mark.parametrize("resource", [r for r in VALID if r is not PROFILES])
def test_an_object_full_of_others_conditions_keeps_no_other_from_being_told(
    resource: Resource,
) -> None:
    """A status holds 16 conditions; a tenant may write those of its WorkloadProfile."""
    others = [(r, body) for r, body in VALID.items() if r is not resource]
    bench = Bench((resource, VALID[resource]), *others, agents=False)
    crowd(bench, resource, VALID[resource]["metadata"]["name"], 16)
    for other, body in others:
        assert "Accepted" in bench.conditions(other, body["metadata"]["name"])


@pytest.mark.parametrize("resource", list(VALID))
def test_others_conditions_stay_theirs(resource: Resource) -> None:
    bench = Bench((resource, VALID[resource]), agents=False)
    name = VALID[resource]["metadata"]["name"]
    crowd(bench, resource, name, 3)
    assert {"Theirs0", "Accepted"} <= bench.conditions(resource, name).keys()
    owners = bench.api.field_owners(resource, name, _space(resource))
    fields = [f for owner, owned in owners.items() if FIELD_MANAGER in str(owner) for f in owned]
    assert "Accepted" in str(fields)
    assert "Theirs0" not in str(fields)


def test_a_replica_that_leads_again_tells_what_another_leader_told_otherwise() -> None:
    """What it wrote in its earlier term says nothing of what stands there now."""
    aisle = make_domain("aisle")
    bench = Bench(*[(DOMAINS, d) for d in (make_domain(), aisle)])
    bench.put(OVERRIDES, override(domain="aisle"))
    terms = {"a": True, "b": False}
    replicas = {
        name: StatusThread(
            bench.api,
            bench.clock,
            bench.cluster.desired,
            name,
            leading=partial(terms.__getitem__, name),
        )
        for name in terms
    }

    def told_by(leader: str) -> tuple[str, str, str]:
        bench.cluster.desired.topology(bench.fleet)
        for name, replica in replicas.items():
            terms[name] = name == leader
            replica.run_once()
        bench.status = replicas[leader]
        return bench.conditions(OVERRIDES, "o")["Accepted"]

    first = told_by("a")
    assert first[0] == "True"
    bench.cluster.remove(DOMAINS, aisle)
    assert told_by("b")[1] == "NoSuchTarget"
    bench.cluster.put(DOMAINS, bench.api.get(DOMAINS, "aisle"))
    assert told_by("a") == first
