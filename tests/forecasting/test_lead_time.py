from __future__ import annotations

import pytest

from forecasting.lead_time import StepWindow, needed_within
from wattpack.errors import InputError

WINDOW = StepWindow(start_seconds=1000.0, step_seconds=600.0)
PATH = [10.0, 30.0, 20.0, 90.0]


@pytest.mark.parametrize(
    ("now", "lead", "needed"),
    [
        (1000.0, 0.0, 10.0),
        (1000.0, 600.0, 10.0),
        (1000.0, 601.0, 30.0),
        (1300.0, 400.0, 30.0),
        (900.0, 50.0, 10.0),
        (1000.0, 2400.0, 90.0),
    ],
)
def test_the_highest_step_that_begins_before_the_lead_time_counts(
    now: float, lead: float, needed: float
) -> None:
    assert needed_within(WINDOW, PATH, now, lead) == needed


@pytest.mark.parametrize("lead", [2401.0, -1.0, float("nan")])
def test_a_lead_time_that_the_forecast_does_not_cover_is_refused(lead: float) -> None:
    with pytest.raises(InputError, match="lead_seconds"):
        needed_within(WINDOW, PATH, 1000.0, lead)


def test_no_steps_are_refused() -> None:
    with pytest.raises(InputError, match="values"):
        needed_within(WINDOW, [], 1000.0, 1.0)
