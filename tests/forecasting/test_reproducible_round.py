"""A whole round of the process, twice from the same files: the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forecasting.sqlite import HistoryStore
from tests.forecasting.once_process import BINS, ROUNDS_AT, TARGETS

# Two processes with all models: half a minute of one core, which somebody else may be using.
pytestmark = pytest.mark.timeout(400)


def _history(file: Path) -> None:
    """Days that resemble each other, bursts, and a gap in one series."""
    rng, bins = np.random.default_rng(5), np.arange(BINS + 12)
    store = HistoryStore(file)
    for place, target in enumerate(TARGETS.values()):
        wave = 100 * (place + 1) * (1 + 0.4 * np.sin(2 * np.pi * (bins / 144 + place / 4)))
        values = wave * rng.lognormal(0, 0.1, len(bins)) + 500 * (rng.random(len(bins)) < 0.01)
        if place == 1:
            values[300:310] = np.nan
        store.append_bins(target["series"], 0, values, values * 1.1)
    store.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What two processes made of one history; sets and mappings in another order in each."""
    folder = tmp_path_factory.mktemp("once")
    _history(folder / "history.db")
    runs = []
    for seed in ("1", "2"):
        run = folder / f"run-{seed}"
        run.mkdir()
        shutil.copy(folder / "history.db", run)
        done = subprocess.run(
            [sys.executable, "-m", "tests.forecasting.once_process", str(run)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs.append(run)
    return runs[0], runs[1]


@pytest.mark.parametrize("at_seconds", ROUNDS_AT, ids=["from nothing", "from a state"])
def test_what_is_published_and_kept_is_the_same_byte_for_byte(
    left: tuple[Path, Path], at_seconds: int
) -> None:
    one, other = (
        {path.name: path.read_bytes() for path in (run / str(at_seconds)).iterdir()} for run in left
    )
    assert {"published.json", "state.npz"} < set(one)
    assert any(name.endswith(".issue") for name in one)
    assert sorted(one) == sorted(other)
    assert one["published.json"].decode() == other["published.json"].decode()
    assert [name for name, content in one.items() if content != other[name]] == []


@pytest.mark.parametrize("at_seconds", ROUNDS_AT, ids=["from nothing", "from a state"])
def test_all_models_stand_behind_it(left: tuple[Path, Path], at_seconds: int) -> None:
    """A single round fits its forests itself: those of a process beside it would come too late."""
    told = json.loads((left[0] / str(at_seconds) / "published.json").read_text(encoding="utf-8"))
    assert set(told) == set(TARGETS)
    for status in told.values():
        boosted = {tier["name"]: tier for tier in status["tiers"]}["boosted"]
        assert boosted["weight"] > 0
