"""What a kube-scheduler with our extender is told, as ``extender/v1`` JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler_plugin.app.extender import FILTER_PATH, PRIORITIZE_PATH, Extender
from scheduler_plugin.app.planning_cycle import CycleResult
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.kube_objects.extender_answers import HOLD_SECONDS, STALE_SECONDS
from tests.scheduler_plugin.placement_cluster import Cluster, pod_object
from wattpack.kube.port import NAMESPACES, PODS, JsonObject
from wattpack.times import rfc3339

NODES = ["n1", "n2", "n3"]
SPACE = "team"


class Shadow(Cluster):
    """A planner that touches nothing, and a kube-scheduler that asks."""

    def __init__(self) -> None:
        super().__init__(mode=Mode.SHADOW)
        labels = {"wattpack.io/placement": "enabled"}
        self.api.create(
            NAMESPACES, {"kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}}
        )
        self.add_nodes(*NODES[:2])
        self.extender = Extender(self.clock)

    def plan(self) -> CycleResult:
        result = self.loop.step()
        self.extender.planned(result, self.loop.reader.opted_in())
        return result

    def ask(self, path: str, name: str, **changes: Any) -> Any:
        return self.send(path, {"Pod": self.pod(name), "Nodes": None, "NodeNames": NODES} | changes)

    def send(self, path: str, body: object) -> Any:
        status, text = self.extender.routes()[path](json.dumps(body).encode())
        assert status == 200, text
        return json.loads(text)


@pytest.fixture
def shadow() -> Shadow:
    return Shadow()


def test_a_planned_pod_has_its_node_and_no_other(shadow: Shadow) -> None:
    shadow.add(pod_object("p", 8))
    (placement,) = shadow.plan().plan.placements  # type: ignore[union-attr]
    answer = shadow.ask(FILTER_PATH, "p")
    others = set(NODES) - {placement.node}
    assert answer["NodeNames"] == [placement.node]
    assert answer["FailedAndUnresolvableNodes"].keys() == others
    assert (answer["Nodes"], answer["FailedNodes"], answer["Error"]) == (None, {}, "")
    scores = {each["Host"]: each["Score"] for each in shadow.ask(PRIORITIZE_PATH, "p")}
    assert scores == {name: 10 if name == placement.node else 0 for name in NODES}


def test_a_pod_that_waits_has_no_node_and_the_cause(shadow: Shadow) -> None:
    shadow.add(pod_object("large", 9))
    shadow.plan()
    answer = shadow.ask(FILTER_PATH, "large")
    assert answer["NodeNames"] == []
    assert "LargerThanAnyNode" in answer["FailedAndUnresolvableNodes"]["n1"]
    assert {each["Score"] for each in shadow.ask(PRIORITIZE_PATH, "large")} == {0}


def test_two_planned_pods_never_get_the_same_room(shadow: Shadow) -> None:
    for i in range(2):
        shadow.add(pod_object(f"p{i}", 8))
    shadow.plan()
    nodes = [shadow.ask(FILTER_PATH, f"p{i}")["NodeNames"] for i in range(2)]
    assert sorted(nodes) == [["n1"], ["n2"]]


def new_pod(shadow: Shadow, name: str, **changes: Any) -> None:
    body = pod_object(name, changes.pop("gpus", 1), **changes)
    shadow.api.create(PODS, body, SPACE)


def created_now(shadow: Shadow, name: str) -> JsonObject:
    body = shadow.pod(name)
    body["metadata"]["creationTimestamp"] = rfc3339(shadow.clock.wall_time_ns())
    return body


def test_a_new_pod_waits_for_its_first_plan_but_not_for_ever(shadow: Shadow) -> None:
    shadow.plan()
    new_pod(shadow, "new")
    body = created_now(shadow, "new")
    assert shadow.ask(FILTER_PATH, "new", Pod=body)["NodeNames"] == []
    shadow.clock.advance_seconds(HOLD_SECONDS)
    assert shadow.ask(FILTER_PATH, "new", Pod=body)["NodeNames"] == NODES


@pytest.mark.parametrize(
    "changes", [{"gpus": 0}, {"schedulerName": "other"}], ids=["no GPU", "another scheduler"]
)
def test_pods_that_are_not_ours_pass(shadow: Shadow, changes: Mapping[str, Any]) -> None:
    shadow.plan()
    new_pod(shadow, "p", **changes)
    assert shadow.ask(FILTER_PATH, "p", Pod=created_now(shadow, "p"))["NodeNames"] == NODES


def test_without_a_plan_for_a_while_everything_passes(shadow: Shadow) -> None:
    shadow.add(pod_object("large", 9))
    shadow.plan()
    shadow.clock.advance_seconds(STALE_SECONDS + 1)
    assert shadow.ask(FILTER_PATH, "large")["NodeNames"] == NODES
    shadow.extender.planned(CycleResult("failed"), frozenset())
    assert shadow.ask(FILTER_PATH, "large")["NodeNames"] == NODES
    shadow.plan()
    assert shadow.ask(FILTER_PATH, "large")["NodeNames"] == []


def test_only_the_replica_that_plans_answers(shadow: Shadow) -> None:
    for end in (False, True):
        if end:
            shadow.plan()
            shadow.extender.planned(None, frozenset())
        status, text = shadow.extender.routes()[FILTER_PATH](b"{}")
        assert (status, text) == (503, b"another replica plans\n")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"Pod": {"spec": {}}, "NodeNames": []}',
        b'{"Pod": {"metadata": {"uid": "u"}, "spec": {}}, "Nodes": {"items": []}}',
        b'{"Pod": {"metadata": {"uid": "u"}, "spec": {}}, "NodeNames": [1]}',
    ],
)
def test_what_is_no_question_is_refused(shadow: Shadow, body: bytes) -> None:
    shadow.plan()
    for answer in shadow.extender.routes().values():
        status, text = answer(body)
        assert status == 400
        assert text.endswith(b"\n")


def test_keys_are_read_as_go_reads_them(shadow: Shadow) -> None:
    shadow.add(pod_object("p", 8))
    shadow.plan()
    asked = {"pod": shadow.pod("p"), "nodenames": NODES}
    assert len(shadow.send(FILTER_PATH, asked)["NodeNames"]) == 1


def test_the_page_has_a_configuration_that_leads_here() -> None:
    text = (Path(__file__).parents[2] / "docs" / "extender.md").read_text()
    (extender,) = yaml.safe_load(text.split("```yaml")[1].split("```")[0])["extenders"]
    prefix = "/" + extender["urlPrefix"].split("/", 3)[3]
    assert f"{prefix}/{extender['filterVerb']}" == FILTER_PATH
    assert f"{prefix}/{extender['prioritizeVerb']}" == PRIORITIZE_PATH
    assert extender["nodeCacheCapable"] is True
