"""Errors cross processes as they are: a pool whose worker raises one must not wait for ever."""

from __future__ import annotations

import pickle

import pytest

from wattpack.errors import (
    DeadlineExceededError,
    InputError,
    PermanentError,
    SafetyError,
    TransientError,
    WattpackError,
)
from wattpack.kube.port import ConflictError
from wattpack.sweep.sweep import Processes

ERRORS = (
    InputError("spec.ratingWatts", "a positive number of watts", -1, "row.yaml"),
    TransientError("not now", 3.5),
    DeadlineExceededError("too late"),
    PermanentError("never"),
    SafetyError("I1", "450 W above 400 W"),
    ConflictError("somebody else wrote"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_a_journey(error: WattpackError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def refuses(job: int) -> int:
    raise InputError("series", "another", job)


@pytest.mark.timeout(60)
def test_what_a_worker_process_refuses_is_raised_here() -> None:
    with pytest.raises(InputError, match="series") as found:
        list(Processes(1).rows(refuses, [3]))
    assert (found.value.field, found.value.got) == ("series", "3")
