"""The draw of a cycle as a meter sees it under the capping loop."""

from __future__ import annotations

import json

import numpy as np
import pytest

from capacity.app import workloads_command
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.declared_shapes import (
    derived_shapes,
    main,
    rewritten,
    stale_shapes,
)
from capacity.catalogue.draw_shape import draw_shape
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_model import Conditions, CyclePrice, PhasePrice, price_cycle
from capacity.catalogue.workload_schema import DrawShape
from capacity.fitting.board_steps import read_steps

GPU = priced_gpu("H200-SXM")


def cycle(*phases: tuple[float, float]) -> CyclePrice:
    """Phases of seconds and watts without a limit; what is held is the limit."""
    return CyclePrice(tuple(
        PhasePrice(f"p{i}", seconds, seconds, {}, "compute", watts, min(watts, GPU.limit_watts))
        for i, (seconds, watts) in enumerate(phases)
    ))  # fmt: skip


def test_work_of_one_level_has_no_depth() -> None:
    assert draw_shape(cycle((0.4, 940.0)), GPU).depth == 0
    assert draw_shape(cycle((0.1, 500.0), (0.3, 500.0)), GPU).depth == 0


@pytest.mark.parametrize(("high", "low"), [(0.5, 0.5), (0.2, 1.3), (7.0, 11.0)])
def test_a_swing_below_the_limit_is_as_deep_as_it_is(high: float, low: float) -> None:
    shape = draw_shape(cycle((high, 600.0), (low, 200.0)), GPU)
    assert shape.depth == pytest.approx(400 / GPU.limit_watts, rel=1e-6)


def test_what_is_shorter_than_the_meter_is_smoothed() -> None:
    assert draw_shape(cycle((0.05, 600.0), (0.05, 200.0)), GPU).depth == pytest.approx(0, abs=1e-6)
    half = draw_shape(cycle((0.05, 600.0), (1.0, 200.0)), GPU).depth
    assert half == pytest.approx(200 / GPU.limit_watts, rel=0.01)


def test_a_cycle_like_the_recorded_one_is_as_deep_as_recorded() -> None:
    steps = read_steps()
    seen = steps.draws[np.char.startswith(steps.phases, "train")]
    shape = draw_shape(cycle((0.905, 940.0), (0.345, 123.0)), GPU)
    assert shape.depth == pytest.approx(float(np.ptp(seen)) / 700.0, rel=0.06)
    assert shape.depth > 1, "a step begins above the limit"


def test_a_lower_limit_and_a_lower_clock_make_it_shallower() -> None:
    entry = shipped_catalogue()["train-data-parallel"]
    free = draw_shape(price_cycle(entry, GPU), GPU).depth
    capped = price_cycle(entry, GPU, Conditions(limit_watts=400.0))
    assert draw_shape(capped, GPU, 400.0).depth < free - 0.1
    locked = price_cycle(entry, GPU, Conditions(clock_share=0.6))
    assert draw_shape(locked, GPU).depth < free - 0.1


def test_shipped_entries_declare_what_the_model_says() -> None:
    """``python -m capacity.catalogue.declared_shapes`` writes them anew."""
    shapes = derived_shapes()
    assert len(shapes) == len(shipped_catalogue())
    assert stale_shapes(shapes) == []
    name = "train-data-parallel"
    moved = shapes[name].model_copy(update={"depth": shapes[name].depth + 0.04})
    assert stale_shapes({name: moved}) == [name]


def test_only_the_shapes_of_a_file_are_written_anew() -> None:
    text = (
        "# a comment\nworkloads:\n  one:\n    title: x\n"
        "    shape: {level: 0.1, depth: 0.2, period_seconds: 3}\n    source: s\n"
        "  two:\n    shape: {level: 0.4, depth: 0, period_seconds: 1}\n"
    )
    made = rewritten(text, {"one": DrawShape(level=0.5, depth=1.06, period_seconds=0.0123)})
    assert made == text.replace(
        "{level: 0.1, depth: 0.2, period_seconds: 3}",
        "{level: 0.500, depth: 1.060, period_seconds: 0.0123}",
    )


def test_the_check_says_so_when_nothing_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert "what the model says" in capsys.readouterr().out


def test_the_command_says_between_what_watts_the_hundred_milliseconds_lie(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert workloads_command.main(["train-data-parallel", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert made["lowestWatts"] < 160
    assert made["limitWatts"] * 1.1 < made["highestWatts"] < made["limitWatts"] * 1.35
    assert workloads_command.main(["train-data-parallel"]) == 0
    shown = capsys.readouterr().out
    assert f"over 100 ms {made['lowestWatts']:.0f} to {made['highestWatts']:.0f} W" in shown
