"""What users get of a cycle: sums that a person can do, on cycles of round figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.work_done import WorkDone, slowest_of, work_done
from capacity.catalogue.workload_model import CyclePrice, PhasePrice
from tests.capacity.catalogue.entries import workload

CYCLE = CyclePrice((PhasePrice("step", 2.0, 2.0, {}, "bandwidth", 500.0, 500.0),))


def step(batch: int = 8, **more: Any) -> dict[str, Any]:
    sizes = {"phase": "decode", "batch": batch, "query_tokens": 1, "kv_tokens": 512}
    return {"kernel": "decoder", **sizes, **more}


def done(folder: Path, *phases: dict[str, Any], **more: Any) -> WorkDone:
    """Of a cycle of two seconds at 500 W."""
    named = [{"name": f"p{i}", "bound": "bandwidth", **one} for i, one in enumerate(phases)]
    return work_done(workload(folder, model="llama-3.1-8b", phases=named, **more), CYCLE)


def test_tokens_are_accepted_ones_of_all_sequences_and_drafts_yield_none(tmp_path: Path) -> None:
    found = done(
        tmp_path, {"repeats": 4, "kernels": [step(is_draft=True)]}, {"kernels": [step()]},
        parameters={"tokens_per_step": 2.5}, gpus=2,
    )  # fmt: skip
    # 8 sequences x 2.5 tokens in 2 s; 2 boards x 500 W x 2 s for 20 tokens.
    assert found.tokens_per_second == pytest.approx(10.0)
    assert found.joules_per_token == pytest.approx(100.0)
    assert found.seconds_per_token == pytest.approx(0.8)
    assert found.requests_per_second is None, "nobody says how long an answer is"


def test_an_answer_is_as_long_as_it_says_and_a_user_makes_several_calls(tmp_path: Path) -> None:
    found = done(
        tmp_path, {"repeats": 50, "kernels": [step()]},
        parameters={"output_tokens": 100, "fan_out": 4, "offload_to_client": 0.5},
    )  # fmt: skip
    # 400 tokens are 4 calls, one user's request; half of the users never come.
    assert found.answer_seconds == pytest.approx(100 * 2.0 / 50)
    assert found.requests_per_second == pytest.approx(2 / 2.0)
    assert found.joules_per_request == pytest.approx(500.0)


def test_a_cycle_with_an_end_to_end_objective_is_its_sequences_requests(tmp_path: Path) -> None:
    prefill = step(4) | {"phase": "prefill", "query_tokens": 512}
    phases = ({"kernels": [prefill]}, {"repeats": 3, "kernels": [step(16)]})
    found = done(tmp_path, *phases, slo={"kind": "end-to-end"}, parameters={"fan_out": 4})
    assert found.requests_per_second == pytest.approx(16 / 4 / 2.0)
    assert done(tmp_path, *phases).requests_per_second is None


def test_work_without_tokens_has_only_its_cycle(tmp_path: Path) -> None:
    found = work_done(workload(tmp_path), CYCLE)
    assert found == WorkDone(None, None, None, None, None, None, 2.0, 2.0)


def test_the_slowest_of_a_gang_is_that_of_drawn_times() -> None:
    draws = np.random.default_rng(1).normal(size=(200_000, 8))
    sigma = np.sqrt(np.log1p(0.25**2))
    times = np.exp(sigma * draws - sigma**2 / 2)
    assert times.mean() == pytest.approx(1.0, abs=2e-3)
    assert slowest_of(8, 0.25) == pytest.approx(times.max(axis=1).mean(), rel=2e-3)
    assert slowest_of(1, 0.25) == slowest_of(8, 0.0) == 1.0
    assert slowest_of(2, 0.25) < slowest_of(64, 0.25) < slowest_of(64, 0.5)


def test_every_entry_that_declares_such_a_figure_has_it_priced() -> None:
    told = {
        "tokens_per_step": "tokens_per_second", "output_tokens": "answer_seconds",
        "fan_out": "joules_per_request", "offload_to_client": "joules_per_request",
    }  # fmt: skip
    declared = 0
    for entry in shipped_catalogue().values():
        cycle = CyclePrice((PhasePrice("p", 1.0, 1.0, {}, "compute", 1.0, 1.0),))
        found = work_done(entry, cycle)
        for name, result in told.items():
            if name in entry.parameters.model_fields_set:
                declared += 1
                assert getattr(found, result) is not None, (entry.name, name)
        if entry.parameters.step_time_spread:
            declared += 1
            assert found.gang_seconds > 1.0
    assert declared >= 7
