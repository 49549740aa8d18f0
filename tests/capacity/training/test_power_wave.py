"""The wave of a step: its levels, and what moves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capacity.training.power_wave import StepPower
from capacity.training.step_work import HostResources
from capacity.training.training_job import ParallelLayout, TrainingJob
from tests.capacity.training.training_builders import ETHERNET, cluster, first, gpu, job, pricing


def wave(layout: ParallelLayout, of: TrainingJob | None = None, **links: Any) -> StepPower:
    """On the first placement."""
    of, on = of or job(global_batch=16), cluster(**links)
    even = np.full(layout.pipeline, of.model.layers // layout.pipeline)
    return pricing(of, on).plan(layout, first(on, layout), even).power


def test_a_step_has_a_plateau_a_dip_and_an_update() -> None:
    """The three levels of Deep Optimizer States (arXiv 2410.21316)."""
    power = wave(ParallelLayout(data=16), nic=ETHERNET)
    assert [phase.name for phase in power.phases] == ["pipeline", "gradients", "update"]
    assert power.dip_watts == gpu().exchange_watts < gpu().update_watts < power.peak_watts


def test_the_mean_is_the_energy_of_the_phases_over_the_period() -> None:
    power = wave(ParallelLayout(data=4, tensor=4))
    joules = sum(phase.seconds * phase.draw_watts for phase in power.phases)
    assert power.mean_watts == pytest.approx(joules / power.period_seconds)


def test_an_update_on_the_host_lowers_the_gpus_draw() -> None:
    here = wave(ParallelLayout(data=16))
    away = wave(ParallelLayout(data=16, offload="nvme"))
    assert away.mean_watts < 0.8 * here.mean_watts
    assert away.period_seconds > here.period_seconds
    assert HostResources().nvme_bytes_per_second < HostResources().memory_bytes_per_second


def test_slow_links_lower_the_mean_and_not_the_plateau_of_computing() -> None:
    fast = wave(ParallelLayout(data=4, tensor=4))
    slow = wave(ParallelLayout(data=4, tensor=4), nic=ETHERNET)
    assert slow.mean_watts < fast.mean_watts
    assert slow.peak_watts == pytest.approx(fast.peak_watts)
