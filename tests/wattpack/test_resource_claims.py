"""GPUs that pods hold through ResourceClaims: read, followed, and left out where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulation.kube import EmbeddedKube
from wattpack.clock import ManualClock
from wattpack.kube.claim_follower import CLAIM_KINDS, LOOK_AGAIN_SECONDS, ClaimFollower
from wattpack.kube.port import (
    ForbiddenError,
    JsonObject,
    KubeError,
    NotFoundError,
    ObjectList,
    Resource,
    UnavailableError,
    WatchEvent,
)
from wattpack.resource_claims import ClaimBook, asks_for_claims

V1, V1BETA1 = CLAIM_KINDS


def device(name: str, driver: str = "gpu.nvidia.com", **fields: Any) -> JsonObject:
    return {"request": "gpu", "driver": driver, "pool": "node-1", "device": name, **fields}


def claim(name: str, *devices: JsonObject, users: tuple[str, ...] = ()) -> JsonObject:
    status: JsonObject = {"reservedFor": [{"resource": "pods", "name": u, "uid": u} for u in users]}
    if devices:
        status["allocation"] = {"devices": {"results": list(devices)}}
    return {
        "apiVersion": V1.api_version,
        "kind": V1.kind,
        "metadata": {"name": name, "namespace": "team"},
        "spec": {},
        "status": status,
    }


def pod(uid: str, *claims: str, made: tuple[str, ...] = ()) -> JsonObject:
    return {
        "metadata": {"name": uid, "namespace": "team", "uid": uid},
        "spec": {
            "resourceClaims": [
                *({"name": c, "resourceClaimName": c} for c in claims),
                *({"name": c, "resourceClaimTemplateName": "t"} for c in made),
            ]
        },
        "status": {"resourceClaimStatuses": [{"name": c, "resourceClaimName": c} for c in made]},
    }


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        ((device("gpu-0"), device("gpu-1")), 2),
        ((device("gpu-0", "gpu.amd.com"),), 1),
        ((device("gpu-0"), device("gpu-0", shareID="x")), 1),
        ((device("gpu-0", adminAccess=True),), 0),
        ((device("nic-0", "nic.example.com"),), 0),
        ((), 0),
    ],
    ids=["two", "amd", "one in two shares", "only looked after", "no GPU", "unallocated"],
)
def test_a_claim_counts_the_gpus_that_it_was_given(
    devices: tuple[JsonObject, ...], gpus: int
) -> None:
    book = ClaimBook.of([claim("c", *devices, users=("p",))])
    assert book.held(pod("p", "c")) == gpus
    assert book.usable(pod("p", made=("c",))) == gpus


def test_a_claim_that_is_reserved_for_a_group_first_still_counts_for_its_pods() -> None:
    """Workload-aware scheduling reserves for a PodGroup, and no pod has that UID."""
    body = claim("c", device("gpu-0"), users=("a",))
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}
    body["status"]["reservedFor"].insert(0, group)
    assert ClaimBook.of([body]).held(pod("a", "c")) == 1
    body["status"]["reservedFor"] = [group]
    assert ClaimBook.of([body]).held(pod("b", "c")) == 1


def test_a_claim_that_pods_share_takes_its_gpus_once() -> None:
    book = ClaimBook.of([claim("c", device("gpu-0"), users=("a", "b"))])
    pods = [pod("a", "c"), pod("b", "c")]
    assert [book.held(p) for p in pods] == [1, 0]
    assert [book.usable(p) for p in pods] == [1, 1]


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {"allocation": 1},
        {"allocation": {"devices": []}},
        {"allocation": {"devices": {"results": [None, {}, 3]}}},
    ],
)
def test_a_claim_of_another_shape_holds_nothing(status: object) -> None:
    odd = {"metadata": {"name": "c", "namespace": "team"}, "status": status}
    assert ClaimBook.of([odd]).usable(pod("p", "c")) == 0


@pytest.mark.parametrize("spec", [None, {}, {"resourceClaims": None}, {"resourceClaims": "x"}])
def test_a_pod_without_claims_of_a_known_shape_has_none(spec: object) -> None:
    body = {"metadata": {"name": "p", "namespace": "team"}, "spec": spec}
    book = ClaimBook.of([claim("c", device("gpu-0"))])
    assert book.usable(body) == 0
    assert asks_for_claims({"spec": {}}) is False


class Served(EmbeddedKube):
    """An API that serves claims in some versions; all others are answered by an error."""

    def __init__(self, clock: ManualClock, *versions: str, error: KubeError) -> None:
        super().__init__(clock)
        self.versions, self.error, self.lists = versions, error, 0

    def list(self, resource: Resource, *args: Any, **options: Any) -> ObjectList:
        if resource.group == V1.group:
            self.lists += 1
            if resource.version not in self.versions:
                raise self.error
        return super().list(resource, *args, **options)

    def watch(self, resource: Resource, *args: Any, **options: Any) -> Iterator[WatchEvent]:
        if resource.group == V1.group and resource.version not in self.versions:
            raise self.error
        return super().watch(resource, *args, **options)


@pytest.mark.parametrize("kind", CLAIM_KINDS)
def test_the_version_that_is_served_is_followed(kind: Resource) -> None:
    clock = ManualClock()
    api = Served(clock, kind.version, error=NotFoundError("no such kind"))
    follower = ClaimFollower(api, clock)
    assert follower.book().usable(pod("p", "c")) == 0
    api.create(kind, claim("c", device("gpu-0")) | {"apiVersion": kind.api_version}, "team")
    assert follower.book().usable(pod("p", "c")) == 1
    api.delete(kind, "c", "team")
    assert follower.book().usable(pod("p", "c")) == 0


@pytest.mark.parametrize("error", [NotFoundError("no such kind"), ForbiddenError("no right")])
def test_a_cluster_without_claims_is_asked_and_told_once(
    error: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api = Served(ManualClock(), error=error)
    follower = ClaimFollower(api, ManualClock())
    asked = [(follower.book().usable(pod("p", "c")), api.lists) for _ in range(3)]
    assert asked == [(0, api.lists)] * 3
    assert len(caplog.records) == 1


def test_an_api_that_does_not_answer_is_asked_again() -> None:
    clock = ManualClock()
    api = Served(clock, error=UnavailableError("down"))
    follower = ClaimFollower(api, clock)
    with pytest.raises(UnavailableError):
        follower.book()
    api.versions = ("v1",)
    assert follower.book() == ClaimBook()


def test_claims_that_are_served_later_are_found() -> None:
    clock = ManualClock()
    api = Served(clock, error=NotFoundError("a server that was still starting"))
    follower = ClaimFollower(api, clock)
    assert follower.book() == ClaimBook()
    api.versions = ("v1",)
    api.create(V1, claim("c", device("gpu-0")), "team")
    clock.advance_seconds(LOOK_AGAIN_SECONDS)
    assert follower.book().usable(pod("p", "c")) == 1


def test_a_version_that_is_served_no_more_is_left_for_the_next() -> None:
    clock = ManualClock()
    api = Served(clock, "v1beta1", error=NotFoundError("no such kind"))
    follower = ClaimFollower(api, clock)
    old = claim("c", device("gpu-0")) | {"apiVersion": V1BETA1.api_version}
    api.create(V1BETA1, old, "team")
    assert follower.book().usable(pod("p", "c")) == 1
    api.versions = ("v1",)
    api.delete(V1, "c", "team")
    api.create(V1, claim("c", device("gpu-0"), device("gpu-1")), "team")
    for _ in range(2):
        clock.advance_seconds(LOOK_AGAIN_SECONDS)
        follower.book()
    assert follower.book().usable(pod("p", "c")) == 2


def test_a_version_that_comes_back_takes_nothing_away_meanwhile() -> None:
    clock = ManualClock()
    api = Served(clock, "v1", error=NotFoundError("no such kind"))
    follower = ClaimFollower(api, clock)
    api.create(V1, claim("c", device("gpu-0")), "team")
    follower.book()
    api.versions = ()
    for _ in range(3):
        clock.advance_seconds(LOOK_AGAIN_SECONDS)
        assert follower.book().usable(pod("p", "c")) == 1
