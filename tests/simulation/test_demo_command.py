"""The demo's command line: what it refuses, and what its exit status says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from simulation.app.demo_command import PROCESS_FAULTS, build_parser, chosen_scenario, conclude
from simulation.app.twin_run import run_twin
from simulation.results import TwinResult
from simulation.scenario import Scenario
from tests.simulation.twin_builders import small_scenario
from wattpack.errors import InputError


@pytest.fixture(scope="module")
def result() -> TwinResult:
    scenario = Scenario(duration_seconds=2.0, warmup_seconds=0.0)
    return run_twin(scenario, "uncapped")


def parse(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["--headless", *arguments])


def test_flags_win_over_the_scenario_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 3\nduration_seconds: 60\n")
    scenario = chosen_scenario(parse("--scenario", str(file), "--duration", "30"))
    assert (scenario.seed, scenario.duration_seconds) == (3, 30.0)


def test_a_typo_in_the_scenario_is_named_with_the_nearest_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("trace_rate_facto: 3\n")
    with pytest.raises(InputError, match="trace_rate_factor"):
        chosen_scenario(parse("--scenario", str(file)))


@pytest.mark.parametrize("kind", sorted(PROCESS_FAULTS))
def test_faults_that_the_demo_cannot_inject_are_refused_rather_than_ignored(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"faults:\n- kind: {kind}\n  at_seconds: 10\n  duration_seconds: 5\n")
    with pytest.raises(InputError, match=r"faults\.0\.kind"):
        chosen_scenario(parse("--scenario", str(file)))


@pytest.mark.parametrize(
    ("seconds", "replicas", "taken"), [(0, 2, True), (0, 1, False), (5, 2, False)]
)
def test_a_crash_needs_a_replica_that_goes_on_and_none_that_comes_back(
    tmp_path: Path, seconds: int, replicas: int, taken: bool
) -> None:
    file = tmp_path / "mine.yaml"
    crash = f"kind: controller_crash\n  at_seconds: 10\n  duration_seconds: {seconds}"
    file.write_text(f"faults:\n- {crash}\n")
    arguments = parse("--scenario", str(file), "--replicas", str(replicas))
    if taken:
        assert len(chosen_scenario(arguments).faults) == 1
    else:
        with pytest.raises(InputError, match=r"faults\.0"):
            chosen_scenario(arguments)


@pytest.mark.parametrize(
    ("change", "status"),
    [({}, 0), ({"trips": 1}, 1), ({"invariant_violations": 2, "violations": ["I2"]}, 1)],
)
def test_the_exit_status_says_whether_a_breaker_tripped_or_an_invariant_broke(
    result: TwinResult, tmp_path: Path, change: dict[str, object], status: int
) -> None:
    file = tmp_path / "out.json"
    said: list[str] = []
    changed = result.model_copy(update={"trips": 0, "invariant_violations": 0, **change})
    assert conclude(changed, small_scenario(), file, said.append) == status
    assert json.loads(file.read_text())["trips"] == changed.trips
    assert ("FAILED" in said[0]) is bool(status)
