"""Kueue's AdmissionCheck: places first, then the Workload, then its pods on these places."""

from __future__ import annotations

from typing import Any

from scheduler_plugin.app.kueue_checks import ADMISSION_CHECKS, RESOURCE_FLAVORS
from scheduler_plugin.kube_objects import pods as pod_facts
from simulation.kube import EmbeddedKube
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.gang_sources import KUEUE_WORKLOADS
from wattpack.kube.port import PODS, JsonObject, Resource

WORKLOADS, CHECKS, FLAVORS = KUEUE_WORKLOADS[0], ADMISSION_CHECKS[0], RESOURCE_FLAVORS[0]


class WithStatus(EmbeddedKube):
    """Kueue's kinds have a status of their own, which the embedded API keeps for ours alone."""

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        if resource.group == "kueue.x-k8s.io":
            assert subresource == "status", "only the status is ours to write"
            subresource = ""
        return super().replace(resource, body, namespace, subresource)


class Kueue(Cluster):
    """A cluster whose queues ask us."""

    def __init__(self, *nodes: str, gang_timeout_seconds: float = 300.0) -> None:
        super().__init__(kueue_admission_checks=True, gang_timeout_seconds=gang_timeout_seconds)
        self.api = WithStatus(self.clock)
        self.loop = self.new_loop()
        self.add_nodes(*nodes)
        self.put(CHECKS, "places", {"controllerName": "wattpack.io/placement"})
        self.put(CHECKS, "budget", {"controllerName": "example.com/budget"})

    def put(self, kind: Resource, name: str, spec: JsonObject, **more: Any) -> None:
        namespace = SPACE if kind.namespaced else None
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec, **more}
        self.api.create(kind, body | {"metadata": {"name": name}}, namespace)

    def ask(self, count: int, *checks: str, flavor: str = "", quota: bool = True) -> None:
        template = {"spec": pod_object("t", 8)["spec"]}
        pod_sets = [{"name": "main", "count": count, "template": template}]
        assigned = {"name": "main", "count": count, "flavors": {"nvidia.com/gpu": flavor}}
        pending = {"state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        condition = {"type": "QuotaReserved", "status": "True" if quota else "False"}
        status = {
            "conditions": [condition],
            "admission": {"podSetAssignments": [assigned]},
            "admissionChecks": [{"name": name, **pending} for name in checks or ("places",)],
        }
        self.put(WORKLOADS, "train", {"podSets": pod_sets}, status=status)

    def check(self, name: str = "places") -> JsonObject:
        status = self.api.get(WORKLOADS, "train", SPACE)["status"]
        (found,) = (c for c in status["admissionChecks"] if c["name"] == name)
        answer: JsonObject = found
        return answer

    def start_pods(self, count: int) -> None:
        """What the owner creates once Kueue has let it go, with what our answer adds."""
        (update,) = self.check()["podSetUpdates"]
        for i in range(count):
            marks = {"labels": dict(update["labels"]), "annotations": dict(update["annotations"])}
            self.add(pod_object(f"train-{i}", 8, **marks))


def test_a_workload_is_ready_once_all_of_its_pods_have_places_which_they_take() -> None:
    kueue = Kueue("n1", "n2")
    kueue.ask(2)
    kueue.loop.step()
    assert kueue.check()["state"] == "Ready"
    assert kueue.check()["message"] == "2 places are kept on n1, n2"
    kueue.add(pod_object("greedy", 8))
    assert kueue.loop.step().released == {}, "kept places are nobody else's"
    kueue.start_pods(2)
    released = kueue.loop.step().released
    assert released.keys() == {f"{SPACE}/train-0", f"{SPACE}/train-1"}
    assert sorted(released.values()) == ["n1", "n2"]


def test_a_workload_without_room_waits_and_says_why() -> None:
    kueue = Kueue("n1", "n2")
    kueue.ask(3)
    kueue.loop.step()
    check = kueue.check()
    assert check["state"] == "Pending"
    assert "3" in check["message"]
    assert "podSetUpdates" not in check
    assert kueue.loop.step().again_ns is not None
    kueue.add_nodes("n3")
    kueue.loop.step()
    assert kueue.check()["state"] == "Ready"


def test_only_our_check_of_a_workload_with_quota_is_answered() -> None:
    kueue = Kueue("n1")
    kueue.ask(1, "budget", quota=True)
    kueue.loop.step()
    assert kueue.check("budget")["state"] == "Pending"
    other = Kueue("n1")
    other.ask(1, quota=False)
    other.loop.step()
    assert other.check()["state"] == "Pending"


def test_kueue_is_told_that_somebody_answers_the_check() -> None:
    kueue = Kueue("n1")
    kueue.loop.step()
    conditions = kueue.api.get(CHECKS, "places")["status"]["conditions"]
    assert [(c["type"], c["status"]) for c in conditions] == [("Active", "True")]
    assert "status" not in kueue.api.get(CHECKS, "budget")


def test_places_that_nobody_took_in_time_send_the_workload_back() -> None:
    kueue = Kueue("n1", gang_timeout_seconds=30)
    kueue.ask(1)
    kueue.loop.step()
    assert kueue.check()["state"] == "Ready"
    kueue.clock.advance_seconds(31)
    kueue.add_nodes("n2")
    kueue.api.delete(Resource("", "v1", "nodes", "Node", False), "n1")
    kueue.api.delete(Resource("", "v1", "nodes", "Node", False), "n2")
    kueue.loop.step()
    assert kueue.check()["state"] == "Retry"


def test_a_pin_that_leads_nowhere_sends_the_whole_workload_back() -> None:
    kueue = Kueue("n1", "n2")
    kueue.ask(2)
    kueue.loop.step()
    kueue.start_pods(2)
    assert len(kueue.loop.step().released) == 2
    kueue.clock.advance_seconds(400)
    kueue.loop.step()
    assert kueue.check()["state"] == "Retry"
    assert "taken back whole" in kueue.check()["message"]
    names = {str(pod["metadata"]["name"]) for pod in kueue.api.list(PODS, SPACE).items}
    assert names == {"train-0", "train-1"}, "Kueue takes them away, all together"


def test_the_flavor_says_which_nodes_a_workload_may_have() -> None:
    kueue = Kueue("n1")
    kueue.add_nodes("n2", labels={"pool": "fast"})
    kueue.put(FLAVORS, "fast", {"nodeLabels": {"pool": "fast"}})
    kueue.ask(1, flavor="fast")
    kueue.loop.step()
    assert kueue.check()["message"] == "1 places are kept on n2"
    kueue.start_pods(1)
    kueue.loop.step()
    assert pod_facts.pinned_node(kueue.pod("train-0")) == "n2"


def test_a_new_process_keeps_the_places_that_were_promised() -> None:
    kueue = Kueue("n1")
    kueue.ask(1)
    kueue.loop.step()
    kueue.loop = kueue.new_loop()
    kueue.add(pod_object("greedy", 8))
    assert kueue.loop.step().released == {}
    kueue.start_pods(1)
    assert list(kueue.loop.step().released) == [f"{SPACE}/train-0"]


def test_nothing_is_read_or_written_unless_it_is_enabled() -> None:
    kueue = Kueue("n1")
    kueue.settings = kueue.settings.model_copy(update={"kueue_admission_checks": False})
    kueue.loop = kueue.new_loop()
    kueue.ask(1)
    assert kueue.loop.step().again_ns is None
    assert kueue.check()["state"] == "Pending"
