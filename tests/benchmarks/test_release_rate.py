"""release_rate: its judge counts what a planner wrote, and how long pods waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks._release_judge import AuditTail, Judge, quantile, slowest_stretch
from benchmarks._release_plane import GANG_SIZE, Size, pod_body
from wattpack.object_names import GANG_LABEL, GANG_SIZE_ANNOTATION

PLANNER = "wattpack-scheduler/"


def event(second: int, verb: str, resource: str, name: str = "", **more: Any) -> dict[str, Any]:
    agent = "wattpack-scheduler/1 (linux)" if more.pop("ours", True) else "kubectl/1"
    target = {"resource": resource, "name": name}
    if subresource := more.pop("subresource", ""):
        target["subresource"] = subresource
    return {
        "verb": verb,
        "userAgent": agent,
        "objectRef": target,
        "requestURI": f"/api/{resource}{'?dryRun=All' if more.pop('dry_run', False) else ''}",
        "responseStatus": {"code": more.pop("code", 200)},
        "stageTimestamp": f"2026-01-01T00:00:{second:02}.500000Z",
    }


def seen(*events: dict[str, Any]) -> Judge:
    judge = Judge(PLANNER)
    judge.see(events)
    return judge


def test_a_pod_waits_from_its_creation_to_the_patch_that_was_taken() -> None:
    judge = seen(
        event(1, "create", "pods", "p", ours=False, code=201),
        event(2, "patch", "pods", "p", dry_run=True),
        event(3, "patch", "pods", "p", code=422),
        event(5, "patch", "pods", "p"),
        event(9, "patch", "pods", "p"),
        event(1, "create", "pods", "never", ours=False, code=201),
        event(1, "create", "pods", "refused", ours=False, code=403),
    )
    assert judge.waits() == [4.0]
    assert judge.made.keys() == {"p", "never"}


def test_writes_beside_what_releases_need_are_counted_by_plan() -> None:
    judge = seen(
        event(0, "create", "leases", "l", code=201),
        event(0, "get", "pods", "p"),
        event(0, "update", "leases", "l", ours=False),
        event(1, "create", "placementplans", "plan-1", code=201),
        event(1, "create", "placementplans", "plan-1.1", code=201),
        event(2, "patch", "pods", "plain"),
        event(2, "patch", "pods", "member", dry_run=True),
        event(2, "patch", "pods", "member"),
        event(3, "patch", "pods", "member"),
        event(4, "update", "placementplans", "plan-1", subresource="status"),
        event(5, "create", "placementplans", "plan-2", code=201),
        event(5, "delete", "placementplans", "plan-0"),
        event(6, "create", "events", "e", code=201),
        event(6, "create", "pods", "p", subresource="eviction", code=201),
    )
    assert judge.surplus(plain=1, members=1) == {
        "pod_patches": 3,
        "pod_dry_runs": 1,
        "pod_patches_beyond_need": 1,
        "cycles": 2,
        "event_writes": 1,
        "other_writes": 1,
        "writes_per_cycle": 3.0,
        "lease_writes": 1,
        "seconds_of_leading": 6.0,
    }


def test_a_burst_is_counted_from_the_lease_on() -> None:
    patches = [event(10 + i, "patch", "pods", f"p{i}") for i in range(11)]
    judge = seen(event(0, "create", "leases", "l", code=201), *patches)
    assert judge.burst()["burst_released_per_second"] == pytest.approx(11 / 20, abs=0.05)
    assert judge.burst()["burst_first_release_seconds"] == 10.0


def test_a_planner_that_releases_nobody_has_no_rate() -> None:
    assert seen(event(0, "create", "leases", "l")).burst()["burst_released_per_second"] == 0.0


def test_the_slowest_stretch_is_found_between_two_fast_ones() -> None:
    fast = [i / 100 for i in range(1000)]
    times = [*fast, 15.0, *(25.0 + t for t in fast)]
    assert slowest_stretch(times) == pytest.approx(0.1, abs=0.11)


def test_quantiles_are_values_that_were_seen() -> None:
    ordered = [float(i) for i in range(1, 101)]
    assert [quantile(ordered, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert str(quantile([], 0.5)) == "nan"


def test_half_a_line_of_the_log_is_left_for_the_next_look(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    first, second = (json.dumps({"n": n}) for n in (1, 2))
    log.write_text(f"{first}\n{second[:4]}")
    tail = AuditTail(log)
    assert tail.read() == [{"n": 1}]
    log.write_text(f"{first}\n{second}\n")
    assert tail.read() == [{"n": 2}]
    assert tail.read() == []


def test_a_tenth_of_the_pods_stand_in_whole_gangs() -> None:
    size = Size(nodes=1, pods=125, limit_seconds=1.0, gang_share=0.1)
    bodies = [pod_body(i, size, "owner", gated=True)["metadata"] for i in range(size.pods)]
    gangs = [b["labels"][GANG_LABEL] for b in bodies if b["labels"]]
    assert len(gangs) == size.members == 12
    assert {gangs.count(g) for g in gangs} == {GANG_SIZE}
    assert {b["annotations"].get(GANG_SIZE_ANNOTATION) for b in bodies[:12]} == {str(GANG_SIZE)}
