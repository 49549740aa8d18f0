"""One truth of what a GPU type draws: objects over the shipped profiles, nonsense refused."""

from __future__ import annotations

from typing import Any

import pytest

from capacity.profile_book import ProfileBook
from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import gpu_profile_object, shipped_library

SHIPPED = ProfileBook.shipped(shipped_library())


def body(name: str = "h200", model: str = "H200-SXM", **spec: Any) -> dict[str, Any]:
    plain = gpu_profile_object(shipped_library().find("H200-SXM"), "")
    metadata = {"name": name, "generation": 3}
    names = ["NVIDIA H200"] if model == "H200-SXM" else [model]
    wanted = plain["spec"] | {"model": model, "productNames": names} | spec
    return {**plain, "metadata": metadata, "spec": wanted}


def kernel(**changes: Any) -> list[dict[str, Any]]:
    first: dict[str, Any] = body()["spec"]["kernelClasses"][0]
    return [first | changes]


def test_without_objects_the_shipped_profiles_count() -> None:
    assert SHIPPED.find("NVIDIA-H200").idle_watts == 76.0
    with pytest.raises(UnknownGpuModel):
        SHIPPED.find("Somebody's TPU")


def test_an_object_counts_for_its_names_and_the_rest_stays() -> None:
    book = SHIPPED.with_objects([body(idleWatts=80.0)])
    assert book.find("nvidia h200").idle_watts == 80.0
    assert book.find("H100-SXM") == SHIPPED.find("H100-SXM")
    assert SHIPPED.find("NVIDIA H200").idle_watts == 76.0


def test_a_shipped_profile_as_an_object_changes_no_figure_that_is_used() -> None:
    shipped, told = SHIPPED.find("H200-SXM"), SHIPPED.with_objects([body()]).find("H200-SXM")
    for name in ("idle_watts", "knee_watts", "max_limit_watts", "context_watts"):
        assert getattr(told, name) == getattr(shipped, name)
    for name, known in shipped.kernel_classes.items():
        assert told.kernel_classes[name].power_p95_watts == known.power_p95_watts
        assert told.kernel_classes[name].throughput == known.throughput


def test_a_type_that_is_not_shipped_is_known_by_its_object_until_that_goes() -> None:
    book = SHIPPED.with_objects([body("own", "Somebody's TPU")])
    assert book.find("somebody's-tpu").max_limit_watts == 700.0
    with pytest.raises(UnknownGpuModel):
        book.with_objects([]).find("Somebody's TPU")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"maxLimitWatts": 700_000.0}, "maxLimitWatts"),
        ({"maxLimitWatts": 5_600.0, "model": "TPU", "productNames": ["TPU"]}, "maxLimitWatts"),
        ({"maxLimitWatts": 1_500.0}, "factor of 2"),
        ({"idleWatts": 700.0}, "idleWatts"),
        ({"kneeWatts": 150.0}, "kneeWatts"),
        ({"kneeWatts": 701.0}, "kneeWatts"),
        ({"minLimitWatts": 900.0}, "minLimitWatts"),
        ({"idleWatts": "70 W"}, "idleWatts"),
        ({"idleWatts": -1.0}, "idleWatts"),
        ({"kernelClasses": kernel(powerP95Watts=7_000.0)}, "powerP95Watts"),
        ({"kernelClasses": kernel(capFractions=[0.0, 1.0], throughputFractions=[0.1, 1.0])}, "cap"),
        ({"kernelClasses": kernel(capFractions=[0.5, 0.5], throughputFractions=[0.1, 1.0])}, "cap"),
        (
            {"kernelClasses": kernel(capFractions=[0.5, 1.0], throughputFractions=[0.9, 0.5])},
            "throughputFractions",
        ),
    ],
)
def test_nonsense_is_refused_by_its_field_and_the_last_good_stays(
    spec: dict[str, Any], field: str
) -> None:
    good = SHIPPED.with_objects([body(idleWatts=80.0)])
    for book, idle in ((good, 80.0), (SHIPPED, 76.0)):
        after = book.with_objects([body(**spec)])
        assert field in after.refusals["h200"].message
        assert after.refusals["h200"].generation == 3
        assert after.find("NVIDIA H200").idle_watts == idle
    assert after.with_objects([body()]).refusals == {}


def test_a_name_belongs_to_one_object() -> None:
    book = SHIPPED.with_objects([body("a", idleWatts=80.0), body("b", idleWatts=90.0)])
    assert list(book.refusals) == ["b"]
    assert book.find("NVIDIA H200").idle_watts == 80.0


def test_an_object_of_a_newer_version_is_read() -> None:
    assert SHIPPED.with_objects([body(newField=1)]).refusals == {}
