"""Rates that the serving model predicts, as the GPU mix asks for them."""

from __future__ import annotations

import dataclasses
import shutil
import tracemalloc
from pathlib import Path

import pytest
from pydantic import ValidationError

import capacity
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.startup_time import startup_time
from capacity.language_models import find_language_model
from capacity.mix.mix_conflict import plan_mix
from capacity.mix.mix_errors import InfeasibleMix
from capacity.mix.mix_problem import MixProblem, Phase
from capacity.mix.mix_question import MOST_PREDICTIONS, Knowledge, problem_of
from capacity.mix.predicted_rates import BoardRate, RateQuestion
from capacity.mix.served_rates import ServedRates, _digest
from capacity.profile_book import ProfileBook
from capacity.profile_library import gpu_profile_object, shipped_library
from capacity.serving.deployment import Deployment
from capacity.serving.request_mix import LatencyLimits, RequestBucket
from capacity.serving.server_simulation import ServerSimulation
from capacity.serving.service_level import measure
from tests.forecasting.predictor import FlatPredictor
from wattpack.api.capacity_question import MOST_TOKENS, CapacityPlanSpec
from wattpack.clock import ManualClock
from wattpack.errors import InputError

CHAT = RateQuestion(
    "llama-3.1-8b", "H200-SXM", 1, 700.0, (200.0, 700.0), Phase.WHOLE, "bf16", 800, 200, 1.0, 0.05
)
KNOWN = Knowledge(ProfileBook.shipped(shipped_library()), FlatPredictor())


def rate(**changes: object) -> BoardRate:
    found = ServedRates().rate(dataclasses.replace(CHAT, **changes))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_cap_costs_rate_and_saves_watts_and_prompts_lose_more_than_answers() -> None:
    full, capped = rate(), rate(cap_watts=350.0)
    assert capped.requests_per_second < full.requests_per_second
    assert capped.board_watts < 350.0 * 1.02
    prefill, decode = (
        rate(phase=phase, cap_watts=350.0).requests_per_second
        / rate(phase=phase).requests_per_second
        for phase in (Phase.PREFILL, Phase.DECODE)
    )
    assert prefill < decode < 1.0


def test_each_half_alone_is_faster_than_both_and_hard_tiers_count_on_less() -> None:
    whole = rate()
    assert whole.lower_requests_per_second < whole.requests_per_second
    for phase in (Phase.PREFILL, Phase.DECODE):
        assert rate(phase=phase).requests_per_second > whole.requests_per_second


def test_without_limits_the_lower_rate_is_that_of_a_slower_clock() -> None:
    free = rate(time_to_first_token_seconds=None, time_per_output_token_seconds=None)
    factor = ServedRates().margin().time_factor
    assert free.lower_requests_per_second == pytest.approx(free.requests_per_second / factor)


def test_the_closer_a_limit_is_the_less_of_the_mean_is_sure() -> None:
    """A share of the mean, as it was before, promised most where the limit was about to break."""
    shares = []
    for limit in (0.05, 0.012, 0.006):
        found = rate(time_per_output_token_seconds=limit)
        shares.append(found.lower_requests_per_second / found.requests_per_second)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.6 < 0.75 < shares[0]


def test_the_lower_rate_is_within_the_limits_of_a_server_that_is_slower() -> None:
    served = Deployment(find_language_model("llama-3.1-8b"), "H200-SXM", 1, "bf16", "bf16")
    factor = ServedRates().margin().time_factor
    sure = rate(time_per_output_token_seconds=0.012).lower_requests_per_second
    # Time of a server that is slower by the factor, in units of the quicker one's.
    report = measure(
        served, RequestBucket(800, 200), requests_per_second=sure * factor,
        limits=LatencyLimits(1.0 / factor, 0.012 / factor),
    )  # fmt: skip
    assert report.attainment >= 0.95


def test_what_is_sure_of_nothing_serves_no_hard_tier_and_the_conflict_says_so() -> None:
    limit = 1.1 * measure(
        Deployment(find_language_model("llama-3.1-8b"), "H200-SXM", 1, "bf16", "bf16"),
        RequestBucket(800, 200), concurrency=1,
    ).tpot_seconds[1]  # fmt: skip
    found = rate(time_per_output_token_seconds=limit)
    assert found.requests_per_second > 0 == found.lower_requests_per_second
    asked = {
        "name": "chat", "requestsPerSecond": 1.0, "inputTokens": 800, "outputTokens": 200,
        "timeToFirstTokenSeconds": 1.0, "timePerOutputTokenSeconds": limit,
    }  # fmt: skip
    serving = {"languageModel": "llama-3.1-8b", "capsWatts": [700.0]}
    known = Knowledge(ProfileBook.shipped(shipped_library()), ServedRates())

    def problem(**more: object) -> MixProblem:
        only = {"buckets": [{**asked, **more}], "serving": serving, "gpuModels": ["H200-SXM"]}
        return problem_of(spec(**only), knowledge=known)

    with pytest.raises(InfeasibleMix, match="lower rates"):
        plan_mix(problem(), ManualClock())
    assert plan_mix(problem(tier="bestEffort"), ManualClock()).replicas


def test_a_tighter_limit_serves_less() -> None:
    tight = rate(time_per_output_token_seconds=0.01)
    assert tight.requests_per_second < rate().requests_per_second


@pytest.mark.parametrize(
    "changes",
    [
        {"language_model": "llama-3.1-70b"},
        {"time_to_first_token_seconds": 1e-4},
        {"phase": Phase.DECODE, "output_tokens": 1},
        {"tensor_parallel": 7},
    ],
)
def test_what_cannot_be_served_there_has_no_rate(changes: dict[str, object]) -> None:
    question = dataclasses.replace(CHAT, **changes)  # type: ignore[arg-type]
    assert ServedRates().rate(question) is None


@pytest.mark.parametrize(
    ("model", "gpu", "field"),
    [("poet-9b", "H200-SXM", "languageModel"), ("llama-3.1-8b", "Voodoo 2", "gpuModel")],
)
def test_unknown_names_are_refused_by_their_field(model: str, gpu: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        ServedRates().require(model, [gpu])


@pytest.mark.parametrize(
    "changes",
    [
        {"input_tokens": 1, "output_tokens": MOST_TOKENS, "time_per_output_token_seconds": 0.01},
        {"input_tokens": 1, "output_tokens": MOST_TOKENS, "time_per_output_token_seconds": 1e-4},
        {"input_tokens": MOST_TOKENS - 1, "output_tokens": 1, "time_to_first_token_seconds": None},
        {"input_tokens": MOST_TOKENS, "output_tokens": 100, "phase": Phase.DECODE},
    ],
)
def test_the_longest_requests_are_answered_in_little_memory_and_few_iterations(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def counted(server: ServerSimulation) -> None:
        nonlocal steps
        steps += 1
        step(server)

    step = ServerSimulation.step
    monkeypatch.setattr(ServerSimulation, "step", counted)
    long = dataclasses.replace(CHAT, number_format="fp8")
    ServedRates().rate(long)
    steps = 0
    tracemalloc.start()
    try:
        ServedRates().rate(dataclasses.replace(long, **changes))  # type: ignore[arg-type]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert steps < 120_000
    assert peak_bytes < 150e6


def test_a_defect_of_the_serving_model_is_not_told_as_a_missing_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: Deployment) -> object:
        raise InputError("seconds", "a positive number", -1.0)

    monkeypatch.setattr(Deployment, "clock", broken)
    with pytest.raises(InputError, match="seconds"):
        ServedRates().rate(dataclasses.replace(CHAT, output_tokens=123))


def test_a_request_longer_than_the_cache_has_no_rate() -> None:
    assert ServedRates().rate(dataclasses.replace(CHAT, input_tokens=MOST_TOKENS)) is None


def test_requests_beyond_the_bound_are_refused_by_their_field() -> None:
    for name in ("inputTokens", "outputTokens"):
        bucket = {"name": "chat", "inputTokens": 1, "outputTokens": 1, name: MOST_TOKENS + 1}
        with pytest.raises(ValidationError, match=name):
            spec(buckets=[bucket])


def spec(**more: object) -> CapacityPlanSpec:
    bucket = {"name": "chat", "requestsPerSecond": 5.0, "inputTokens": 800, "outputTokens": 200}
    body: dict[str, object] = {
        "buckets": [bucket],
        "serving": {"languageModel": "llama-3.1-8b"},
        "offers": [
            {"name": "h", "gpuModel": "H200-SXM", "gpus": 8, "dollarsPerGpuHour": 3.5},
            {"name": "a", "gpuModel": "A100-SXM", "gpus": 8, "dollarsPerGpuHour": 1.2},
        ],
        **more,
    }
    return CapacityPlanSpec.model_validate(body)


def test_replicas_are_made_of_every_type_and_cap_and_watts_are_ac_with_the_server() -> None:
    problem = problem_of(spec(), knowledge=KNOWN)
    names = {shape.name for shape in problem.shapes}
    assert {"H200-SXM@700", "H200-SXM@350", "A100-SXM@400", "A100-SXM@200"} <= names
    (full,) = [shape for shape in problem.shapes if shape.name == "H200-SXM@700"]
    assert full.p99_watts == pytest.approx((700 * 1.05 + 125) / 0.94)
    assert full.rates["chat", Phase.WHOLE].busy_watts == pytest.approx((0.9 * 700 + 125) / 0.94)


def test_a_start_is_predicted_from_the_weights_of_each_board_and_may_be_given() -> None:
    rates = ServedRates()
    one, two = (rates.start_seconds("llama-3.1-8b", "bf16", gpus) for gpus in (1, 2))
    assert two < one < rates.start_seconds("llama-3.1-70b", "bf16", 1)
    assert rates.start_seconds("llama-3.1-8b", "fp8", 1) == pytest.approx(two, rel=0.05)
    shipped = startup_time(shipped_catalogue()["decoder-decode"]).mean_seconds
    assert one == pytest.approx(shipped, rel=0.02), "the entry is of this model"
    rated = {"requestsPerSecond": 9.0, "busyWatts": 700.0}
    given = {
        "name": "mine", "gpuModel": "H200-SXM", "capWatts": 650.0, "idleWatts": 100.0,
        "p99Watts": 900.0, "rates": {"chat": {"whole": rated}},
    }  # fmt: skip
    for more, seconds in (({}, one), ({"startSeconds": 7.0}, 7.0)):
        asked = spec(shapes=[given | more])
        known = Knowledge(ProfileBook.shipped(shipped_library()), StartsOnly())
        starts = {s.name: s.start_seconds for s in problem_of(asked, knowledge=known).shapes}
        assert (starts["mine"], starts["A100-SXM@400"]) == (seconds, one)


class StartsOnly(FlatPredictor):
    """Flat rates, and starts as they are."""

    def start_seconds(self, language_model: str, number_format: str, gpus: int) -> float:
        return ServedRates().start_seconds(language_model, "bf16", gpus)


def test_a_given_table_wins_for_its_type_and_the_others_are_predicted() -> None:
    rated = {"requestsPerSecond": 9.0, "busyWatts": 700.0}
    given = {
        "name": "mine", "gpuModel": "H200-SXM", "capWatts": 650.0, "idleWatts": 100.0,
        "p99Watts": 900.0, "rates": {"chat": {"whole": rated}},
    }  # fmt: skip
    problem = problem_of(spec(shapes=[given]), knowledge=KNOWN)
    of_h200 = [shape for shape in problem.shapes if shape.gpu_model == "H200-SXM"]
    assert [shape.name for shape in of_h200] == ["mine"]
    assert of_h200[0].rates["chat", Phase.WHOLE].requests_per_second == 9.0
    assert any(shape.gpu_model == "A100-SXM" and shape.rates for shape in problem.shapes)


def test_halves_are_asked_for_only_where_the_bucket_may_be_split() -> None:
    whole = problem_of(spec(), knowledge=KNOWN)
    assert {phase for shape in whole.shapes for _, phase in shape.rates} == {Phase.WHOLE}
    body = {"name": "chat", "requestsPerSecond": 5.0, "inputTokens": 800, "outputTokens": 200}
    split = problem_of(spec(buckets=[{**body, "splitsPhases": True}]), knowledge=KNOWN)
    assert {phase for shape in split.shapes for _, phase in shape.rates} == set(Phase)
    assert split.buckets[0].kv_bytes_per_request == pytest.approx(8e7)


def test_a_question_of_too_many_predictions_is_refused() -> None:
    many = [
        {"name": f"b{i}", "requestsPerSecond": 1.0, "inputTokens": 9, "outputTokens": 9}
        for i in range(64)
    ]
    serving = {"languageModel": "llama-3.1-8b", "tensorParallel": [1, 2, 4, 8]}
    with pytest.raises(InputError, match=str(MOST_PREDICTIONS)):
        problem_of(spec(buckets=many, serving=serving), knowledge=KNOWN)


@pytest.mark.parametrize(
    ("caps", "refused"),
    [([9000.0], [9000.0]), ([5.0, 99.0, 700.0], [5.0, 99.0]), ([350.0, 701.0], [701.0])],
)
def test_caps_that_no_board_on_offer_takes_are_refused_by_their_field(
    caps: list[float], refused: list[float]
) -> None:
    serving = {"languageModel": "llama-3.1-8b", "capsWatts": caps}
    with pytest.raises(InputError, match="H200-SXM takes: 200 to 700 W") as caught:
        problem_of(spec(serving=serving), knowledge=KNOWN)
    assert (caught.value.field, caught.value.got) == ("serving.capsWatts", repr(refused))


def test_types_of_a_mixed_fleet_take_those_caps_that_are_theirs_and_at_least_one() -> None:
    serving = {"languageModel": "llama-3.1-8b", "capsWatts": [100.0, 400.0, 700.0]}
    problem = problem_of(spec(serving=serving), knowledge=KNOWN)
    assert {shape.name for shape in problem.shapes} == {
        "H200-SXM@700", "H200-SXM@400", "A100-SXM@400", "A100-SXM@100",
    }  # fmt: skip
    serving["capsWatts"] = [700.0]
    with pytest.raises(InputError, match=r"A100-SXM takes: 100 to 400 W, got \[700.0\]"):
        problem_of(spec(serving=serving), knowledge=KNOWN)


def test_caps_of_an_own_profile_that_is_wider_than_the_shipped_one_have_rates() -> None:
    """The serving model held each cap against the shipped limits, and no plan had an answer."""
    own = gpu_profile_object(shipped_library().find("H200-SXM"), "")
    own["spec"] |= {"minLimitWatts": 150.0, "maxLimitWatts": 750.0}
    book = ProfileBook.shipped(shipped_library()).with_objects([own])
    serving = {"languageModel": "llama-3.1-8b", "capsWatts": [160.0, 720.0]}
    asked = spec(serving=serving, gpuModels=["H200-SXM"])
    low, high = problem_of(asked, knowledge=Knowledge(book, ServedRates())).shapes[::-1]
    assert (low.cap_watts, high.cap_watts) == (160.0, 720.0)
    rates = [shape.rates["chat", Phase.WHOLE].requests_per_second for shape in (low, high)]
    assert 0 < rates[0] < rates[1]


@pytest.mark.parametrize(
    "name",
    [
        "data/language_models.yaml",
        "data/serving_constants.yaml",
        "data/serving_errors.yaml",
        "data/roofs.csv",
        "data/profiles/h200.jsonl.gz",
        "data/profiles/h100.jsonl.gz",
        "reference/kernels/gemm_A100-SXM.csv.gz",
        "reference/kernels/collective_L40S.csv.gz",
    ],
)
def test_new_data_behind_the_predictions_change_their_digest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("data", "reference/kernels"):
        shutil.copytree(Path(capacity.__file__).parent / part, tmp_path / part)
    monkeypatch.setattr("capacity.mix.served_rates.files", lambda _: tmp_path)
    digests = []
    for tail in (b"", b"more"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + tail)
        _digest.cache_clear()
        digests.append(ServedRates().digest())
    _digest.cache_clear()
    assert digests[0] != digests[1]
