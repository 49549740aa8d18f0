"""Pods that want others near, far or evenly spread: planner, judge and kube-scheduler's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.node_rules import Taint, TaintEffect
from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.plan_document import PendingReason, Placement, Plan
from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.peer_groups import PeerGroups
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.room.resource_columns import pod_watts
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.reordering import Reordering
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, gang, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.errors import InputError
from wattpack.kube.port import NAMESPACES, PODS, JsonObject

ZONES = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
BARE = node("x1", labels={"host": "x1"})
NODES = [node(n, labels={"zone": z, "host": n, "pool": z * 2}) for n, z in ZONES.items()]


def apart(key: str = "host", group: str = "g") -> PeerRule:
    return PeerRule(kind=PeerKind.APART, group=group, topology_key=key)


def together(key: str = "zone", group: str = "g") -> PeerRule:
    return PeerRule(kind=PeerKind.TOGETHER, group=group, topology_key=key)


def spread(key: str = "zone", skew: int = 1, **more: Any) -> PeerRule:
    return PeerRule(kind=PeerKind.SPREAD, group="g", topology_key=key, max_skew=skew, **more)


def like(uid: str, **more: Any) -> Pod:
    return pod(uid, groups=("g",), **more)


def there(uid: str, on: str, **more: Any) -> Pod:
    return bound(uid, on, groups=("g",), **more)


TAINTED = node("b1", labels={"zone": "b"}, taints=(Taint(key="t", effect=TaintEffect.NO_SCHEDULE),))
#: What is there, who waits, and where kube-scheduler would let it go.
CASES: list[tuple[str, list[Any], Pod, str]] = [
    ("nobody there", [], like("p", peer_rules=(apart(),)), "a1 a2 b1 c1 x1"),
    ("apart by node", [there("q", "a1")], like("p", peer_rules=(apart(),)), "a2 b1 c1 x1"),
    ("apart by zone", [there("q", "a1")], like("p", peer_rules=(apart("zone"),)), "b1 c1 x1"),
    ("of another group", [bound("q", "a1")], like("p", peer_rules=(apart(),)), "a1 a2 b1 c1 x1"),
    (
        "who is there keeps it away",
        [there("q", "a1", peer_rules=(apart("zone"),))],
        like("p"),
        "b1 c1 x1",
    ),
    (
        "but not those of no group",
        [there("q", "a1", peer_rules=(apart("zone"),))],
        pod("p"),
        "a1 a2 b1 c1 x1",
    ),
    ("together", [there("q", "a1")], pod("p", peer_rules=(together(),)), "a1 a2"),
    ("together with nobody", [], pod("p", peer_rules=(together(),)), ""),
    ("the first of its own", [], like("p", peer_rules=(together(),)), "a1 a2 b1 c1"),
    ("the second", [there("q", "b1")], like("p", peer_rules=(together(),)), "b1"),
    (
        "near by two keys",
        [there("q", "a1"), there("r", "b1")],
        pod("p", peer_rules=(together(), together("host"))),
        "a1 b1",
    ),
    ("even", [there("q", "a1")], like("p", peer_rules=(spread(),)), "b1 c1"),
    ("a skew of two", [there("q", "a1")], like("p", peer_rules=(spread(skew=2),)), "a1 a2 b1 c1"),
    (
        "as a stranger it adds nothing",
        [there("q", "a1")],
        pod("p", peer_rules=(spread(),)),
        "a1 a2 b1 c1",
    ),
    (
        "too few zones count as an empty one",
        [there("q", "a1"), there("r", "b1"), there("s", "c1")],
        like("p", peer_rules=(spread(min_domains=4),)),
        "",
    ),
    (
        "only zones that it may use count",
        [there("q", "a1")],
        like("p", peer_rules=(spread(),), node_selector={"zone": "a"}),
        "a1 a2",
    ),
    (
        "unless all are to count",
        [there("q", "a1")],
        like("p", peer_rules=(spread(any_node=True),), node_selector={"zone": "a"}),
        "",
    ),
    (
        "even over zones and nodes",
        [there("q", "a1"), there("r", "b1"), there("s", "c1")],
        like("p", peer_rules=(spread(), spread("host"))),
        "a2",
    ),
]


@pytest.mark.parametrize(
    ("parts", "who", "where"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_planner_and_judge_follow_the_rules_of_kube_scheduler(
    parts: list[Any], who: Pod, where: str
) -> None:
    question = snapshot(*NODES, BARE, *parts, who)
    assert planner_says(question, who) == where.split()
    assert judge_says(question, who) == where.split()


def test_a_zone_behind_a_taint_counts_unless_taints_are_honoured() -> None:
    parts = [NODES[0], TAINTED, there("q", "a1")]
    for rule, where in ((spread(), []), (spread(only_tolerated=True), ["a1"])):
        who = like("p", peer_rules=(rule,))
        assert planner_says(snapshot(*parts, who), who) == where
        assert judge_says(snapshot(*parts, who), who) == where


def planner_says(question: Snapshot, who: Pod) -> list[str]:
    problem = compile_problem(question)
    (c,) = (i for i, k in enumerate(problem.classes) if who.uid in k.uids)
    room = Packing(problem).capacity(c)
    return [n.name for n, free in zip(question.nodes, room, strict=True) if free]


def judge_says(question: Snapshot, who: Pod) -> list[str]:
    return [n.name for n in question.nodes if accepts(question, {who.uid: n.name})]


def accepts(question: Snapshot, where: dict[str, str]) -> bool:
    nodes = {n.name: n for n in question.nodes}
    pods = {p.uid: p for p in question.pods}
    placements = tuple(
        Placement(uid=uid, node=name, watts=pod_watts(pods[uid], nodes[name]))
        for uid, name in sorted(where.items())
    )
    waiting = [p.uid for p in question.pods if p.state.value == "pending" and p.uid not in where]
    left = tuple({"uid": uid, "reason": PendingReason.NO_NODES} for uid in waiting)
    answer = Plan.model_validate(
        {
            "snapshot_digest": question.digest(),
            "method": "greedy",
            "placements": placements,
            "pending": left,
        }
    )
    return complaints(question, answer) == ()


RULES = st.builds(
    PeerRule,
    kind=st.sampled_from(PeerKind),
    group=st.sampled_from(["g", "h"]),
    topology_key=st.sampled_from(["zone", "host"]),
    max_skew=st.integers(1, 2),
    min_domains=st.sampled_from([1, 1, 4]),
    any_node=st.booleans(),
)


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """A few nodes, some without a zone, and pods that want all kinds of things of one another."""
    pods = []
    for i in range(draw(st.integers(1, 8))):
        wanted = draw(st.lists(RULES, max_size=2, unique_by=lambda r: (r.kind, r.topology_key)))
        near = [r.group for r in wanted if r.kind is PeerKind.TOGETHER][:1]
        rules = tuple(
            r.model_copy(update={"group": near[0]}) if r.kind is PeerKind.TOGETHER else r
            for r in wanted
        )
        groups = tuple(draw(st.sets(st.sampled_from(["g", "h"]))))
        selector = draw(st.sampled_from([{}, {}, {"zone": "a"}]))
        more: dict[str, Any] = {"groups": groups, "peer_rules": rules, "node_selector": selector}
        if i and draw(st.booleans()):
            on = draw(st.sampled_from([*NODES, BARE])).name
            pods.append(bound(f"p{i}", on, **more))
        else:
            pods.append(pod(f"p{i}", draw(st.sampled_from([1, 8])), **more))
    return snapshot(*NODES, BARE, *pods)


@examples(150)
@given(question=crowds())
def test_planner_and_judge_agree_on_every_node(question: Snapshot) -> None:
    for who in question.pods:
        if who.state.value == "pending":
            room = set(planner_says(question, who))
            assert room == set(judge_says(question, who))


@examples(60)
@given(question=crowds())
def test_no_plan_is_refused_and_who_is_left_out_has_no_place(question: Snapshot) -> None:
    made = plan(question, deadline_seconds=0.05)
    assert made.refusals == ()
    where = {p.uid: p.node for p in made.placements}
    placed = tuple(
        p.model_copy(update={"state": PodState.BOUND, "node": where[p.uid]})
        if p.uid in where
        else p
        for p in question.pods
    )
    after = question.model_copy(update={"pods": placed})
    pods = {p.uid: p for p in after.pods}
    for entry in made.pending:
        careful = "others' spread" in entry.message or "the first of" in entry.message
        if entry.reason is PendingReason.POD_AFFINITY and not careful:
            assert judge_says(after, pods[entry.uid]) == []


def test_replicas_that_keep_apart_have_a_node_each_and_the_fifth_says_why() -> None:
    replicas = [like(f"r{i}", peer_rules=(apart(),)) for i in range(5)]
    made = plan(snapshot(*NODES, *replicas), deadline_seconds=0.2)
    assert sorted(p.node for p in made.placements) == sorted(ZONES)
    (left,) = made.pending
    assert left.reason is PendingReason.POD_AFFINITY
    assert left.message == "4 nodes have room; anti-affinity to g by host excludes 4"


def test_a_gang_whose_members_keep_apart_starts_whole_or_not_at_all() -> None:
    made = plan(snapshot(*NODES, gang("s", 5, groups=("g",), peer_rules=(apart(),))))
    assert made.placements == ()
    made = plan(snapshot(*NODES, gang("s", 4, groups=("g",), peer_rules=(apart(),))))
    assert len({p.node for p in made.placements}) == 4


def test_who_wants_to_be_near_somebody_that_waits_too_comes_with_it() -> None:
    near = pod("a-first", 8, peer_rules=(together("host"),))
    made = plan(snapshot(node("n", 9, labels={"host": "n"}), near, like("z-last")))
    assert len(made.placements) == 2


def test_nothing_is_called_proved_while_pods_stay_where_greedy_put_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reordering, "another", lambda *_: None)
    small = Pod(uid="a", gpu_milli=300)
    half = Pod(uid="b", mig_profiles={"3g.20gb": 1})
    rest = Pod(uid="c", mig_profiles={"2g.10gb": 2}, peer_rules=(apart(),))
    one = node("n", 1, mig_geometry="A100-40GB")
    made = plan(snapshot(one, small, half, rest))
    assert made.tiers[0].bound_value >= 428 + 570, "b and c fit together"
    assert (made.gap == 0) == (made.tiers[0].placed_value == 428 + 570)


# From Kubernetes


def rules(**spec: Any) -> JsonObject:
    return {"labels": {"app": "web"}, **spec}


def required(kind: str, **term: Any) -> JsonObject:
    body = {"topologyKey": "kubernetes.io/hostname", **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [body]}}


WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


def test_deployments_that_keep_apart_are_planned_apart(cluster: Cluster) -> None:
    for i in range(3):
        cluster.add(pod_object(f"w{i}", **rules(affinity=required("podAntiAffinity", **WEB))))
    result = cluster.loop.step()
    assert sorted(result.released.values()) == ["n1", "n2"]
    ((reason, message),) = result.pending.values()
    assert reason == "PodAffinityOrSpread"
    assert "team: app=web" in message


def test_a_running_pod_keeps_away_whom_it_does_not_want(cluster: Cluster) -> None:
    hostile = pod_object("hostile", 1, affinity=required("podAntiAffinity", **WEB))
    cluster.api.create(PODS, hostile, SPACE)
    cluster.api.bind("hostile", SPACE, "n1")
    cluster.add(pod_object("w", **rules()))
    assert cluster.loop.step().released == {f"{SPACE}/w": "n2"}


def test_replicas_are_spread_over_zones_as_they_ask() -> None:
    cluster = Cluster()
    for i, zone in enumerate("aab"):
        cluster.add_nodes(f"n{i}", labels={"zone": zone})
    even = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB}
    for i in range(4):
        cluster.add(pod_object(f"w{i}", **rules(topologySpreadConstraints=[even])))
    nodes = list(cluster.loop.step().released.values())
    assert nodes.count("n2") == 2
    assert len(nodes) == 4


TEAMS = {"team": {"side": "a"}, "far": {"side": "b"}, "bare": {}}


def with_namespaces(cluster: Cluster) -> None:
    for name, labels in TEAMS.items():
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        made["metadata"] |= {"labels": labels}
        cluster.api.create(NAMESPACES, made)


def running(cluster: Cluster, name: str, space: str, on: str, **spec: Any) -> None:
    made = pod_object(name, **rules(**spec))
    made["metadata"]["namespace"] = space
    cluster.api.create(PODS, made, space)
    cluster.api.bind(name, space, on)


def test_namespaces_are_chosen_by_their_labels(cluster: Cluster) -> None:
    with_namespaces(cluster)
    running(cluster, "theirs", "far", "n2")
    running(cluster, "nobodys", "bare", "n1")
    term = {"namespaceSelector": {"matchLabels": {"side": "b"}}, **WEB}
    cluster.add(pod_object("near", affinity=required("podAffinity", **term)))
    cluster.add(pod_object("away", affinity=required("podAntiAffinity", **term)))
    released = cluster.loop.step().released
    assert released == {f"{SPACE}/near": "n2", f"{SPACE}/away": "n1"}


def test_who_runs_keeps_pods_of_chosen_namespaces_away(cluster: Cluster) -> None:
    with_namespaces(cluster)
    for name, side in (("n1", "a"), ("n2", "b")):
        term = {"namespaceSelector": {"matchLabels": {"side": side}}, **WEB}
        running(cluster, f"on-{name}", "bare", name, affinity=required("podAntiAffinity", **term))
    cluster.add(pod_object("w", **rules()))
    assert cluster.loop.step().released == {f"{SPACE}/w": "n2"}


def test_a_namespace_that_gets_the_label_counts_from_then_on(cluster: Cluster) -> None:
    with_namespaces(cluster)
    running(cluster, "theirs", "bare", "n2")
    term = {"namespaceSelector": {"matchLabels": {"side": "c"}}, **WEB}
    cluster.add(pod_object("near", affinity=required("podAffinity", **term)))
    ((reason, _),) = cluster.loop.step().pending.values()
    assert reason == "PodAffinityOrSpread"
    found = cluster.api.get(NAMESPACES, "bare")
    found = {**found, "metadata": {**found["metadata"], "labels": {"side": "c"}}}
    cluster.api.replace(NAMESPACES, found)
    assert cluster.loop.step().released == {f"{SPACE}/near": "n2"}


def body(name: str, space: str = "team", **labels: str) -> JsonObject:
    made = pod_object(name, labels=labels)
    made["metadata"] |= {"uid": name, "namespace": space}
    return made


SELECTORS: list[tuple[JsonObject, str]] = [
    ({"labelSelector": {"matchLabels": {"app": "web"}}}, "web mine"),
    ({"labelSelector": {}}, "web db bare mine"),
    ({}, ""),
    ({"labelSelector": {}, "namespaces": ["far"]}, "far"),
    ({"labelSelector": {}, "namespaceSelector": {}}, "web db bare far mine"),
    ({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"side": "b"}}}, "far"),
    (
        {
            "labelSelector": {},
            "namespaces": ["team"],
            "namespaceSelector": {"matchLabels": {"side": "b"}},
        },
        "web db bare far mine",
    ),
    ({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"side": "x"}}}, ""),
    (
        {
            "labelSelector": {},
            "namespaceSelector": {
                "matchExpressions": [{"key": "side", "operator": "NotIn", "values": ["b"]}]
            },
        },
        "web db bare mine",
    ),
    (
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        "web db mine",
    ),
    (
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}},
        "bare",
    ),
    (
        {
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]
            }
        },
        "db bare",
    ),
]


@pytest.mark.parametrize(("term", "members"), SELECTORS)
def test_selectors_select_as_in_kubernetes(term: JsonObject, members: str) -> None:
    mine = body("mine", app="web")
    mine["spec"]["affinity"] = required("podAffinity", **term)
    others = [body("web", app="web"), body("db", app="db"), body("bare"), body("far", "far")]
    groups = PeerGroups([mine, *others], TEAMS)
    (rule,) = groups.of_waiting(mine)["peer_rules"]
    found = [pod_facts.uid(p) for p in (*others, mine) if rule.group in groups.of(p)["groups"]]
    assert found == members.split()


def test_pods_of_one_revision_spread_among_themselves_and_leaving_ones_do_not_count() -> None:
    constraint = {
        "topologyKey": "zone",
        "maxSkew": 2,
        "minDomains": 3,
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["rev"],
        "nodeTaintsPolicy": "Honor",
        **WEB,
    }
    mine = body("mine", app="web", rev="2")
    soft = constraint | {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "host"}
    mine["spec"]["topologySpreadConstraints"] = [constraint, soft]
    leaving = body("leaving", app="web", rev="2")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    old = body("old", app="web", rev="1")
    groups = PeerGroups([mine, leaving, old])
    (rule,) = groups.of_waiting(mine)["peer_rules"]
    assert (rule.max_skew, rule.min_domains, rule.only_tolerated) == (2, 3, True)
    assert [rule.group in groups.of(p)["groups"] for p in (mine, leaving, old)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"affinity": required("podAntiAffinity", **WEB, topologyKey="")}, "topologyKey"),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "z", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "topologySpreadConstraints.maxSkew",
        ),
        (
            {
                "affinity": required(
                    "podAffinity",
                    labelSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]},
                )
            },
            "labelSelector.operator",
        ),
    ],
)
def test_rules_that_make_no_sense_are_refused_by_their_field(spec: JsonObject, field: str) -> None:
    mine = body("mine")
    mine["spec"] |= spec
    with pytest.raises(InputError) as refusal:
        PeerGroups([mine]).of_waiting(mine)
    assert refusal.value.field == field


def test_pods_without_rules_cost_a_snapshot_nothing() -> None:
    assert PeerGroups([body("a", app="web")]).of(body("a", app="web")) == {}
