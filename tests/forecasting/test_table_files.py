"""Histories in CSV and Parquet files: what is read back is what was written, or a named refusal."""

from __future__ import annotations

import builtins
import gzip
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from forecasting.files import TableSource, read_table
from forecasting.files import table as table_module
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId, source_flags
from forecasting.targets import Target
from tests.examples import examples
from wattpack.errors import InputError

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

A, B = SeriesId("a"), SeriesId("b")
BERLIN = ZoneInfo("Europe/Berlin")
#: Either side of both changes of the clock in 2026, and an ordinary day.
MOMENTS = [
    datetime(2026, 3, 28, 23, tzinfo=UTC),
    datetime(2026, 10, 24, 22, tzinfo=UTC),
    datetime(2026, 6, 1, tzinfo=UTC),
]


def written(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_bins_are_means_gaps_stay_and_unknown_series_are_empty(tmp_path: Path) -> None:
    text = "t_s,a,b\n0,1,\n300,3,\n1200,5,7\n"
    for name, data in (("t.csv", text.encode()), ("t.csv.gz", gzip.compress(text.encode()))):
        source = TableSource(read_table(written(tmp_path, data, name)))
        found = source.fetch([B, A, SeriesId("c")], 0, 2400)
        np.testing.assert_array_equal(found[0], [np.nan, np.nan, 7, np.nan])
        np.testing.assert_array_equal(found[1], [2, np.nan, 5, np.nan])
        assert np.isnan(found[2]).all()
        assert source.names() == ["a", "b"]
        np.testing.assert_array_equal(source.fetch([A], 0, 1200, 1200), [[2.0]])


@pytest.mark.parametrize("minutes", [15, 20, 30, 60, 120, 1440])
def test_rows_that_stand_for_more_than_a_bin_hold_until_the_next(
    tmp_path: Path, minutes: int
) -> None:
    """Read as single samples they left gaps in a rhythm: hourly means, the usual export of a
    meter, had only the last day's maximum, and those of two hours "less than a day of values"."""
    rng, width = np.random.default_rng(minutes), 60 * minutes
    values = rng.uniform(50, 150, 10 * 86_400 // width)
    values[3] = np.nan
    rows = "".join(f"{i * width},{value}\n" for i, value in enumerate(values))
    source = TableSource(read_table(written(tmp_path, "time,a\n" + rows)))
    assert source_flags(source, A) == ("coarse-rows",)
    # By the minute, the plainest way to say what a row stands for.
    by_minute = np.repeat(values, minutes).reshape(-1, 10)
    known = ~np.isnan(by_minute)
    total = np.where(known, by_minute, 0.0).sum(axis=1)
    expected = np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)
    found = source.fetch([A], 0, 864_000)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(source.fetch([A], 1800, 7200), [found[3:12]])
    assert (
        source.maxima(A, 0, 864_000)[known.any(axis=1)] >= found[known.any(axis=1)] - 1e-9
    ).all()
    day = source.fetch([A], 0, 864_000, 86_400)[0]
    np.testing.assert_allclose(day[1:], values.reshape(10, -1).mean(axis=1)[1:], rtol=1e-12)


def test_a_row_holds_no_longer_than_rows_usually_do(tmp_path: Path) -> None:
    hours = [0, 1, 2, 3, 9, 9, 10, 11]
    rows = "".join(f"{hour * 3600},{hour + k}\n" for k, hour in enumerate(hours))
    source = TableSource(read_table(written(tmp_path, "time,a\n" + rows)))
    found = source.fetch([A], 0, 12 * 3600, 3600)[0]
    nan = np.nan
    np.testing.assert_array_equal(found, [0, 2, 4, 6, nan, nan, nan, nan, nan, 13.5, 16, 18])
    # Two readings a month apart say nothing of what lay between, and a single one is a bin's.
    far = TableSource(read_table(written(tmp_path, "time,a\n0,1\n2592000,2\n")))
    assert np.isfinite(far.fetch([A], 0, 86_400)).sum() == 1
    assert far.table.until_seconds == 2_592_600, "a forecast begins behind the last row"
    one = TableSource(read_table(written(tmp_path, "time,a\n600,5\n")))
    np.testing.assert_array_equal(one.fetch([A], 0, int(one.table.until_seconds)), [[np.nan, 5.0]])


@pytest.mark.parametrize("start", MOMENTS)
def test_local_times_across_a_change_of_the_clock_are_the_moments_they_were(
    tmp_path: Path, start: datetime
) -> None:
    moments = [start + timedelta(minutes=10 * i) for i in range(72)]
    local = [moment.astimezone(BERLIN).replace(tzinfo=None) for moment in moments]
    text = "time,a\n" + "".join(f"{at.isoformat(' ')},{i}\n" for i, at in enumerate(local))
    table = read_table(written(tmp_path, text), "Europe/Berlin")
    np.testing.assert_array_equal(table.seconds, [moment.timestamp() for moment in moments])
    np.testing.assert_array_equal(table.values["a"], np.arange(72.0))
    assert table.flags == (("clock-change",) if start.month == 10 else ())
    with pytest.raises(InputError, match="zone"):
        read_table(written(tmp_path, text))
    rows = {"time": arrow.array(local, arrow.timestamp("us")), "a": np.arange(72.0)}
    parquet.write_table(arrow.table(rows), tmp_path / "t.parquet")
    same = read_table(tmp_path / "t.parquet", "Europe/Berlin")
    np.testing.assert_array_equal(same.seconds, table.seconds)


def test_an_hour_that_never_was_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "time,a\n2026-03-29 02:30:00,1\n")
    with pytest.raises(InputError, match=r"line 2\.time.*Europe/Berlin"):
        read_table(file, "Europe/Berlin")


@pytest.mark.parametrize(
    "rows",
    [
        {"time": arrow.array([1.8e9, 1.8e9 + 600], arrow.float64())},
        {"time": arrow.array([1_800_000_000, 1_800_000_600], arrow.int32())},
        {"time": arrow.array(["2027-01-15T08:00:00Z", "2027-01-15T09:10:00+01:00"])},
        {"ts": arrow.array([1_800_000_000, 1_800_000_600], arrow.timestamp("s", "UTC"))},
        {"Time": arrow.array([1_800_000_000_000_000_000, 1_800_000_600_000_000_000],
                             arrow.timestamp("ns", "Europe/Berlin"))},
    ],
)  # fmt: skip
def test_parquet_tells_times_in_every_way_and_null_is_a_gap(
    tmp_path: Path, rows: dict[str, Any]
) -> None:
    columns = {"a": arrow.array([1, None]), **rows, "b": arrow.array([None, 2.5]),
               "c": arrow.array(["x", "y"])}  # fmt: skip
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(table.seconds, [1.8e9, 1.8e9 + 600])
    np.testing.assert_array_equal(table.values["a"], [1, np.nan])
    np.testing.assert_array_equal(table.values["b"], [np.nan, 2.5])
    with pytest.raises(InputError, match=r"c: expected a column of numbers"):
        TableSource(table).fetch([SeriesId("c")], 0, 600)


def test_rows_out_of_order_and_twice_are_repaired_and_told(tmp_path: Path) -> None:
    source = TableSource(read_table(written(tmp_path, "t,a\n600,4\n0,1\n600,2\n")))
    np.testing.assert_array_equal(source.fetch([A], 0, 1200), [[1, 3]])
    assert source_flags(source, A) == ("times-twice", "unordered")


@given(
    st.lists(st.tuples(st.integers(0, 5999), st.floats(-1e9, 1e9) | st.none()), min_size=1),
    st.sampled_from([600, 1200, 6000]),
)
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_rows_gives_the_means_of_a_loop(
    tmp_path: Path, samples: list[tuple[int, float | None]], width: int
) -> None:
    text = "t,a\n" + "".join(f"{t},{'' if v is None else repr(v)}\n" for t, v in samples)
    found = TableSource(read_table(written(tmp_path, text))).fetch([A], 0, 6000, width)[0]
    times = sorted({t for t, _ in samples})
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    following = dict(zip(times, [*times[1:], np.inf], strict=True))
    for place, value in enumerate(found):
        low, high = place * width, (place + 1) * width
        weighed = []
        for t, v in samples:
            until = min(t + usual, following[t], high)
            counts = float(low <= t < high) if usual <= width else until - max(t, low)
            if v is not None and counts > 0:
                weighed.append((v, counts))
        if weighed:
            values, weights = zip(*weighed, strict=True)
            expected = np.average(values, weights=weights)
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-5)
        else:
            assert np.isnan(value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "line 1"),
        ("t,a\n", "line 2"),
        ("t\n1\n", "columns"),
        ("t,a,a\n1,1,1\n", "column 3"),
        ("t,a,\n1,1,1\n", "column 3"),
        ("t,a\n1,2,3\n", "line 2"),
        ("t,a\n1\n", "line 2"),
        ("t,a\n0,1\nnan,1\n", "line 3.t"),
        ("t,a\n1e400,1\n", "line 2.t"),
        ("t,a\n-600,1\n", "line 2.t"),
        ("t,a\n1800000000000,1\n", "line 2.t"),
        ("t,a\n1_000,1\n", "line 2.t"),
        ("t,a\n,1\n", "line 2.t"),
        ("t,a\nyesterday,1\n", "line 2.t"),
        ("t,a\n2026-13-01T00:00:00Z,1\n", "line 2.t"),
        ("t,a\n1969-12-31T00:00:00Z,1\n", "line 2.t"),
        (b"t,a\n1,\xff\xfe\n", "line 2"),
        (gzip.compress(b"t,a\n1,1\n" * 999, mtime=0)[:-9], "file"),
        (b"\x1f\x8b" + b"x" * 30, "file"),
        (gzip.compress(b"1" * (9 << 20), mtime=0), "line 1"),
        (b't,a\n1,"2\n', "file"),
        (b"PAR1" + b"x" * 50, "file"),
        (b"PAR1", "file"),
    ],
)
def test_a_damaged_file_is_refused_by_its_place(
    tmp_path: Path, text: str | bytes, field: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InputError) as problem:
        read_table(file)
    assert problem.value.field == field
    assert str(file) in str(problem.value)


def test_missing_files_folders_zones_and_huge_tables_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="file"):
            read_table(file)
    file = written(tmp_path, "t,a\n0,1\n600,2\n")
    for zone in ("Mars/Olympus", "../etc", "x" * 300):
        with pytest.raises(InputError, match="zone"):
            read_table(file, zone)
    parquet.write_table(arrow.table({"t": [0, 600], "a": [1, 2]}), tmp_path / "t.parquet")
    monkeypatch.setattr(table_module, "MAX_CELLS", 3)
    for large in (file, tmp_path / "t.parquet"):
        with pytest.raises(InputError, match="cells"):
            read_table(large)


def test_without_pyarrow_parquet_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write_table(arrow.table({"t": [0], "a": [1]}), tmp_path / "t.parquet")
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("pyarrow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"wattpack\[parquet\]"):
        read_table(tmp_path / "t.parquet")


def test_a_column_that_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    t = np.arange(10 * 144)
    good = 100 + 40 * np.sin(2 * np.pi * t / 144)
    bad = [*(f"{v}" for v in good[:-1]), "about 90"]
    lines = [f"{600 * i},{g},{b}" for i, (g, b) in enumerate(zip(good, bad, strict=True))]
    source = TableSource(read_table(written(tmp_path, "\n".join(["t,a,b", *lines]))))
    targets = [
        Target("", name, SeriesId(name), "series", 36, 600, (0.5, 0.99), None, 1)
        for name in ("b", "a")
    ]
    _, (failed, made) = step(ForecasterState(), 600 * len(t), source, targets)
    assert isinstance(failed.error, InputError)
    assert failed.error.field == f"line {len(t) + 1}.b"
    assert made.error is None
    assert 130 < made.peaks[-1] < 200


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_integers_beyond_those_of_floats_cost_no_other_column(tmp_path: Path, kind: str) -> None:
    """An identifier beside the series ended the command with a traceback."""
    rows = {
        "t_s": np.arange(3) * 600,
        "a": np.array([1.0, 2.0, 3.0]),
        "id": np.array([2**62 + 1] * 3, dtype=kind),
    }
    parquet.write_table(arrow.table(rows), tmp_path / "t.parquet")
    source = TableSource(read_table(tmp_path / "t.parquet"))
    np.testing.assert_array_equal(source.fetch([A], 0, 1800), [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(source.fetch([SeriesId("id")], 0, 600), [[2.0**62]])


def test_a_column_of_dates_is_read_as_their_text_is(tmp_path: Path) -> None:
    days = [datetime(2026, 3, day, tzinfo=BERLIN).date() for day in range(27, 32)]
    parquet.write_table(arrow.table({"date": days, "a": np.arange(5.0)}), tmp_path / "t.parquet")
    text = "date,a\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days))
    as_text = read_table(written(tmp_path, text), "Europe/Berlin")
    as_dates = read_table(tmp_path / "t.parquet", "Europe/Berlin")
    np.testing.assert_array_equal(as_dates.seconds, as_text.seconds)
    with pytest.raises(InputError, match="zone"):
        read_table(tmp_path / "t.parquet")
