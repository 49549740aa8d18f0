"""The training fleet beside Acme: the distance, the published file, and fleets that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

from benchmarks import training_fleet
from benchmarks.runner import Options, Result
from benchmarks.training_fleet import acme_watts, distance, judged, moments, read_servers
from simulation.training_fleet.fleet_row import FleetSample, fleet_scenario
from simulation.training_fleet.fleet_settings import FleetSettings
from wattpack.errors import InputError

FLEET = "training_fleet: {}\nservices: []\ntraining: []\nrow: {racks: 2, groups: [%s]}\n"


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.3, 5.0):
        one, two = rng.standard_normal(500).round(1), rng.standard_normal(300).round(1) + shift
        assert distance(one, two) == pytest.approx(ks_2samp(one, two).statistic)
    assert distance(np.ones(3), np.array([1.0, 1.0, 2.0, 2.0])) == pytest.approx(0.5)


def test_the_published_points_are_watts_without_the_gap() -> None:
    acme = acme_watts()
    servers = acme["seren_gpu_server_w"]
    assert len(servers) == 999
    assert (servers.min(), np.median(servers), servers.max()) == (1386.0, 2520.0, 6554.0)
    assert (np.diff(servers) >= 0.0).all()


def test_readings_have_the_grain_of_their_server_s_sensor() -> None:
    sample = FleetSample(0.0, np.full(5, 1500.0), np.zeros(40))
    assert read_servers([sample]).tolist() == [1512.0, 1512.0, 1512.0, 1508.0, 1508.0]


def test_moments_prefer_no_hour_of_the_day() -> None:
    times = moments(184.0, 400, 3)
    assert np.diff(times).min() > 3600.0
    hours = np.histogram(times / 3600.0 % 24.0, bins=4, range=(0.0, 24.0))[0]
    assert hours.min() > 70


def test_the_fitted_fleet_is_near_acme_s_and_others_are_not() -> None:
    """A short look, so wide bounds; the benchmark's own are in its targets."""

    def far(settings: FleetSettings) -> float:
        return float(judged(fleet_scenario(96, 7, settings), 56.0, 40)["server_ks"])

    fitted = far(FleetSettings())
    assert fitted < 0.12
    busy = FleetSettings(spare_share=0.0, gang_share=0.9, gang_gap_share=0.0)
    assert far(busy) > 3.0 * fitted
    assert far(FleetSettings(small_active_share=0.05)) > fitted


def test_a_scenario_file_brings_its_own_fleet(tmp_path: Path) -> None:
    def run(group: str) -> Result:
        file = tmp_path / "fleet.yaml"
        file.write_text(FLEET % group, encoding="utf-8")
        arguments = ("--scenario", str(file))
        return training_fleet.run(Options(quick=True, arguments=arguments, progress=lambda _: None))

    small = run("{gpu_model: A100-SXM, count: 4}")
    assert not small.targets
    assert small.figures["servers"] == 4
    other = run("{gpu_model: H200-SXM, count: 4}")
    assert float(other.figures["server_p99_watts"]) > 1.3 * float(small.figures["server_p99_watts"])
    with pytest.raises(InputError, match=r"row\.groups"):
        run("{gpu_model: A100-SXM, count: 4}, {gpu_model: H200-SXM, count: 4}")


def test_a_file_without_a_fleet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "row.yaml"
    file.write_text("name: row\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"row\.groups|training_fleet"):
        training_fleet.run(Options(quick=True, arguments=("--scenario", str(file))))
