"""Status under a write budget, events, conditions, and the faults that test them."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.kube import EmbeddedKube
from tests.wattpack.kube_conformance import Bench, name_of
from wattpack.api import Condition, GpuNode, PowerDomain
from wattpack.api.conditions import Finding, find_condition, is_true, set_condition
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import EVENTS, ConflictError, ThrottledError, UnavailableError
from wattpack.kube.write_budget import StatusWriter, TokenBucket

DOMAINS = PowerDomain.meta.resource
NODES_OF_GPUS = GpuNode.meta.resource


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kube(clock: ManualClock) -> EmbeddedKube:
    return EmbeddedKube(clock)


@pytest.fixture
def bench(kube: EmbeddedKube) -> Bench:
    return Bench(kube, "default", "t")


def ready(status: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": status, "reason": "Test"}]


def test_a_bucket_allows_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, 10.0, 0)
    assert sum(bucket.take(0) for _ in range(50)) == 10
    assert sum(bucket.take(10**9) for _ in range(50)) == 10
    assert sum(bucket.take(10**9 + 10**8) for _ in range(50)) == 1
    assert sum(bucket.take(10**12) for _ in range(50)) == 10


def test_a_fleet_never_writes_faster_than_its_budget(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    names = [name_of(bench.create_domain()) for _ in range(60)]
    written = 0
    for second in range(10):
        for name in names:
            condition = ready("True" if second % 2 else "False")
            writer.offer(DOMAINS, name, {"drawWatts": float(second), "conditions": condition})
        written += writer.flush().written
        clock.advance_seconds(1)
    assert written == 10 * 10


def test_only_the_newest_report_is_written(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    name = name_of(bench.create_domain())
    for draw in range(5):
        writer.offer(DOMAINS, name, {"drawWatts": float(draw)})
    assert writer.flush().written == 1
    assert kube.get(DOMAINS, name)["status"]["drawWatts"] == 4


def test_figures_wait_ten_seconds_and_conditions_do_not(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    name = name_of(bench.create_domain())
    writer.offer(DOMAINS, name, {"drawWatts": 1.0, "conditions": ready("True")})
    assert writer.flush().written == 1
    clock.advance_seconds(3)
    writer.offer(DOMAINS, name, {"drawWatts": 2.0, "conditions": ready("True")})
    report = writer.flush()
    assert (report.written, report.waiting) == (0, 1)
    writer.offer(DOMAINS, name, {"drawWatts": 3.0, "conditions": ready("False")})
    assert writer.flush().written == 1
    clock.advance_seconds(9.9)
    writer.offer(DOMAINS, name, {"drawWatts": 4.0, "conditions": ready("False")})
    assert writer.flush().written == 0
    clock.advance_seconds(0.2)
    assert writer.flush().written == 1


def test_gpu_nodes_wait_ten_minutes(kube: EmbeddedKube, clock: ManualClock) -> None:
    writer = StatusWriter(kube, clock, "test")
    kube.create(NODES_OF_GPUS, {"metadata": {"name": "n1"}, "spec": {"nodeName": "n1"}})
    writer.offer(NODES_OF_GPUS, "n1", {"cappedGpus": 1})
    assert writer.flush().written == 1
    writer.offer(NODES_OF_GPUS, "n1", {"cappedGpus": 2})
    clock.advance_seconds(599)
    assert writer.flush().written == 0
    clock.advance_seconds(2)
    assert writer.flush().written == 1


def test_an_unchanged_report_is_never_written(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    name = name_of(bench.create_domain())
    for _ in range(5):
        writer.offer(DOMAINS, name, {"drawWatts": 1.0})
        writer.flush()
        clock.advance_seconds(60)
    assert kube.get(DOMAINS, name)["metadata"]["resourceVersion"] == "2"


def test_a_report_survives_an_outage_and_waits_as_long_as_told(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    faulty = FaultyKube(kube, FaultRates(throttled=1.0))
    writer = StatusWriter(faulty, clock, "test")
    name = name_of(bench.create_domain())
    writer.offer(DOMAINS, name, {"drawWatts": 1.0})
    assert writer.flush().waiting == 1
    faulty.rates = FaultRates()
    clock.advance_seconds(1)
    assert writer.flush().written == 0, "the server asked for two seconds"
    clock.advance_seconds(1.1)
    assert writer.flush().written == 1


def test_a_report_that_can_never_be_written_is_named_and_dropped(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    name = name_of(bench.create_domain())
    writer.offer(DOMAINS, name, {"drawKilowatts": 1})
    writer.offer(DOMAINS, "absent", {"drawWatts": 1.0})
    report = writer.flush()
    assert (report.written, report.waiting) == (0, 0)
    assert [target[2] for target, _ in report.refused] == [name]
    assert "drawKilowatts" in report.refused[0][1]


def test_objects_that_the_api_refuses_use_up_no_others_budget(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    told, *refused = [name_of(bench.create_domain()) for _ in range(41)]
    answers = 0
    for second in range(120):
        for name in refused:
            writer.offer(DOMAINS, name, {"drawKilowatts": second})
        writer.offer(DOMAINS, told, {"drawWatts": float(second)})
        answers += len(writer.flush().refused)
        clock.advance_seconds(1)
    assert kube.get(DOMAINS, told)["status"]["drawWatts"] >= 100.0
    assert answers == 2 * len(refused)


def test_an_object_that_was_refused_is_written_a_minute_later_or_once_it_is_made_anew(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    writer = StatusWriter(kube, clock, "test")
    first, second = (name_of(bench.create_domain()) for _ in range(2))
    for name in (first, second):
        writer.offer(DOMAINS, name, {"drawKilowatts": 1})
    assert len(writer.flush().refused) == 2
    writer.forget(DOMAINS, second)
    for name in (first, second):
        writer.offer(DOMAINS, name, {"drawWatts": 1.0})
    report = writer.flush()
    assert (report.written, report.waiting) == (1, 1)
    clock.advance_seconds(60)
    assert writer.flush().written == 1


def test_an_event_tells_who_what_and_why(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    recorder = EventRecorder(kube, clock, "wattpack.io/controller", "controller-0")
    domain = bench.create_domain()
    recorder.emit(domain, EventReason.CAPS_LOWERED, "17 GPUs to 500 W", action="Cap", warning=True)
    (event,) = kube.list(EVENTS).items
    assert event["reason"] == "CapsLowered"
    assert event["type"] == "Warning"
    assert event["note"] == "17 GPUs to 500 W"
    assert event["regarding"]["uid"] == domain["metadata"]["uid"]
    assert event["metadata"]["namespace"] == "default"
    assert event["eventTime"].endswith("Z")


def test_a_repeated_transition_becomes_a_series(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    recorder = EventRecorder(kube, clock, "wattpack.io/controller", "controller-0")
    domain = bench.create_domain()
    for _ in range(100):
        recorder.emit(domain, EventReason.CAPS_LOWERED, "again", action="Cap")
        recorder.flush()
        clock.advance_seconds(1)
    (event,) = kube.list(EVENTS).items
    assert event["series"]["count"] > 50
    clock.advance_seconds(400)
    recorder.flush()
    assert kube.list(EVENTS).items[0]["series"]["count"] == 100
    recorder.emit(domain, EventReason.CAPS_LOWERED, "anew", action="Cap")
    assert len(kube.list(EVENTS).items) == 2


def test_the_end_of_a_process_loses_no_count(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    recorder = EventRecorder(kube, clock, "wattpack.io/controller", "controller-0")
    domain = bench.create_domain()
    for _ in range(3):
        recorder.emit(domain, EventReason.CAPS_LOWERED, "again", action="Cap")
    recorder.flush()
    assert "series" not in kube.list(EVENTS).items[0]
    recorder.close()
    assert kube.list(EVENTS).items[0]["series"]["count"] == 3


def test_the_end_of_a_process_does_not_press_an_api_that_fails(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    faulty = FaultyKube(kube, FaultRates())
    recorder = EventRecorder(faulty, clock, "c", "i")
    domain = bench.create_domain()
    for reason in (EventReason.CAPS_LOWERED, EventReason.CAPS_RESTORED):
        for _ in range(2):
            recorder.emit(domain, reason, "again", action="Cap")
    faulty.is_down = True
    recorder.close()
    assert recorder.lost == 1


def test_a_long_note_is_cut_inside_no_character(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    recorder = EventRecorder(kube, clock, "c", "i" * 500)
    recorder.emit(bench.create_domain(), EventReason.DOMAIN_DEGRADED, "ü" * 2000, action="Judge")
    (event,) = kube.list(EVENTS).items
    assert len(event["note"].encode()) <= 1024
    assert set(event["note"]) == {"ü"}
    assert len(event["reportingInstance"]) == 128


def test_an_event_that_cannot_be_written_is_counted(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock
) -> None:
    faulty = FaultyKube(kube, FaultRates())
    recorder = EventRecorder(faulty, clock, "c", "i")
    domain = bench.create_domain()
    faulty.is_down = True
    recorder.emit(domain, EventReason.PLANNER_FAILING, "x", action="Lead")
    assert recorder.lost == 1
    faulty.is_down = False
    recorder.emit(domain, EventReason.PLANNER_FAILING, "x", action="Lead")
    assert len(kube.list(EVENTS).items) == 1


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    def put(conditions: list[Condition], status: bool | None, second: int) -> list[Condition]:
        return set_condition(
            conditions,
            Finding("Ready", status, "Because", f"at {second}"),
            observed_generation=second,
            wall_time_ns=second * 10**9,
        )

    first = put([], True, 1)
    second = put(first, True, 2)
    third = put(second, False, 3)
    assert [c[0].last_transition_time for c in (first, second, third)] == [
        "1970-01-01T00:00:01Z",
        "1970-01-01T00:00:01Z",
        "1970-01-01T00:00:03Z",
    ]
    assert second[0].message == "at 2"
    assert second[0].observed_generation == 2
    assert is_true(second, "Ready")
    assert not is_true(third, "Ready")
    assert not is_true(put(third, None, 4), "Ready")
    assert find_condition(third, "Absent") is None


def test_setting_one_condition_leaves_others_in_place() -> None:
    conditions: list[Condition] = []
    for kind in ("A", "B", "A"):
        conditions = set_condition(
            conditions, Finding(kind, True, "R", "why"), observed_generation=1, wall_time_ns=0
        )
    assert [condition.type for condition in conditions] == ["A", "B"]


def test_a_condition_without_words_is_refused() -> None:
    with pytest.raises(InputError, match=r"conditions\.Ready\.message"):
        Finding("Ready", False, "R", "")


FAULTS: list[tuple[str, type[Exception]]] = [
    ("conflict", ConflictError),
    ("throttled", ThrottledError),
    ("server_error", UnavailableError),
    ("stalled", UnavailableError),
    ("lost_answer", UnavailableError),
]


@pytest.mark.parametrize(("fault", "error"), FAULTS)
def test_each_fault_is_what_its_name_says(
    kube: EmbeddedKube, bench: Bench, clock: ManualClock, fault: str, error: type[Exception]
) -> None:
    faulty = FaultyKube(kube, FaultRates(**{fault: 1.0}), clock=clock)
    domain = bench.domain()
    with pytest.raises(error):
        faulty.create(DOMAINS, domain)
    assert faulty.injected[fault] == 1
    assert len(kube.list(DOMAINS).items) == (1 if fault == "lost_answer" else 0)
    assert clock.monotonic_ns() == (10 * 10**9 if fault == "stalled" else 0)


def test_faults_are_the_same_for_the_same_seed(clock: ManualClock) -> None:
    def outcomes(seed: int) -> list[str]:
        kube = EmbeddedKube(clock)
        faulty = FaultyKube(kube, FaultRates(server_error=0.3, throttled=0.2), seed=seed)
        results = []
        for _ in range(50):
            try:
                faulty.list(DOMAINS)
                results.append("ok")
            except (UnavailableError, ThrottledError) as error:
                results.append(type(error).__name__)
        return results

    assert outcomes(3) == outcomes(3)
    assert outcomes(3) != outcomes(4)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "0.5", True])
def test_a_rate_that_is_no_probability_is_refused(rate: Any) -> None:
    with pytest.raises(InputError):
        FaultRates(gone=rate)
