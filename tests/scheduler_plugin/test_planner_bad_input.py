"""Wrong snapshots are refused by field name; wrong plans are refused by the checker."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.plan_document import Plan, parse_plan, plan_schema
from scheduler_plugin.documents.snapshot import Gang, Snapshot, parse_snapshot, snapshot_schema
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from wattpack.errors import InputError

GOOD: dict[str, Any] = json.loads(
    snapshot(domain("d", 10_000), node("a", domain="d"), pod("p")).model_dump_json()
)


def changed(path: str, value: object) -> str:
    document = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = document
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("nodes.0.milli_cpu", "64", "nodes.0.milli_cpu"),
        ("nodes.0.milli_cpu", -1, "nodes.0.milli_cpu"),
        ("nodes.0.milli_cpu", 0.5, "nodes.0.milli_cpu"),
        ("nodes.0.milli_cpu", True, "nodes.0.milli_cpu"),
        ("nodes.0.memory_bytes", 2**60, "nodes.0.memory_bytes"),
        ("nodes.0.gpu_milli", 8, "nodes.0.gpu_milli"),
        ("nodes.0.gpu_milli", 2**40, "nodes.0.gpu_milli"),
        ("nodes.0.watts_per_gpu", 700_000, "nodes.0.watts_per_gpu"),
        ("nodes.0.class_watts_per_gpu", {"decode": -1}, "nodes.0.class_watts_per_gpu.decode"),
        ("nodes.0.cpu", 8, "nodes.0.cpu"),
        ("nodes.0.name", "", "nodes.0.name"),
        ("nodes.0.name", "a\0b", "nodes.0.name"),
        ("pods.0.uid", "\x1b[31mp", "pods.0.uid"),
        ("nodes.0.domain", "elsewhere", "nodes.domain"),
        ("nodes.0.watts_per_gpu", None, "nodes.0.watts_per_gpu"),
        ("pods.0.gpu_milli", 1460, "pods.0.gpu_milli"),
        ("pods.0.gpu_milli", -460, "pods.0.gpu_milli"),
        ("pods.0.gpu_boards", [0], "pods.0.gpu_boards"),
        ("pods.0.state", "running", "pods.0.state"),
        ("pods.0.state", "bound", "pods.0"),
        ("pods.0.gang", "g", "pods.gang"),
        ("domains.0.limit_watts", -5, "domains.0.limit_watts"),
        ("domains.0.parent", "d", "domains.parent"),
        ("api_version", "wattpack.io/snapshot/v2", "api_version"),
        ("nodes", {}, "nodes"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(path: str, value: object, field: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_snapshot(changed(path, value), "s.json")
    assert refusal.value.field == field
    assert refusal.value.source == "s.json"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"nodes": NaN}', json.dumps(GOOD)[:-20]])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_snapshot(text)


def test_repeated_names_and_cycles_are_refused() -> None:
    twice = GOOD | {"nodes": GOOD["nodes"] * 2}
    with pytest.raises(InputError, match="'a' is repeated"):
        parse_snapshot(json.dumps(twice))
    ring = [dict(GOOD["domains"][0], name=a, parent=b) for a, b in (("d", "e"), ("e", "d"))]
    with pytest.raises(InputError, match="its own ancestor"):
        parse_snapshot(json.dumps(GOOD | {"domains": ring}))


@examples(60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["nodes", "pods", "domains", "name", "uid", "api_version"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_arbitrary_json_is_a_snapshot_or_a_typed_error(document: object) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(parse_snapshot(json.dumps(document)), Snapshot)


def test_the_digest_does_not_depend_on_the_order_of_lists() -> None:
    one = snapshot(node("a"), node("b"), pod("p"), pod("q"))
    other = snapshot(pod("q"), node("b"), pod("p"), node("a"))
    assert one.digest() == other.digest()
    assert one.digest() != snapshot(node("a"), pod("p")).digest()


def test_snapshot_and_plan_survive_json_and_have_schemas() -> None:
    given_snapshot = snapshot(domain("d", 10_000), node("a", domain="d"), gang("g", 2, 1))
    assert parse_snapshot(given_snapshot.model_dump_json()) == given_snapshot
    result = plan(given_snapshot)
    assert parse_plan(result.model_dump_json()) == result
    assert snapshot_schema()["additionalProperties"] is False
    assert plan_schema()["additionalProperties"] is False


CLUSTER = snapshot(
    domain("d", 3_000),
    node("a", domain="d"),
    node("b", ready=False),
    node("c", 2, gpu_model="A40"),
    bound("x", "a", 2),
    gang("g", 2, 1),
    pod("p", 1, gpu_models=("H200",), excluded_nodes=("c",)),
)


def with_placements(result: Plan, moves: dict[str, str]) -> Plan:
    placements = tuple(
        p.model_copy(update={"node": moves.get(p.uid, p.node)}) for p in result.placements
    )
    return result.model_copy(update={"placements": placements})


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (lambda p: with_placements(p, {"p": "b"}), "takes no new pods"),
        (lambda p: with_placements(p, {"p": "c"}), "quarantine"),
        (lambda p: with_placements(p, {"p": "nowhere"}), "unknown node"),
        (lambda p: p.model_copy(update={"snapshot_digest": "sha256:0"}), "another snapshot"),
        (lambda p: p.model_copy(update={"placements": p.placements[1:]}), "neither a place"),
        (lambda p: p.model_copy(update={"placements": p.placements * 2}), "named 2 times"),
        (
            lambda p: p.model_copy(
                update={
                    "placements": tuple(
                        x.model_copy(update={"watts": x.watts + 1}) for x in p.placements
                    )
                }
            ),
            "W stated",
        ),
    ],
)
def test_the_checker_names_what_is_wrong(broken: Any, complaint: str) -> None:
    result = plan(CLUSTER)
    assert complaints(CLUSTER, result) == ()
    assert complaint in " ".join(complaints(CLUSTER, broken(result)))


def test_a_node_that_two_branches_claim_gets_no_promises_though_its_draw_is_known() -> None:
    claimed = node("a", domain="d", rival_domains=("e",))
    fed = snapshot(domain("d", 10_000), node("a", domain="d"), pod("p"), pod("q", 0))
    torn = snapshot(domain("d", 10_000), claimed, pod("p"), pod("q", 0))
    assert [p.node for p in plan(fed).placements] == ["a", "a"]
    made = plan(torn)
    assert made.placements == ()
    assert {p.reason.value for p in made.pending} == {"GpuPowerUnknown"}
    assert "a is claimed by d and e" in made.pending[0].message
    forged = plan(fed).model_copy(update={"snapshot_digest": torn.digest()})
    assert "takes no new pods" in " ".join(complaints(torn, forged))


@pytest.mark.parametrize(("gpus", "starts"), [(2, True), (1, False)])
def test_waiting_members_beyond_a_gangs_size_start_with_it_or_not_at_all(
    gpus: int, starts: bool
) -> None:
    more = snapshot(
        node("a", gpus), Gang(id="g", size=1), pod("p", 1, gang="g"), pod("q", 1, gang="g")
    )
    made = plan(more)
    assert len(made.placements) == (2 if starts else 0)
    assert complaints(more, made) == ()


def test_the_checker_sees_overfull_nodes_broken_gangs_and_overloaded_domains() -> None:
    tight = snapshot(domain("d", 700), node("a", 1, domain="d"), pod("p"), gang("g", 2, 1))
    made_for = plan(snapshot(domain("d", 10**6), node("a", domain="d"), pod("p"), gang("g", 2, 1)))
    forged = made_for.model_copy(update={"snapshot_digest": tight.digest()})
    found = " ".join(complaints(tight, forged))
    assert "gpu_milli would be 3000 of 1000" in found
    assert "domain d: 2100 W of 700 W" in found
    half = forged.model_copy(
        update={
            "placements": forged.placements[:1],
            "pending": tuple(
                plan(snapshot(pod("x"))).pending[0].model_copy(update={"uid": p.uid})
                for p in forged.placements[1:]
            ),
        }
    )
    assert "1 of 2 waiting members" in " ".join(complaints(tight, half))


def test_the_largest_quantities_neither_overflow_nor_crash() -> None:
    most = 2**45
    parts = [node(f"n{i}", 8, milli_cpu=most, memory_bytes=most) for i in range(3)]
    pods = [pod(f"p{i}", 3, milli_cpu=most // 3, memory_bytes=most // 2) for i in range(9)]
    result = plan(snapshot(domain("d", 10**9), *parts, *pods), deadline_seconds=0.3)
    assert len(result.placements) == 6
    assert not result.refusals
