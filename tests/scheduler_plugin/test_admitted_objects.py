"""Whatever pod or node an API server admits, planning and admission read it or say what is odd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import gate_patch
from scheduler_plugin.kube_objects.pod_claims import CLAIM_NOT_COUNTED
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import BuiltSnapshot, ClusterObjects, build_snapshot
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_cluster import node_object, pod_object
from wattpack.errors import InputError
from wattpack.gangs import GangSources
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE

EMPTY = {"metadata": {"name": "none"}}
QUANTITIES = st.sampled_from(["0", "1", "1k", "1e3", "2E", "7Ei", "9223372036854775807", "100m"])
WHOLE = st.sampled_from(["0", "1", "8", "1k", "1e3", "2E", "9223372036854775807"])
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi"]), QUANTITIES
)
EXTENDED = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "rdma/hca"]), WHOLE
)
AMOUNTS = st.builds(lambda a, b: a | b, RESOURCES, EXTENDED)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"])},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS}),
        "restartPolicy": st.just("Always"),
    },
)
LONG = st.sampled_from(["", "x", "y" * 700, "ü" * 50, "4", "-4", "0.7kW", "9" * 5000])
MARKS = st.dictionaries(
    st.sampled_from(
        [
            "wattpack.io/gang-size",
            "wattpack.io/gpu-models",
            "wattpack.io/kernel-class",
            "wattpack.io/expected-watts-per-gpu",
            "leaderworkerset.sigs.k8s.io/size",
        ]
    ),
    LONG,
)
LABELS = st.dictionaries(
    st.sampled_from(
        [
            "wattpack.io/gang",
            "batch.kubernetes.io/job-name",
            "jobset.sigs.k8s.io/jobset-name",
            "scheduling.x-k8s.io/pod-group",
            "leaderworkerset.sigs.k8s.io/name",
            "leaderworkerset.sigs.k8s.io/group-index",
        ]
    ),
    st.sampled_from(["", "g", "0"]),
)
RULE = st.fixed_dictionaries(
    {"key": st.sampled_from(["zone", "metadata.name"]), "operator": st.sampled_from(["In", "Gt"])},
    optional={"values": st.lists(st.sampled_from(["1", "a"]), max_size=2)},
)
TERM = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(RULE, max_size=2), "matchFields": st.lists(RULE)}
)
REQUIRED = st.fixed_dictionaries({"nodeSelectorTerms": st.lists(TERM, min_size=1, max_size=2)})
WISH = st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERM})
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": REQUIRED,
                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(WISH, max_size=2),
            },
        ),
        "podAffinity": st.just({}),
    },
)
#: Of objects that are not there: the API server takes pods before their claims.
CLAIMS = st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"]).map(
    lambda source: [{"name": "c", source: "gone"}]
)
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINER, max_size=2),
        "overhead": RESOURCES,
        "resources": st.fixed_dictionaries({}, optional={"requests": RESOURCES}),
        "resourceClaims": CLAIMS,
        "nodeName": st.sampled_from(["n", "gone"]),
        "schedulingGates": st.sampled_from([[{"name": GATE}], [{"name": "x"}, {"name": GATE}]]),
        "affinity": AFFINITY,
        "tolerations": st.sampled_from([[{}], [{"operator": "Exists"}], [{"operator": "Lt"}]]),
        "priority": st.sampled_from([-(2**31), 2**31 - 1]),
        "nodeSelector": st.just({"zone": "a"}),
    },
)


@st.composite
def pods(draw: st.DrawFn) -> JsonObject:
    body = pod_object("p")
    body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    body["metadata"] |= {"labels": draw(LABELS), "annotations": draw(MARKS)}
    body["spec"] = draw(SPEC)
    body["status"] = {"phase": draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]))}
    return body


def built(body: JsonObject, *nodes: JsonObject) -> BuiltSnapshot:
    from scheduler_plugin.kube_objects.power_view import PowerView

    other = pod_object("good", schedulingGates=[{"name": GATE}])
    other["metadata"] |= {"uid": "good", "resourceVersion": "1"}
    objects = ClusterObjects(
        nodes=nodes, pods=(body, other), power=PowerView((), ()), models={},
        gangs=GangSources.empty(),
    )  # fmt: skip
    return build_snapshot(objects, Ledger())


@examples(200)
@given(pods(), AMOUNTS)
def test_any_admitted_pod_on_any_admitted_node_spoils_no_other(
    body: JsonObject, offered: dict[str, str]
) -> None:
    odd = node_object("n")
    odd["status"]["allocatable"] = offered
    found = built(body, odd, node_object("roomy", 64))
    assert "good" in found.pending
    made = plan(found.snapshot, deadline_seconds=0)
    assert made.refusals == ()
    assert "good" in {p.uid for p in made.placements}
    waits = pod_facts.gates(body) == [GATE] and not body["spec"].get("nodeName")
    if waits and body["status"]["phase"] in ("Pending", "Running"):
        uncounted = found.later.get("u", ("", ""))[0] == CLAIM_NOT_COUNTED
        assert uncounted <= ("resourceClaims" in body["spec"])
        assert ["u" in found.pending, "u" in found.refused, uncounted].count(True) == 1


@examples(150)
@given(pods())
def test_any_admitted_pod_is_gated_left_alone_or_refused_by_a_field(body: JsonObject) -> None:
    try:
        operations = gate_patch(body)
    except InputError as error:
        assert error.field  # noqa: PT017
        return
    alone = pod_facts.unmanaged_reason(body) or pod_facts.is_gated(body)
    assert bool(operations) is not bool(alone)


@pytest.mark.parametrize("missing", ["labels", "annotations", "ownerReferences"])
def test_missing_metadata_is_no_metadata(missing: str) -> None:
    body: dict[str, Any] = pod_object("p", schedulingGates=[{"name": GATE}])
    body["metadata"] |= {"uid": "u", missing: None}
    assert "u" in built(body, node_object("n")).pending
