"""Profiles: what the loader refuses, what the lookup finds, what the figures must obey."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from capacity.fitting.fit import PROFILES, REFERENCE, STEP_TABLES, build_document
from capacity.fitting.fit import main as fit_main
from capacity.fitting.fit_comparison import fit_difference
from capacity.gpu_profile import KERNEL_CLASSES, profile_from_dict
from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import (
    gpu_profile_object,
    library_from_dict,
    load_library,
    shipped_library,
)
from wattpack.api.inventory import GPUProfile
from wattpack.errors import InputError


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    return build_document(REFERENCE)


@pytest.fixture
def document(fresh: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(fresh)


def test_a_refit_of_the_reference_data_reproduces_the_shipped_file(fresh: dict[str, Any]) -> None:
    shipped = json.loads(PROFILES.read_text(encoding="utf-8"))
    assert fit_difference(json.loads(json.dumps(fresh)), shipped) == ""


ROW: dict[str, Any] = {"model": "A", "watts": 700.0, "samples": 3, "curve": [0.66227, 1.0]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"curve": [0.66228, 1.0]}, ""),
        ({"curve": [0.6623, 1.0]}, "curve[0]: 0.66227, shipped 0.6623"),
        ({"curve": [0.66227]}, "curve: list of 2, shipped list of 1"),
        ({"watts": 700.1}, "watts: 700.0, shipped 700.1"),
        ({"watts": 700}, "watts: 700.0, shipped 700"),
        ({"watts": float("nan")}, "watts: 700.0, shipped nan"),
        ({"samples": 4}, "samples: 3, shipped 4"),
        ({"model": "B"}, "model: 'A', shipped 'B'"),
        ({"more": None}, "dict of 4, shipped dict of 5"),
    ],
)
def test_fits_are_the_same_to_the_last_digit(changed: dict[str, Any], told: str) -> None:
    """Processors differ in that digit: 0.66227499999 on one is 0.66227501069 on another."""
    assert fit_difference({"rows": [ROW]}, {"rows": [ROW | changed]}).endswith(told)
    assert bool(fit_difference(ROW, ROW | changed)) == bool(told)


def test_fit_check_notices_a_changed_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "profiles.json"
    changed.write_text("{}", encoding="utf-8")
    shutil.copy(PROFILES.with_name(STEP_TABLES), tmp_path)
    assert fit_main(["--check", "--out", str(changed)]) == 1
    assert changed.read_text(encoding="utf-8") == "{}"
    told = capsys.readouterr().out
    assert "a fresh fit differs: all: dict of" in told
    # The step tables beside it are what the shipped rows give.
    assert "profiles.json" in told
    assert STEP_TABLES not in told


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA-H200", "H200-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM"),
        ("Tesla V100-PCIE-32GB", "V100-PCIE"),
        ("l40s", "L40S"),
    ],
)
def test_driver_names_and_node_labels_find_their_profile(name: str, model: str) -> None:
    assert shipped_library().find(name).model == model


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "H100", "", "GeForce"])
def test_a_near_name_is_refused_and_not_guessed(name: str) -> None:
    with pytest.raises(UnknownGpuModel) as caught:
        shipped_library().find(name)
    assert caught.value.field == "gpuModel"


def test_every_curve_rises_to_one_and_every_class_is_labelled() -> None:
    for profile in shipped_library().profiles.values():
        assert tuple(profile.kernel_classes) == KERNEL_CLASSES
        assert profile.min_limit_watts <= profile.knee_watts <= profile.default_limit_watts
        for kernel in profile.kernel_classes.values():
            assert list(kernel.throughput) == sorted(kernel.throughput)
            assert kernel.throughput[-1] == kernel.draw[-1] == 1.0
            assert kernel.power_source
            assert kernel.curve_source
            assert (kernel.power_samples > 0) == (kernel.power_provenance == "measured") or (
                kernel.power_source.startswith(("h200_idle", "Acme"))
            )


def test_only_swept_types_claim_a_measured_cap_curve() -> None:
    measured = {
        profile.model
        for profile in shipped_library().profiles.values()
        for kernel in profile.kernel_classes.values()
        if kernel.curve_provenance == "measured"
    }
    assert measured == {"V100-PCIE", "A40", "RTX-6000"}


def test_a_cap_costs_decode_less_than_prefill_everywhere() -> None:
    for profile in shipped_library().profiles.values():
        decode, prefill = (profile.kernel_classes[c].throughput for c in ("decode", "prefill"))
        assert all(d >= p for d, p in zip(decode, prefill, strict=True))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("idle_watts",), float("nan"), "idle_watts"),
        (("idle_watts",), -1.0, "idle_watts"),
        (("idle_watts",), "76", "idle_watts"),
        (("idle_watts",), True, "idle_watts"),
        (("idle_watts",), 76_000.0, "idle_watts"),
        (("max_limit_watts",), 700_000.0, "max_limit_watts"),
        (("knee_watts",), 0.41, "min_limit_watts"),
        (("model",), "", "model"),
        (("product_names",), [], "product_names"),
        (("product_names",), "NVIDIA H200", "product_names"),
        (("surprise",), 1, "surprise"),
        (("kernel_classes", "decode", "throughput"), [0.5], "decode"),
        (("kernel_classes", "decode", "throughput"), [1.5] * 37, "throughput[0]"),
        (("kernel_classes", "decode", "cap_fractions"), [0.5] * 37, "cap_fractions"),
        (("kernel_classes", "decode", "draw"), None, "draw"),
        (("kernel_classes", "decode", "power_p95_watts"), 1.0, "power_p95_watts"),
        (("kernel_classes", "decode", "power_provenance"), "guessed", "power_provenance"),
        (("kernel_classes", "decode", "error_mape"), float("inf"), "error_mape"),
        (("kernel_classes", "decode", "typo"), 1, "typo"),
        (("kernel_classes",), {}, "kernel_classes"),
    ],
)
def test_a_profile_with_a_bad_value_is_refused_by_name(
    document: dict[str, Any], path: tuple[str, ...], value: object, field: str
) -> None:
    target = profile = document["profiles"][0]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError) as caught:
        profile_from_dict(profile, "a.json")
    assert field in caught.value.field
    assert caught.value.source == "a.json"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_seconds", 0.0),
        ("base_seconds", float("nan")),
        ("tensor_parallel", -1),
        ("gpu", ""),
        ("provenance", "guessed"),
        ("surprise", 1),
    ],
)
def test_serving_times_with_a_bad_value_are_refused(
    document: dict[str, Any], key: str, value: object
) -> None:
    document["serving"][0][key] = value
    with pytest.raises(InputError, match=key):
        library_from_dict(document)


def test_one_name_for_two_profiles_is_refused(document: dict[str, Any]) -> None:
    document["profiles"][1]["product_names"].append("nvidia-h200")
    with pytest.raises(InputError, match="each name once"):
        library_from_dict(document)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "v0"', "null", "\x00"])
def test_a_truncated_or_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_library(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="readable UTF-8 file"):
        load_library(tmp_path / "none.json")


def test_the_api_object_of_every_profile_passes_the_crd_model() -> None:
    library = shipped_library()
    for profile in library.profiles.values():
        body = gpu_profile_object(profile, library.reference_sha256)
        parsed = GPUProfile.model_validate(json.loads(json.dumps(body)))
        assert parsed.spec.knee_watts == profile.knee_watts


def test_seventy_billion_parameters_are_not_offered_where_they_do_not_fit() -> None:
    offered = {
        (t.gpu, t.tensor_parallel) for t in shipped_library().serving if "70b" in t.language_model
    }
    assert ("V100-PCIE", 4) not in offered
    assert ("A100-SXM", 2) not in offered
    assert ("A100-SXM", 4) in offered
