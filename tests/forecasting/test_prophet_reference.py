"""Dynamo's Prophet predictor with the library itself: `pip install 'wattpack[prophet]'`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks._forecast_cases import absent
from benchmarks.forecast_references.refitted_daily import reference_points
from benchmarks.forecast_sets import DAY, TRAINING, ForecastSet

pytestmark = pytest.mark.skipif(find_spec("prophet") is None, reason="needs the extra prophet")

ONE_FIT = """
import numpy as np
from benchmarks.forecast_references.dynamo_references import Prophet

predictor, past = Prophet(), np.arange(60.0)[None]
predictor.fit(past)
assert abs(predictor.next(past)[0] - 60.0) < 0.5
"""


def test_prophet_goes_on_with_a_line_and_never_below_nothing() -> None:
    bins = np.arange(TRAINING + DAY)
    rising, falling = 100.0 + bins, np.maximum(TRAINING - 1.0 - bins, 0.0)
    values = np.stack([rising, falling, np.full(len(bins), 7.0)])
    origins = (TRAINING, TRAINING + 28)
    given = ForecastSet("lines", ("rising", "falling", "calm"), values, origins)
    found = reference_points("dynamo_prophet", given)
    assert found.shape == (2, 3)
    assert found[:, 0] == pytest.approx(rising[[*origins]], abs=0.5)
    # The line would go on below 0.
    assert found[0, 1] == 0.0
    assert found[:, 2] == pytest.approx(7.0, abs=0.01)


def test_prophet_says_nothing_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONE_FIT],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_prophet_is_not_told_absent() -> None:
    assert absent(("dynamo_prophet",)) == "none"
