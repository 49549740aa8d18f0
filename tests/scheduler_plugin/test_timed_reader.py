"""Slow and senseless senders at the webhook's port."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from scheduler_plugin.app.timed_reader import TimedReader
from scheduler_plugin.app.webhook import answer, answered
from scheduler_plugin.kube_objects.admission import Mode
from wattpack.clock import ManualClock


class Trickle:
    """Sends one byte whenever it is asked, each after the same time."""

    def __init__(self, clock: ManualClock, every_seconds: float) -> None:
        self._clock, self._every_seconds = clock, every_seconds
        self.patience: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.patience.append(seconds)

    def recv_into(self, buffer: Any) -> int:
        self._clock.advance_seconds(self._every_seconds)
        buffer[:1] = b"x"
        return 1


def test_a_sender_of_a_byte_now_and_then_is_read_until_its_time_is_over_and_no_longer() -> None:
    clock = ManualClock()
    connection = Trickle(clock, 1.5)
    timed = TimedReader(connection, clock, 2.0)  # type: ignore[arg-type]
    timed.allow(120.0, 8.0)
    with pytest.raises(TimeoutError):
        io.BufferedReader(timed).read(1000)
    assert clock.monotonic_ns() == 10.5 * 10**9
    assert connection.patience[:3] == [120.0, 2.0, 2.0]
    assert min(connection.patience) == 0.5


def test_each_request_has_its_time_anew() -> None:
    clock = ManualClock()
    timed = TimedReader(Trickle(clock, 1.0), clock, 2.0)  # type: ignore[arg-type]
    for _ in range(3):
        timed.allow(2.0, 8.0)
        assert timed.read(1) == b"x"
        clock.advance_seconds(60)
    with pytest.raises(TimeoutError):
        timed.read(1)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"\xff",
        json.dumps({"spec": {"containers": True}}).encode(),
        json.dumps({"metadata": None, "spec": {}}).encode(),
        json.dumps({"spec": {"schedulingGates": [None]}}).encode(),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_as_malformed(body: bytes) -> None:
    if body.startswith(b"{"):
        request = {"uid": "r", "kind": {"kind": "Pod"}, "operation": "CREATE"}
        request["object"] = json.loads(body)
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        body = json.dumps(review | {"request": request}).encode()
    status, text = answered(lambda given: answer(given, Mode.MANAGE), body)
    assert status == 400
    assert text.endswith(b"\n")
