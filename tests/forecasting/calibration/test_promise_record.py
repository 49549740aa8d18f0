"""Kept and broken promises are counted once, live apart from rehearsed, with exact bounds."""

from __future__ import annotations

import json
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.binomial import share_bounds
from forecasting.calibration.promise_record import PromiseRecord
from wattpack.errors import InputError

LEVELS = (0.9, 0.99)


def test_live_windows_are_counted_apart_from_rehearsed_ones() -> None:
    record = PromiseRecord.new(LEVELS)
    record = record.after((10.0, 20.0), 12.0, "rehearsed")
    record = record.after((10.0, 20.0), 5.0, "live")
    record = record.after((10.0, 20.0), float("nan"), "live")
    assert (record.live.windows, record.rehearsed.windows) == (1, 1)
    assert record.coverage("live") == (1.0, 1.0)
    assert record.coverage("rehearsed") == (0.0, 1.0)
    assert record.coverage() == (0.5, 1.0)
    assert record.live.reserve_ratios() == (2.0, 4.0)


def test_a_window_broken_while_open_counts_at_once_and_once() -> None:
    record = PromiseRecord.new(LEVELS).after_broken((True, False), first=True)
    assert (record.live.windows, record.live.violations) == (1, (1, 0))
    record = record.after_broken((False, True), first=False)
    assert (record.live.windows, record.live.violations) == (1, (1, 1))
    record = record.after((10.0, 20.0), 25.0, "live", told=(True, True))
    assert (record.live.windows, record.live.violations) == (1, (1, 1))
    assert record.live.reserve_ratios() == (0.4, 0.8)


@given(st.integers(0, 40), st.integers(1, 40), st.floats(0.5, 0.99))
def test_bounds_leave_exactly_the_doubt_in_each_tail(
    count: int, total: int, confidence: float
) -> None:
    count = min(count, total)
    lower, upper = share_bounds(count, total, confidence)

    def at_most(k: int, rate: float) -> float:
        return sum(comb(total, i) * rate**i * (1 - rate) ** (total - i) for i in range(k + 1))

    tail = (1 - confidence) / 2
    if count > 0:
        assert 1 - at_most(count - 1, lower) == pytest.approx(tail, abs=1e-9)
    else:
        assert lower == 0
    if count < total:
        assert at_most(count, upper) == pytest.approx(tail, abs=1e-9)
    else:
        assert upper == 1


def test_a_record_is_stored_and_read_again() -> None:
    record = PromiseRecord.new(LEVELS).after((10.0, 20.0), 12.0, "live")
    record = record.after((10.0, 20.0), 12.5, "rehearsed")
    assert PromiseRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0),
        ("live", None),
        ("live", {"windows": -1, "violations": [0, 0], "reserved": [0, 0], "realised": 0}),
        ("rehearsed", {"windows": 1, "violations": [0], "reserved": [0, 0], "realised": 0}),
    ],
)
def test_a_damaged_record_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError):
        PromiseRecord.from_json(PromiseRecord.new(LEVELS).to_json() | {field: value})
