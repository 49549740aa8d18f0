"""HARMONY's protocol: what is read, how it is split and scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import fisher_protocol as fisher
from benchmarks.runner import Options
from wattpack.errors import InputError

numbers = st.floats(-5, 5)


@given(st.lists(numbers, min_size=1, max_size=12), numbers, numbers)
def test_crps_of_samples_is_what_all_pairs_give(
    errors: list[float], point: float, truth: float
) -> None:
    told = fisher.sample_crps(np.array([point]), np.array(errors), np.array([truth]))[0]
    drawn = [point + error for error in errors]
    pairs = sum(abs(a - b) for a in drawn for b in drawn) / len(drawn) ** 2
    assert told == pytest.approx(sum(abs(x - truth) for x in drawn) / len(drawn) - pairs / 2)


def test_crps_of_quantiles_nears_that_of_the_sample() -> None:
    rng = np.random.default_rng(0)
    errors, truth = rng.normal(0, 1, 4000), rng.normal(0, 1, 200)
    quantiles = np.tile(np.quantile(errors, fisher.LEVELS), (200, 1))
    by_level = fisher.quantile_crps(quantiles, truth)
    exact = fisher.sample_crps(np.zeros(200), errors, truth)
    assert by_level == pytest.approx(exact, abs=0.01)


def written(folder: Path, values: np.ndarray, header: str = "date,cpu,memory") -> None:
    for k in range(1, 11):
        rows = [f"2018-07-24 00:{i % 60:02d},{a},{b * k}" for i, (a, b) in enumerate(values)]
        (folder / f"container{k}.csv").write_text("\n".join([header, *rows]) + "\n")


def test_folders_are_read_scaled_and_split(tmp_path: Path) -> None:
    values = np.random.default_rng(1).gamma(2, 3, (700, 2))
    written(tmp_path, values)
    read = fisher.read_folder(tmp_path)
    assert read.shape == (20, 700)
    assert read[3] == pytest.approx(2 * values[:, 1])
    scaled, test = fisher.scaled_test(read)
    assert (test[0], test[-1], len(test)) == (560, 699, 140)
    train = scaled[:, :490]
    assert (train.min(), train.max()) == (0, 1)
    assert scaled[3] == pytest.approx(scaled[1])


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    values = np.ones((700, 2))
    written(tmp_path, values)
    bad = tmp_path / "container4.csv"
    bad.write_text(bad.read_text() + "2018-08-01,nan,1\n")
    with pytest.raises(InputError, match=r"container4\.csv.*line 702"):
        fisher.read_folder(tmp_path)
    bad.unlink()
    with pytest.raises(InputError, match="to container10"):
        fisher.read_folder(tmp_path)
    written(tmp_path, values[:50])
    with pytest.raises(InputError, match="at least 600 rows"):
        fisher.read_folder(tmp_path)


def test_on_the_stand_in_every_arm_is_scored_and_the_regression_wins() -> None:
    result = fisher.run(Options(quick=True, progress=lambda _: None))
    told = result.figures
    assert result.targets == {}
    assert told["data"] == "synthetic stand-in"
    assert told["published_crps"] == 0.0940
    assert 0 < float(told["least_squares_crps"]) < float(told["newest_value_crps"])
    assert 0 < float(told["ours_crps"]) < 1.5 * float(told["least_squares_crps"])
