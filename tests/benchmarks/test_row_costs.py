"""Costs of a row are told by arm and in array calls, of pieces whose median counts."""

from __future__ import annotations

import pytest

from benchmarks import row_costs


def test_figures_are_medians_and_ratios_to_an_array_call() -> None:
    spent = {
        "wattpack": [0.004, 0.005, 0.5],
        "polca": [0.001, 0.001, 0.001],
        "oracle": [0.0, 0.002, 0.009],
    }
    told = row_costs._figures(416, [0.002, 0.002, 0.9], spent, [1e-6, 2e-6, 7e-6])
    assert told["tick_array_calls"] == pytest.approx(1000.0)
    assert told["wattpack_cpu_milliseconds_a_second"] == pytest.approx(5.0)
    assert told["row_array_calls_a_second"] == pytest.approx(4000.0)
    assert told["fault_run_cpu_seconds"] == pytest.approx(7.2)
