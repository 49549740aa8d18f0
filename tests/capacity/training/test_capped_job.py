"""What a job does about caps: nothing for a pause, few layers where that is enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from capacity.training.capped_job import CappedJob, capped_job, priced_plan
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import SearchChoices, TrainingCluster, TrainingProblem
from capacity.training.replan import DWELL_SECONDS, RESTART_SECONDS, ReplanRule, reshard_seconds
from capacity.training.training_job import ParallelLayout
from tests.capacity.training.test_plan_parallel import LINKS
from tests.capacity.training.training_builders import cluster, gpu, job, model
from tests.console.views import make_view
from wattpack.cli import main
from wattpack.clock import ManualClock
from wattpack.errors import InputError
from wattpack.http_access import HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, health

STAGES = SearchChoices(
    recompute=("none", "full"), zero_stages=(0,), offload=("none",), chunks=(1,),
    pipelines=(4,), largest_micro_batch=1, fewer_gpus=False,
)  # fmt: skip


def stages() -> TrainingProblem:
    """Four hosts of one GPU, a stage each."""
    return TrainingProblem(
        job(model=model(16)), TrainingCluster(cluster(4, 1), (gpu(),)), choices=STAGES
    )


def capped(speed: float, lasting_seconds: float | None = None) -> CappedJob:
    problem = stages()
    running = plan_parallel(problem).best
    speeds = np.ones(4)
    speeds[int(running.ranks[1, 0, 0, 0])] = speed
    return capped_job(problem, running, speeds, lasting_seconds)


def test_layers_leave_the_capped_stage() -> None:
    verdict = capped(0.6)
    move = verdict.move
    assert verdict.running.step_seconds < move.step_seconds < verdict.staying.step_seconds
    slow = int(verdict.running.ranks[1, 0, 0, 0])
    stage = int(np.flatnonzero((move.plan.ranks == slow).any(axis=(1, 2, 3)))[0])
    assert move.plan.layers[stage] < verdict.running.layers[1]
    assert move.price_seconds >= RESTART_SECONDS
    assert move.price_seconds == pytest.approx(
        reshard_seconds(job(model=model(16)), verdict.staying, move.plan, cluster(4, 1))
    )
    assert verdict.moves_after_seconds == DWELL_SECONDS


def test_the_move_is_no_worse_than_the_fastest_plan_once_it_is_paid_for() -> None:
    verdict = capped(0.6)
    problem = stages()
    speeds = np.ones(4)
    speeds[int(verdict.running.ranks[1, 0, 0, 0])] = 0.6
    fastest = plan_parallel(replace(problem, cluster=replace(problem.cluster, speed=speeds))).best
    price = reshard_seconds(problem.job, verdict.staying, fastest, problem.cluster.links)
    gain = (1 - fastest.step_seconds / verdict.staying.step_seconds) * 1800 - 2 * price
    assert verdict.move.gain_seconds(1800) >= gain - 1e-9


def test_caps_that_end_soon_move_nothing() -> None:
    assert capped(0.6, 150).moves_after_seconds == inf
    assert isfinite(capped(0.6, 7200).moves_after_seconds)


def test_without_a_loss_the_job_stays() -> None:
    verdict = capped(1.0)
    assert verdict.move.plan is verdict.staying
    assert verdict.moves_after_seconds == inf


@pytest.mark.parametrize("lasting", [None, 200.0, 1500.0, 7200.0])
@pytest.mark.parametrize("speed", [0.95, 0.8, 0.5])
def test_the_verdict_is_the_rule_played_second_by_second(
    speed: float, lasting: float | None
) -> None:
    """Told beforehand and decided on the way are one rule."""
    verdict = capped(speed, lasting)
    move, rule = verdict.move, ReplanRule()
    moved = inf
    for second in range(1, 14400):
        rule = rule.after(1.0, "capped", verdict.staying.step_seconds, move.step_seconds)
        left = None if lasting is None else lasting - second
        if rule.moves(move.price_seconds, left):
            moved = second
            break
    told = verdict.moves_after_seconds
    assert moved == told == inf or abs(moved - told) <= 2 or told > 14398


def test_a_known_end_soon_outweighs_what_is_lost_already() -> None:
    rule = ReplanRule().after(7200.0, "slow", 1.0, 0.8)
    assert rule.moves(40.0)
    assert not rule.moves(40.0, remaining_seconds=10.0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layers": [4, 4, 4]}, "layersOfStage"),
        ({"layers": [16, 0, 0, 0]}, "layersOfStage"),
        ({"ranks": np.zeros((4, 1, 1, 1), dtype=np.int64)}, "gpuOfRank"),
        ({"ranks": np.arange(4).reshape(2, 2, 1, 1)}, "gpuOfRank"),
        ({"limit_watts": 650.0}, "limitWatts"),
        ({"layout": ParallelLayout(data=4, tensor=3)}, "best"),
    ],
)
def test_a_plan_of_something_else_is_refused_by_its_field(
    change: dict[str, Any], field: str
) -> None:
    given: dict[str, Any] = {
        "layout": ParallelLayout(pipeline=4),
        "ranks": np.arange(4).reshape(4, 1, 1, 1),
        "layers": [4, 4, 4, 4],
        "limit_watts": 700.0,
    }
    with pytest.raises(InputError, match=field):
        priced_plan(stages(), **(given | change))


class Asked:
    """The verb about a job of four stages on four hosts."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        links = dict(LINKS, hosts=[{"name": "a", "count": 4, "gpus": 1, "nic": "infiniband"}])
        (folder / "links.yaml").write_text(yaml.safe_dump(links), encoding="utf-8")

    def run(self, *more: str) -> tuple[int, str, str]:
        status = main([
            "plan", "parallel", "--model", "llama-3.1-8b", "--gpus", "H100:4",
            "--links", str(self.folder / "links.yaml"), "--global-batch", "32",
            "--no-offload", "--all-gpus", *more,
        ])  # fmt: skip
        output = self._capsys.readouterr()
        return status, output.out, output.err


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def test_the_answer_of_one_question_is_the_running_plan_of_the_next(asked: Asked) -> None:
    status, out, _ = asked.run("--json")
    assert status == 0
    file = asked.folder / "plan.json"
    file.write_text(out, encoding="utf-8")
    status, out, _ = asked.run("--running", str(file), "--capped", "a-1=250", "--json")
    verdict, plan = json.loads(out), json.loads(file.read_text(encoding="utf-8"))["best"]
    assert status == 0
    assert verdict["apiVersion"] == "wattpack.io/training-move/v1"
    assert verdict["uncappedStepSeconds"] == pytest.approx(plan["stepSeconds"])
    assert verdict["running"]["gpuOfRank"] == plan["gpuOfRank"]
    assert verdict["movedStepSeconds"] <= verdict["cappedStepSeconds"]
    file.write_text(out, encoding="utf-8")
    assert asked.run("--running", str(file), "--capped", "a-1=250")[0] == 0
    verdict["running"]["limitWatts"] = 444
    file.write_text(json.dumps({"best": verdict["running"]}), encoding="utf-8")
    status, _, err = asked.run("--running", str(file), "--capped", "a-1=250")
    assert status == 2
    assert "plan.json" in err
    assert "--limits" in err


def test_people_are_told_what_to_do_and_why(asked: Asked) -> None:
    status, out, _ = asked.run("--capped", "a-1=250", "--cap-seconds", "60")
    assert status == 0
    for words in ("running: ", "staying: ", "verdict: stay"):
        assert words in out


class Controller:
    """A controller that tells the limits of four nodes of one GPU."""

    def __init__(self) -> None:
        self.limits: dict[str, float | None] = {f"a-{n}": 700.0 for n in range(4)}
        access = HttpAccess.insecure((), ManualClock())
        self.http = HttpPort("127.0.0.1", 0, {"/v1/live": health(self._answer)}, access)
        self.http.start()
        self.url = f"http://127.0.0.1:{self.http.port}/v1/live"

    def _answer(self) -> HttpAnswer:
        view = make_view(gpus=len(self.limits), racks=1, capped=0)
        gpus = view.gpus.model_copy(
            update={"node": list(self.limits), "limit_watts": list(self.limits.values())}
        )
        body = view.model_copy(update={"gpus": gpus}).model_dump_json().encode()
        return HttpAnswer(200, "application/json", body)


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.http.stop()


def test_the_caps_come_from_the_controller(asked: Asked, controller: Controller) -> None:
    plan = asked.folder / "plan.json"
    plan.write_text(asked.run("--json")[1], encoding="utf-8")
    running = ("--running", str(plan), "--live", controller.url)
    assert "caps: none" in asked.run(*running)[1]
    controller.limits["a-1"] = 250.0
    told = json.loads(asked.run(*running, "--json")[1])
    given = json.loads(asked.run("--running", str(plan), "--capped", "a-1=250", "--json")[1])
    assert told == given
    assert told["capWatts"] == {"a-1": 250.0}
    controller.limits["a-2"] = None
    assert "a limit of every GPU of node a-2" in asked.run(*running)[2]
    del controller.limits["a-2"]
    assert "a limit of every GPU of node a-2" in asked.run(*running)[2]


def test_a_controller_that_tells_nothing_is_named_with_the_cause(asked: Asked) -> None:
    status, out, err = asked.run("--live", "http://127.0.0.1:9/v1/live")
    assert status != 0
    assert out == ""
    assert "no live view from http://127.0.0.1:9" in err
    assert "--live instead" in asked.run("--live", "http://x/", "--capped", "a-1=250")[2]


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--capped", "a-1"], "HOST=WATTS"),
        (["--capped", "a-1=nan"], "HOST=WATTS"),
        (["--capped", "a-1=5_0_0"], "HOST=WATTS"),
        (["--capped", "b=500"], "one of a-0"),
        (["--capped", "a-1=500", "a-1=400"], "each host once"),
        (["--capped", "a-1=50"], "limit_watts"),
        (["--cap-seconds", "60"], "--capped"),
    ],
)
def test_wrong_caps_are_refused_by_name(asked: Asked, flags: list[str], field: str) -> None:
    status, out, err = asked.run(*flags)
    assert (status, out) == (2, "")
    assert field in err


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "best"),
        ({"best": {"data": 1}}, "tensor"),
        ({"best": {"gpuOfRank": "x"}}, "gpuOfRank"),
    ],
)
def test_a_running_plan_of_another_form_is_refused_by_its_field(
    asked: Asked, document: object, field: str
) -> None:
    file = asked.folder / "plan.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    status, _, err = asked.run("--running", str(file), "--capped", "a-1=500")
    assert status == 2
    assert field in err
