from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import draw_at_limit
from benchmarks.runner import Options
from capacity.model.capping_loop import RECORDED_LOOP


def test_the_loop_tells_recordings_that_it_was_not_fitted_on() -> None:
    figures = draw_at_limit.run(Options(quick=True)).to_json("draw_at_limit")["figures"]
    assert figures["held_out_steps_error"] < 0.5 * figures["held_out_steps_error_of_best_flat"]
    assert figures["training_like_error"] < 0.025
    assert figures["other_boards_correlation"] > 0.9
    assert figures["seconds_of_4096_boards_simulated_in_one"] > 20


@pytest.mark.parametrize(
    "wrong", [{"gain": 0.01}, {"window_seconds": 0.5}, {"ceiling_share": 1.1}, {"gain": 20.0}]
)
def test_a_board_with_another_loop_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float]
) -> None:
    other = replace(RECORDED_LOOP, **wrong)
    monkeypatch.setattr(draw_at_limit, "capping_loop", lambda _: other)
    line = draw_at_limit.run(Options(quick=True)).to_json("draw_at_limit")
    error, bound = line["figures"]["held_out_steps_error"], line["targets"]["held_out_steps_error"]
    assert error > bound["at_most"]
