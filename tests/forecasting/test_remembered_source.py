"""A history that is asked only for what is new answers as if it were asked for everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting import remembered_source
from forecasting.memory_source import MemorySource
from forecasting.remembered_source import LATE_SECONDS, RememberedSource
from forecasting.series_source import Floats, SeriesId, source_flags
from tests.examples import examples
from wattpack.errors import TransientError

STEP = 600
LATE_BINS = LATE_SECONDS // STEP
DAY = 144
NAMES = [SeriesId("a"), SeriesId("b")]


class Counting(MemorySource):
    """Counts what is read; may be away, or doubt a series."""

    bins = 0
    away = False
    doubted: frozenset[str] = frozenset()

    def fetch(
        self, series: Sequence[SeriesId], start: int, end: int, step_seconds: int = STEP
    ) -> Floats:
        if self.away:
            raise TransientError("away")
        self.bins += len(series) * (end - start) // step_seconds
        return super().fetch(series, start, end, step_seconds)

    def flags(self, series: SeriesId) -> tuple[str, ...]:
        return ("partial",) if series in self.doubted else ()


def _source(n_bins: int, seed: int = 0) -> Counting:
    rows = np.random.default_rng(seed).uniform(0, 9, (2, n_bins))
    rows[rows < 1] = np.nan
    return Counting(dict(zip(NAMES, rows, strict=True)))


MOVES = st.lists(
    st.tuples(
        st.integers(-3, 200), st.sampled_from([1, 5, 100, 300]),
        st.sampled_from([NAMES, NAMES[:1]]), st.booleans(),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(MOVES, st.integers(0, 99))
@examples(80)
def test_any_ranges_give_what_the_source_has(
    moves: list[tuple[int, int, list[SeriesId], bool]], seed: int
) -> None:
    source = _source(3000, seed)
    remembered, end = RememberedSource(source), 400
    for move, width, names, away in moves:
        end = max(width, end + move)
        source.away = away
        if away:
            with pytest.raises(TransientError):
                remembered.fetch(names, STEP * (end - width), STEP * end)
            continue
        found = remembered.fetch(names, STEP * (end - width), STEP * end)
        expected = [source.values[name][end - width : end] for name in names]
        padded = np.full((len(names), width), np.nan)
        padded[:, : len(expected[0])] = expected
        np.testing.assert_array_equal(found, padded)


def test_rounds_read_an_hour_and_each_day_everything() -> None:
    source = _source(4 * DAY)
    remembered = RememberedSource(source)
    read = []
    for end in range(2 * DAY, 3 * DAY + 2):
        source.bins = 0
        remembered.fetch(NAMES, STEP * (end - 2 * DAY), STEP * end)
        read.append(source.bins / len(NAMES))
    assert read == [2 * DAY, *[LATE_BINS + 1] * (DAY - 1), 2 * DAY, LATE_BINS + 1]


def test_late_samples_are_seen_within_the_hour_and_filled_gaps_within_the_day() -> None:
    source = _source(3 * DAY)
    remembered = RememberedSource(source)
    end = 2 * DAY
    remembered.fetch(NAMES, 0, STEP * end)
    source.values["a"][end - LATE_BINS : end] = 77.0
    source.values["b"][10] = 88.0
    found = remembered.fetch(NAMES, STEP, STEP * (end + 1))
    assert (found[0, end - LATE_BINS - 1 : end - 1] == 77.0).all()
    assert found[1, 9] != 88.0
    found = remembered.fetch(NAMES, STEP * 5, STEP * (end + DAY))
    assert found[1, 5] == 88.0


def test_what_the_source_doubts_is_not_remembered() -> None:
    source = _source(3 * DAY)
    source.doubted = frozenset({"a"})
    remembered = RememberedSource(source)
    remembered.fetch(NAMES, 0, STEP * DAY)
    assert source_flags(remembered, NAMES[0]) == ("partial",)
    source.bins = 0
    source.values["a"][3] = 5.5
    found = remembered.fetch(NAMES, STEP, STEP * (DAY + 1))
    assert found[0, 2] == 5.5
    assert source.bins == DAY + LATE_BINS + 1


def test_no_more_rows_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_source, "MOST_SERIES", 1)
    source = _source(3 * DAY)
    remembered = RememberedSource(source)
    for end in (DAY, DAY + 1):
        source.bins = 0
        remembered.fetch(NAMES, 0, STEP * end)
    assert source.bins == DAY + 1 + LATE_BINS + 1
