"""A pod that got a node lately counts with what it has yet to draw, not with all of it again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    pod_object,
    profile_object,
)
from wattpack.api import PowerDomain
from wattpack.kube.port import PODS
from wattpack.times import rfc3339

DECODE = {"wattpack.io/kernel-class": "decode"}
#: (370 - 70) W / 0.94 of one decoding GPU at the breaker.
NOMINAL_WATTS = 320


def one_row(*pods: str, annotations: dict[str, str] = DECODE, probe: Any = None) -> Cluster:
    """A row that expects no rise, and pods that were just bound and run."""
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    host = {"worstWatts": 9_500.0, "idleWatts": 300.0}
    cluster.add_accepted(domain_object("row", 10_000, ["n1"], nonGpuPerNode=host))
    cluster.add_forecast(8_990.0, now=8_990.0)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=1_000.0)
    for name in pods:
        body = pod_object(name, annotations=annotations)
        body["spec"]["containers"][0] |= probe or {}
        cluster.add(body)
    cluster.loop.step()
    cluster.bind()
    return cluster


def told(cluster: Cluster, draw_watts: float, **drawn: float) -> Any:
    """The controller's status after a while: the domain's draw, and of which pods it is."""
    arrivals = [
        {"podUid": cluster.pod(name)["metadata"]["uid"], "drawWatts": watts}
        for name, watts in drawn.items()
    ]
    return cluster.set_status(
        PowerDomain, "row", capBandWatts=9_000, drawWatts=draw_watts, arrivals=arrivals
    )


def test_what_the_meter_shows_of_a_new_pod_is_not_counted_again() -> None:
    """8,000 W hold both pods at full; a third needs 320 W of the 1,000 W that are left."""
    cluster = one_row("a", "b")
    told(cluster, 8_400.0, a=300.0, b=300.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert list(cluster.loop.step().released) == [f"{SPACE}/late"]


def test_what_a_new_pod_has_yet_to_draw_is_kept_for_it() -> None:
    cluster = one_row("a", "b")
    told(cluster, 8_400.0, a=150.0, b=150.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert cluster.loop.step().pending[f"{SPACE}/late"][0] == "PowerDomainFull"


def test_a_pod_of_which_nobody_speaks_counts_in_full() -> None:
    cluster = one_row("a", "b")
    told(cluster, 8_400.0, a=300.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert cluster.loop.step().pending[f"{SPACE}/late"][0] == "PowerDomainFull"


def test_a_pod_that_draws_more_than_it_declared_pays_for_no_other() -> None:
    """Otherwise whoever declares one watt would hide the rise of its neighbours."""
    cluster = one_row("liar", annotations={"wattpack.io/expected-watts-per-gpu": "1"})
    cluster.add(pod_object("honest", annotations=DECODE))
    cluster.loop.step()
    cluster.bind()
    told(cluster, 8_500.0, liar=600.0, honest=0.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert cluster.loop.step().pending[f"{SPACE}/late"][0] == "PowerDomainFull"


def test_of_a_pod_that_draws_like_work_nothing_is_still_to_come() -> None:
    cluster = one_row("a", "b")
    uids = [cluster.pod(name)["metadata"]["uid"] for name in ("a", "b")]
    arrivals = [{"podUid": uid, "drawWatts": 150.0, "atWork": True} for uid in uids]
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_400.0, arrivals=arrivals)
    cluster.add(pod_object("late", annotations=DECODE))
    assert list(cluster.loop.step().released) == [f"{SPACE}/late"]


PROBE = {"readinessProbe": {"httpGet": {"path": "/health", "port": 8000}}}


@pytest.mark.parametrize(
    ("probe", "ready", "after_seconds", "released"),
    [
        (PROBE, "True", 20, True),
        ({"startupProbe": PROBE["readinessProbe"]}, "True", 20, True),
        (PROBE, "True", 19, False),  # it may not have settled yet
        (PROBE, "False", 119, False),
        ({}, "True", 119, False),  # without a probe it is ready before its weights are there
    ],
)
def test_a_server_that_says_it_serves_is_no_start_any_more(
    probe: dict[str, Any], ready: str, after_seconds: int, released: bool
) -> None:
    cluster = one_row("a", "b", probe=probe)
    for name in ("a", "b"):
        pod = cluster.pod(name)
        at = rfc3339(cluster.clock.wall_time_ns())
        said = {"type": "Ready", "status": ready, "lastTransitionTime": at}
        pod["status"]["conditions"] = [*pod["status"].get("conditions", ()), said]
        cluster.api.replace(PODS, pod, SPACE, subresource="status")
    cluster.clock.advance_seconds(after_seconds)
    told(cluster, 8_400.0, a=40.0, b=40.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert bool(cluster.loop.step().released) == released


def test_after_the_ramp_the_draw_speaks_for_everybody() -> None:
    cluster = one_row("a", "b")
    cluster.clock.advance_seconds(121)
    told(cluster, 8_400.0)
    cluster.add(pod_object("late", annotations=DECODE))
    assert list(cluster.loop.step().released) == [f"{SPACE}/late"]


def test_a_row_that_draws_more_than_all_in_it_declare_still_waits_for_new_pods() -> None:
    """Loads that nobody declared, or pods that understate theirs: 8,400 W of 9,000 W, 600 W left.

    Each cycle let two more pods go, because the draw that stood above every estimate already was
    taken for all that would come.
    """
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    cluster.add_accepted(domain_object("row", 10_000, ["n1"]))
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_400.0)
    for name in ("a", "b", "c", "d"):
        cluster.add(pod_object(name, annotations=DECODE))
    released = len(cluster.loop.step().released)
    cluster.bind()
    released += len(cluster.loop.step().released)
    assert released * NOMINAL_WATTS <= 600
