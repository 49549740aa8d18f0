from __future__ import annotations

import pytest

from benchmarks.catalogue_signature import judge, run
from benchmarks.runner import Options
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import REFERENCE_GPU, priced_gpu
from capacity.catalogue.workload_schema import Workload


def test_every_shipped_entry_has_its_declared_signature() -> None:
    made = run(Options(quick=True)).to_json("catalogue_signature")
    assert made["met"] is True, made["figures"]


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
