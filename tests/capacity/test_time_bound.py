"""The allowance for servers that are slower than predicted: read, and refused by its field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capacity.serving.engine_fit import bounds_of
from capacity.serving.reference_runs import scored_runs
from capacity.serving.time_bound import shipped_time_bound, time_bound_from
from wattpack.errors import InputError

GOOD = {"confidence": 0.95, "runs": 513, "time_ratios": {"a": 0.9, "b": 1.2}}


def test_the_model_or_type_that_errs_most_sets_the_factor() -> None:
    found = time_bound_from(GOOD)
    assert (found.factor, found.worst) == (1.2, "b")
    assert time_bound_from(GOOD | {"time_ratios": {"a": 0.9}}).factor == 1.0, "never quicker"


def test_the_shipped_one_is_of_all_scored_runs() -> None:
    found = shipped_time_bound()
    assert found.runs == len(scored_runs())
    assert 1.1 < found.factor < 1.5


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time_ratios": {}}, "time_ratios"),
        ({"time_ratios": {"a": -1.0}}, r"time_ratios\.a"),
        ({"confidence": 1.5}, "confidence"),
        ({"runs": None}, "runs"),
    ],
)
def test_what_cannot_be_a_bound_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        time_bound_from(GOOD | changes)


def test_a_bound_is_the_rank_that_its_confidence_asks_for() -> None:
    """Of 19 exchangeable runs the largest is exceeded by the next with 1 in 20."""
    run = scored_runs()[0]
    ratios = [1.0 + 0.01 * i for i in range(19)]
    assert bounds_of([run] * 19, ratios)[run.gpu] == pytest.approx(1.18)
    with pytest.raises(InputError, match="a-card"):
        bounds_of([replace(run, gpu="a-card")] * 18, ratios[:18])
