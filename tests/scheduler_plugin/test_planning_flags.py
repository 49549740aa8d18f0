"""``wattpack plan pods`` and ``what-if`` compare plans as the cluster's planner is told to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from scheduler_plugin.app import plan_command, what_if_command
from scheduler_plugin.documents.plan_document import parse_plan
from scheduler_plugin.documents.snapshot import Snapshot
from tests.scheduler_plugin.placement_builders import bound, domain, node, pod, snapshot

NODES = (
    node("fast", 8, gpu_model="A", domain="north"),
    node("slow", 8, gpu_model="B", domain="south"),
)
DOMAINS = (domain("north", 100_000), domain("south", 100_000))
SPEEDS = {"A": 1000, "B": 500}
TO_COST = "disruption,cost"


def ask(tmp_path: Path, of: Snapshot, *flags: str) -> list[str]:
    file = tmp_path / "snapshot.json"
    file.write_text(of.model_dump_json(), encoding="utf-8")
    return ["--snapshot", str(file), "--json", *flags]


def places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of: Snapshot, *flags: str
) -> Counter[str]:
    assert plan_command.main(ask(tmp_path, of, *flags)) == 0
    return Counter(p.node for p in parse_plan(capsys.readouterr().out).placements)


def test_prices_and_carbon_decide_where_they_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = snapshot(*NODES, *DOMAINS, pod("p", 4))

    def to(*flags: str) -> Sequence[str]:
        return list(places(tmp_path, capsys, of, *flags))

    assert to("--objective", TO_COST, "--gpu-prices", "A=4,B=1.5") == ["slow"]
    assert to("--objective", TO_COST, "--gpu-prices", "A=1,B=1.5") == ["fast"]
    carbon = ("--objective", "disruption,carbon", "--carbon-grams-per-kwh")
    assert to(*carbon, "north=400,south=30") == ["slow"]
    assert to(*carbon, "north=30,south=400") == ["fast"]


def test_the_schedulers_file_counts_and_flags_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("objective: [disruption, cost]\ngpu_prices: {A: 4, B: 1}\nmode: Manage\n")
    of = snapshot(*NODES, *DOMAINS, pod("p", 4))
    by_file = ("--config", str(config))
    assert list(places(tmp_path, capsys, of, *by_file)) == ["slow"]
    assert list(places(tmp_path, capsys, of, *by_file, "--gpu-prices", "A=1,B=4")) == ["fast"]


def test_a_policy_shares_models_as_in_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [pod(f"{kind}{i}", 2, gpu_model_values=SPEEDS) for kind in "xy" for i in range(2)]
    of = snapshot(*NODES, *DOMAINS, *pods)
    assert places(tmp_path, capsys, of) == {"fast": 4}
    prices = ("--gpu-prices", "A=9,B=1")
    assert places(tmp_path, capsys, of, "--policy", "cost", *prices) == {"slow": 4}


def test_what_if_compares_plans_of_the_same_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ask(tmp_path, snapshot(*NODES, *DOMAINS, pod("p", 4)))[1]
    flags = ["--objective", TO_COST, "--gpu-prices", "A=4,B=1", "--json"]
    assert what_if_command.main([file, "--drain", "slow", *flags]) == 0
    (moved,) = json.loads(capsys.readouterr().out)["relocations"]
    assert (moved["before"], moved["after"]) == ("slow", "fast")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--policy", "cost"), "gpu_prices: expected a price for at least one GPU model"),
        (("--objective", "disruption,cost"), "gpu_hour_cost_milli of at least one node, or --gpu"),
        (("--objective", "disruption,cost"), "got ['disruption', 'cost']"),
        (("--objective", "cost"), "error: --objective: expected disruption among the stages"),
        (("--objective", "disruption,no"), "or 'carbon', got 'disruption,no'"),
        (("--risk-below-priority", "1000=0.05"), "--risk-below-priority: expected only with --clu"),
        (("--gpu-prices", "A=0"), "--gpu-prices: gpu_prices.A: expected greater"),
        (("--carbon-grams-per-kwh", "a=-1"), "--carbon-grams-per-kwh: carbon_grams_per_kwh.a"),
        (("--config", "nothing.yaml"), "nothing.yaml"),
    ],
)
def test_wrong_choices_are_told_by_flag_or_file(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_command.main(ask(tmp_path, snapshot(*NODES, *DOMAINS, pod("p")), *flags)) == 2
    assert said in capsys.readouterr().err


def test_a_risk_is_no_option_where_it_would_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        what_if_command.main(["-", "--drain", "a", "--risk-below-priority", "1000=0.05"])
    assert "unrecognized arguments: --risk-below-priority" in capsys.readouterr().err


def test_names_without_effect_are_noted_and_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = pod("p"), bound("q", "fast"), bound("r", "gone")
    of = snapshot(*NODES, *DOMAINS, *pods)
    flags = ("--gpu-prices", "A=1,AX=2", "--carbon-grams-per-kwh", "north=3,nroth=4")
    file = ask(tmp_path, of, *flags)
    told = [
        "note: --gpu-prices: no node has GPU model 'AX': expected one of A, B (did you mean 'A'?)",
        "note: --carbon-grams-per-kwh: no domain 'nroth': "
        "expected one of north, south (did you mean 'north'?)",
        "note: pods on nodes that the snapshot does not have take no room: team/r on gone",
    ]
    assert plan_command.main(file) == 0
    assert capsys.readouterr().err.splitlines() == told
    assert what_if_command.main([file[1], "--drain", "slow", *flags]) == 0
    assert capsys.readouterr().err.splitlines() == told


@pytest.mark.parametrize("text", ["A", "A=", "=1", "A=one", "A=1,A=2", ""])
def test_figures_are_names_with_numbers(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        plan_command.main(["--snapshot", "-", "--gpu-prices", text])
    assert ended.value.code == 2
    assert "expected NAME=NUMBER between commas" in capsys.readouterr().err
