from __future__ import annotations

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.startup_time import LogNormal, Measured, StartupTime, startup_time
from wattpack.errors import InputError


def test_quantiles_of_the_sum_agree_with_draws() -> None:
    parts = (LogNormal(1, 7), LogNormal(60, 120), LogNormal(15, 15), Measured((3.0, 5.0, 40.0)))
    made = StartupTime(tuple((str(i), part) for i, part in enumerate(parts)))
    generator = np.random.default_rng(1)
    n = 400_000
    drawn = np.full(n, 15.0) + generator.choice([3.0, 5.0, 40.0], n)
    for part in parts[:2]:
        assert isinstance(part, LogNormal)
        sigma = np.log(part.p95 / part.median) / 1.6448536
        drawn += part.median * np.exp(sigma * generator.standard_normal(n))
    levels = [0.1, 0.5, 0.9, 0.95, 0.99]
    assert made.quantiles(levels) == pytest.approx(np.quantile(drawn, levels), rel=0.01)
    assert made.mean_seconds == pytest.approx(drawn.mean(), rel=0.01)


def test_parts_add_up_to_the_mean() -> None:
    made = startup_time(shipped_catalogue()["decoder-decode"])
    assert [name for name, _ in made.parts] == [
        "schedule", "image", "model-load", "compile", "warm-up",
    ]  # fmt: skip
    assert made.mean_seconds == pytest.approx(sum(part.mean for _, part in made.parts))


def test_medians_add_up_to_less_than_the_lead_time() -> None:
    made = startup_time(shipped_catalogue()["decoder-decode"])
    medians = sum(part.median for _, part in made.parts if isinstance(part, LogNormal))
    assert made.quantile(0.95) > 1.3 * medians
    assert made.quantile(0.5) < made.quantile(0.9) < made.quantile(0.99)


def test_narrow_weights_a_faster_disk_and_a_present_image_start_sooner() -> None:
    catalogue = shipped_catalogue()
    slow = startup_time(catalogue["decoder-decode"]).mean_seconds
    narrow = catalogue["decoder-decode"].model_copy(
        update={"parameters": catalogue["decode-4bit"].parameters}
    )
    assert startup_time(narrow).mean_seconds < slow
    fast = HostRoofline(storage_bytes_per_second=60e9)
    assert startup_time(catalogue["decoder-decode"], fast).mean_seconds < slow
    there = startup_time(catalogue["decoder-decode"], image_is_there=True)
    assert slow - there.mean_seconds > 60


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: LogNormal(-1, 2), "median"),
        (lambda: LogNormal(2, 1), "p95"),
        (lambda: LogNormal(float("nan"), 1), "median"),
        (lambda: Measured(()), "seconds"),
        (lambda: Measured((1.0, -1.0)), "seconds"),
        (lambda: StartupTime(()), "parts"),
        (lambda: StartupTime((("x", LogNormal(1, 2)),)).quantile(1.0), "level"),
        (lambda: StartupTime((("x", LogNormal(1, 2)),)).quantile(0.0), "level"),
    ],
)
def test_what_is_no_duration_is_refused(build: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        build()  # type: ignore[operator]
