"""``kubectl get`` shows the columns that people know, for built-in kinds and for CRDs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_builders import GATE, Body, create, node, pod
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from wattpack.api import KINDS
from wattpack.object_names import SYSTEM_NAMESPACE

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.cluster

HEADERS: list[tuple[str, str]] = [
    ("pods", "NAME READY STATUS RESTARTS AGE"),
    ("nodes", "NAME STATUS ROLES AGE VERSION"),
    ("deployments", "NAME READY UP-TO-DATE AVAILABLE AGE"),
    ("replicasets", "NAME DESIRED CURRENT READY AGE"),
    ("statefulsets", "NAME READY AGE"),
    ("daemonsets", "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE"),
    ("jobs", "NAME STATUS COMPLETIONS DURATION AGE"),
    ("leases", "NAME HOLDER AGE"),
    ("events", "LAST SEEN TYPE REASON OBJECT MESSAGE"),
    ("priorityclasses", "NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY"),
    ("poddisruptionbudgets", "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE"),
]


@pytest.fixture(scope="module")
def shown(control_plane: ControlPlane, shared_namespace: str) -> Iterator[str]:
    """A namespace with one object of each kind."""
    plane, space = control_plane, shared_namespace
    labels = {"matchLabels": {"a": "b"}}
    container = {"name": "c", "image": "i"}
    template: Body = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container], "nodeSelector": {"no": "where"}},
    }
    spec: Body = {"selector": labels, "template": template}
    apps = f"/apis/apps/v1/namespaces/{space}"
    for kind in ("deployments", "replicasets", "statefulsets", "daemonsets"):
        replicas: Body = {} if kind == "daemonsets" else {"replicas": 0}
        body = {"metadata": {"name": kind}, "spec": {**spec, **replicas}}
        create(plane, f"{apps}/{kind}", body)
    one = {"metadata": {"name": "one"}}
    job = {"suspend": True, "template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
    create(plane, f"/apis/batch/v1/namespaces/{space}/jobs", {**one, "spec": job})
    lease = {"holderIdentity": "me"}
    create(plane, f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases", {**one, "spec": lease})
    budget = {"minAvailable": 1, "selector": labels}
    create(
        plane, f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets", {**one, "spec": budget}
    )
    create(plane, f"/api/v1/namespaces/{space}/pods", pod("gated", gates=[GATE]))
    event = {
        **one,
        "reason": "Capped",
        "message": "lowered to 400 W",
        "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "gated", "namespace": space},
    }
    create(plane, f"/api/v1/namespaces/{space}/events", event)
    create(plane, "/api/v1/nodes", node(f"{space}-n"))
    yield space
    plane.request("DELETE", f"/api/v1/nodes/{space}-n")


@pytest.mark.parametrize("case", HEADERS, ids=[case[0] for case in HEADERS])
def test_the_columns_are_kubernetes_own(
    control_plane: ControlPlane, shown: str, case: tuple[str, str]
) -> None:
    kind, expected = case
    lines = control_plane.kubectl("-n", shown, "get", kind).stdout.splitlines()
    assert " ".join(lines[0].split()) == expected
    assert len(lines) > 1


def test_a_gated_pod_shows_that_it_is_gated(control_plane: ControlPlane, shown: str) -> None:
    line = control_plane.kubectl("-n", shown, "get", "pod", "gated", "--no-headers").stdout.split()
    assert line[:4] == ["gated", "0/1", "SchedulingGated", "0"]


def test_an_event_shows_what_it_is_about(control_plane: ControlPlane, shown: str) -> None:
    line = control_plane.kubectl("-n", shown, "get", "events", "--no-headers").stdout
    assert line.split()[1:4] == ["Normal", "Capped", "pod/gated"]
    assert line.strip().endswith("lowered to 400 W")


def test_a_custom_resource_shows_its_own_columns_as_soon_as_it_is_served(
    control_plane: ControlPlane, shown: str
) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"watts": {"type": "integer"}}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            {"name": "Budget", "type": "integer", "jsonPath": ".spec.watts"}
        ],
    }
    crd = {
        "metadata": {"name": "meters.columns.wattpack.io"},
        "spec": {
            "group": "columns.wattpack.io",
            "scope": "Namespaced",
            "names": {"plural": "meters", "kind": "Meter", "shortNames": ["mtr"]},
            "versions": [version],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    create(control_plane, crds, crd)
    path = f"/apis/columns.wattpack.io/v1/namespaces/{shown}/meters"
    body = {
        "apiVersion": "columns.wattpack.io/v1",
        "kind": "Meter",
        "metadata": {"name": "m"},
        "spec": {"watts": 4000},
    }
    eventually("it is served", lambda: control_plane.request("POST", path, body).status == 201)
    lines = control_plane.kubectl("-n", shown, "get", "mtr").stdout.splitlines()
    assert lines[0].split() == ["NAME", "BUDGET"]
    assert lines[1].split() == ["m", "4000"]
    control_plane.request("DELETE", f"{crds}/meters.columns.wattpack.io")


OURS = {kind.meta.plural: kind.meta for kind in KINDS}


@pytest.fixture(scope="module")
def examples(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Our kinds, and the shipped example of each."""
    # Where forecasts of domains count; an installation has made it.
    control_plane.kubectl("create", "namespace", SYSTEM_NAMESPACE, check=False)
    for folder in ("crds", "examples"):
        apply = ["apply", "--server-side", "-f", str(ROOT / "manifests" / folder)]
        eventually(
            f"{folder} are taken",
            lambda apply=apply: control_plane.kubectl(*apply, check=False).returncode == 0,  # type: ignore[misc]
        )
    yield control_plane
    control_plane.kubectl("delete", "--wait=false", "-f", str(ROOT / "manifests" / "examples"))


@pytest.mark.parametrize("plural", OURS)
def test_a_row_of_ours_shows_words_and_numbers_but_never_json(
    examples: ControlPlane, plural: str
) -> None:
    head, *rows = examples.kubectl("get", plural, "-A", "-o", "wide").stdout.splitlines()
    assert rows
    assert {c.name.upper() for c in OURS[plural].columns} <= set(re.split(r" {2,}", head.strip()))
    assert not any(mark in row for row in rows for mark in ("{", "[", "map["))


def test_short_names_say_whose_they_are() -> None:
    names = [name for meta in OURS.values() for name in meta.short_names]
    assert len(set(names)) == len(names)
    assert "plan" not in names  # another project's, and a word that people type
