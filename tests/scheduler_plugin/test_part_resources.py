"""Parts of boards as clusters have them: what they draw, and boards that HAMi shares."""

from __future__ import annotations

import json
import math

import pytest

from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.kube_objects.hami_boards import registered_boards
from scheduler_plugin.kube_objects.power_view import PowerView, model_watts
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import ClusterObjects, build_snapshot
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_cluster import node_object, pod_object
from wattpack.gangs import GangSources
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE

TYPES = model_watts(ProfileBook.shipped(shipped_library()))
REGISTER = "hami.io/node-nvidia-register"
ALLOCATED = "hami.io/vgpu-devices-allocated"


def read(nodes: list[JsonObject], pods: list[JsonObject]) -> Snapshot:
    for i, body in enumerate(pods):
        body["metadata"]["uid"] = f"uid-{i}"
    objects = ClusterObjects(
        nodes=tuple(nodes),
        pods=tuple(pods),
        power=PowerView((), ()),
        models=TYPES,
        gangs=GangSources.empty(),
    )
    return build_snapshot(objects, Ledger()).snapshot


def gated(name: str, **asks: str) -> JsonObject:
    return pod_object(name, 0, asks=asks, schedulingGates=[{"name": GATE}])


def test_an_instance_that_exists_is_planned_and_draws_its_part() -> None:
    name = "nvidia.com/mig-1g.18gb"
    labels = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "1"}
    node = node_object("a", 0, offers={name: "2"}, labels=labels)
    s = read([node], [gated(f"p{i}", **{name: "1"}) for i in range(3)])
    made = plan(s)
    watts = math.ceil(s.nodes[0].watts_per_gpu * 143 / 1000)
    assert [(p.node, p.watts) for p in made.placements] == [("a", watts)] * 2
    assert watts > 0
    assert [p.reason for p in made.pending] == ["InsufficientResource"]


def hami_node(boards: int) -> JsonObject:
    told = [{"id": f"GPU-{i}", "count": 10, "devmem": 80_000} for i in range(boards)]
    body = node_object("h", 10 * boards)
    body["metadata"]["annotations"] = {REGISTER: json.dumps(told)}
    return body


def held(name: str, allocated: str) -> JsonObject:
    body = pod_object(name, 1, nodeName="h", schedulerName="hami-scheduler")
    body["metadata"]["annotations"] = {ALLOCATED: allocated}
    return body


def test_boards_that_hami_shares_are_counted_once() -> None:
    s = read(
        [hami_node(3)],
        [
            held("half", "GPU-1,NVIDIA,20000,50:;"),
            held("memory", "GPU-1,NVIDIA,20000,0:;"),
            held("two", "GPU-0,NVIDIA,1000,10:GPU-2,NVIDIA,1000,10:;"),
            held("unread", "GPU-7,NVIDIA,1000,10:;"),
        ],
    )
    assert s.nodes[0].gpu_milli == 3000
    one = read([node_object("h", 1)], []).nodes[0]
    assert abs(s.nodes[0].idle_watts - 3 * one.idle_watts) < 3
    pods = {p.name: (p.gpu_milli, p.gpu_boards, p.drawn_milli) for p in s.pods}
    assert pods == {
        "half": (500, (1,), 0),
        "memory": (250, (1,), 750),
        "two": (2000, (0, 2), 0),
        "unread": (1000, (), 0),
    }


@pytest.mark.parametrize(
    ("text", "boards"),
    [
        ("GPU-a,10,32768,100,NVIDIA-V100,0,true:GPU-b,10,32768,100,NVIDIA-V100,0,true:", 2),
        ('[{"id": "GPU-a", "devmem": 1}]', 1),
        ("", None),
        ("[", None),
        ("[]", None),
        ('[{"id": "GPU-a"}]', None),
        ("[1]", None),
        ("GPU-a,ten", None),
    ],
)
def test_registered_boards_are_read_or_none_at_all(text: str, boards: int | None) -> None:
    found = registered_boards({"metadata": {"annotations": {REGISTER: text}}})
    assert (None if found is None else len(found)) == boards
