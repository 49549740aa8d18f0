"""The SQLite history: bins, compaction, retention, crashes, refusals."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.series_source import SeriesId
from forecasting.sqlite import HistoryStore
from forecasting.sqlite.hour_bins import FINE_SECONDS
from tests.examples import examples
from wattpack.errors import InputError, PermanentError, TransientError
from wattpack.sqlite_retention import STEP_ROWS, Retention

A, B = SeriesId("a"), SeriesId("b")


def test_bins_hold_the_mean_and_gaps_are_nan() -> None:
    with HistoryStore(":memory:") as store:
        store.append([(0.0, "a", 1.0), (599.9, "a", 3.0), (1200.0, "a", 5.0), (600.0, "b", 7.0)])
        found = store.fetch([B, A, SeriesId("unknown")], 0, 1800)
    assert found.shape == (3, 3)
    np.testing.assert_array_equal(found[0], [np.nan, 7, np.nan])
    np.testing.assert_array_equal(found[1], [2, np.nan, 5])
    assert np.isnan(found[2]).all()


@given(
    st.lists(st.tuples(st.floats(0, 5999), st.floats(-1e6, 1e6)), min_size=1, max_size=40),
    st.integers(0, 6000),
)
@examples(25)
def test_compaction_changes_no_answer(samples: list[tuple[float, float]], now: int) -> None:
    with HistoryStore(":memory:") as store:
        half = len(samples) // 2
        store.append([(t, "a", v) for t, v in samples[:half]])
        store.compact(now)
        store.append([(t, "a", v) for t, v in samples[half:]])
        before = store.fetch([A], 0, 6000)
        highest = store.fetch_statistic([A], 0, 6000, 600, "maximum")
        store.compact(now)
        np.testing.assert_allclose(store.fetch([A], 0, 6000), before, rtol=1e-9, atol=1e-6)
        np.testing.assert_array_equal(store.fetch_statistic([A], 0, 6000, 600, "maximum"), highest)


MONTH = int(FINE_SECONDS)
SOME = st.lists(
    st.tuples(st.integers(0, 35), st.floats(0, 100), st.integers(1, 4)), min_size=1, max_size=30
)


@given(SOME, st.integers(0, 6 * 3600))
@examples(30)
def test_a_month_later_hours_tell_the_same_of_whole_hours_and_their_mean_within(
    samples: list[tuple[int, float, int]], passed: int
) -> None:
    with HistoryStore(":memory:", retention=Retention(4 * MONTH, 1 << 20)) as store:
        half = len(samples) // 2
        for part, now in ((samples[:half], 0), (samples[half:], MONTH + passed)):
            store.append([(600 * b + i, "a", v) for b, v, n in part for i in range(n)])
            store.compact(now)
        mean = store.fetch([A], 0, 6 * 3600, 3600)
        highest = store.fetch_statistic([A], 0, 6 * 3600, 3600, "maximum")
        store.compact(3 * MONTH)
        (one,) = store.overview()
        assert (one.fine_bins, one.hours) == (0, np.isfinite(mean).sum())
        np.testing.assert_allclose(store.fetch([A], 0, 6 * 3600, 3600), mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(
            store.fetch_statistic([A], 0, 6 * 3600, 3600, "maximum"), highest
        )
        fine = store.fetch([A], 600, 6 * 3600)[0]
        np.testing.assert_allclose(fine, np.repeat(mean[0], 6)[1:], rtol=1e-9, atol=1e-9)
        store.compact(6 * MONTH)
        assert store.overview() == []


def test_what_forecasts_read_stays_in_fine_bins_and_merging_is_bounded() -> None:
    with HistoryStore(":memory:", retention=Retention(4 * MONTH, 64 << 20)) as store:
        ones = np.ones(2 * MONTH // 600)
        for name in ("a", "b", "c"):
            store.append_bins(name, 0, ones, ones)
        store.compact(2 * MONTH)
        assert sum(one.fine_bins for one in store.overview()) == 3 * len(ones) - STEP_ROWS
        for _ in range(10):
            store.compact(2 * MONTH)
        assert [one.fine_bins for one in store.overview()] == [len(ones) // 2] * 3
        assert [one.hours for one in store.overview()] == [len(ones) // 12] * 3
        assert np.all(store.fetch([A, B], 0, 2 * MONTH) == 1.0)


def test_a_file_of_an_earlier_version_is_read_and_gets_hours_when_it_is_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a file?mode=rwc#1.db"
    with HistoryStore(file) as store:
        store.append([(0, "a", 1.0)])
        store._db.execute("DROP TABLE hours")
    with HistoryStore(file, read_only=True) as store:
        assert store.fetch([A], 0, 600)[0, 0] == 1.0
        assert [one.name for one in store.overview()] == ["a"]
    with HistoryStore(file, retention=Retention(4 * MONTH, 1 << 20)) as store:
        store.compact(MONTH + 3600)
        assert [one.hours for one in store.overview()] == [1]


def test_readers_beside_a_writer_see_whole_batches(tmp_path: Path) -> None:
    file, names = tmp_path / "h.db", [SeriesId(f"s{i}") for i in range(8)]
    torn: list[object] = []
    with HistoryStore(file) as writer:
        writer.append([(0.0, name, 0.0) for name in names])
        done = threading.Event()

        def read() -> None:
            with HistoryStore(file, read_only=True) as reader:
                while not done.is_set():
                    newest = {one.until_seconds for one in reader.overview()}
                    if len(newest) != 1:
                        torn.append(newest)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in readers:
            thread.start()
        for second in range(1, 1500, 5):
            writer.append([(float(second), name, 1.0) for name in names])
            writer.compact(second)
        done.set()
        for thread in readers:
            thread.join()
    assert torn == []


def test_shrinking_leaves_a_small_file_with_the_same_answers(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file, retention=Retention(4 * MONTH, 256 << 20)) as store:
        ones = np.ones(3 * MONTH // 600)
        for i in range(6):
            store.append_bins(f"s{i}", 0, ones * i, ones * i)
        before, after = store.shrink(3 * MONTH)
        assert after < before / 2
        assert on_disk(file) < before / 2
        np.testing.assert_allclose(store.fetch([SeriesId("s3")], 0, 3 * MONTH), 3.0)


def test_rows_of_many_series_are_stored_all_or_none() -> None:
    ones = np.ones(4)
    with HistoryStore(":memory:") as store:
        for bad in (np.ones(3), np.full(4, np.inf)):
            with pytest.raises(InputError, match="bins"):
                store.append_rows(0, {"a": ones, "b": ones}, {"a": ones, "b": bad})
        with pytest.raises(InputError, match="bins"):
            store.append_rows(0, {"a": ones}, {})
        assert store.names() == []


def test_finished_bins_are_rolled_up_by_later_samples_and_late_ones_still_count() -> None:
    with HistoryStore(":memory:") as store:
        store.append([(10.0 * i, "a", 1.0) for i in range(60)])
        assert store.compact(0) == 0
        store.append([(600.0, "a", 9.0)])
        assert store.compact(600) == 0
        store.append([(5.0, "a", 62.0)])
        np.testing.assert_allclose(store.fetch([A], 0, 1200), [[2.0, 9.0]])


def test_a_sample_from_the_far_future_deletes_nothing() -> None:
    with HistoryStore(":memory:") as store:
        store.append([(0.0, "a", 1.0), (1e11, "a", 5.0)])
        assert store.fetch([A], 0, 600)[0, 0] == 1.0


def test_wider_steps_weigh_bins_by_their_samples() -> None:
    with HistoryStore(":memory:") as store:
        store.append([(0, "a", 1.0), (1, "a", 1.0), (2, "a", 1.0), (700, "a", 5.0)])
        store.compact(600)
        assert store.fetch([A], 0, 1200, 1200)[0, 0] == pytest.approx(2.0)
        assert store.fetch_statistic([A], 0, 1200, 1200, "maximum")[0, 0] == 5.0


def test_retention_deletes_old_bins_only() -> None:
    with HistoryStore(":memory:", retention=Retention(86400, 1 << 20)) as store:
        store.append([(0, "a", 1.0), (86400, "a", 2.0)])
        store.compact(86400 * 2)
        assert np.isnan(store.fetch([A], 0, 600)[0, 0])
        assert store.fetch([A], 86400, 87000)[0, 0] == 2.0


def test_preloaded_bins_are_read_back_and_gaps_stay_gaps() -> None:
    with HistoryStore(":memory:") as store:
        means = np.array([1.0, np.nan, 3.0])
        store.append_bins("a", 1200, means, means + 1)
        np.testing.assert_array_equal(store.fetch([A], 600, 3000)[0], [np.nan, 1, np.nan, 3])
        with pytest.raises(InputError):
            store.append_bins("a", 1201, means, means)
        with pytest.raises(InputError):
            store.append_bins("a", 1200, np.array([np.inf]), np.array([1.0]))


@pytest.mark.parametrize(
    "sample",
    [
        (float("nan"), "a", 1.0),
        (1e300, "a", 1.0),
        (-600.0, "a", 1.0),
        (1_800_000_000_000, "a", 1.0),
        (0.0, "", 1.0),
        (0.0, "a" * 5000, 1.0),
        (0.0, "a", float("inf")),
        (0.0, "a", "1"),
        (0.0, "a", True),
        (0.0, "a"),
        "row",
    ],
)
def test_a_bad_sample_refuses_the_whole_batch(sample: object) -> None:
    with HistoryStore(":memory:") as store:
        with pytest.raises(InputError, match="sample"):
            store.append([(0.0, "a", 1.0), sample])  # type: ignore[list-item]
        assert store.names() == []


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(1, 600, 600), (0, 0, 600), (600, 0, 600), (0, 600, 0), (0, 900, 900), (0, 600 * 10**6, 600)],
)
def test_a_range_off_the_grid_is_refused(start: int, end: int, step: int) -> None:
    with HistoryStore(":memory:") as store, pytest.raises(InputError):
        store.fetch([A], start, end, step)


def test_a_foreign_or_broken_file_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database at all, " * 100, encoding="utf-8")
    with pytest.raises(InputError, match="wattpack history"):
        HistoryStore(text)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(InputError, match="user_version"):
        HistoryStore(foreign)
    with pytest.raises(InputError):
        HistoryStore(tmp_path / "missing.db", read_only=True)


def test_a_second_writer_gets_a_transient_error_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file) as store, HistoryStore(file, busy_seconds=0.01) as other:
        store.append([(0, "a", 1.0)])
        blocker = sqlite3.connect(file, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError):
            other.append([(1, "a", 3.0)])
        blocker.execute("ROLLBACK")
        blocker.close()
        other.append([(1, "a", 3.0)])
        assert store.fetch([A], 0, 600)[0, 0] == 2.0


_WRITER = """
import sys
from forecasting.sqlite import HistoryStore
from forecasting.sqlite.hour_bins import FINE_SECONDS
store = HistoryStore(sys.argv[1])
for batch in range(10**9):
    store.append([(batch, name, float(batch)) for name in ("a", "b")])
    if batch == 50:
        print("running", flush=True)
"""


def test_whole_batches_survive_kill_minus_nine(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"running\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with HistoryStore(file) as store:
        found = store.fetch([A, B], 0, 600)
        assert found[0, 0] == found[1, 0] >= 25
        store.append([(0, "a", 0.0)])


def on_disk(file: Path) -> int:
    """Bytes of the database and everything beside it."""
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def test_an_hour_long_writer_stays_under_its_bound(tmp_path: Path) -> None:
    """An hour of 50 samples a second; those of the running bin alone would be 2 MB."""
    file, bound = tmp_path / "h.db", 1 << 20
    largest = 0
    with HistoryStore(file, retention=Retention(30 * 86400, bound)) as store:
        for second in range(0, 3600, 2):
            store.append([(second, f"series-{i}", float(i)) for i in range(100)])
            if second % 30 == 0:
                store.compact(second)
                largest = max(largest, on_disk(file))
                assert store.size_bytes() <= on_disk(file) <= bound
        newest = store.fetch([SeriesId("series-7")], 3000, 3600)
    assert largest > bound // 3, "the writer never came near its bound: the test shows nothing"
    assert newest[0, 0] == 7.0


def test_what_is_freed_goes_back_to_the_file_system(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file, retention=Retention(86400, 64 << 20)) as store:
        for i in range(40):
            ones = np.ones(1000)
            store.append_bins(f"series-{i}", 0, ones, ones)
        store.compact(0)
        full = store.size_bytes()
        for _ in range(40):
            store.compact(30 * 86400)
    assert on_disk(file) < full / 4


def test_a_step_is_bounded_and_the_next_goes_on(tmp_path: Path) -> None:
    with HistoryStore(tmp_path / "h.db", retention=Retention(600, 64 << 20)) as store:
        for i in range(20):
            ones = np.ones(1000)
            store.append_bins(f"series-{i}", 0, ones, ones)

        def left() -> int:
            names = [SeriesId(f"series-{i}") for i in range(20)]
            return int(np.isfinite(store.fetch(names, 0, 600_000)).sum())

        assert left() == 20_000
        for step in range(1, 6):
            store.compact(600_000 * 2)
            assert left() == 20_000 - step * STEP_ROWS


def test_a_reader_that_never_ends_does_not_stop_the_writer(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file, retention=Retention(86400, 4 << 20)) as store:
        store.append([(0, "a", 1.0)])
        reader = sqlite3.connect(file, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM samples").fetchall()
        for second in range(1, 200):
            store.append([(second, "a", 1.0)])
            store.compact(second)
        reader.close()


def test_samples_after_one_from_the_far_future_are_still_rolled_up(tmp_path: Path) -> None:
    with HistoryStore(tmp_path / "h.db") as store:
        store.append([(1e11, "a", 5.0)])
        store.append([(second, "a", 1.0) for second in range(600)])
        assert store.compact(700) == 600


@pytest.mark.parametrize(
    "damage",
    [
        "INSERT INTO bins VALUES (1, 0, 'many', 1, 1)",
        "INSERT INTO samples VALUES (1, 5, 'many')",
        "INSERT INTO bins VALUES (1, 0, 1, 1, 'few')",
    ],
)
def test_rows_that_somebody_else_wrote_are_an_error_of_their_series_alone(
    tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file) as store:
        store.append([(0, "a", 1.0), (0, "b", 2.0)])
        other = sqlite3.connect(file)
        with other:
            other.execute(damage)
        other.close()
        with pytest.raises(PermanentError, match="not a readable history"):
            store.fetch([A], 0, 600)
        assert store.fetch([B], 0, 600)[0, 0] == 2.0


def test_a_file_that_breaks_while_it_is_read_is_a_typed_error(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with HistoryStore(file) as store:
        ones = np.ones(1000)
        for i in range(50):
            store.append_bins(f"series-{i}", 0, ones, ones)
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(4096 * 3)
        raw.write(b"\xff" * (size - 4096 * 3))
    with HistoryStore(file, read_only=True) as store, pytest.raises(PermanentError):
        store.fetch([SeriesId(f"series-{i}") for i in range(50)], 0, 600_000)


def test_a_full_disk_is_a_transient_error_and_no_half_batch(tmp_path: Path) -> None:
    with HistoryStore(tmp_path / "h.db") as store:
        store.append([(0, "a", 1.0)])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(TransientError, match="full"):
            store.append([(float(i), f"series-{i}", 1.0) for i in range(5000)])
        assert store.names() == ["a"]


@pytest.mark.parametrize(("age", "size"), [(0, 1 << 20), (float("nan"), 1 << 20), (60, 1000)])
def test_a_retention_that_keeps_nothing_is_refused(age: float, size: int) -> None:
    with pytest.raises(InputError, match=r"age_seconds|max_bytes"):
        Retention(age, size)
