"""The computed cost of NVML counts what the agent asks, and nothing that was never measured."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import _nvml_cost as nvml_cost
from gpu.nvml.calls import FIELD_VALUES

HZ = 5


def calls_a_second() -> dict[str, float]:
    counted = Counter(name for asked in nvml_cost.rounds(HZ) for name, _ in asked)
    return {name: n / nvml_cost.COUNTED_SECONDS for name, n in counted.items()}


def test_each_round_asks_one_batch_and_the_dear_calls_are_rare() -> None:
    calls = calls_a_second()
    assert calls[FIELD_VALUES] == HZ
    assert calls["nvmlDeviceGetTotalEnergyConsumption"] == pytest.approx(1 / 30, rel=0.1)
    # The set limit comes with the batch; its own call only checks it, about once a minute.
    assert calls["nvmlDeviceGetPowerManagementLimit"] <= 1 / 55
    assert "nvmlDeviceGetPowerUsage" not in calls


def test_the_share_is_the_sum_of_the_measured_costs() -> None:
    """By hand: batches, followers, energy every 30 s, set limit and the units' metrics a minute.

    From field_values_loaded.json, and gpm.json's sample with its metrics.
    """
    batches = 4 * 36.8 + 0.8 * 44.5 + 0.2 * 54.6
    followers, energy, set_limit = 12 * (3 + 7 / 5), 6076.9 / 30, 394.5 / 60
    units = 2963.7 / 60
    wanted = (batches + followers + energy + set_limit + units) * 1e-6
    assert nvml_cost.share_of_a_core(HZ, worst=False) == pytest.approx(wanted, rel=0.1)
    assert nvml_cost.share_of_a_core(HZ, worst=True) > wanted


def test_a_batch_that_nobody_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_cost, "WAYS", {})
    with pytest.raises(nvml_cost.PermanentError, match="nobody measured"):
        nvml_cost.share_of_a_core(HZ, worst=False)
