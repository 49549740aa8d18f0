"""What is planned starts replicas before it begins: by minutes as by rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.forecasting.test_replica_minutes import MINUTES, RATE, Service, _demand
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

BEGIN_SECONDS = 60.0 * MINUTES


def event(first: float, last: float, name: str = "launch", **effect: float) -> dict[str, Any]:
    """From one minute to another, counted from the service's first decision."""
    start, end = (
        rfc3339(seconds_to_ns(BEGIN_SECONDS + 60 * minute))[:19] + "Z" for minute in (first, last)
    )
    return {"name": name, "start": start, "end": end} | effect


def counts_of(service: Service, minutes: int) -> list[int]:
    return [service.minute()["count"] for _ in range(minutes)]


def test_a_launch_that_begins_now_is_decided_for_by_minutes_and_a_round_keeps_it() -> None:
    service = Service(_demand(), [event(0, 180, factor=3.0)])
    calm = Service(_demand()).minute()["count"]
    (_, count) = counts_of(service, 2)
    assert count == pytest.approx(3 * calm, rel=0.25)
    assert service.process.tick()
    said = service.said()
    assert said is not None
    assert said["count"] == count
    assert "planned: launch" in said["reason"]


def test_a_launch_starts_replicas_a_start_ahead_and_not_before() -> None:
    service = Service(_demand(), [event(20, 200, factor=3.0)])
    counts = counts_of(service, 19)
    # A start of three minutes, and the minute until the next decision.
    assert max(counts[:14]) < 1.5 * counts[0]
    assert counts[16] > 2.3 * counts[0]


def test_what_a_launch_brings_is_not_multiplied_again_and_goes_after_the_hold() -> None:
    values = _demand()
    values[MINUTES + 5 : MINUTES + 30] *= 3.0
    service = Service(values, [event(5, 30, factor=3.0)], holdSeconds=300)
    counts = np.array(counts_of(service, 45))
    needed = values[MINUTES : MINUTES + 45] / RATE
    during, after = slice(8, 29), slice(40, 45)
    assert np.max(counts[during] / needed[during]) < 1.5
    assert np.mean(counts[during] >= needed[during]) > 0.9
    assert counts[32] > 2 * needed[32]
    assert np.max(counts[after] / needed[after]) < 1.5


@pytest.mark.parametrize(
    ("effect", "replicas"),
    [
        ({"added": 350.0}, 17 + 50),
        ({"atLeast": 700.0}, 100),
        ({"factor": 4.0, "atMost": 140.0}, 20),
    ],
)
def test_additions_reservations_and_quotas_count(effect: dict[str, float], replicas: int) -> None:
    service = Service(_demand(), [event(-2, 200, **effect)])
    assert service.minute()["count"] == pytest.approx(replicas, abs=4)


def test_a_launch_that_is_late_keeps_what_was_started_for_it() -> None:
    values = _demand()
    values[MINUTES + 18 : MINUTES + 100] *= 3.0
    service = Service(values, [event(10, 100, factor=3.0)], holdSeconds=0)
    counts = counts_of(service, 25)
    assert min(counts[8:25]) > 2.2 * counts[0]


def test_who_was_shut_down_is_back_before_it_is_over() -> None:
    values = _demand()
    values[MINUTES - 120 : MINUTES + 20] = 0.0
    service = Service(values, [event(-120, 20, factor=0.0)], holdSeconds=0)
    counts = counts_of(service, 19)
    assert counts[0] == 1
    assert counts[-1] > 10


def test_a_learned_effect_counts_as_soon_as_a_round_has_told_it() -> None:
    values = _demand()
    day = 1440
    for back in (1, 2):
        values[MINUTES - back * day : MINUTES - back * day + 180] *= 3.0
    told = [event(-back * day, -back * day + 180, "sale") for back in (1, 2)]
    service = Service(values, [*told, event(20, 180, "sale")], holdSeconds=0)
    assert service.process.tick()
    counts = counts_of(service, 19)
    assert max(counts[:14]) < 1.6 * counts[0]
    assert counts[-1] > 2.2 * counts[0]
    assert "planned: sale" in str((service.said() or {})["reason"])


def test_an_event_of_unknown_effect_changes_nothing() -> None:
    plain, unknown = Service(_demand()), Service(_demand(), [event(0, 180, "sale")])
    assert counts_of(unknown, 3) == counts_of(plain, 3)
