"""Nobody holds up planning for others by what a pod may list without an end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from scheduler_plugin.documents.node_rules import NodeTerm, Preference, Requirement, Toleration
from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.documents.snapshot import Node, Pod
from scheduler_plugin.kube_objects.own_rules import rules_of
from scheduler_plugin.kube_objects.peer_groups import PeerGroups
from scheduler_plugin.kube_objects.pods import gpu_model_values, gpu_models
from scheduler_plugin.kube_objects.wished_peers import MOST_WISHED_GROUPS, MOST_WISHES
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import pod_object
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE

HOSTNAME = "kubernetes.io/hostname"
NODES = [node(f"n{i:04}", 8, labels={HOSTNAME: f"n{i:04}"}) for i in range(1000)]
"""Each of a kind of its own for who selects by hostname."""


def elsewhere(number: int, operator: str = "In") -> NodeTerm:
    """A term that no node fulfils."""
    absent = Requirement(key=f"absent-{number}", operator="Exists")
    if operator == "Exists":
        return NodeTerm(match_expressions=(absent,))
    values = (str(10**6 + number),)
    rule = Requirement(key=HOSTNAME, operator=operator, values=values)  # type: ignore[arg-type]
    return NodeTerm(match_expressions=(rule, absent) if operator == "NotIn" else (rule,))


def planning_seconds(*pods: Pod, nodes: list[Node] = NODES) -> float:
    """Of CPU, for a plan that tells every cause and change."""
    question = snapshot(*nodes, *pods, pod("other", 8))
    began = time.process_time()
    made = plan(question, deadline_seconds=0)
    assert "other" in {placement.uid for placement in made.placements}
    assert made.refusals == ()
    return time.process_time() - began


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "Gt"])
def test_hundreds_of_terms_a_pod_cost_little(operator: str) -> None:
    pods = [
        pod(f"p{j}", required_terms=tuple(elsewhere(300 * j + i, operator) for i in range(300)))
        for j in range(20)
    ]
    # 12 s of the machine where it was found; a plan without them takes 0.1 s.
    assert planning_seconds(*pods) < 3


def test_hundreds_of_wishes_selectors_and_tolerations_cost_little() -> None:
    wishes = tuple(Preference(weight=1, term=elsewhere(i)) for i in range(300))
    bears = tuple(Toleration(key=f"k{i}", operator="Exists") for i in range(3000))
    labels = {f"absent-{i}": "x" for i in range(10_000)}
    here = NodeTerm(
        match_expressions=(Requirement(key=HOSTNAME, operator="NotIn", values=("n0000",)),)
    )
    pods = [
        pod("wishes", preferences=wishes),
        pod("bears", tolerations=bears, required_terms=(here,)),
        pod("labels", node_selector=labels),
    ]
    assert planning_seconds(*pods) < 3


def gated(name: str, **changes: Any) -> JsonObject:
    body = pod_object(name, 1, **changes)
    body["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return body


def apart_from(*names: str) -> JsonObject:
    """Required anti-affinity to pods of these names."""
    terms = [
        {"labelSelector": {"matchLabels": {"name": name}}, "topologyKey": HOSTNAME}
        for name in names
    ]
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAntiAffinity": {kind: terms}}


def test_rules_about_other_pods_cost_little_where_each_pod_has_labels_of_its_own() -> None:
    gates = [{"name": GATE}]
    runs = [
        gated(f"r{i}", labels={"name": f"r{i}"}, nodeName="n", affinity=apart_from(f"r{i}", "w7"))
        for i in range(1500)
    ]
    waits = [
        gated(
            f"w{i}",
            labels={"name": f"w{i}"},
            schedulingGates=gates,
            affinity=apart_from(*(f"x{i}-{j}" for j in range(100))),
        )
        for i in range(30)
    ]
    began = time.process_time()
    groups = PeerGroups([*runs, *waits])
    fields = {pod["metadata"]["name"]: groups.of(pod) for pod in [*runs, *waits]}
    # 11 s with every pod asked about every group.
    assert time.process_time() - began < 3
    assert len(fields["w0"]["peer_rules"]) == 100
    repelled = [name for name, found in fields.items() if found["groups"]]
    assert repelled == ["w7"]
    crowd = gated("p", affinity=apart_from(*map(str, range(101))))
    alone = PeerGroups([crowd])
    with pytest.raises(InputError, match="at most 100 rules"):
        alone.of_waiting(crowd)


def whoever_lacks(number: int, *, required: bool) -> JsonObject:
    """Anti-affinity to all pods without a label, a hundred times another one."""
    rules = [
        {
            "labelSelector": {
                "matchExpressions": [{"key": f"x{number}-{i}", "operator": "DoesNotExist"}]
            },
            "topologyKey": HOSTNAME,
        }
        for i in range(100)
    ]
    if required:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}}
    soft = [{"weight": 1, "podAffinityTerm": rule} for rule in rules]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft}}


@pytest.mark.parametrize("required", [True, False])
def test_selectors_that_any_pod_has_to_be_asked_about_have_an_end(required: bool) -> None:
    """300 pods with a hundred of their own each took minutes beside pods with labels of their own;
    another namespace has its rules all the same."""
    runs = [gated(f"r{i}", labels={"name": f"r{i}"}, nodeName="n0000") for i in range(1500)]
    waits = [
        gated(
            f"w{i}", schedulingGates=[{"name": GATE}], affinity=whoever_lacks(i, required=required)
        )
        for i in range(300)
    ]
    other = gated("other", schedulingGates=[{"name": GATE}], affinity=apart_from("web"))
    other["metadata"]["namespace"] = "elsewhere"
    began = time.process_time()
    groups = PeerGroups([*runs, *waits, other])
    fields = {pod["metadata"]["name"]: groups.of(pod) for pod in [*runs, *waits, other]}
    assert time.process_time() - began < 3
    assert len(fields["other"]["peer_rules"]) == 1
    asking = "peer_rules" if required else "peer_wishes"
    assert 0 < sum(bool(found.get(asking)) for found in fields.values()) < 300
    if required:
        with pytest.raises(InputError, match="fewer different rules about other pods"):
            groups.of_waiting(waits[-1])


def test_pods_with_the_most_wishes_that_there_can_be_are_planned_in_time() -> None:
    names = tuple(f"g{i}" for i in range(MOST_WISHED_GROUPS))
    pods = [
        pod(
            f"p{j}",
            milli_cpu=1000 + j,
            wished_groups=names,
            peer_wishes=tuple(
                PeerWish(
                    weight=1, group=names[(j * MOST_WISHES + i) % len(names)], topology_key=HOSTNAME
                )
                for i in range(MOST_WISHES)
            ),
        )
        for j in range(200)
    ]
    assert planning_seconds(*pods) < 3


def test_alternatives_that_volumes_multiply_have_an_end() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    places = [[term] * 20 for _ in range(4)]
    with pytest.raises(InputError, match="nodeSelectorTerms"):
        rules_of({}, places)
    assert len(rules_of({}, places[:3])["required_terms"]) == 8000


def test_a_pod_names_so_many_gpu_models_at_most() -> None:
    def naming(count: int) -> dict[str, object]:
        names = ",".join(f"M{i}=1" for i in range(count))
        return pod_object("p", annotations={"wattpack.io/gpu-models": names})

    assert len(gpu_models(naming(100))) == 100
    for reads in (gpu_models, gpu_model_values):
        with pytest.raises(InputError, match="at most 100 names"):
            reads(naming(101))
