"""What a forecast says of itself: shown as it stands, left out where it makes no sense."""

from __future__ import annotations

import math
from typing import Any

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
        violation_bound95=0.114,
        reserve_ratio=1.3,
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
        violation_bound=0.114,
        reserve_ratio=1.3,
        tiers=(IssuedTier("lightgbm/1", 0.6), IssuedTier("ridge", 0.4)),
        model_version="wattpack/3",
        fitted_until_seconds=3600.0,
        calibration=IssuedCalibration(3, 40, -5.0, 7200.0),
        flags=("gaps",),
    )


def test_a_forecaster_that_says_nothing_of_itself_is_no_error() -> None:
    assert read_account({}) == IssuedAccount()


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
    "coverageN", "violations", "violationBound95", "reserveRatio", "tiers", "modelVersion",
    "fittedUntil", "calibration", "flags",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK))
def test_whatever_a_status_holds_what_is_shown_is_finite_and_in_range(given_: Any) -> None:
    account = read_account(given_)
    shares = [account.violation_bound, *(tier.weight for tier in account.tiers)]
    assert all(share is None or 0 <= share <= 1 for share in shares)
    numbers = [account.windows, account.violations, account.reserve_ratio]
    if account.calibration is not None:
        numbers += [account.calibration.live_windows, account.calibration.rehearsed_windows]
        offset = account.calibration.offset_p99
        assert offset is None or math.isfinite(offset)
    assert all(number is None or (math.isfinite(number) and number >= 0) for number in numbers)
