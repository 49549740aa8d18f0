"""The client adapter and the generated CRDs against a real API server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.wattpack.kube_conformance import BEHAVIOURS, Bench, name_of
from wattpack.api import KINDS, PowerDomain
from wattpack.api.power_domain import PowerDomainStatus
from wattpack.clock import ManualClock, SystemClock
from wattpack.errors import InputError
from wattpack.kube.client import ClientKube, from_kubeconfig
from wattpack.kube.election import PLANNER_ELECTION, Bid, LeaderElector
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.informer import Informer
from wattpack.kube.port import (
    EVENTS,
    LEASES,
    PODS,
    ForbiddenError,
    GoneError,
    InvalidError,
    ThrottledError,
    UnavailableError,
)
from wattpack.kube.write_budget import StatusWriter
from wattpack.object_names import SYSTEM_NAMESPACE

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.cluster

DOMAINS = PowerDomain.meta.resource
CRDS = sorted((ROOT / "manifests" / "crds").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def plane_with_crds(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with every generated CRD established."""
    control_plane.kubectl("apply", "--server-side", *(f"--filename={path}" for path in CRDS))
    names = [f"crd/{kind.meta.plural}.wattpack.io" for kind in KINDS]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    # The examples' own; another test's release may have made it.
    control_plane.kubectl("create", "namespace", SYSTEM_NAMESPACE, check=False)
    return control_plane


@pytest.fixture(scope="module")
def kube(plane_with_crds: ControlPlane) -> ClientKube:
    return from_kubeconfig(plane_with_crds.kubeconfig)


@pytest.fixture
def bench(kube: ClientKube, shared_namespace: str) -> Bench:
    return Bench(kube, shared_namespace, f"c{next(_prefixes)}")


@pytest.fixture
def faults(plane_with_crds: ControlPlane) -> Iterator[ControlPlane]:
    if plane_with_crds.kind != "own":
        pytest.skip("only the project's own API server injects faults")
    yield plane_with_crds
    plane_with_crds.clear_faults()


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_the_client_adapter_conforms(behaviour: Callable[[Bench], None], bench: Bench) -> None:
    behaviour(bench)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted(plane_with_crds: ControlPlane, path: Path) -> None:
    answer = plane_with_crds.kubectl(
        "apply", "--server-side", "--validate=strict", f"--filename={path}"
    )
    documents = list(yaml.safe_load_all(path.read_text()))
    assert answer.stdout.count("serverside-applied") == len(documents)


def _domain(**spec: Any) -> dict[str, Any]:
    return {"kind": "PowerDomain", "spec": {"ratingWatts": 1000, **spec}}


def _override(**spec: Any) -> dict[str, Any]:
    base = {"capWatts": 1, "reason": "r", "expiresAt": "2030-01-01T00:00:00Z"}
    return {"kind": "PowerOverride", "spec": {"target": {"node": "a"}, **base, **spec}}


def _forecast(target: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    wanted = {"powerDomain": "row", "series": "watts", **(target or {})}
    return {"kind": "DemandForecast", "spec": {"target": wanted, **spec}}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no spec", {"kind": "PowerDomain"}, "spec"),
    ("a domain in kilowatts", _forecast({"unit": "kW"}), "unit: watts"),
    ("no series", _forecast({"series": ""}), "series"),
    ("overlong series", _forecast({"series": "x" * 4097}), "series"),
    ("too many steps", _forecast(horizonSeconds=604800, stepSeconds=60), "at most 1024 steps"),
    ("a level beyond all that are computed", _forecast(levels=[0.5, 0.9999]), "levels"),
    ("a ceiling of nothing", _forecast(ceilingWatts=0), "ceilingWatts"),
    ("curve without points", _domain(breaker={"curve": "Points"}), "points: at least one"),
    (
        "a pick-up below the rating",
        _domain(breaker={"shortTimePickupRatio": 1.2}),
        "shortTimePickupRatio: at least 1.25",
    ),
    (
        "a named curve of a cold breaker",
        _domain(breaker={"curve": "RackThermal", "thermalColdCurve": True}),
        "thermalColdCurve: false",
    ),
    (
        "points that fall",
        _domain(
            breaker={
                "curve": "Points",
                "points": [
                    {"loadRatio": 2, "tripSeconds": 10},
                    {"loadRatio": 1.5, "tripSeconds": 60},
                ],
            }
        ),
        "rising loadRatio",
    ),
    (
        "points twice at one ratio",
        _domain(
            breaker={
                "curve": "Points",
                "points": [
                    {"loadRatio": 2, "tripSeconds": 10},
                    {"loadRatio": 2, "tripSeconds": 5},
                ],
            }
        ),
        "rising loadRatio",
    ),
    (
        "all feeds required",
        _domain(redundancy={"mode": "KofN", "feeds": 2, "requiredFeeds": 2}),
        "requiredFeeds: fewer than feeds",
    ),
    (
        "window of no length",
        _domain(budgets=[{"start": "10:00", "end": "10:00", "budgetWatts": 1}]),
        "end: a time after start",
    ),
    (
        "window that ends before it starts",
        _domain(
            budgets=[
                {
                    "start": "2030-01-02T00:00:00Z",
                    "end": "2030-01-01T00:00:00Z",
                    "budgetWatts": 1,
                }
            ]
        ),
        "end: a time after start",
    ),
    (
        "window half daily",
        _domain(budgets=[{"start": "10:00", "end": "2030-01-01T00:00:00Z", "budgetWatts": 1}]),
        "both times of day",
    ),
    (
        "idle above worst",
        _domain(nonGpuPerNode={"worstWatts": 1, "idleWatts": 2}),
        "idleWatts: at most",
    ),
    (
        "a line without a slope",
        _domain(nonGpuPerNode={"worstWatts": 2, "worstAtRestWatts": 1}),
        "give both or neither",
    ),
    (
        "a slope without a line",
        _domain(nonGpuPerNode={"worstWatts": 2, "wattsPerGpuWatt": 0.1}),
        "give both or neither",
    ),
    (
        "at rest above worst",
        _domain(nonGpuPerNode={"worstWatts": 2, "worstAtRestWatts": 3, "wattsPerGpuWatt": 0.1}),
        "worstAtRestWatts: at most",
    ),
    ("no target", _override(target={}), "exactly one of"),
    ("two targets", _override(target={"node": "a", "domain": "b"}), "exactly one of"),
    ("expiry in words", _override(expiresAt="tomorrow"), "expiresAt"),
    (
        "a node object of another node",
        {"kind": "GpuNode", "spec": {"nodeName": "other"}},
        "the same as metadata.name",
    ),
    (
        "a floor above the request",
        {
            "kind": "PowerPolicy",
            "spec": {"priority": 1, "floorFraction": 0.9, "requestFraction": 0.5},
        },
        "floorFraction: at most",
    ),
    (
        "a fraction above one",
        {"kind": "PowerPolicy", "spec": {"priority": 1, "floorFraction": 2}},
        "floorFraction",
    ),
    (
        "a priority that is no integer",
        {"kind": "PowerPolicy", "spec": {"priority": 1.5}},
        "priority",
    ),
    ("no priority", {"kind": "PowerPolicy", "spec": {}}, "priority"),
]


@pytest.mark.parametrize(("what", "body", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_the_server_and_the_model_refuse_the_same(
    kube: ClientKube, what: str, body: dict[str, Any], message: str
) -> None:
    kind = next(kind for kind in KINDS if kind.meta.kind == body["kind"])
    named = {
        "apiVersion": "wattpack.io/v1alpha1",
        **body,
        "metadata": {"name": what.replace(" ", "-")},
    }
    with pytest.raises(InvalidError, match=message):
        kube.create(kind.meta.resource, named, "default" if kind.meta.namespaced else None)
    with pytest.raises(InputError):
        kind.from_json(named)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.meta.kind)
def test_kubectl_shows_the_print_columns(plane_with_crds: ControlPlane, kind: Any) -> None:
    shown = _shown(plane_with_crds, kind)
    wanted = [column.name.upper() for column in kind.meta.columns if not column.priority]
    assert shown.splitlines()[0].split()[-len(wanted) :] == wanted


def _shown(plane: ControlPlane, kind: Any) -> str:
    path = ROOT / "manifests" / "examples" / f"{kind.meta.kind.lower()}.yaml"
    plane.kubectl("apply", "--server-side", f"--filename={path}")
    return plane.kubectl("get", kind.meta.short_names[0], "--all-namespaces").stdout


def test_a_reported_status_is_seen_in_the_columns(
    plane_with_crds: ControlPlane, kube: ClientKube
) -> None:
    body = {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "shown"},
    }
    kube.apply(DOMAINS, {**body, "spec": {"ratingWatts": 400000}}, field_manager="test")
    ready = {"type": "Ready", "status": "True", "reason": "Test"}
    status = {"budgetWatts": 348000, "drawWatts": 301234, "cappedGpus": 17, "conditions": [ready]}
    kube.apply(DOMAINS, {**body, "status": status}, field_manager="test", subresource="status")
    row = plane_with_crds.kubectl("get", "pdom", "shown").stdout.splitlines()[1].split()
    assert row[:3] == ["shown", "348000", "301234"]
    assert "17" in row
    assert "True" in row


def test_kubectl_explains_every_kind(plane_with_crds: ControlPlane) -> None:
    text = plane_with_crds.kubectl("explain", "powerdomain.spec.ratingWatts").stdout
    assert "Continuous rating of one feed after derating" in text


def test_a_status_with_an_accepted_spec_is_taken(kube: ClientKube, bench: Bench) -> None:
    created = bench.create_domain()
    accepted = PowerDomain.from_json(created).to_json()["spec"]
    body = {k: created[k] for k in ("apiVersion", "kind")}
    body["metadata"] = {"name": name_of(created)}
    body["status"] = {"acceptedSpec": accepted}
    after = kube.apply(DOMAINS, body, field_manager="one", subresource="status")
    assert after["status"]["acceptedSpec"] == accepted


def test_a_throttled_call_says_how_long_to_wait(faults: ControlPlane, kube: ClientKube) -> None:
    faults.inject_fault("status", "powerdomains", code=429, retry_after_seconds=7)
    with pytest.raises(ThrottledError) as refusal:
        kube.list(DOMAINS)
    assert refusal.value.retry_after_seconds == 7


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_a_failing_server_is_unavailable_and_the_call_is_not_repeated(
    faults: ControlPlane, kube: ClientKube, bench: Bench, code: int
) -> None:
    faults.inject_fault("status", "powerdomains", method="POST", code=code, count=2)
    with pytest.raises(UnavailableError):
        bench.create_domain()
    assert [rule["hits"] for rule in faults.faults()] == [1]


@pytest.mark.parametrize("kind", ["stall", "half-open", "reset"])
def test_a_silent_or_broken_connection_is_unavailable(faults: ControlPlane, kind: str) -> None:
    impatient = from_kubeconfig(faults.kubeconfig, read_seconds=0.5)
    faults.inject_fault(kind, "powerdomains", stall_seconds=3)
    with pytest.raises(UnavailableError):
        impatient.get(DOMAINS, "any")


def test_a_silent_watch_is_unavailable(
    faults: ControlPlane, kube: ClientKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattpack.kube.client.client_api.SILENCE_SECONDS", 0.5)
    start = kube.list(DOMAINS).resource_version
    with pytest.raises(UnavailableError):
        list(kube.watch(DOMAINS, start, timeout_seconds=60))


def test_a_wrong_token_is_forbidden(plane_with_crds: ControlPlane) -> None:
    path = plane_with_crds.directory / "wrong.kubeconfig"
    plane_with_crds.write_kubeconfig(path, {"token": "wrong"})
    with pytest.raises(ForbiddenError):
        from_kubeconfig(path).list(DOMAINS)


def test_a_server_that_does_not_listen_is_unavailable(
    plane_with_crds: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(plane_with_crds.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(UnavailableError):
        from_kubeconfig(tmp_path / "config").list(DOMAINS)


def test_a_node_bound_token_is_reviewed_with_its_node(
    plane_with_crds: ControlPlane, kube: ClientKube, namespace: str
) -> None:
    node = f"node-{namespace}"
    plane_with_crds.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    account = {"metadata": {"name": "agent"}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    plane_with_crds.request("POST", path, account)
    config = plane_with_crds.service_account_kubeconfig(namespace, "agent", node=node)
    token = yaml.safe_load(config.read_text())["users"][0]["user"]["token"]
    identity = kube.review_token(token, [])
    assert identity.username == f"system:serviceaccount:{namespace}:agent"
    assert identity.node_name == node
    with pytest.raises(ForbiddenError):
        kube.review_token(token, ["somebody-else"])
    with pytest.raises(ForbiddenError):
        kube.review_token("garbage", [])


def test_a_list_is_paged_and_complete(
    kube: ClientKube, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattpack.kube.client.client_api.PAGE_SIZE", 2)
    names = {name_of(bench.create_pod()) for _ in range(5)}
    listed = kube.list(PODS, bench.namespace)
    assert names <= set(map(name_of, listed.items))
    assert all(item["kind"] == "Pod" for item in listed.items)


def test_an_informer_follows_a_real_server(kube: ClientKube, bench: Bench) -> None:
    informer = Informer(kube, SystemClock(), DOMAINS)
    seen: dict[str, Any] = {}
    changed = threading.Event()

    def note(old: Any, new: Any) -> None:
        seen[name_of(new or old)] = new
        changed.set()

    informer.add_handler(note)
    informer.start()
    created = bench.create_domain()
    name = name_of(created)
    while name not in seen:
        assert changed.wait(20)
        changed.clear()
    bench.api.delete(DOMAINS, name)
    while seen[name] is not None:
        assert changed.wait(20)
        changed.clear()
    informer.stop()
    assert informer.get(name) is None
    bench.create_domain()


def test_a_lease_on_a_real_server_has_one_leader(kube: ClientKube, namespace: str) -> None:
    one, two = (
        LeaderElector(kube, SystemClock(), Bid("controller", namespace, identity, PLANNER_ELECTION))
        for identity in "ab"
    )
    assert one.attempt()
    assert not two.attempt()
    assert one.raise_epoch_above(6)
    one.release()
    assert two.attempt()
    assert (one.epoch(), two.epoch()) == (0, 8)
    lease = kube.get(LEASES, "controller", namespace)
    assert lease["spec"]["holderIdentity"] == "b"
    assert lease["spec"]["leaseTransitions"] == 8


def test_an_event_and_its_series_are_taken(kube: ClientKube, bench: Bench) -> None:
    clock = ManualClock()
    recorder = EventRecorder(kube, clock, "wattpack.io/controller", "controller-0")
    domain = bench.create_domain()
    for _ in range(3):
        recorder.emit(domain, EventReason.CAPS_LOWERED, "17 GPUs", action="Cap")
    clock.advance_seconds(61)
    recorder.flush()
    assert recorder.lost == 0
    (event,) = kube.list(EVENTS, "default", "", f"regarding.name={name_of(domain)}").items
    assert event["series"]["count"] == 3


def test_a_status_is_reported_under_the_budget(kube: ClientKube, bench: Bench) -> None:
    writer = StatusWriter(kube, ManualClock(), "wattpack-test")
    names = [name_of(bench.create_domain()) for _ in range(12)]
    for name in names:
        writer.offer(DOMAINS, name, PowerDomainStatus(draw_watts=5.0))
    report = writer.flush()
    assert (report.written, report.waiting, report.refused) == (10, 2, ())
    assert kube.get(DOMAINS, names[0])["status"]["drawWatts"] == 5


def test_a_watch_that_is_told_410_midway_is_gone(faults: ControlPlane, kube: ClientKube) -> None:
    start = kube.list(DOMAINS).resource_version
    faults.inject_fault("watch-error", "powerdomains", code=410)
    with pytest.raises(GoneError):
        list(kube.watch(DOMAINS, start, timeout_seconds=2))
