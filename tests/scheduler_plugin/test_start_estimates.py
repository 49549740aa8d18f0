"""A waiting gang is told when it may start, if running pods say when they end."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.app import start_estimates
from scheduler_plugin.kube_objects.expected_ends import expected_ends
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, events, gang_pod, pod_object
from wattpack.kube.port import PODS, JsonObject
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND, seconds_to_ns


def running(cluster: Cluster, name: str, node: str, minutes: int | None) -> None:
    """Ends after so many minutes, as it says itself."""
    marks: dict[str, Any] = {}
    if minutes is not None:
        end = rfc3339(cluster.clock.wall_time_ns() + seconds_to_ns(60.0 * minutes))
        marks["annotations"] = {"wattpack.io/expected-end": end}
    cluster.api.create(PODS, pod_object(name, 8, **marks), SPACE)
    cluster.api.bind(name, SPACE, node)


def add_gang(cluster: Cluster, size: int) -> str:
    """What its first member is told."""
    for i in range(size):
        cluster.add(gang_pod(f"g{i}", size))
    return cluster.loop.step().pending[f"{SPACE}/g0"][1]


def test_a_gang_starts_when_enough_pods_have_ended(cluster: Cluster) -> None:
    cluster.add_nodes("n3")
    for node, minutes in (("n1", 30), ("n2", 10), ("n3", 90)):
        running(cluster, f"on-{node}", node, minutes)
    start = rfc3339(cluster.clock.wall_time_ns() + seconds_to_ns(30 * 60.0))
    text = add_gang(cluster, 2)
    assert text.endswith(f"expected to start at {start}, when 2 pods have ended")
    assert any(start in note for name, note in events(cluster) if name == "g1")


def test_ends_that_make_too_little_room_are_told(cluster: Cluster) -> None:
    running(cluster, "ends", "n1", 10)
    running(cluster, "stays", "n2", None)
    assert add_gang(cluster, 2).endswith("no expected end of running pods lets it start")


def test_where_nobody_says_when_it_ends_nothing_is_told(cluster: Cluster) -> None:
    running(cluster, "stays", "n1", None)
    assert "expected" not in add_gang(cluster, 2)


def test_an_estimate_that_takes_too_long_is_left_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_estimates, "ESTIMATING_SECONDS", -1.0)
    running(cluster, "ends", "n1", 10)
    assert "expected" not in add_gang(cluster, 2)


NOW = 1_800_000_000.0
STARTED = rfc3339(int(NOW - 100) * NS_PER_SECOND)


def body(
    annotation: str = "", deadline: object = None, limit: str = "", **changes: Any
) -> JsonObject:
    marks: JsonObject = {"uid": "u", "name": "p", "labels": {}, "annotations": {}}
    if annotation:
        marks["annotations"]["wattpack.io/expected-end"] = annotation
    if limit:
        marks["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = limit
    spec = {"nodeName": "n"} | ({} if deadline is None else {"activeDeadlineSeconds": deadline})
    return {"metadata": marks, "spec": spec | changes, "status": {"startTime": STARTED}}


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [
        (body(), None),
        (body(rfc3339(int(NOW + 60) * NS_PER_SECOND)), 60),
        (body(rfc3339(int(NOW - 60) * NS_PER_SECOND)), 0),
        (body(deadline=600), 500),
        (body(limit="300"), 200),
        (body(deadline=600, limit="300"), 200),
        (body(rfc3339(int(NOW + 60) * NS_PER_SECOND), deadline=600), 60),
        (body("soon", deadline=600), 500),
        (body("2026-01-01T00:00:00"), None),
        (body(deadline="x", limit="9" * 5000), None),
        (body(deadline=600, nodeName=""), None),
        (body(deadline=2**62), None),
    ],
)
def test_ends_are_read_from_what_pods_say(pod: JsonObject, seconds: int | None) -> None:
    found = expected_ends([pod], NOW)
    assert found == ({} if seconds is None else {"u": seconds})
