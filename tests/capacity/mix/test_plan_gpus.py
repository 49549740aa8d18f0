"""``wattpack plan gpus`` reads what the docs show, answers, and refuses the rest by its field."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from capacity.mix.embodied_share import Embodied
from capacity.mix.mix_answer import Answer, answer_mix
from capacity.roofs import shipped_roofs
from wattpack.api import CapacityPlan
from wattpack.cli import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "capacity-planning.md").read_text(encoding="utf-8")
EXAMPLE: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.S)[0])
PLAN: dict[str, Any] = {
    "apiVersion": "wattpack.io/v1alpha1",
    "kind": "CapacityPlan",
    "metadata": {"name": "p", "namespace": "team"},
    "spec": {
        "buckets": [{"name": "chat", "requestsPerSecond": 6}],
        "gpuModels": ["H200-SXM"],
        "powerBudgetWatts": 2000,
    },
}


def changed(path: str, value: object, document: dict[str, Any] = EXAMPLE) -> dict[str, Any]:
    """The document with the value at a dotted path; ``None`` takes it away."""
    body = copy.deepcopy(document)
    *parents, last = path.split(".")
    at: Any = body
    for part in parents:
        at = at[int(part)] if part.isdigit() else at[part]
    if value is None:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    return body


class Folder:
    """Files, and the command run on them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys

    def write(self, name: str, body: dict[str, Any]) -> str:
        file = self.path / name
        file.write_text(yaml.safe_dump(body), encoding="utf-8")
        return str(file)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        status = main(["plan", "gpus", *arguments])
        output = self._capsys.readouterr()
        return status, output.out, output.err

    def demand(self, body: dict[str, Any], *more: str) -> tuple[int, str, str]:
        return self.run("--demand", self.write("mix.yaml", body), *more)

    def answered(self, plan: dict[str, Any], table: dict[str, Any]) -> tuple[int, str, str]:
        files = ("-f", self.write("plan.yaml", plan), "--table", self.write("mix.yaml", table))
        return self.run(*files, "--json", "--no-explain")


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    return Folder(tmp_path, capsys)


def test_the_example_of_the_docs_names_types_that_rates_can_be_predicted_for() -> None:
    """Given shapes may be of any type, but who takes them out of the example would be refused."""
    named = {offer["gpuModel"] for offer in EXAMPLE["offers"] + EXAMPLE["shapes"]}
    assert named <= {roofs.model for roofs in shipped_roofs()}


def test_the_example_of_the_docs_is_planned_and_explained(folder: Folder) -> None:
    status, out, _ = folder.demand(EXAMPLE)
    assert status == 0
    for words in (
        "old-a100",
        "A100@400",
        "an hour: GPUs",
        "kWh an hour",
        "saved against",
        "without",
    ):
        assert words in out


def test_names_that_look_like_markup_are_shown_as_they_are(folder: Folder) -> None:
    body = changed("offers.0.name", "[/red] h200")
    status, out, _ = folder.demand(changed("offers.1.name", "[bold]old", body))
    assert status == 0
    assert "[/red] h200" in out
    assert "[bold]old" in out


def test_the_json_has_every_figure_with_its_unit(folder: Folder) -> None:
    status, out, _ = folder.demand(EXAMPLE, "--json")
    body = json.loads(out)
    assert status == 0
    assert body["apiVersion"] == "wattpack.io/gpu-mix-plan/v1"
    assert body["gap"] < 1e-3
    assert body["meanWatts"] <= 6000
    assert body["kwhPerHour"] == pytest.approx(body["meanWatts"] / 1000)
    assert body["dollarsPerHour"]["total"] == pytest.approx(
        sum(body["dollarsPerHour"][k] for k in ("rent", "energy", "carbon", "start"))
    )
    assert {c["constraint"] for c in body["constraintCosts"]} <= {
        "stock of h200", "stock of old-a100", "breaker of row-a", "power budget of row-a",
        "minimum replicas", "lower rates",
    }  # fmt: skip


def test_how_careful_a_plan_is_stands_beside_it(folder: Folder) -> None:
    """Given rates: the example's own; predicted ones say by what runs they are."""
    _, out, _ = folder.demand(EXAMPLE)
    assert "Hard tiers count on 88% to 90% of the mean rates\n" in out
    body = copy.deepcopy(EXAMPLE) | {"serving": {"languageModel": "llama-3.1-8b"}, "shapes": []}
    body["offers"] = [{"name": "h", "gpuModel": "H200-SXM", "gpus": 8, "dollarsPerGpuHour": 3.5}]
    body["buckets"] = [
        {"name": "chat", "requestsPerSecond": 5.0, "inputTokens": 800, "outputTokens": 200}
    ]
    _, out, _ = folder.demand(body)
    assert "as 95% of measured runs of unknown models stayed below" in " ".join(out.split())
    counted = json.loads(folder.demand(body, "--json")[1])["countedRates"]
    assert counted["leastShare"] == pytest.approx(1 / counted["timeFactor"], rel=1e-6)


def test_a_capacity_plan_is_answered_within_its_budget(folder: Folder) -> None:
    status, out, _ = folder.answered(PLAN, EXAMPLE)
    body = json.loads(out)
    assert status == 0
    assert {row["offer"] for row in body["replicas"]} == {"h200"}
    answer = body["capacityPlan"]["status"]
    assert answer["powerWatts"] == pytest.approx(body["meanWatts"])
    assert answer["powerWatts"] <= 2000
    assert answer["costPerHour"] == pytest.approx(body["dollarsPerHour"]["total"])
    assert 0 < answer["savedFraction"] < 1
    assert {row["offer"] for row in answer["replicas"]} == {"h200"}
    assert sum(row["replicas"] for row in answer["replicas"]) == sum(
        row["replicas"] for row in body["replicas"]
    )
    assert CapacityPlan.from_json(body["capacityPlan"]).status.gap == pytest.approx(body["gap"])


def test_a_plan_whose_budget_is_too_small_names_it(folder: Folder) -> None:
    status, out, err = folder.answered(changed("spec.powerBudgetWatts", 500, PLAN), EXAMPLE)
    assert (status, out) == (2, "")
    assert "power budget of the plan" in err
    assert "chat" in err


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("spec.buckets.0.name", "poems", "buckets.poems"),
        ("spec.gpuModels", ["T4"], "gpuModels"),
        ("spec.graphs", [{"name": "a", "calls": {"poems": 2}}], "graphs.a.calls"),
        ("spec.powerBudgetWatts", -1, "powerBudgetWatts"),
        ("spec.watts", 5, "watts"),
    ],
)
def test_a_capacity_plan_that_the_table_cannot_answer_is_refused(
    folder: Folder, path: str, value: object, names: str
) -> None:
    status, out, err = folder.answered(changed(path, value, PLAN), EXAMPLE)
    assert (status, out) == (2, "")
    assert names in err


def test_a_capacity_plan_that_holds_everything_needs_no_table(folder: Folder) -> None:
    spec = {key: value for key, value in EXAMPLE.items() if key != "apiVersion"}
    status, out, _ = folder.run("-f", folder.write("plan.yaml", {**PLAN, "spec": spec}), "--json")
    alone = json.loads(out)
    assert status == 0
    assert alone["replicas"] == json.loads(folder.demand(EXAMPLE, "--json")[1])["replicas"]
    assert alone["capacityPlan"]["status"]["constraintCosts"]


def test_calls_of_a_graph_add_to_a_buckets_own_demand(folder: Folder) -> None:
    graph = {"name": "agent", "requestsPerSecond": 2, "calls": {"chat": 1.5}}
    status, out, _ = folder.answered(changed("spec.graphs", [graph], PLAN), EXAMPLE)
    told = json.loads(out)["capacityPlan"]["status"]["demand"]
    assert status == 0
    assert told == [{"bucket": "chat", "requestsPerSecond": 9.0}]


def test_keeping_old_boards_is_refused_where_nothing_has_a_least_cost(folder: Folder) -> None:
    status, _, err = folder.demand(changed("goal", "mostRequests"), "--keep-old", "1.05")
    assert status == 2
    assert "keepOwnedWithinCostRatio" in err


def test_keeping_old_boards_is_refused_where_none_is_owned(folder: Folder) -> None:
    status, _, err = folder.demand(changed("offers.1.isOwned", None), "--keep-old", "1.05")
    assert status == 2
    assert "isOwned: true" in err


def test_carbon_that_nobody_stated_is_not_told_as_none(folder: Folder) -> None:
    _, out, _ = folder.demand(EXAMPLE, "--no-explain")
    assert "(not stated for h200)" in " ".join(out.split())
    body = changed("prices.gramsPerKwh", None, changed("offers.1.embodied", None))
    _, out, _ = folder.demand(body, "--no-explain")
    assert "energy not stated, hardware not stated" in " ".join(out.split())


def test_keeping_old_boards_within_a_cost_is_chosen_and_told(folder: Folder) -> None:
    """At 0.6 dollars the A100s are dearer per request, but they are there anyway."""
    body = changed("offers.1.isOwned", True, changed("offers.1.dollarsPerGpuHour", 1.9))
    body = changed("domains", [{"name": "row-a"}], body)
    body = changed("offers.0.runningReplicas", {}, body)

    def others(*more: str) -> int:
        rows = json.loads(folder.demand(body, "--json", "--no-explain", *more)[1])["replicas"]
        return sum(row["replicas"] for row in rows if row["offer"] == "h200")

    assert others("--keep-old", "2") < others()
    status, out, _ = folder.demand(body, "--no-explain", "--keep-old", "2")
    assert status == 0
    assert "Keeping owned GPUs" in out
    assert "kWh" in out


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("apiVersion", "wattpack.io/gpu-mix/v2", "apiVersion"),
        ("bucket", [], "did you mean 'buckets'"),
        ("buckets", [], "buckets"),
        ("buckets.0.requestsPerSecond", -1, "buckets.0.requestsPerSecond"),
        ("buckets.0.requestsPerSecond", float("nan"), "buckets.0.requestsPerSecond"),
        ("buckets.0.requestPerSecond", 1, "did you mean 'requestsPerSecond'"),
        ("buckets.0.minimumReplicas", 0, "buckets.0.minimumReplicas"),
        (
            "buckets",
            [*EXAMPLE["buckets"], {"name": "chat", "requestsPerSecond": 1}],
            "buckets: expected names that are there once",
        ),
        ("buckets.1.kvBytesPerRequest", 0, "buckets.digest.kvBytesPerRequest"),
        ("offers.0.gpus", -3, "offers.0.gpus"),
        ("offers.0.gpus", 2.5, "offers.0.gpus"),
        ("offers.0.domain", "row-b", "offers.h200.domain"),
        ("offers.0.runningReplicas", {"A100@400": 1}, "offers.h200.runningReplicas"),
        ("offers.1.embodied.lifetimeYears", 0, "embodied.lifetimeYears"),
        ("domains.0.parent", "row-a", "circle"),
        ("domains.0.budgetWatts", "6 kW", "domains.0.budgetWatts"),
        ("shapes.0.p99Watts", 100, "shapes.H200@700.p99Watts"),
        ("shapes.0.linkBytesPerSecond", None, "shapes.H200@700.linkBytesPerSecond"),
        ("shapes.0.rates.poems", {}, "shapes.H200@700.rates.poems"),
        ("shapes.0.rates.chat.whole.requestsPerSecond", 0, "rates.chat.whole.requestsPerSecond"),
        ("shapes.0.rates.chat.whole.lowerRequestsPerSecond", 5, "lowerRequestsPerSecond"),
        ("shapes.0.rates.chat.whole.busyWatts", 0.7, "rates.chat.whole.busyWatts"),
        ("prices.dollarsPerKwh", 1e400, "prices.dollarsPerKwh"),
        ("limits", {"dollarsPerHour": -1}, "limits.dollarsPerHour"),
        ("goal", "cheap", "goal"),
    ],
)
def test_a_wrong_file_is_refused_by_its_field(
    folder: Folder, path: str, value: object, names: str
) -> None:
    status, out, err = folder.demand(changed(path, value))
    assert (status, out) == (2, "")
    assert names in err
    assert "mix.yaml" in err


def test_the_old_call_of_plan_still_works_and_says_how_to_write_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--schema", "plan"]) == 0
    old = capsys.readouterr()
    assert "wattpack plan pods" in old.err
    assert main(["plan", "pods", "--schema", "plan"]) == 0
    new = capsys.readouterr()
    assert (new.out, new.err) == (old.out, "")


def test_plan_lists_what_it_can_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    assert "gpus" in capsys.readouterr().out
    assert main(["plan", "poems"]) == 2
    assert "pods, gpus" in capsys.readouterr().err


def test_the_embodied_share_falls_with_use_and_with_life() -> None:
    """From FLOPs to Footprints: -67 %, about the same, and jointly -89 % in this model."""
    base = Embodied(150.0, 1.0, 0.2).grams_per_used_hour
    saved = [
        1 - Embodied(150.0, years, use).grams_per_used_hour / base
        for years, use in ((1.0, 0.6), (3.0, 0.2), (3.0, 0.6))
    ]
    assert saved == pytest.approx([0.667, 0.667, 0.889], abs=1e-3)


def test_a_signal_while_the_solver_works_ends_the_command(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver's library loses what a signal raises in its own thread."""
    in_its_thread = threading.Event()

    def solver(*_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        os.kill(os.getpid(), signal.SIGINT)
        in_its_thread.wait(10.0)

    monkeypatch.setattr("capacity.app.plan_gpus_command.answer_mix", solver)
    try:
        assert folder.demand(EXAMPLE)[0] == 130
    finally:
        in_its_thread.set()


#: Of C's standard output for the rest of the process.
BUFFER = ctypes.create_string_buffer(4096)


def test_lines_that_the_solver_prints_by_itself_are_not_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """HiGHS prints with C's printf, whose buffer is written when the process ends."""
    c_library = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(c_library, "stdout")
    # As in a process without PYTHONUNBUFFERED, whose buffer would be one byte.
    c_library.setvbuf(stdout, BUFFER, 0, len(BUFFER))

    def chatty(*arguments: Any) -> Answer:
        c_library.printf(b"HighsMipAnalysis::checkSubSolverCallTime\n")
        return answer_mix(*arguments)

    monkeypatch.setattr("capacity.app.plan_gpus_command.answer_mix", chatty)
    file = tmp_path / "mix.yaml"
    file.write_text(yaml.safe_dump(EXAMPLE), encoding="utf-8")
    assert main(["plan", "gpus", "--demand", str(file), "--json"]) == 0
    c_library.fflush(None)
    assert json.loads(capfd.readouterr().out)["replicas"]
