"""Who is capped first is placed where there is room most of the time; who is not, at p99."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.documents.plan_document import PendingReason, Placement
from scheduler_plugin.documents.snapshot import PodState, PowerDomain, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from scheduler_plugin.what_if import Question, altered
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    plans,
    pod_object,
    profile_object,
)
from tests.scheduler_plugin.test_planner_properties import snapshots
from wattpack.api import PowerDomain as PowerDomainKind
from wattpack.errors import InputError
from wattpack.kube.port import PRIORITY_CLASSES

COMMON = examples(60, suppress_health_check=[HealthCheck.too_slow])
IMPORTANT = 50
"""Between the priorities that those snapshots have."""


def at_risk(strict: PowerDomain, lower_watts: int, least: int = IMPORTANT) -> list[PowerDomain]:
    """A domain that counts a lower draw for pods below a priority, as the builder writes it."""
    row = strict.model_copy(
        update={
            "name": f"{strict.name}@0.05",
            "used_watts": lower_watts,
            "at_risk_of": strict.name,
        }
    )
    return [strict.model_copy(update={"parent": row.name, "least_priority": least}), row]


@st.composite
def at_risks(draw: st.DrawFn) -> Snapshot:
    """Any snapshot, some of its domains with a second row."""
    given = draw(snapshots())
    domains: list[PowerDomain] = []
    for one in given.domains:
        lower = draw(st.integers(0, one.used_watts))
        domains += at_risk(one, lower) if draw(st.booleans()) else [one]
    return Snapshot(nodes=given.nodes, pods=given.pods, gangs=given.gangs, domains=tuple(domains))


@COMMON
@given(at_risks())
def test_every_row_is_kept_by_those_whom_it_counts(s: Snapshot) -> None:
    result = plan(s, deadline_seconds=0.2)
    assert not result.refusals
    assert complaints(s, result) == ()
    nodes, rows = {n.name: n for n in s.nodes}, {d.name: d for d in s.domains}
    pods = {p.uid: p for p in s.pods}
    added: Counter[str] = Counter()
    for one in result.placements:
        gang = pods[one.uid].gang
        members = [p for p in s.pods if p.gang == gang and p.state.waits] if gang else []
        priority = max(p.priority for p in [pods[one.uid], *members])
        name = nodes[one.node].domain
        while name:
            least = rows[name].least_priority
            added[name] += one.watts if least is None or priority >= least else 0
            name = rows[name].parent
    for name, watts in added.items():
        assert watts == 0 or watts + rows[name].used_watts <= rows[name].limit_watts


@COMMON
@given(at_risks())
def test_bounds_stay_above_what_is_placed_and_who_waits_fits_nowhere(s: Snapshot) -> None:
    best, relaxed = plan(s, deadline_seconds=0.2), plan(s, deadline_seconds=0.0)
    for reached, stated in zip(best.tiers, relaxed.tiers, strict=True):
        assert reached.cumulative_value <= stated.bound_value
    pods = {p.uid: p for p in s.pods}
    for waiting in best.pending:
        if waiting.gang:
            continue
        one, others = pods[waiting.uid], tuple(p for p in best.pending if p is not waiting)
        for at in s.nodes:
            each = at.class_watts_per_gpu.get(one.kernel_class, at.watts_per_gpu)
            more = Placement(uid=one.uid, node=at.name, watts=one.gpu_milli // 1000 * each)
            update = {"placements": (*best.placements, more), "pending": others}
            assert complaints(s, best.model_copy(update=update)) != ()


@COMMON
@given(
    limit=st.integers(0, 12_000),
    used=st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)).map(sorted),
    high=st.integers(0, 6),
    low=st.integers(0, 8),
)
def test_as_many_are_placed_as_both_quantiles_let(
    limit: int, used: list[int], high: int, low: int
) -> None:
    """One-GPU pods on one large server: a sum in closed form says how many fit."""
    lower, upper = used
    rows = at_risk(domain("row", limit, upper), lower)
    pods = [pod(f"h{i}", priority=100) for i in range(high)]
    pods += [pod(f"l{i}") for i in range(low)]
    s = snapshot(node("n", 8, domain="row", milli_cpu=200_000), *rows, *pods)
    result = plan(s, deadline_seconds=0.05)
    highs = min(high, 8, max(0, (limit - upper) // 700), max(0, (limit - lower) // 700))
    lows = min(low, 8 - highs, max(0, (limit - lower) // 700 - highs))
    placed = Counter(p.uid[0] for p in result.placements)
    assert (placed["h"], placed["l"]) == (highs, lows)


def test_the_judge_refuses_an_important_pod_in_room_at_risk() -> None:
    rows = at_risk(domain("row", 5_000, 4_800), 3_000)
    s = snapshot(node("n", domain="row"), *rows, pod("low"), pod("high", priority=100))
    made = plan(s)
    assert [p.uid for p in made.placements] == ["low"]
    (waits,) = made.pending
    assert waits.reason is PendingReason.POWER_DOMAIN_FULL
    assert waits.domains == ("row",)
    swapped = made.model_copy(
        update={
            "placements": (made.placements[0].model_copy(update={"uid": "high"}),),
            "pending": (waits.model_copy(update={"uid": "low"}),),
        }
    )
    assert complaints(s, swapped) == ("domain row: 5500 W of 5000 W",)


def test_a_what_if_limit_is_that_of_the_breaker_whatever_the_risk() -> None:
    rows = at_risk(domain("row", 5_000, 4_800), 4_600)
    s = snapshot(node("n", domain="row"), *rows, pod("low"), pod("high", priority=100))
    assert not plan(s).placements
    more = altered(s, Question(limits={"row": 5_500}))
    assert [p.uid for p in plan(more).placements] == ["high"]
    assert len(plan(altered(s, Question(limits={"row": 6_100}))).placements) == 2


# -- through the loop --------------------------------------------------------------------------

#: A host that could draw so much that the forecast is the smaller bound.
THIRSTY = {"worstWatts": 9_500.0, "idleWatts": 300.0}
DECODE = {"wattpack.io/kernel-class": "decode"}


def powered(**settings: Any) -> Cluster:
    cluster = Cluster(**settings)
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    cluster.add_accepted(domain_object("row", 10_000, ["n1"], nonGpuPerNode=THIRSTY))
    cluster.set_status(PowerDomainKind, "row", capBandWatts=9_000)
    return cluster


def with_pods(cluster: Cluster, priority: int, count: int, name: str) -> None:
    named: dict[str, Any] = {"priorityClassName": f"p{priority}"} if priority else {}
    if priority:
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        body = {"metadata": {"name": f"p{priority}"}, "value": priority}
        cluster.api.create(PRIORITY_CLASSES, meta | body)
    for i in range(count):
        cluster.add(pod_object(f"{name}{i}", annotations=DECODE, **named))


def test_low_priorities_use_what_p95_leaves_and_high_ones_what_p99_leaves() -> None:
    """320 W a pod; 9,000 W less 8,640 W at p99 lets one in, less 7,200 W at p95 five."""
    cluster = powered(risk_below_priority={100: 0.05})
    cluster.add_forecast(8_640.0, p50=7_000.0, p95=7_200.0)
    with_pods(cluster, 100, 2, "high")
    with_pods(cluster, 0, 6, "low")
    result = cluster.loop.step()
    assert Counter(name.split("/")[1][:-1] for name in result.released) == {"high": 1, "low": 4}
    waits = {name.split("/")[1][:-1]: told for name, told in result.pending.items()}
    assert {reason for reason, _ in waits.values()} == {"PowerDomainFull"}
    assert "row needs 320 W" in waits["high"][1]
    assert waits["low"][1].startswith("row (at the risk of 5 %) needs 320 W")
    (written,) = plans(cluster)
    assert {tuple(p["powerDomains"]) for p in written["spec"]["pending"]} == {("row",)}
    assert [d["name"] for d in written["status"]["headroom"]["domains"]] == ["row"]


def test_without_the_setting_everybody_counts_at_p99() -> None:
    cluster = powered()
    cluster.add_forecast(8_640.0, p50=7_000.0, p95=7_200.0)
    with_pods(cluster, 0, 6, "low")
    assert len(cluster.loop.step().released) == 1


@pytest.mark.parametrize(
    "changes",
    [{"fallback": True, "method": "last-24h-max"}, {"p99": 400_000.0}],
    ids=["a fall-back knows no risk", "a forecast that nobody believes"],
)
def test_only_a_forecast_that_is_believed_is_bet_on(changes: dict[str, Any]) -> None:
    cluster = powered(risk_below_priority={100: 0.5})
    peaks: dict[str, Any] = {"p99": 8_640.0, "p50": 7_000.0, "p95": 7_200.0}
    cluster.add_forecast(**(peaks | changes))
    cluster.set_status(
        PowerDomainKind, "row", capBandWatts=9_000, forecastP99Watts=8_640, forecastP95Watts=7_200
    )
    with_pods(cluster, 0, 6, "low")
    assert len(cluster.loop.step().released) == 1


def test_no_risk_undercuts_the_draw_or_guarantees() -> None:
    cluster = powered(risk_below_priority={100: 0.5})
    cluster.add_forecast(8_640.0, p50=1_000.0, p95=7_200.0, now=900.0)
    cluster.set_status(PowerDomainKind, "row", capBandWatts=9_000, drawWatts=8_600.0)
    with_pods(cluster, 0, 2, "low")
    assert len(cluster.loop.step().released) == 1
    degraded = {"type": "Degraded", "status": "True", "reason": "I1", "message": "too much"}
    cluster.set_status(PowerDomainKind, "row", capBandWatts=9_000, conditions=[degraded])
    with_pods(cluster, 0, 1, "late")
    late = cluster.loop.step().pending[f"{SPACE}/late0"]
    assert late[0] == "GuaranteedCapsInfeasible"


def test_work_on_free_boards_is_counted_once_where_the_forecast_tells_it_apart() -> None:
    """The whole peak has free boards at work; those are what the planner is about to fill."""
    cluster = powered()
    whole: dict[str, Any] = {"p99": 8_990.0, "p50": 8_000.0, "p95": 8_500.0}
    cluster.add_forecast(**whole)
    with_pods(cluster, 0, 3, "low")
    assert not cluster.loop.step().released
    told = powered()
    told.add_forecast(**whole, running={"p50": 6_000.0, "p95": 7_000.0, "p99": 8_000.0})
    with_pods(told, 0, 5, "low")
    assert len(told.loop.step().released) == 3


@pytest.mark.parametrize(
    ("below", "named"),
    [
        ({0: 0.001}, "risk_below_priority.0"),
        ({0: 0.6}, "risk_below_priority.0"),
        ({100: 0.2, 0: 0.05}, "risk_below_priority.0"),
        ({0: float("nan")}, "risk_below_priority"),
    ],
)
def test_risks_outside_what_is_published_are_refused_by_name(
    below: dict[int, float], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        PlacementSettings.load(environment={}, flags={"risk_below_priority": below})


def test_promised_pods_count_where_their_priority_does() -> None:
    rows = at_risk(domain("row", 5_000, 4_200), 3_000)
    promised = pod("there", state=PodState.PROMISED, node="n")
    s = snapshot(node("n", domain="row"), *rows, promised, pod("high", priority=100))
    assert [p.uid for p in plan(s).placements] == ["high"]
