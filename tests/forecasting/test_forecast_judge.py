"""What judges forecasts: sets, losses, coverage and reserve at equal risk, against loops."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks import forecast_scores as metrics
from benchmarks import forecast_sets as sets
from benchmarks._forecast_cases import cases
from benchmarks.runner import Options
from wattpack.errors import InputError

LEVELS = (*metrics.DECILES, 0.99)


def _wide_file(tmp_path: Path, rows: int = 1480, cell: str | None = None) -> Path:
    lines = ["t_s,busy,idle,still"]
    lines += [f"{600 * i},{1 + i % 7},{int(i % 3 == 0)},5" for i in range(rows)]
    if cell is not None:
        lines[700] = f"{600 * 699},{cell},0,5"
    file = tmp_path / "wide.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


# -- sets ------------------------------------------------------------------------------------------


def test_the_sets_are_those_that_were_agreed_on() -> None:
    clients, totals = sets.clients(), sets.totals()
    sources = [name.partition("/")[0] for name in clients.series]
    assert {s: sources.count(s) for s in sources} == {"m-large": 49, "m-small": 20, "helios": 13}
    assert totals.series == ("m-large", "m-mid", "m-small", "helios")
    for found in (clients, totals):
        assert found.origins == tuple(1440 + 28 * i for i in range(20))
        assert found.values.shape == (len(found.series), 2016)
        assert np.isfinite(found.values).all()
        assert (found.values >= 0).all()
        assert (found.scales() > 0).all()
    later = sets.later_clusters()
    assert len(later.series) == 13
    assert later.origins == tuple(2016 + 36 * i for i in range(68))
    assert sets.later_total().origins == later.origins


def test_what_may_be_tuned_on_reaches_no_judged_window() -> None:
    clients = sets.clients()
    inner = sets.tuning(clients)
    assert inner.values.shape[1] == clients.origins[0]
    assert max(inner.origins) + sets.HORIZON <= clients.origins[0]
    assert inner.truth().shape == (len(inner.origins), 82, sets.HORIZON)


def test_an_origin_is_trained_on_the_ten_days_before_it_alone() -> None:
    found = sets.totals()
    origin = found.origins[3]
    assert np.array_equal(found.training(origin), found.values[:, origin - 1440 : origin])
    assert np.array_equal(found.truth()[3], found.values[:, origin : origin + 36])
    w = found.training(origin)[1]
    by_loop = np.mean([abs(w[t] - w[t - 144]) for t in range(144, 1440)])
    assert found.scales()[3, 1] == pytest.approx(by_loop)


def test_a_file_of_the_users_is_cut_by_the_same_rule(tmp_path: Path) -> None:
    found = sets.from_file(_wide_file(tmp_path))
    assert found.series == ("busy",)  # a third of a series is too little, a constant is no news
    assert found.origins == (1440,)
    assert (
        len(sets.from_file(_wide_file(tmp_path, rows=3000)).origins) == (3000 - 36 - 1440) // 28 + 1
    )


def test_times_with_their_offset_are_the_same_as_seconds(tmp_path: Path) -> None:
    file = _wide_file(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    told = [lines[0]]
    for line in lines[1:]:
        seconds, rest = line.split(",", 1)
        told.append(f"{datetime.fromtimestamp(float(seconds), UTC).isoformat()},{rest}")
    seconds_file = sets.from_file(file)
    file.write_text("\n".join(told) + "\n", encoding="utf-8")
    times = sets.from_file(file)
    assert (times.series, times.origins) == (seconds_file.series, seconds_file.origins)
    assert np.array_equal(times.values, seconds_file.values)


@pytest.mark.parametrize("cell", ["1e400", "-1", "x", "-inf", "-"])
def test_a_cell_that_is_no_demand_is_refused_by_name(tmp_path: Path, cell: str) -> None:
    with pytest.raises(InputError, match=r"row 701, busy"):
        sets.from_file(_wide_file(tmp_path, cell=cell))


@pytest.mark.parametrize("cell", ["", " ", "NaN"])
def test_an_empty_cell_is_a_gap_on_the_line_between_its_neighbours(
    tmp_path: Path, cell: str
) -> None:
    """One of them refused the file."""
    whole, gap = (
        sets.from_file(_wide_file(tmp_path)),
        sets.from_file(_wide_file(tmp_path, cell=cell)),
    )
    expected = whole.values.copy()
    expected[0, 699] = (expected[0, 698] + expected[0, 700]) / 2
    assert np.array_equal(gap.values, expected)
    assert gap.left_out == ()


def _without(file: Path, first: int, last: int) -> None:
    """Rows that nobody wrote down."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:first] + lines[last:]), encoding="utf-8")


def test_rows_that_are_missing_are_a_gap_up_to_an_hour(tmp_path: Path) -> None:
    file = _wide_file(tmp_path)
    _without(file, 700, 706)
    found = sets.from_file(file)
    assert found.values.shape == (1, 1480)
    assert np.allclose(np.diff(found.values[0, 698:706], 2), 0)
    _without(file, 700, 701)
    with pytest.raises(InputError, match="busy from 419400 s on"):
        sets.from_file(file)


def test_a_column_that_gaps_leave_nothing_to_judge_of_is_named(tmp_path: Path) -> None:
    file = tmp_path / "two.csv"
    rows = [f"{600 * i},{1 + i % 7},{'' if 50 <= i < 60 else 1 + i % 5}" for i in range(1480)]
    file.write_text("\n".join(["t_s,whole,holes", *rows, ""]), encoding="utf-8")
    found = sets.from_file(file)
    assert (found.series, found.left_out) == (("whole",), ("holes",))
    said: list[str] = []
    options = Options(arguments=("--data", str(file)), progress=said.append)
    (case,) = cases(options, "forecast_accuracy")
    assert case.given.series == ("whole",)
    assert said == ["left out for their gaps: holes"]


def test_closer_rows_are_averaged_by_the_grid_of_ten_minutes(tmp_path: Path) -> None:
    file, rng = tmp_path / "minutes.csv", np.random.default_rng(0)
    values = rng.gamma(2, 3, 14800).round(6)
    lines = [f"{60 * i + 7200 + i % 3},{v}" for i, v in enumerate(values.tolist())]
    file.write_text("\n".join(["t_s,busy", *lines, ""]), encoding="utf-8")
    found = sets.from_file(file)
    assert found.start_seconds == 7200
    assert np.allclose(found.values[0], values.reshape(-1, 10).mean(axis=1))


def test_times_may_be_off_by_some_seconds(tmp_path: Path) -> None:
    even, file = sets.from_file(_wide_file(tmp_path)), _wide_file(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    shifted = [
        f"{float(line.split(',')[0]) + 600 + (-1) ** i * 20},{line.split(',', 1)[1]}"
        for i, line in enumerate(lines[1:])
    ]
    file.write_text("\n".join([lines[0], *shifted, ""]), encoding="utf-8")
    found = sets.from_file(file)
    assert found.start_seconds == even.start_seconds + 600
    assert np.array_equal(found.values, even.values)


def test_files_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    short = _wide_file(tmp_path, rows=1475)
    with pytest.raises(InputError, match="1476 to"):
        sets.from_file(short)
    for times, words in (
        ((0, 600, 1500, 2400), "at most 600 s apart, row 4"),
        ((0, 600, 600, 1200), "later time in row 4"),
        ((0, 600, 1200, 300), "later time in row 5"),
        ((0, 600, 1200, 10**9), "a row in most bins"),
    ):
        rows = "".join(f"{time},1\n" for time in times)
        short.write_text(f"t_s,a\n{rows}", encoding="utf-8")
        with pytest.raises(InputError, match=words) as told:
            sets.from_file(short)
        assert str(short) in str(told.value)
    for time in ("2026-11-01 00:00", "1.11.2026"):
        short.write_text(f"time,a\n{time},1\n", encoding="utf-8")
        with pytest.raises(InputError, match="in row 2") as refused:
            sets.from_file(short)
        assert str(short) in str(refused.value)
    short.write_text("t_s,a\n0,1\n600\n", encoding="utf-8")
    with pytest.raises(InputError, match="2 cells in row 3"):
        sets.from_file(short)
    for content in (b"", b"t_s\n", b"\xff\xfe", b"t_s,a,a\n"):
        short.write_bytes(content)
        with pytest.raises(InputError):
            sets.from_file(short)
    with pytest.raises(InputError, match="CSV file"):
        sets.from_file(tmp_path / "absent.csv")
    broken = tmp_path / "cut.csv.gz"
    broken.write_bytes((sets.DATA / "servegen_model_totals_10min.csv.gz").read_bytes()[:500])
    with pytest.raises(InputError, match="CSV file"):
        sets.from_file(broken)


# -- metrics ---------------------------------------------------------------------------------------

_shape = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
_demand = st.floats(0, 100).map(lambda x: 0.0 if x < 20 else round(x, 3))


@settings(deadline=None, max_examples=60)
@given(_shape, st.data())
def test_losses_are_those_of_a_loop_over_everything(
    shape: tuple[int, int, int], data: st.DataObject
) -> None:
    windows, series, steps = shape
    truth = data.draw(arrays(float, shape, elements=_demand))
    quantiles = np.sort(data.draw(arrays(float, (*shape, 10), elements=st.floats(-20, 120))))
    scales = data.draw(arrays(float, (windows, series), elements=st.sampled_from([0.5, 2.0, 7.0])))
    found = metrics.losses(quantiles, LEVELS, truth, scales)
    pooled, sql, mase = 0.0, [], []
    for s in range(series):
        lost, missed = [], []
        for w in range(windows):
            for h in range(steps):
                y = truth[w, s, h]
                each = []
                for level, q in zip(LEVELS[:9], quantiles[w, s, h, :9], strict=True):
                    q = max(q, 0.0)
                    each.append(2 * (level * (y - q) if y >= q else (1 - level) * (q - y)))
                pooled += sum(each) / 9
                lost.append(sum(each) / 9 / scales[w, s])
                missed.append(abs(y - max(quantiles[w, s, h, 4], 0.0)) / scales[w, s])
        sql.append(sum(lost) / len(lost))
        mase.append(sum(missed) / len(missed))
    assert found.sql == pytest.approx(sum(sql) / series)
    assert found.mase == pytest.approx(sum(mase) / series)
    if truth.sum() > 0:
        assert found.wql == pytest.approx(pooled / truth.sum())


def test_one_loss_by_hand() -> None:
    quantiles = np.arange(1.0, 11.0).reshape(1, 1, 1, 10)  # 1 at 0.1 … 9 at 0.9, 10 at 0.99
    found = metrics.losses(quantiles, LEVELS, np.array([[[7.0]]]), np.array([[2.0]]))
    below = sum(2 * level * (7 - q) for level, q in zip(LEVELS[:6], range(1, 7), strict=True))
    above = 2 * (1 - 0.8) * 1 + 2 * (1 - 0.9) * 2
    assert found.pinball[0, 0, 0] == pytest.approx((below + above) / 9)
    assert found.mase == pytest.approx(2 / 2)
    assert found.sql == pytest.approx((below + above) / 9 / 2)


def test_a_ratio_is_of_means_and_the_geometric_one_of_each_series() -> None:
    def lost(*sql: float) -> metrics.Losses:
        loss = np.array(sql).reshape(1, -1, 1)
        return metrics.Losses(loss, 2 * loss, np.full_like(loss, 5.0), np.ones((1, len(sql))))

    found = metrics.ratios(lost(1.0, 1.0), lost(1.0, 100.0))
    assert found.sql == pytest.approx(2 / 101)
    assert found.mase == found.wql == pytest.approx(found.sql)
    assert found.sql_geometric == pytest.approx(0.1)


def test_a_window_without_scale_counts_for_nobody() -> None:
    loss = np.array([[[4.0]], [[100.0]]])
    found = metrics.Losses(loss, loss, loss, np.array([[2.0], [0.0]]))
    assert found.sql == pytest.approx(2.0)


def test_quantiles_that_are_missing_or_not_finite_are_no_forecast() -> None:
    truth, scales = np.ones((1, 1, 1)), np.ones((1, 1))
    with pytest.raises(InputError, match="finite"):
        metrics.losses(np.full((1, 1, 1, 10), math.nan), LEVELS, truth, scales)
    with pytest.raises(InputError, match=r"0\.1"):
        metrics.losses(np.ones((1, 1, 1, 2)), (0.5, 0.99), truth, scales)


def test_coverage_counts_a_zero_that_was_forecast_half_at_the_median() -> None:
    truth = np.array([[[0.0, 0.0, 3.0, 5.0]]])
    median = np.array([[[0.0, 0.0, 4.0, 4.0]]])
    assert metrics.coverage(median, truth).tolist() == [0.75]
    assert metrics.median_coverage(median, truth).tolist() == [0.5 * (0.25 + 0.75)]


def test_a_peak_breaks_what_it_passes_and_not_what_it_reaches() -> None:
    truth = np.array([[[1.0, 9.0, 2.0], [0.0, 0.0, 0.0]]])
    assert metrics.broken(np.array([[9.0, 0.0]]), truth).tolist() == [[False, False]]
    assert metrics.broken(np.array([[8.99, 0.0]]), truth).tolist() == [[True, False]]


@settings(deadline=None, max_examples=100)
@given(st.tuples(st.integers(1, 6), st.integers(1, 6)), st.data())
def test_the_shift_at_equal_risk_is_the_smallest_that_keeps_it(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    peaks = data.draw(arrays(float, shape, elements=_demand))
    reserves = data.draw(arrays(float, shape, elements=_demand))
    scales = data.draw(arrays(float, shape, elements=st.sampled_from([0.5, 2.0, 7.0])))
    share = data.draw(st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.9]))
    shift = metrics.equal_risk_shift(reserves, peaks, scales, share)

    def lost(c: float) -> int:
        return sum(
            peaks[w, s] > max(reserves[w, s] + c * scales[w, s], 0.0) + 1e-9
            for w in range(shape[0])
            for s in range(shape[1])
        )

    allowed = share * peaks.size
    if shift == -math.inf:
        assert lost(-1e9) <= allowed
    else:
        assert lost(shift) <= allowed < lost(shift - 1e-6)


def test_reserve_ratio_is_of_sums_a_series_and_geometric_between_them() -> None:
    reserves = np.array([[2.0, 10.0, 7.0], [4.0, 30.0, 9.0]])
    peaks = np.array([[1.0, 10.0, 0.0], [2.0, 10.0, 0.0]])
    assert metrics.reserve_ratio(reserves, peaks) == pytest.approx(math.sqrt(6 / 3 * 40 / 20))


def test_the_published_reserve_of_multi_day_maxima_is_found_again() -> None:
    found = sets.clients()
    peaks, scales = found.truth().max(axis=2), found.scales()
    reserves = {
        days: np.stack([found.training(o)[:, -days * 144 :].max(axis=1) for o in found.origins])
        for days in (1, 7)
    }
    at_risk = {}
    for days, reserve in reserves.items():
        shift = metrics.equal_risk_shift(reserve, peaks, scales, 0.01)
        at_risk[days] = metrics.reserve_ratio(metrics.shifted(reserve, scales, shift), peaks)
    assert at_risk[1] == pytest.approx(6.14, abs=0.005)
    assert at_risk[7] == pytest.approx(4.22, abs=0.005)
