"""The vectorised table: bounds, monotony, agreement with the profile, speed of shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.capacity_table import (
    ProfileTable,
    class_index,
    power,
    throughput,
)
from capacity.gpu_profile import KERNEL_CLASSES
from capacity.profile_library import shipped_library
from tests.examples import examples
from wattpack.errors import InputError

PROFILES = list(shipped_library().profiles.values())
TABLE = ProfileTable.of(PROFILES)

gpus = st.lists(
    st.tuples(
        st.integers(0, len(PROFILES) - 1),
        st.integers(0, len(KERNEL_CLASSES) - 1),
        st.floats(1.0, 2000.0),
    ),
    min_size=1,
    max_size=20,
)


def _arrays(rows: list[tuple[int, int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([r[0] for r in rows], dtype=np.intp),
        np.array([r[1] for r in rows], dtype=np.intp),
        np.array([r[2] for r in rows]),
    )


@given(gpus)
@examples(60)
def test_throughput_is_in_the_unit_interval_and_a_watt_never_hurts(
    rows: list[tuple[int, int, float]],
) -> None:
    model, kernel, cap = _arrays(rows)
    now = throughput(TABLE, model, kernel, cap)
    assert np.all((now > 0) & (now <= 1))
    assert np.all(throughput(TABLE, model, kernel, cap + 25) >= now)


@given(gpus)
@examples(60)
def test_power_lies_between_idle_and_the_uncapped_draw(rows: list[tuple[int, int, float]]) -> None:
    model, kernel, cap = _arrays(rows)
    typical = power(TABLE, model, kernel, cap)
    high = power(TABLE, model, kernel, cap, high=True)
    assert np.all(typical >= TABLE.idle_watts[model] - 1e-9)
    assert np.all(typical <= TABLE.p50_watts[model, kernel] + 1e-9)
    assert np.all(high >= typical - 1e-6)
    assert np.all(high <= TABLE.p95_watts[model, kernel] + 1e-9)


def test_at_the_default_limit_nothing_is_lost() -> None:
    for i, profile in enumerate(PROFILES):
        n = len(KERNEL_CLASSES)
        model, kernel = np.full(n, i), np.arange(n)
        cap = np.full(n, profile.default_limit_watts)
        assert throughput(TABLE, model, kernel, cap) == pytest.approx(np.ones(n))
        assert power(TABLE, model, kernel, cap) == pytest.approx(TABLE.p50_watts[i])


def test_the_table_says_what_the_profile_says() -> None:
    for i, profile in enumerate(PROFILES):
        kernel = profile.kernel_classes["training"]
        caps = np.array([0.4, 0.6, 0.8]) * profile.default_limit_watts
        expected = np.interp([0.4, 0.6, 0.8], kernel.cap_fractions, kernel.throughput)
        found = throughput(TABLE, np.full(3, i), np.full(3, KERNEL_CLASSES.index("training")), caps)
        assert found == pytest.approx(expected, abs=2e-3)


def test_a_watt_buys_more_for_prefill_than_for_decode_at_a_tight_cap() -> None:
    model = TABLE.index_of(["H200-SXM", "H200-SXM", "H200-SXM"])
    kernel = class_index(["prefill", "decode", "idle"])
    lower, upper = (throughput(TABLE, model, kernel, np.full(3, watts)) for watts in (450.0, 485.0))
    gain = upper - lower
    assert gain[0] > gain[1] >= gain[2] == 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="H900"):
        TABLE.index_of(["H200-SXM", "H900"])
    with pytest.raises(InputError, match="kernelClass"):
        class_index(["prefil"])
    with pytest.raises(InputError, match="at least one"):
        ProfileTable.of([])
