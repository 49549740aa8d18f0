"""What a forecast says of itself: shown as it stands, left out where it makes no sense."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.issued_account import (
    IssuedAccount,
    IssuedCalibration,
    IssuedTier,
    read_account,
)
from wattpack.api.demand_forecast import DemandForecastStatus, ForecastCalibration, ForecastTier


def test_what_a_status_can_say_arrives() -> None:
    status = DemandForecastStatus(
        coverage_n=40,
        violations=1,
        live_windows=3,
        live_violations=1,
        live_violation_bound95=0.865,
        violation_bound95=0.114,
        reserve_ratio=1.3,
        live_reserve_ratio=1.2,
        tiers=[ForecastTier(name="lightgbm/1", weight=0.6), ForecastTier(name="ridge", weight=0.4)],
        model_version="wattpack/3",
        fitted_until="1970-01-01T01:00:00Z",
        calibration=ForecastCalibration(
            live_windows=3, rehearsed_windows=40, offset_p99=-5.0, updated_at="1970-01-01T02:00:00Z"
        ),
        flags=["gaps"],
    )
    assert read_account(status.to_json()) == IssuedAccount(
        windows=40,
        violations=1,
        live_windows=3,
        live_violations=1,
        live_violation_bound=0.865,
        violation_bound=0.114,
        reserve_ratio=1.3,
        live_reserve_ratio=1.2,
        tiers=(IssuedTier("lightgbm/1", 0.6), IssuedTier("ridge", 0.4)),
        model_version="wattpack/3",
        fitted_until_seconds=3600.0,
        calibration=IssuedCalibration(3, 40, -5.0, 7200.0),
        flags=("gaps",),
    )


def test_a_forecaster_that_says_nothing_of_itself_is_no_error() -> None:
    assert read_account({}) == IssuedAccount()


@pytest.mark.parametrize(
    ("live", "missed"),
    [(41, 0), (3, 4), (39, 12), (3, None), (None, 0), (30, 0)],
    ids=["more than all", "missed more than there were", "missed more than all", "no misses told",
         "no windows told", "more rehearsed misses than rehearsed windows"],
)  # fmt: skip
def test_live_windows_that_cannot_be_part_of_the_record_are_not_told(
    live: int | None, missed: int | None
) -> None:
    status = {"coverageN": 40, "violations": 11, "liveWindows": live, "liveViolations": missed}
    account = read_account(status)
    assert (account.live_windows, account.live_violations) == (None, None)
    assert account.windows == 40


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "no window is over yet"),
        ({"coverageN": 0, "violations": 0, "liveWindows": 0, "liveViolations": 0},
         "no window is over yet"),
        ({"coverageN": 27, "violations": 2, "liveWindows": 3, "liveViolations": 1},
         "2 of 3 kept live, 23 of 24 in rehearsal"),
        ({"coverageN": 24, "violations": 0, "liveWindows": 0, "liveViolations": 0},
         "no live window yet, 24 of 24 kept in rehearsal"),
        ({"coverageN": 9, "violations": 1, "liveWindows": 9, "liveViolations": 1},
         "8 of 9 kept live"),
        ({"coverageN": 40, "violations": 1}, "39 of 40 kept"),
    ],
)  # fmt: skip
def test_promises_are_told_apart_from_rehearsals(status: dict[str, Any], words: str) -> None:
    assert read_account(status).kept() == words


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "weight", "liveWindows", "offsetP99", "updatedAt"]), inner
        )
    ),
    max_leaves=8,
)
FIELDS = (
    "coverageN", "violations", "violationBound95", "liveWindows", "liveViolations",
    "liveViolationBound95", "reserveRatio", "tiers", "modelVersion", "fittedUntil", "calibration",
    "flags",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK))
def test_whatever_a_status_holds_what_is_shown_is_finite_and_in_range(given_: Any) -> None:
    account = read_account(given_)
    bounds = (account.violation_bound, account.live_violation_bound)
    shares = [*bounds, *(tier.weight for tier in account.tiers)]
    assert all(share is None or 0 <= share <= 1 for share in shares)
    numbers = [account.windows, account.violations, account.reserve_ratio]
    if account.calibration is not None:
        numbers += [account.calibration.live_windows, account.calibration.rehearsed_windows]
        offset = account.calibration.offset_p99
        assert offset is None or math.isfinite(offset)
    assert all(number is None or (math.isfinite(number) and number >= 0) for number in numbers)
