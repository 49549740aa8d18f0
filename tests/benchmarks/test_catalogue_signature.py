from __future__ import annotations

import pytest

from benchmarks.catalogue_signature import judge, run
from benchmarks.runner import Options
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import REFERENCE_GPU, priced_gpu
from capacity.catalogue.workload_schema import Workload


def test_every_shipped_phase_is_bound_as_declared_and_every_missed_shape_is_counted() -> None:
    line = run(Options(quick=True)).to_json("catalogue_signature")
    figures = line["figures"]
    assert figures["phases_against_their_declared_bound"] == 0, figures["worst"]
    assert line["targets"]["entries_of_another_shape"] == {"at_most": 0}
    missed = figures["entries_of_another_shape"]
    off = [figures[f"entries_off_in_{what}"] for what in ("level", "period", "depth")]
    assert max(off) <= missed <= sum(off)
    assert line["met"] is (missed == 0)
    assert len(figures["worst"].split(", ")) == missed or figures["worst"] == "none"
    assert figures["entries_off_in_depth_by_kinder_band"] <= figures["entries_off_in_depth"]
    assert figures["level_error_mean"] < 0.2 * figures["level_error_of_best_constant"]


def test_the_depth_of_a_step_of_training_takes_the_capping_loop() -> None:
    """A board that stood at its limit from the first moment would swing from 0.987 to 0.218."""
    gpu = priced_gpu(REFERENCE_GPU)
    assert judge(shipped_catalogue()["train-data-parallel"], gpu).has_shape
    shape = shipped_catalogue()["train-data-parallel"].shape
    assert shape is not None
    stiff = changed("train-data-parallel", shape=shape.model_copy(update={"depth": 0.769}))
    assert not judge(stiff, gpu).has_shape


def test_a_depth_of_a_few_hundredths_of_the_limit_is_excused_by_the_kinder_band_alone() -> None:
    gpu = priced_gpu(REFERENCE_GPU)
    shape = shipped_catalogue()["neural-rendering"].shape
    assert shape is not None
    made = judge(changed("neural-rendering", shape=shape.model_copy(update={"depth": 0.04})), gpu)
    assert not made.has_shape
    assert made.has_depth_in_kinder_band


def changed(name: str, **update: object) -> Workload:
    return shipped_catalogue()[name].model_copy(update=update)


def test_a_phase_that_declares_another_bound_is_found() -> None:
    entry = shipped_catalogue()["decoder-decode"]
    phases = tuple(phase.model_copy(update={"bound": "compute"}) for phase in entry.phases)
    made = judge(changed("decoder-decode", phases=phases), priced_gpu(REFERENCE_GPU))
    assert made.wrong_phases
    assert "decode" in made.wrong_phases[0]


@pytest.mark.parametrize("update", [{"level": 0.7}, {"period_seconds": 5.0}, {"depth": 0.5}])
def test_a_shape_that_is_a_seventh_off_is_found(update: dict[str, float]) -> None:
    shape = shipped_catalogue()["train-data-parallel"].shape
    assert shape is not None
    entry = changed("train-data-parallel", shape=shape.model_copy(update=update))
    assert not judge(entry, priced_gpu(REFERENCE_GPU)).has_shape


def test_an_entry_without_a_shape_has_none() -> None:
    entry = changed("decoder-decode", shape=None)
    assert not judge(entry, priced_gpu(REFERENCE_GPU)).has_shape
