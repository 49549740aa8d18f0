"""Jobs that CP-SAT leaves where greedy put them get other places, and more comes in."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.plan_document import Pending, PendingReason, Placement, Plan
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import GIB

ZONE = "zone"


def placed_value(made: Plan) -> tuple[int, ...]:
    return tuple(tier.placed_value for tier in made.tiers)


def test_a_share_that_stands_in_the_way_of_slices_with_rules_waits() -> None:
    apart = PeerRule(kind=PeerKind.APART, group="ga", topology_key=ZONE)
    pods = (
        Pod(uid="a", gpu_milli=300),
        Pod(uid="b", mig_profiles={"3g.20gb": 1}),
        Pod(uid="c", mig_profiles={"2g.10gb": 2}, peer_rules=(apart,)),
    )
    one = Node(name="n", gpu_milli=1000, milli_cpu=8_000, memory_bytes=0, mig_geometry="A100-40GB")
    made = plan(Snapshot(nodes=(one,), pods=pods))
    assert {p.uid for p in made.placements} == {"b", "c"}


def test_who_wants_company_draws_it_to_where_there_is_room_for_all() -> None:
    near = PeerRule(kind=PeerKind.TOGETHER, group="gb", topology_key=ZONE)
    sizes: dict[str, dict[str, Any]] = {
        "a": {"milli_cpu": 100, "gpu_milli": 999},
        "b": {"milli_cpu": 4_000, "gpu_milli": 1000},
        "c": {"milli_cpu": 2_000, "gpu_milli": 333, "groups": ("gb",)},
        "d": {"milli_cpu": 100, "gpu_milli": 1000, "groups": ("gb",), "peer_rules": (near,)},
    }
    nodes = (
        Node(name="n0", milli_cpu=4_000, memory_bytes=64 * GIB, gpu_milli=4000, labels={ZONE: "z"}),
        Node(
            name="n1", milli_cpu=16_000, memory_bytes=64 * GIB, gpu_milli=2000, labels={ZONE: "y"}
        ),
    )
    made = plan(Snapshot(nodes=nodes, pods=tuple(Pod(uid=u, **v) for u, v in sizes.items())))
    assert made.pending == ()
    assert made.gap == 0.0


def test_who_was_sent_first_keeps_its_company_beside_guests_of_the_group() -> None:
    near = PeerRule(kind=PeerKind.TOGETHER, group="ga", topology_key=ZONE)
    pods = (
        Pod(uid="a", gpu_milli=4000, groups=("ga",), peer_rules=(near,)),
        Pod(uid="b", gpu_milli=2000, peer_rules=(near,)),
        Pod(uid="c", gpu_milli=1000, groups=("ga",)),
    )
    nodes = tuple(
        Node(name=z, milli_cpu=8_000, memory_bytes=0, gpu_milli=milli, labels={ZONE: z})
        for z, milli in (("x", 6000), ("y", 1000))
    )
    made = plan(Snapshot(nodes=nodes, pods=pods))
    assert {p.uid: p.node for p in made.placements} == {"a": "x", "b": "x"}, "c would found another"


@st.composite
def small_ones(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(
        Node(
            name=f"n{i}",
            gpu_milli=draw(st.sampled_from([1000, 2000, 4000])),
            milli_cpu=8_000,
            memory_bytes=0,
            labels={ZONE: draw(st.sampled_from("xy"))},
        )
        for i in range(draw(st.integers(2, 3)))
    )
    rules = st.builds(
        PeerRule,
        kind=st.sampled_from([PeerKind.APART, PeerKind.SPREAD]),
        group=st.sampled_from(["ga", "gb"]),
        topology_key=st.just(ZONE),
    )
    pods = [
        Pod(
            uid=f"p{i}",
            gpu_milli=draw(st.sampled_from([1000, 1000, 2000, 3000])),
            milli_cpu=draw(st.sampled_from([1_000, 4_000])),
            groups=draw(st.sampled_from([(), ("ga",), ("gb",)])),
            peer_rules=draw(st.sampled_from([(), (draw(rules),)])),
        )
        for i in range(draw(st.integers(3, 4)))
    ]
    gang = Gang(id="g", size=2, topology_key=ZONE, topology_required=True)
    if draw(st.booleans()):
        pods += [Pod(uid=f"g{i}", gpu_milli=1000, milli_cpu=1_000, gang="g") for i in range(2)]
    return Snapshot(nodes=nodes, pods=tuple(pods), gangs=(gang,))


def most_placed(snapshot: Snapshot) -> int:
    """Of all assignments that the checker accepts, the most thousandths of boards."""
    names = ["", *[node.name for node in snapshot.nodes]]
    digest = snapshot.digest()

    def value(chosen: tuple[str, ...]) -> int:
        at = zip(snapshot.pods, chosen, strict=True)
        return sum(pod.gpu_milli for pod, name in at if name)

    for chosen in sorted(product(names, repeat=len(snapshot.pods)), key=value, reverse=True):
        at = list(zip(snapshot.pods, chosen, strict=True))
        forged = Plan(
            snapshot_digest=digest,
            method="greedy",
            placements=tuple(
                Placement(uid=p.uid, node=name, gang=p.gang, watts=0) for p, name in at if name
            ),
            pending=tuple(
                Pending(uid=p.uid, gang=p.gang, reason=PendingReason.INSUFFICIENT_GPUS, message="x")
                for p, name in at
                if not name
            ),
            gap=0.0,
        )
        if not complaints(snapshot, forged, digest=digest):
            return value(chosen)
    raise AssertionError("nothing placed breaks no rule")


@examples(40)
@given(small_ones())
def test_of_small_snapshots_with_rules_the_best_assignment_is_found(s: Snapshot) -> None:
    made = plan(s)
    assert complaints(s, made) == ()
    assert sum(placed_value(made)) == most_placed(s)
