"""What a rank holds, against sums by hand."""

from __future__ import annotations

import pytest

from capacity.training.layout_table import LayoutTable
from capacity.training.training_job import ParallelLayout, TrainingJob
from capacity.training.training_memory import RankMemory, rank_memory
from tests.capacity.training.training_builders import job


def held(layout: ParallelLayout, of: TrainingJob | None = None) -> RankMemory:
    """Memory of one layout."""
    of = of or job()
    return rank_memory(of, LayoutTable.of(of, [layout]))


def test_a_plain_replica_holds_eighteen_bytes_a_parameter() -> None:
    """2 of weight, 4 of gradient, 4 of master copy, 8 of moments."""
    assert held(ParallelLayout(data=8)).state[0, 0] == pytest.approx(18 * job().model.parameters)


@pytest.mark.parametrize(("stage", "per_parameter"), [(1, 6 + 12 / 8), (2, 2 + 16 / 8)])
def test_zero_shares_what_its_stage_says(stage: int, per_parameter: float) -> None:
    state = held(ParallelLayout(data=8, zero_stage=stage)).state[0, 0]
    assert state == pytest.approx(per_parameter * job().model.parameters)


def test_zero_three_keeps_two_whole_layers() -> None:
    model = job().model
    gathered = 8 * model.layer_parameters / model.layers
    state = held(ParallelLayout(data=8, zero_stage=3)).state[0, 0]
    assert state == pytest.approx(18 / 8 * model.parameters + gathered)


def test_eight_bit_moments_are_a_quarter_of_those_in_32_bits() -> None:
    full, small = (held(ParallelLayout(), job(optimizer_bits=bits)) for bits in (32, 8))
    parameters = job().model.parameters
    assert full.optimizer[0, 0] - 4 * parameters == pytest.approx(
        4 * (small.optimizer[0, 0] - 4 * parameters)
    )


def test_the_first_stage_holds_most_micro_batches() -> None:
    activations = held(ParallelLayout(pipeline=4)).activations[0]
    assert activations.tolist() == sorted(activations, reverse=True)
    assert activations[0] == pytest.approx(4 * activations[3])


@pytest.mark.parametrize(("recompute", "share"), [("selective", 0.75), ("full", 0.2)])
def test_recomputation_keeps_less(recompute: str, share: float) -> None:
    plain = held(ParallelLayout(pipeline=4)).activations[0, 0]
    less = held(ParallelLayout(pipeline=4, recompute=recompute)).activations[0, 0]  # type: ignore[arg-type]
    assert less < share * plain


def test_half_the_activation_factor_makes_room_for_twice_the_micro_batch() -> None:
    plain = held(ParallelLayout(micro_batch=1)).activations[0, 0]
    lean = held(ParallelLayout(micro_batch=2), job(activation_factor=0.5)).activations[0, 0]
    assert lean == pytest.approx(plain)


def test_tensor_and_context_cuts_divide_activations() -> None:
    plain = held(ParallelLayout()).activations[0, 0]
    assert held(ParallelLayout(tensor=4)).activations[0, 0] == pytest.approx(plain / 4)
    assert held(ParallelLayout(context=2)).activations[0, 0] == pytest.approx(plain / 2)


def test_offloaded_state_leaves_the_gpu() -> None:
    assert held(ParallelLayout(offload="host")).optimizer[0, 0] == pytest.approx(1e9)


def test_a_fused_loss_never_holds_all_logits() -> None:
    plain, fused = (held(ParallelLayout(), job(fused=value)).output[0, 0] for value in (0, 1))
    assert fused == pytest.approx(plain / 10)
