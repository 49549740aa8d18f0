"""What no present node can serve is asked for by ProvisioningRequest, where that is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.provisioner import ORPHAN_SECONDS, POD_TEMPLATES
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.under_way_reader import KEPT_SECONDS, PROVISIONING_REQUESTS
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.kube_objects.provisioning_requests import (
    Demand,
    OwnRequest,
    Stage,
    own_requests,
    pod_templates,
    request_body,
)
from scheduler_plugin.promises.provisioning import (
    HOUR_SECONDS,
    Verdict,
    Wait,
    answer,
    next_free_seconds,
)
from scheduler_plugin.promises.provisioning_settings import ProvisioningSettings
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    events,
    gang_pod,
    pod_object,
)
from tests.scheduler_plugin.test_foreign_objects import with_junk
from wattpack.errors import InputError
from wattpack.kube.port import (
    NAMESPACES,
    PODS,
    ForbiddenError,
    JsonObject,
    KubeApi,
    NotFoundError,
    ObjectList,
    Resource,
    UnavailableError,
)
from wattpack.times import rfc3339

REQUESTS = PROVISIONING_REQUESTS[0]
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PATIENCE_SECONDS = 61.0
ON = {"enabled": True}


def made_cluster(mode: Mode = Mode.MANAGE, **limits: Any) -> Cluster:
    cluster = Cluster(mode, provisioning=ON | limits)
    cluster.add_nodes("n1", "n2")
    return cluster


def pass_seconds(cluster: Cluster, seconds: float = KEPT_SECONDS) -> dict[str, str]:
    """Reasons by pod's name after so long."""
    cluster.clock.advance_seconds(seconds)
    result = cluster.loop.step()
    assert result.outcome != "failed"
    return {key.partition("/")[2]: reason for key, (reason, _) in result.pending.items()}


def ask(cluster: Cluster) -> JsonObject:
    """Wait until the one request is made."""
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    (request,) = requests(cluster)
    return request


def requests(cluster: Cluster) -> Sequence[JsonObject]:
    return cluster.api.list(REQUESTS).items


def say(cluster: Cluster, *conditions: str, message: str = "") -> None:
    """The autoscaler answers every request."""
    now = rfc3339(cluster.clock.wall_time_ns())
    told = [
        {"type": each, "status": "True", "message": message, "lastTransitionTime": now}
        for each in conditions
    ]
    for body in requests(cluster):
        answered = {**body, "status": {"conditions": told}}
        cluster.api.replace(REQUESTS, answered, SPACE)


def marks(cluster: Cluster, name: str) -> dict[str, str]:
    return dict(cluster.pod(name)["metadata"].get("annotations") or {})


def is_gated(cluster: Cluster, name: str) -> bool:
    return bool(cluster.pod(name)["spec"].get("schedulingGates"))


def outcomes(cluster: Cluster) -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for metric in cluster.loop.metrics.provisioning_requests.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }


# What happens in a cluster


def test_a_pod_is_asked_for_once_and_waits_for_what_comes() -> None:
    cluster = made_cluster()
    body = cluster.add(pod_object("p", 16, annotations={"theirs": "stays"}, labels={"a": "b"}))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS - 2)
    assert not requests(cluster), "a present node may still come to serve it"
    pass_seconds(cluster, 2)
    (request,) = requests(cluster)
    spec, name = request["spec"], request["metadata"]["name"]
    assert spec["provisioningClassName"] == ATOMIC
    (owner,) = request["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", body["metadata"]["uid"])
    ((template_name, count),) = [(s["podTemplateRef"]["name"], s["count"]) for s in spec["podSets"]]
    assert count == 1
    template = cluster.api.get(POD_TEMPLATES, template_name, SPACE)
    assert template["metadata"]["ownerReferences"] == [owner]
    assert template["template"]["metadata"]["labels"] == {"a": "b"}
    assert template["template"]["spec"] == {
        "containers": body["spec"]["containers"],
        "schedulerName": "default-scheduler",
    }
    assert marks(cluster, "p") == {"theirs": "stays", CONSUMES: name, CLASS: ATOMIC}
    for _ in range(5):
        assert pass_seconds(cluster, 30)["p"] == "NodeUnderWay"
        assert is_gated(cluster, "p")
    say(cluster, "Accepted", "Provisioned")
    pass_seconds(cluster)
    cluster.add_nodes("n9", gpus=16)
    assert cluster.loop.step().released == {f"{SPACE}/p": "n9"}
    assert len(requests(cluster)) == 1
    assert outcomes(cluster) == {"created": 1.0}
    assert any("asks for nodes" in note for _, note in events(cluster))


def test_a_gang_is_asked_for_whole_with_members_that_are_still_to_come() -> None:
    cluster = made_cluster()
    for i in range(2):
        cluster.add(gang_pod(f"g-{i}", 4))
    cluster.add(gang_pod("g-2", 4, 4))
    request = ask(cluster)
    assert sorted(s["count"] for s in request["spec"]["podSets"]) == [1, 3]
    owners = {owner["uid"] for owner in request["metadata"]["ownerReferences"]}
    assert owners == {f"owner-of-g-{i}" for i in range(3)}
    cluster.add(gang_pod("g-3", 4))
    pass_seconds(cluster)
    pass_seconds(cluster)
    assert {marks(cluster, f"g-{i}").get(CONSUMES) for i in range(4)} == {
        request["metadata"]["name"]
    }
    assert set(pass_seconds(cluster).values()) == {"NodeUnderWay"}
    assert len(requests(cluster)) == 1


@pytest.mark.parametrize(
    ("conditions", "why", "outcome"),
    [
        (("Accepted", "Failed"), "failed: no quota", "failed"),
        (("Provisioned", "BookingExpired"), "the booking has expired: no quota", "expired"),
        (("Provisioned", "CapacityRevoked"), "the capacity was revoked: no quota", "revoked"),
    ],
)
def test_whom_its_request_let_down_is_told_and_let_go_at_once(
    conditions: tuple[str, ...], why: str, outcome: str
) -> None:
    cluster = made_cluster()
    for i in range(3):
        cluster.add(gang_pod(f"g-{i}", 3))
    cluster.add(pod_object("others", 16))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    pass_seconds(cluster)
    say(cluster, *conditions, message="no quota")
    pass_seconds(cluster)
    for name in ("g-0", "g-1", "g-2", "others"):
        assert not is_gated(cluster, name)
        assert not {CONSUMES, CLASS} & marks(cluster, name).keys(), "or no node would come for it"
        assert any(about == name and why in note for about, note in events(cluster))
    assert outcomes(cluster) == {"created": 2.0, outcome: 2.0}
    assert len(requests(cluster)) == 2, "people may read what became of them"


def test_a_request_that_nobody_answers_is_given_up_and_taken_back() -> None:
    cluster = made_cluster(timeout_seconds=300)
    cluster.add(pod_object("p", 16))
    ask(cluster)
    pass_seconds(cluster, 290)
    assert is_gated(cluster, "p")
    pass_seconds(cluster, 11)
    assert not is_gated(cluster, "p")
    assert marks(cluster, "p") == {}
    assert requests(cluster), "marks of pods may be read late"
    pass_seconds(cluster, ORPHAN_SECONDS)
    assert not requests(cluster)
    assert outcomes(cluster) == {"created": 1.0, "timed_out": 1.0, "withdrawn": 1.0}


@pytest.mark.parametrize("provisioned", [False, True])
def test_a_request_whose_pod_found_a_place_brings_no_node_for_nobody(provisioned: bool) -> None:
    cluster = made_cluster()
    cluster.add(pod_object("p", 16))
    ask(cluster)
    if provisioned:
        say(cluster, "Provisioned")
        pass_seconds(cluster)
    cluster.add_nodes("n9", gpus=16)
    result = cluster.loop.step()
    assert result.released == {f"{SPACE}/p": "n9"}
    result = cluster.loop.step()
    assert result.outcome == "idle"
    assert (result.again_ns is None) == provisioned
    pass_seconds(cluster, ORPHAN_SECONDS)
    assert bool(requests(cluster)) == provisioned, "what is booked is the autoscaler's to take back"


def test_no_more_requests_are_made_than_an_hour_allows_whoever_made_them() -> None:
    cluster = made_cluster(per_hour=2)
    for name in "abc":
        cluster.add(pod_object(name, 16))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    first = {request["metadata"]["name"] for request in requests(cluster)}
    assert len(first) == 2
    cluster.loop = cluster.new_loop(epoch=1)
    pass_seconds(cluster)
    pass_seconds(cluster, PATIENCE_SECONDS)
    pass_seconds(cluster, 600)
    assert len(requests(cluster)) == 2
    assert all(is_gated(cluster, name) for name in "abc")
    (limited,) = {about for about, note in events(cluster) if "no more may be" in note}
    assert CONSUMES not in marks(cluster, limited)
    pass_seconds(cluster, HOUR_SECONDS - 700)
    pass_seconds(cluster, 40)
    (request,) = [r for r in requests(cluster) if r["metadata"]["name"] not in first]
    assert marks(cluster, limited)[CONSUMES] == request["metadata"]["name"]


class Dying:
    """The API of a process that writes so many objects of these kinds and no more.

    Args:
        api: The cluster.
        writes: That are made.
        is_lost: The answer to the last of them does not arrive.
    """

    def __init__(self, api: KubeApi, writes: int, *, is_lost: bool) -> None:
        self._api, self._left, self._is_lost = api, writes, is_lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def create(self, resource: Resource, body: JsonObject, namespace: str | None = None) -> Any:
        return self._write(resource, lambda: self._api.create(resource, body, namespace))

    def patch_json(self, resource: Resource, *told: Any, **more: Any) -> Any:
        return self._write(resource, lambda: self._api.patch_json(resource, *told, **more))

    def _write(self, resource: Resource, write: Callable[[], JsonObject]) -> JsonObject:
        if resource not in (POD_TEMPLATES, REQUESTS, PODS):
            return write()
        self._left -= 1
        if self._left < 0:
            raise UnavailableError("the process is gone")
        stored = write()
        if self._left == 0 and self._is_lost:
            raise UnavailableError("no answer")
        return stored


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("writes", range(6))
def test_a_restart_after_any_write_makes_no_second_request(writes: int, is_lost: bool) -> None:
    cluster = made_cluster()
    for i in range(3):
        cluster.add(gang_pod(f"g-{i}", 3))
    cluster.loop = cluster.new_loop(cast(KubeApi, Dying(cluster.api, writes, is_lost=is_lost)))
    cluster.loop.step()
    cluster.clock.advance_seconds(PATIENCE_SECONDS)
    cluster.loop.step()
    cluster.loop = cluster.new_loop(epoch=1)
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert set(pass_seconds(cluster).values()) == {"NodeUnderWay"}
    (request,) = requests(cluster)
    named = {marks(cluster, f"g-{i}").get(CONSUMES) for i in range(3)}
    assert named == {request["metadata"]["name"]}
    assert len(cluster.api.list(POD_TEMPLATES).items) == 1


def test_two_planners_make_one_request() -> None:
    cluster = made_cluster()
    other = cluster.new_loop(epoch=1)
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    other.step()
    cluster.clock.advance_seconds(PATIENCE_SECONDS)
    cluster.loop.step()
    other.step()
    assert len(requests(cluster)) == 1
    assert is_gated(cluster, "p")


class Without:
    """A cluster without the kind, or that lets nobody make one."""

    def __init__(self, api: KubeApi, *, is_served: bool) -> None:
        self._api, self._is_served = api, is_served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def list(self, resource: Resource, *told: Any, **more: Any) -> ObjectList:
        if resource in PROVISIONING_REQUESTS and not self._is_served:
            raise NotFoundError("the server could not find the requested resource")
        return self._api.list(resource, *told, **more)

    def create(self, resource: Resource, *told: Any) -> JsonObject:
        if resource in PROVISIONING_REQUESTS:
            raise ForbiddenError("may not create provisioningrequests")
        return self._api.create(resource, *told)


@pytest.mark.parametrize(
    ("is_served", "why"), [(False, "are not served here"), (True, "may not create")]
)
def test_without_the_kind_pods_are_told_and_let_go_as_ever(is_served: bool, why: str) -> None:
    cluster = made_cluster()
    cluster.loop = cluster.new_loop(cast(KubeApi, Without(cluster.api, is_served=is_served)))
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert not is_gated(cluster, "p")
    assert any(about == "p" and why in note for about, note in events(cluster))
    assert outcomes(cluster) == {"refused": 1.0}


def test_a_pod_that_names_somebody_elses_request_is_theirs() -> None:
    cluster = made_cluster()
    cluster.add(pod_object("p", 16, annotations={CONSUMES: "kueue-1"}))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert not requests(cluster)
    assert not is_gated(cluster, "p")
    assert marks(cluster, "p") == {CONSUMES: "kueue-1"}


def test_off_by_default_nothing_is_asked_for(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert not requests(cluster)
    assert not is_gated(cluster, "p")


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_nothing_is_made_in_other_modes(mode: Mode) -> None:
    cluster = made_cluster(mode)
    cluster.api.create(
        NAMESPACES,
        {"metadata": {"name": SPACE, "labels": {"wattpack.io/placement": "enabled"}}},
    )
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    pass_seconds(cluster, PATIENCE_SECONDS)
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert not requests(cluster)
    assert not cluster.api.list(POD_TEMPLATES).items
    assert marks(cluster, "p") == {}


def test_pods_that_were_asked_for_do_not_wait_for_ever_once_it_is_off() -> None:
    cluster = made_cluster(timeout_seconds=300)
    cluster.add(pod_object("p", 16))
    ask(cluster)
    cluster.settings = PlacementSettings(mode=Mode.MANAGE, deadline_seconds=0.1)
    cluster.loop = cluster.new_loop(epoch=1)
    cluster.add(pod_object("later", 16))
    assert pass_seconds(cluster)["p"] == "NodeUnderWay"
    pass_seconds(cluster, PATIENCE_SECONDS)
    assert not is_gated(cluster, "later")
    assert marks(cluster, "later") == {}
    pass_seconds(cluster, 900)
    assert not is_gated(cluster, "p")
    assert marks(cluster, "p") == {}
    assert len(requests(cluster)) <= 1


# What is decided, and what is written


def demand(*names: str, gang: bool = False, missing: int = 0, **changes: Any) -> Demand:
    pods = [pod_object(name, 16, **changes) for name in names]
    for pod in pods:
        pod["metadata"] |= {"uid": f"uid-{pod['metadata']['name']}", "resourceVersion": "1"}
    return Demand("team/g" if gang else "uid-p", tuple(pods), missing, gang)


def request_at(stage: Stage, since_seconds: float, owners: frozenset[str]) -> OwnRequest:
    name = demand("p").request_name
    return OwnRequest(SPACE, name, "u", stage, "", since_seconds, since_seconds, owners)


@given(
    stage=st.sampled_from([None, *Stage]),
    wait=st.builds(Wait, st.booleans(), st.booleans(), st.booleans()),
    is_named=st.booleans(),
    age_seconds=st.floats(0, 2000),
    per_hour=st.integers(1, 3),
    asked=st.lists(st.integers(0, 7200), max_size=5),
)
def test_nobody_waits_for_what_does_not_come_and_no_limit_is_passed(
    stage: Stage | None,
    wait: Wait,
    is_named: bool,
    age_seconds: float,
    per_hour: int,
    asked: list[int],
) -> None:
    now = 2 * HOUR_SECONDS
    settings = ProvisioningSettings(enabled=True, per_hour=per_hour)
    pod = demand("p")
    if is_named:
        pod = demand("p", annotations={CONSUMES: pod.request_name})
    owners = frozenset(["uid-p"])
    request = None if stage is None else request_at(stage, now - age_seconds, owners)
    found = answer(pod, wait, request, asked, settings, now)
    lately = sum(at > now - HOUR_SECONDS for at in asked)
    if found.verdict is Verdict.ASK:
        assert request is None
        assert wait.is_due
        assert lately < per_hour
    if found.verdict is Verdict.LIMITED:
        assert lately >= per_hour
        free_at = next_free_seconds(asked, per_hour, now)
        assert sum(at > free_at - HOUR_SECONDS for at in asked) < per_hour
    if found.verdict is Verdict.KEEP:
        assert request is not None
        assert not request.stage.has_ended
        if wait.is_hopeless or wait.is_under_way:
            assert age_seconds <= settings.timeout_seconds
            assert len(found.unmarked) == (not is_named)
    if found.verdict is Verdict.END:
        assert request is not None
        assert found.why
    if wait.is_hopeless and wait.is_due and request is not None and request.stage.has_ended:
        assert found.verdict is Verdict.END
    stranger = None if request is None else replace(request, owners=frozenset(["another"]))
    if stranger is not None:
        assert answer(pod, wait, stranger, asked, settings, now).verdict is Verdict.AS_EVER


def test_alike_members_share_a_template_whatever_is_each_ones_own() -> None:
    gang = demand("a", "b", "c", gang=True, missing=2)
    for i, pod in enumerate(gang.pods):
        pod["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(i), "x": "y"}
        pod["spec"] |= {
            "schedulingGates": [{"name": "wattpack.io/placement"}],
            "hostname": f"h-{i}",
            "volumes": [{"name": f"kube-api-access-{i}", "projected": {}}],
            "tolerations": [{"operator": "Exists"}],
        }
        pod["spec"]["containers"][0]["env"] = [{"name": "I", "value": str(i)}]
    ((body, count),) = pod_templates(gang)
    assert count == 5
    assert body["template"]["metadata"]["labels"] == {"x": "y"}
    assert body["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert "schedulingGates" not in body["template"]["spec"]
    request = request_body(gang, REQUESTS.api_version, ATOMIC, [(body, count)])
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set == {"podTemplateRef": {"name": body["metadata"]["name"]}, "count": 5}


def test_a_name_is_the_gangs_whoever_of_it_is_there() -> None:
    one, more = demand("a", gang=True), demand("b", "c", gang=True)
    assert one.request_name == more.request_name
    assert len(one.request_name) <= 63 - 9, "its templates' names are longer by a digest"


def test_a_request_stays_the_gangs_whoever_of_many_owners_came_later() -> None:
    early = demand(*(f"z{i}" for i in range(20)), gang=True)
    late = demand(*(f"{c}{i}" for c in "az" for i in range(20)), gang=True)
    owners = frozenset(str(owner["uid"]) for owner in early.owners)
    assert len(owners) == 16
    assert owners.isdisjoint(str(owner["uid"]) for owner in late.owners)
    settings, wait = ProvisioningSettings(enabled=True), Wait(True, False, True)
    request = replace(request_at(Stage.WAITS, 0.0, owners), name=late.request_name)
    found = answer(late, wait, request, [], settings, 10.0)
    assert found.verdict is Verdict.KEEP
    assert len(found.unmarked) == 40


def test_more_unlike_pods_than_a_request_takes_are_refused() -> None:
    pods = [pod_object(f"p{i}", i + 1) for i in range(33)]
    for pod in pods:
        pod["metadata"]["uid"] = f"uid-{pod['metadata']['name']}"
    with pytest.raises(InputError, match="podSets"):
        pod_templates(Demand("team/g", tuple(pods), 0, True))


def test_a_request_with_anything_in_any_field_hides_no_other() -> None:
    good = request_body(demand("p"), REQUESTS.api_version, ATOMIC, [])
    good["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}
    for field in ("metadata", "status"):
        for odd in with_junk(good, field):
            assert [r.stage for r in own_requests([odd, good])][-1] is Stage.FAILED


@pytest.mark.parametrize(
    "wrong", [{"class_name": ""}, {"class_name": "Upper"}, {"per_hour": 0}, {"timeout_seconds": 1}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ProvisioningSettings.load(file=None, prefix="X_", environment={}, flags=wrong)
