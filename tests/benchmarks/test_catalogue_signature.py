from __future__ import annotations

import pytest

from benchmarks.catalogue_signature import judge, run
from benchmarks.runner import Options
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import REFERENCE_GPU, priced_gpu
from capacity.catalogue.workload_schema import Workload


def test_every_shipped_entry_is_bound_as_declared_and_draws_its_level_for_its_period() -> None:
    figures = run(Options(quick=True)).to_json("catalogue_signature")["figures"]
    for name in (
        "phases_against_their_declared_bound", "entries_off_in_level", "entries_off_in_period",
    ):  # fmt: skip
        assert figures[name] == 0, figures["worst"]


def test_every_entry_that_misses_the_tenth_in_depth_is_counted_and_none_is_excused() -> None:
    line = run(Options(quick=True)).to_json("catalogue_signature")
    figures = line["figures"]
    assert line["targets"]["entries_of_another_shape"] == {"at_most": 0}
    assert figures["entries_of_another_shape"] == figures["entries_off_in_depth"]
    assert line["met"] is (figures["entries_off_in_depth"] == 0)
    assert figures["entries_off_in_depth_without_overshoot"] <= figures["entries_off_in_depth"]
    assert figures["entries_off_in_depth_by_kinder_band"] == 0


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
