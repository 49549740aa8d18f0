from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.classifier_fit import main as refit
from capacity.catalogue.telemetry_features import LEAST_SAMPLES, NAMES, Telemetry, features
from capacity.catalogue.workload_classifier import (
    UNKNOWN,
    classifier_document,
    classifier_from_document,
    shipped_classifier,
)
from wattpack.errors import InputError

N = 120
LIMIT = 700.0


def telemetry(draw_share: Any, **known: float) -> Telemetry:
    """Two minutes of a 700 W board; what is not named is unknown."""
    unknown = np.full(N, np.nan)
    columns = {
        name: np.full(N, known[name]) if name in known else unknown
        for name in ("utilisation", "memory_utilisation", "memory_used_share", "clock_share")
    }
    return Telemetry(np.broadcast_to(draw_share, N) * LIMIT, LIMIT, **columns)


def verdict(made: Telemetry) -> str:
    observed = features(made)
    assert observed is not None
    return shipped_classifier().classify(observed).bound


WAVE = np.where(np.arange(N) % 6 < 5, 0.98, 0.3)


def seen(draw: Any, busy: float, memory: float, clock: float) -> Telemetry:
    return telemetry(draw, utilisation=busy, memory_utilisation=memory, clock_share=clock)


TABLE = [
    ("a board at its limit that moves little", seen(0.985, 1, 0.35, 0.9), "compute"),
    ("a flat draw below the limit, a busy memory", seen(0.76, 1, 0.85, 1), "bandwidth"),
    ("steps with dips at equal distance", seen(WAVE, 0.9, 0.3, 0.92), "compute"),
    ("full utilisation at a fifth of the limit", seen(0.22, 1, 0.0, 1), "starved"),
    ("hardly used, at rest most of the time", seen(0.24, 0.06, 0.02, 1), "outside"),
]


@pytest.mark.parametrize(("title", "made", "bound"), TABLE, ids=[row[0] for row in TABLE])
def test_telemetry_names_what_binds(title: str, made: Telemetry, bound: str) -> None:
    assert verdict(made) == bound, title


@pytest.mark.parametrize(
    ("memory", "bound"), [(None, UNKNOWN), (0.2, "compute"), (0.75, "bandwidth")]
)
def test_at_its_limit_a_board_tells_nothing_but_by_its_memory(
    memory: float | None, bound: str
) -> None:
    """Own H200: prefill and decoding at a batch of 64 both draw what the limit allows."""
    known = {} if memory is None else {"memory_utilisation": memory}
    assert verdict(telemetry(0.99, utilisation=1, **known)) == bound


def test_equal_utilisation_is_not_an_equal_verdict() -> None:
    low = telemetry(0.22, utilisation=1.0, memory_utilisation=0.0)
    high = telemetry(0.985, utilisation=1.0, memory_utilisation=0.35)
    assert verdict(low) != verdict(high)


def test_watts_and_utilisation_alone_are_judged_with_less_confidence() -> None:
    full = features(telemetry(0.76, utilisation=1, memory_utilisation=0.85, clock_share=1))
    sparse = features(telemetry(0.76, utilisation=1))
    assert full is not None
    assert sparse is not None
    classifier = shipped_classifier()
    assert classifier.classify(sparse).bound == "bandwidth"
    assert classifier.classify(sparse).confidence < classifier.classify(full).confidence


def test_what_no_entry_is_like_is_unknown() -> None:
    assert verdict(telemetry(1.4, utilisation=0.0, memory_utilisation=0.0)) == UNKNOWN


def test_too_few_readings_say_nothing() -> None:
    draw = np.full(N, 0.5)
    draw[LEAST_SAMPLES - 1 :] = np.nan
    assert features(telemetry(draw)) is None


def test_gaps_in_the_readings_are_left_out() -> None:
    draw = np.full(N, 0.76)
    draw[::3] = np.nan
    assert verdict(telemetry(draw, utilisation=1, memory_utilisation=0.85)) == "bandwidth"


def test_the_verdict_names_an_entry_of_the_catalogue_and_its_kind() -> None:
    observed = features(telemetry(0.76, utilisation=1, memory_utilisation=0.85, clock_share=1))
    assert observed is not None
    made = shipped_classifier().classify(observed)
    assert shipped_catalogue()[made.workload].kind == made.kind
    assert 0 < made.entry_confidence <= made.confidence <= 1


def test_the_classifier_survives_its_file() -> None:
    made = classifier_document(shipped_classifier())
    again = classifier_from_document(json.loads(json.dumps(made)))
    assert np.array_equal(again.means, shipped_classifier().means)


@pytest.mark.parametrize(
    "change",
    [{"schema": "wattpack.io/workload-classes/v0"}, {"features": list(NAMES[1:])}],
)
def test_another_version_of_the_file_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="schema"):
        classifier_from_document(classifier_document(shipped_classifier()) | change)


def test_features_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match="features"):
        shipped_classifier().classify(np.zeros(3))


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="utilisation"):
        Telemetry(np.ones(9), LIMIT, np.ones(8), np.ones(9), np.ones(9), np.ones(9))


@pytest.mark.slow
def test_the_shipped_classes_are_what_the_catalogue_gives() -> None:
    assert refit(["--check"]) == 0
