"""The same random calls on the embedded API and on a real one leave the same objects."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulation.kube import EmbeddedKube
from tests.cluster.control_plane import ControlPlane
from wattpack.api import PowerDomain
from wattpack.clock import ManualClock
from wattpack.kube.client import from_kubeconfig
from wattpack.kube.port import KubeApi, KubeError, NotFoundError

pytestmark = pytest.mark.cluster

DOMAINS = PowerDomain.meta.resource
CRD = Path(__file__).resolve().parents[2] / "manifests/crds/wattpack.io_powerdomains.yaml"
STEPS = 25
Json = dict[str, Any]
Call = Callable[[KubeApi], Any]


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane) -> KubeApi:
    control_plane.kubectl("apply", "--server-side", f"--filename={CRD}")
    control_plane.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", "crd/powerdomains.wattpack.io"
    )
    return from_kubeconfig(control_plane.kubeconfig)


def some(rng: random.Random, options: dict[str, Any]) -> Json:
    """Each option or not."""
    return {key: value for key, value in options.items() if rng.random() < 0.5}


def random_spec(rng: random.Random) -> Json:
    """Some fields of a spec, some of them refused; maps are never applied empty.

    The real server turns a map into an invalid null when its last field is given up while
    somebody still owns the map itself; the embedded one removes or keeps it.
    """
    loads = [{"name": name, "worstWatts": rng.choice([1, 2])} for name in ("a", "b")]
    curve = {"curve": "Points"} if rng.random() < 0.2 else {}
    return some(
        rng,
        {
            "ratingWatts": rng.choice([1000, 2000, -1]) if rng.random() < 0.2 else 1000,
            "phases": rng.choice([1, 3]),
            "breaker": {"coolingSeconds": rng.choice([300, 900])} | some(rng, curve),
            "members": {"nodeNames": rng.sample(["n1", "n2", "n3"], 2)}
            | some(rng, {"nodeSelector": {"row": "a"} | some(rng, {"rack": rng.choice("12")})}),
            "externalLoads": rng.sample(loads, rng.randint(0, 2)),
            "meter": {"maxAgeSeconds": rng.choice([5, 10])} | some(rng, {"prometheusQuery": "up"}),
        },
    )


def random_status(rng: random.Random) -> Json:
    conditions = [
        {"type": kind, "status": rng.choice(["True", "False"]), "reason": "R"}
        for kind in ("Ready", "Accepted")
    ]
    return {"members": 3} | some(
        rng,
        {
            "drawWatts": rng.choice([1, 2]),
            "band": rng.choice(["Cap", "Free"]),
            "conditions": rng.sample(conditions, rng.randint(1, 2)),
        },
    )


def random_patch(rng: random.Random) -> list[Json]:
    return rng.choice(
        [
            [{"op": "replace", "path": "/spec/ratingWatts", "value": rng.choice([1000, 3000])}],
            [{"op": "add", "path": "/metadata/labels", "value": {"x": rng.choice("12")}}],
            [{"op": "remove", "path": "/metadata/labels"}],
            [{"op": "remove", "path": "/spec/phases"}],
            [
                {
                    "op": "add",
                    "path": "/spec/externalLoads/-",
                    "value": {"name": "c", "worstWatts": 1},
                }
            ],
            [{"op": "remove", "path": "/spec/externalLoads/0"}],
            [
                {"op": "test", "path": "/spec/phases", "value": 3},
                {"op": "add", "path": "/spec/members/nodeNames/0", "value": "n9"},
            ],
            [{"op": "copy", "from": "/spec/phases", "path": "/spec/phaseImbalance"}],
            [{"op": "test", "path": "/spec/absent", "value": 1}],
            [{"op": "add", "path": "/spec/unknown", "value": 1}],
        ]
    )


def random_call(rng: random.Random, name: str) -> Call:
    body: Json = {"apiVersion": DOMAINS.api_version, "kind": DOMAINS.kind}
    metadata: Json = {"name": name}
    manager, force = rng.choice(["one", "two"]), rng.random() < 0.5
    kind = rng.random()
    if kind < 0.45:
        labels = some(rng, {"x": rng.choice("12"), "y": "1"})
        spec = random_spec(rng)
        metadata = {**metadata, **({"labels": labels} if labels else {})}
        applied = {**body, "metadata": metadata, "spec": spec}
        return lambda api: api.apply(DOMAINS, applied, field_manager=manager, force=force)
    if kind < 0.7:
        applied = {**body, "metadata": metadata, "status": random_status(rng)}
        return lambda api: api.apply(
            DOMAINS, applied, field_manager=manager, force=force, subresource="status"
        )
    if kind < 0.9:
        operations = random_patch(rng)
        return lambda api: api.patch_json(DOMAINS, name, operations)
    # A map that an update brought stays owned by it: see random_spec.
    change = {key: value for key, value in random_spec(rng).items() if key != "meter"}

    def replace(api: KubeApi) -> Json:
        live = api.get(DOMAINS, name)
        return api.replace(DOMAINS, {**live, "spec": {**live["spec"], **change}})

    return replace


def outcome(api: KubeApi, call: Call, name: str) -> tuple[str, Any]:
    """What the call was answered, and what the object is afterwards."""
    try:
        call(api)
        answer = "done"
    except KubeError as error:
        answer = type(error).__name__
    try:
        stored = api.get(DOMAINS, name)
    except NotFoundError:
        return answer, None
    metadata = stored["metadata"]
    return answer, {
        "labels": metadata.get("labels") or {},
        "generation": metadata["generation"],
        "spec": stored.get("spec"),
        "status": stored.get("status") or {},
    }


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_have_equal_outcomes(real: KubeApi, seed: int) -> None:
    rng = random.Random(seed)
    embedded = EmbeddedKube(ManualClock())
    name = f"agree-{seed}"
    for step in range(STEPS):
        call = random_call(rng, name)
        wanted = outcome(real, call, name)
        got = outcome(embedded, call, name)
        assert got == wanted, f"seed {seed} step {step}"


def random_judged_spec(rng: random.Random) -> Json:
    """A spec near the edge of what the validators and CEL rules allow."""
    points = [
        {"loadRatio": rng.choice([1.5, 2, 3.0]), "tripSeconds": rng.choice([5, 10.5, 60])}
        for _ in range(rng.randint(0, 3))
    ]
    moments = ["09:00", "24:00", "2030-01-01T00:00:00Z", "2030-01-01T01:00:00+02:00", "soon"]
    window = {"start": rng.choice(moments), "end": rng.choice(moments), "budgetWatts": 1}
    redundancy = {"mode": rng.choice(["None", "2N", "KofN", "3N"]), "feeds": rng.randint(0, 3)}
    draw = rng.choice([0, 1, 1.5])
    return {
        "ratingWatts": rng.choice([1, 0.5, 0, 1e9, 1e10, "1", True, None]),
        **some(
            rng,
            {
                "breaker": some(rng, {"curve": rng.choice(["Points", "RackThermal"])})
                | some(rng, {"points": points}),
                "redundancy": redundancy | some(rng, {"requiredFeeds": rng.randint(1, 3)}),
                "budgets": [window],
                "nonGpuPerNode": {"worstWatts": 1}
                | some(rng, {"idleWatts": draw})
                | (random_line(rng) if rng.random() < 0.2 else {}),
                "phases": rng.choice([1, 3, 4, 1.5, "1"]),
                "enforcement": rng.choice(["DryRun", "Enforce", "enforce", None]),
                "parent": rng.choice(["hall", "Hall", "", None]),
                "members": {"nodeSelector": {"a": rng.choice(["b", "", 1])}},
                "loadDeclaredComplete": rng.choice([True, "true", 1]),
            },
        ),
    }


def random_line(rng: random.Random) -> Json:
    """What servers draw over their GPUs: mostly sound."""
    at_rest, slope = rng.choice([1, 1, 1, 1.5]), rng.choice([0.1, 0.1, 1, 1.5])
    both = {"worstAtRestWatts": at_rest, "wattsPerGpuWatt": slope}
    return both if rng.random() < 0.8 else some(rng, both)


def create_call(name: str, spec: Json) -> Call:
    body = {
        "apiVersion": DOMAINS.api_version,
        "kind": DOMAINS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    return lambda api: api.create(DOMAINS, body)


def test_random_specs_are_judged_alike(real: KubeApi) -> None:
    embedded = EmbeddedKube(ManualClock())
    rng = random.Random(5)
    accepted = 0
    for number in range(200):
        spec = (
            random_judged_spec(rng) if number % 2 else {**random_judged_spec(rng), "ratingWatts": 1}
        )
        name = f"judged-{number}"
        call = create_call(name, spec)
        wanted, got = outcome(real, call, name), outcome(embedded, call, name)
        assert got == wanted, spec
        accepted += wanted[0] == "done"
    assert 10 < accepted < 190, "both answers were met often enough to mean something"
