"""The taint ``wattpack.io/uncontrolled`` (I1): on before work, off once every cap was read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from controller.app.desired_state import ObjectStore
from controller.app.taint_writer import TaintThread
from controller.app.tick_loop import TickOutcome
from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from controller.uncontrolled_taint import (
    EFFECT,
    LISTENING_NS,
    PATIENCE_NS,
    TAINT_KEY,
    Word,
    has_taint,
    taint_patch,
    unheld_gpus,
    wanted_taint,
)
from simulation.kube import EmbeddedKube
from tests.controller.builders import SETTINGS, make_observations, make_topology, seconds
from wattpack.api import PowerDomain
from wattpack.clock import ManualClock
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import EVENTS, NODES, ForbiddenError, JsonObject, KubeApi, Resource
from wattpack.kube.write_budget import TokenBucket, write_budget
from wattpack.power.power_grid import PowerGrid

OURS = {"key": TAINT_KEY, "effect": EFFECT}
FOREIGN = [
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": TAINT_KEY, "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
]
START = seconds(1000)

# -- the rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        (Word(enforcing=True, held=False, tainted=False), True),
        (Word(enforcing=True, held=False, tainted=True), True),
        (Word(enforcing=True, held=True, tainted=True), False),
        (Word(enforcing=True, held=True, tainted=False), False),
        (Word(enforcing=False, held=False, tainted=True), False),
        (Word(enforcing=False, held=False, tainted=False), False),
        (Word(True, False, False, listening_ns=LISTENING_NS - 1), False),
        (Word(True, False, True, listening_ns=0), True),
        (Word(True, False, False, PATIENCE_NS - 1, was_held=True), False),
        (Word(True, False, False, PATIENCE_NS, was_held=True, listening_ns=0), True),
    ],
)
def test_a_server_is_tainted_while_an_enforcing_domain_cannot_vouch_for_it(
    word: Word, wanted: bool
) -> None:
    assert wanted_taint(word) is wanted


def test_a_gpu_is_held_when_it_is_controlled_read_back_and_heard() -> None:
    topology = make_topology(nodes=[0, 0, 0], gpus_per_node=2)
    controlled = np.array([True, False, True, True, True, True])
    guaranteed = topology.guaranteed_watts.copy()
    guaranteed[3] = np.nan
    seen = make_observations(
        topology, START, gpu_controlled=controlled, gpu_guaranteed_watts=guaranteed
    )
    heard = np.zeros(3, dtype=np.bool_)
    assert unheld_gpus(topology, seen, heard).tolist() == [1, 1, 0]
    assert unheld_gpus(topology, seen, ~heard).tolist() == [2, 2, 2]


# -- the patch ---------------------------------------------------------------------------------


def plain(spec: Any = None, version: str = "5") -> JsonObject:
    body: JsonObject = {"metadata": {"name": "n", "resourceVersion": version}}
    return body if spec is None else {**body, "spec": spec}


@pytest.mark.parametrize(
    "spec",
    [None, {}, {"taints": None}, {"taints": []}, {"taints": FOREIGN}, {"unschedulable": True}],
)
def test_adding_and_removing_keeps_everything_else(spec: Any) -> None:
    node = plain(spec)
    tainted = apply_json_patch(node, taint_patch(node, wanted=True))
    assert tainted["spec"]["taints"] == [*((spec or {}).get("taints") or []), OURS]
    assert taint_patch(tainted, wanted=True) == []
    clean = apply_json_patch(tainted, taint_patch(tainted, wanted=False))
    assert (clean["spec"].get("taints") or []) == ((spec or {}).get("taints") or [])
    assert taint_patch(clean, wanted=False) == []


def test_ours_is_removed_from_any_place_and_with_any_value() -> None:
    first = {**OURS, "value": "by-the-kubelet"}
    node = plain({"taints": [first, *FOREIGN, OURS]})
    clean = apply_json_patch(node, taint_patch(node, wanted=False))
    assert clean["spec"]["taints"] == FOREIGN


def test_the_same_key_with_another_effect_is_somebody_elses() -> None:
    assert not has_taint(FOREIGN)


def test_the_patch_holds_for_the_version_that_was_read() -> None:
    assert taint_patch(plain({}, "77"), wanted=True)[0] == {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": "77",
    }


# -- the reconciler ----------------------------------------------------------------------------


class Accepted:
    """Domains that run."""

    def __init__(self, *domains: PowerDomain) -> None:
        self.grid = PowerGrid.of({domain.name: domain.spec for domain in domains})


class Bench:
    """An API with nodes, an informer's store by hand, and the reconciler."""

    def __init__(
        self,
        *,
        enforcement: str = "Enforce",
        nodes: int = 3,
        api: Callable[[EmbeddedKube], KubeApi] = lambda kube: kube,
        bucket: TokenBucket | None = None,
    ) -> None:
        self.clock = ManualClock(START)
        self.kube = EmbeddedKube(self.clock)
        self.store = ObjectStore()
        self.enforcing = enforcement == "Enforce"
        domain = PowerDomain.model_validate(
            {
                "apiVersion": "wattpack.io/v1alpha1",
                "kind": "PowerDomain",
                "metadata": {"name": "row"},
                "spec": {
                    "ratingWatts": 100_000,
                    "enforcement": enforcement,
                    "members": {"nodeSelector": {"row": "1"}},
                },
            }
        )
        self.thread = TaintThread(
            api(self.kube),
            self.clock,
            self.store,
            Accepted(domain),  # type: ignore[arg-type]
            bucket or write_budget(self.clock),
            "controller-0",
        )
        for index in range(nodes):
            self.add_node(f"node-{index}")
        self.sync()

    def add_node(
        self,
        name: str,
        *,
        gpus: int | str = 8,
        resource: str = "nvidia.com/gpu",
        row: str = "1",
        taints: Any = (),
    ) -> None:
        made = self.kube.create(
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"row": row}},
                "spec": {"taints": list(taints)} if taints else {},
            },
        )
        capacity = {resource: str(gpus)} if gpus else {"cpu": "8"}
        self.kube.replace(NODES, {**made, "status": {"capacity": capacity}}, subresource="status")

    def sync(self) -> None:
        """What the informer does."""
        bodies = {b["metadata"]["name"]: b for b in self.kube.list(NODES).items}
        for name, body in list(self.store.objects.nodes.items()):
            if name not in bodies:
                self.store.changed(NODES, body, None)
        for body in bodies.values():
            self.store.changed(NODES, None, body)

    def look(
        self,
        unheld: Sequence[int] = (),
        *,
        reporting: int = 3,
        silent: Sequence[int] = (),
        leading: bool = True,
        after: float = 2.0,
        sync: bool = True,
    ) -> None:
        """One outcome of the tick, and one look of the reconciler."""
        self.clock.advance_seconds(after)
        topology = make_topology(
            parents=[-1], nodes=[0] * reporting, gpus_per_node=2, enforce=self.enforcing
        )
        self.thread.take(outcome(topology, self.clock.monotonic_ns(), unheld, silent, leading))
        self.thread.run_once()
        if sync:
            self.sync()

    def listen(self, **options: Any) -> None:
        """Long enough to have heard everybody who speaks."""
        self.look(**options)
        self.look(after=LISTENING_NS / seconds(1), **options)

    def tainted(self) -> list[str]:
        items = self.kube.list(NODES).items
        return [n["metadata"]["name"] for n in items if has_taint(n["spec"].get("taints") or ())]

    def events(self) -> list[tuple[str, str, str]]:
        items = self.kube.list(EVENTS).items
        return [(e["reason"], e["regarding"]["name"], e["note"]) for e in items]


def outcome(
    topology: Topology,
    now_ns: int,
    unheld: Sequence[int],
    silent: Sequence[int],
    leading: bool,
) -> TickOutcome:
    by_node = np.isin(topology.node_of_gpu, list(unheld))
    received = np.full(topology.n_nodes, now_ns, dtype=np.int64)
    received[list(silent)] = now_ns - seconds(10)
    seen = make_observations(
        topology,
        now_ns,
        gpu_controlled=~by_node,
        gpu_guaranteed_watts=np.where(by_node, np.nan, topology.guaranteed_watts),
        node_received_ns=received,
        leading=leading,
    )
    _, _, decisions = step(
        Tick(topology, seen, SETTINGS, now_ns), initial_state(topology, SETTINGS)
    )
    return TickOutcome(topology, seen, decisions, 0)


def test_servers_whose_caps_are_read_back_are_never_touched() -> None:
    bench = Bench()
    before = bench.kube.list(NODES).resource_version
    bench.listen()
    assert bench.tainted() == []
    assert bench.kube.list(NODES).resource_version == before
    assert bench.events() == []


def test_an_uncontrolled_server_is_tainted_and_freed_at_the_first_look_after_its_read_back() -> (
    None
):
    bench = Bench()
    bench.listen(unheld=[1])
    assert bench.tainted() == ["node-1"]
    bench.look()
    assert bench.tainted() == []
    reasons = [(reason, name) for reason, name, _ in bench.events()]
    assert reasons == [("NodeUncontrolled", "node-1"), ("NodeControlled", "node-1")]
    assert "2 of 2 GPUs" in bench.events()[0][2]


def test_a_domain_in_dry_run_taints_nobody_and_gives_servers_back() -> None:
    bench = Bench(enforcement="DryRun")
    bench.add_node("node-9", taints=[OURS])
    bench.sync()
    bench.listen(unheld=[0, 1, 2], silent=[0])
    assert bench.tainted() == []


def test_an_arriving_server_is_tainted_before_its_agent_speaks() -> None:
    bench = Bench()
    bench.listen()
    bench.add_node("node-new")
    bench.add_node("node-cpu", gpus=0)
    bench.add_node("node-elsewhere", row="2")
    bench.sync()
    bench.look()
    assert bench.tainted() == ["node-new"]
    assert "no agent has reported" in bench.events()[0][2]


@pytest.mark.parametrize(
    ("resource", "gpus"),
    [("nvidia.com/gpu", "1k"), ("amd.com/gpu", 8), ("nvidia.com/mig-1g.10gb", 56)],
)
def test_an_arriving_server_is_tainted_whatever_its_gpus_are_called(
    resource: str, gpus: int | str
) -> None:
    bench = Bench()
    bench.listen()
    bench.add_node("node-new", resource=resource, gpus=gpus)
    bench.sync()
    bench.look()
    assert bench.tainted() == ["node-new"]


def test_a_server_that_registered_with_the_taint_loses_it_once_it_is_held() -> None:
    bench = Bench(nodes=2)
    bench.add_node("node-2", taints=[*FOREIGN, OURS])
    bench.sync()
    bench.look(reporting=2)
    assert bench.tainted() == ["node-2"]
    bench.look(reporting=3)
    assert bench.tainted() == []
    assert bench.kube.get(NODES, "node-2")["spec"]["taints"] == FOREIGN


def test_a_server_keeps_the_taint_it_registered_with_while_its_gpus_are_not_offered_yet() -> None:
    bench = Bench(nodes=2)
    bench.add_node("node-2", gpus=0, taints=[OURS])
    bench.sync()
    bench.listen(reporting=2)
    assert bench.tainted() == ["node-2"]


def test_a_controller_that_just_started_taints_nobody_for_not_having_spoken_yet() -> None:
    bench = Bench()
    bench.look(reporting=1, after=0)
    bench.look(reporting=1, after=LISTENING_NS / seconds(1) - 2)
    assert bench.tainted() == []
    bench.look(reporting=1)
    assert bench.tainted() == ["node-1", "node-2"]


def test_an_agent_that_is_rolled_out_moves_no_taint_and_one_that_stays_away_does() -> None:
    bench = Bench()
    bench.listen()
    for _ in range(4):
        bench.look(silent=[2])
    assert bench.tainted() == []
    bench.look(silent=[2])
    assert bench.tainted() == ["node-2"]
    assert "silent" in bench.events()[0][2]


def test_a_standby_writes_nothing_but_remembers_who_was_held() -> None:
    bench = Bench()
    bench.listen(leading=False)
    bench.look(unheld=[0], leading=False, after=30)
    assert bench.tainted() == []
    bench.look(unheld=[0], after=2)
    assert bench.tainted() == ["node-0"]


def test_a_node_that_changed_since_it_was_read_is_judged_again_and_keeps_the_change() -> None:
    bench = Bench()
    bench.listen()
    bench.kube.patch_json(
        NODES, "node-0", [{"op": "add", "path": "/spec/taints", "value": FOREIGN}]
    )
    bench.look(unheld=[0], after=20, sync=False)
    assert bench.tainted() == []
    bench.sync()
    bench.look(unheld=[0])
    assert bench.kube.get(NODES, "node-0")["spec"]["taints"] == [*FOREIGN, OURS]


def test_a_node_that_is_gone_holds_up_nobody() -> None:
    bench = Bench()
    bench.listen()
    bench.kube.delete(NODES, "node-0")
    bench.look(unheld=[0, 1], after=20, sync=False)
    assert bench.tainted() == ["node-1"]


def test_taints_wait_for_the_write_budget() -> None:
    bucket = TokenBucket(0.5, 1.0, START)
    bench = Bench(nodes=4, bucket=bucket)
    bench.listen(unheld=[0, 1, 2, 3], reporting=4)
    assert len(bench.tainted()) == 1
    for _ in range(3):
        bench.look(unheld=[0, 1, 2, 3], reporting=4)
    assert len(bench.tainted()) == 4


def test_an_api_that_fails_is_asked_again_later() -> None:
    faulty: list[FaultyKube] = []

    def wrapped(kube: EmbeddedKube) -> KubeApi:
        faulty.append(FaultyKube(kube, FaultRates(server_error=1.0)))
        return faulty[0]

    bench = Bench(api=wrapped)
    bench.listen(unheld=[0, 1])
    assert bench.tainted() == []
    faulty[0].rates = FaultRates()
    bench.look(unheld=[0, 1])
    assert bench.tainted() == ["node-0", "node-1"]


def test_without_the_right_to_patch_nodes_the_api_is_left_alone_for_a_minute() -> None:
    asked: list[str] = []

    class Refusing:
        def patch_json(self, resource: object, name: str, *_: object, **__: object) -> JsonObject:
            asked.append(name)
            raise ForbiddenError("no role")

    bench = Bench(api=lambda kube: Refusing())  # type: ignore[arg-type,return-value]
    bench.listen(unheld=[0, 1])
    for _ in range(20):
        bench.look(unheld=[0, 1])
    assert asked == ["node-0"]
    bench.look(unheld=[0, 1], after=60)
    assert asked == ["node-0", "node-1"]


def test_a_node_that_a_webhook_keeps_as_it_is_holds_up_no_other() -> None:
    class Webhook:
        def __init__(self, kube: EmbeddedKube) -> None:
            self.kube = kube

        def patch_json(self, resource: Resource, name: str, operations: Any) -> JsonObject:
            if name == "node-0":
                raise ForbiddenError('admission webhook "nodes.example" denied the request')
            return self.kube.patch_json(resource, name, operations)

        def create(self, *arguments: Any) -> JsonObject:
            return self.kube.create(*arguments)

    bench = Bench(api=Webhook)  # type: ignore[arg-type]
    bench.listen(unheld=[0, 1])
    assert bench.tainted() == []
    bench.look(unheld=[0, 1], after=60)
    assert bench.tainted() == ["node-1"]
    bench.look(after=60)
    assert bench.tainted() == []


def test_without_a_new_outcome_nothing_is_judged() -> None:
    bench = Bench()
    bench.listen(unheld=[0])
    bench.kube.patch_json(NODES, "node-0", [{"op": "remove", "path": "/spec/taints"}])
    bench.sync()
    bench.thread.run_once()
    assert bench.tainted() == []
