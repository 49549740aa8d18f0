"""The planner against an embedded API: what domains, forecasts and GPU profiles let it promise."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app.plan_command import cluster_snapshot
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.what_if import AddedNodes, Question, altered
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    pod_object,
    profile_object,
)
from wattpack.api import PowerDomain
from wattpack.kube.port import (
    Resource,
)


def powered(rating_watts: float, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    cluster.add_accepted(domain_object("row", rating_watts, ["n1"], **spec))
    return cluster


def test_servers_that_a_what_if_adds_draw_as_much_without_work_as_those_that_are_there() -> None:
    cluster = powered(30_000, nonGpuPerNode=THIRSTY)
    now = cluster_snapshot(cluster.api, cluster.clock, PlacementSettings())
    (there,) = now.nodes
    (row,) = now.domains
    # What is used is rounded up to a two-hundredth.
    assert there.idle_watts <= row.used_watts <= 1.005 * there.idle_watts
    more = altered(now, Question(add=(AddedNodes(count=2, like=there.name),)))
    assert more.domains[0].used_watts == row.used_watts + 2 * there.idle_watts
    gone = altered(now, Question(remove=(there.name,)))
    assert gone.domains[0].used_watts == row.used_watts - there.idle_watts


#: A host that could draw so much that the forecast is the smaller bound.
THIRSTY = {"worstWatts": 9_500.0, "idleWatts": 300.0}


def test_a_domain_admits_what_its_band_minus_its_forecast_pays_for() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    for i in range(5):
        cluster.add(pod_object(f"p{i}", annotations={"wattpack.io/kernel-class": "decode"}))
    result = cluster.loop.step()
    # (370 - 70) W / 0.94 = 320 W a GPU; 9,000 - 8,010 (rounded up to 1/200) = 990 W: three fit.
    assert len(result.released) == 3
    reasons = {reason for reason, _ in result.pending.values()}
    assert reasons == {"PowerDomainFull"}
    text = "row needs 320 W, 30 W left; operator: would start if the limit of row were 290 W higher"
    assert {told for _, told in result.pending.values()} == {text}


def test_pods_bound_after_the_forecasts_data_count_beside_it() -> None:
    """Otherwise the same headroom would be given away in every cycle until the next forecast."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    decode = {"wattpack.io/kernel-class": "decode"}
    for i in range(3):
        cluster.add(pod_object(f"p{i}", annotations=decode))
    assert len(cluster.loop.step().released) == 3
    cluster.bind()
    cluster.loop.step()
    cluster.add(pod_object("late", annotations=decode))
    assert cluster.loop.step().pending[f"{SPACE}/late"][0] == "PowerDomainFull"
    cluster.clock.advance_seconds(601)
    assert list(cluster.loop.step().released) == [f"{SPACE}/late"]


def test_a_full_past_does_not_keep_an_empty_domain_empty() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=9_000)
    cluster.add(pod_object("p"))
    assert len(cluster.loop.step().released) == 1


def test_the_measured_draw_carries_the_forecasts_rise_once_pods_have_ramped_up() -> None:
    """Draw 5,000 W + rise 3,000 W + pods of the last two minutes, under 9,000 W."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(8_990.0, now=5_990.0)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=5_000.0)
    for i in range(4):
        cluster.add(pod_object(f"p{i}", annotations={"wattpack.io/kernel-class": "decode"}))
    assert len(cluster.loop.step().released) == 3
    cluster.bind()
    assert cluster.loop.step().released == {}
    cluster.clock.advance_seconds(121)
    assert len(cluster.loop.step().released) == 1


def test_work_that_calls_itself_idle_counts_at_the_boards_worst() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_500.0)
    cluster.add(pod_object("p", annotations={"wattpack.io/kernel-class": "idle"}))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_what_is_measured_now_is_never_undercut() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_900.0)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_a_forecast_object_of_the_domain_counts() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(8_990.0)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": [{"type": "Ready", "status": "False", "reason": "HistoryStale"}]},
        {"p50": -1.0},
        {"p50": 0.0},
        {"validUntil": "1969-12-31T00:00:00Z"},
        {"issuedAt": "2070-01-21T00:00:00Z"},
        {"namespace": SPACE},
    ],
)
def test_a_forecast_that_cannot_be_trusted_makes_no_room(change: dict[str, Any]) -> None:
    """Eight idle boards and a host at 1,000 W would be all that is left if it were believed."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0, **change)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_a_forecast_of_nothing_that_can_be_trusted_would_make_that_room() -> None:
    """The counterpart of the test above: it is the distrust that keeps the pod waiting there."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0)
    cluster.add(pod_object("p"))
    assert len(cluster.loop.step().released) == 1


def test_the_planner_follows_the_controllers_verdict_on_a_forecast() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0)
    verdict = {"type": "ForecastTrusted", "status": "False", "reason": "Contradicted"}
    cluster.set_status(PowerDomain, "row", forecastP99Watts=9_500.0, conditions=[verdict])
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_without_a_forecast_static_figures_are_used() -> None:
    """Eight idle boards and the host at worst leave room for one GPU of unknown work, not two."""
    host = {"worstWatts": 1_000.0, "idleWatts": 300.0}
    cluster = powered(3_000, nonGpuPerNode=host)
    for i in range(2):
        cluster.add(pod_object(f"p{i}"))
    assert len(cluster.loop.step().released) == 1


def test_nothing_is_placed_where_the_controller_reports_that_guaranteed_caps_do_not_fit() -> None:
    cluster = powered(10_000)
    condition = {"type": "Degraded", "status": "True", "reason": "I1"}
    cluster.set_status(PowerDomain, "row", conditions=[condition])
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "GuaranteedCapsInfeasible"


def test_a_node_of_unknown_gpu_type_below_a_breaker_gets_no_promises() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", labels={"nvidia.com/gpu.product": "NVIDIA-X900"})
    cluster.add_accepted(domain_object("row", 10_000, ["n1"]))
    cluster.add(pod_object("p"))
    reason, text = cluster.loop.step().pending[f"{SPACE}/p"]
    assert reason == "GpuPowerUnknown"
    assert "NVIDIA-X900" in text


def test_a_shipped_gpu_type_needs_no_object_and_a_nonsense_object_stops_nothing() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    nonsense = profile_object()
    nonsense["spec"]["maxLimitWatts"] = 700_000
    cluster.add(nonsense)
    cluster.add_accepted(domain_object("row", 10_000, ["n1"]))
    cluster.set_status(PowerDomain, "row", capBandWatts=1_500.0)
    cluster.add(pod_object("a"))
    cluster.add(pod_object("b"))
    # Eight idle boards draw 76 W / 0.94 each; one more at the shipped worst of 735 W fits.
    assert len(cluster.loop.step().released) == 1


def test_a_field_of_a_newer_version_stops_no_planning() -> None:
    """Charts upgrade CRDs first: their defaults appear in objects that older processes read."""
    cluster = powered(10_000)
    plain = cluster.api

    class Newer:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def list(self, resource: Resource, *rest: Any, **options: Any) -> Any:
            found = plain.list(resource, *rest, **options)
            if resource.group == "wattpack.io":
                for item in found.items:
                    item["spec"]["newerField"] = {"with": "a default"}
            return found

    cluster.loop = cluster.new_loop(Newer())  # type: ignore[arg-type]
    cluster.add(pod_object("p"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_a_profile_that_cannot_be_read_stops_no_planning() -> None:
    """The shipped library speaks for its type."""
    cluster = powered(10_000)
    cluster.add_nodes("free")
    plain = cluster.api

    class Newer:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def list(self, resource: Resource, *rest: Any, **options: Any) -> Any:
            found = plain.list(resource, *rest, **options)
            for item in found.items if resource.kind == "GPUProfile" else ():
                item["spec"]["kernelClasses"][0]["provenance"] = "of a newer version"
            return found

    cluster.loop = cluster.new_loop(Newer())  # type: ignore[arg-type]
    cluster.add(pod_object("p", 8))
    cluster.add(pod_object("q", 8))
    assert len(cluster.loop.step().released) == 2
