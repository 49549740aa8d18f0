"""A deployment answers for memory, steps, latency, goodput and watts, on the shipped H200 rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import constants_from, find_engine
from capacity.serving.open_runs import OpenRun, arrivals
from capacity.serving.phase_pools import Handover, PhasePools, Pool, QueueEstimate
from capacity.serving.request_mix import ANY_SECONDS, LatencyLimits, RequestBucket, RequestMix
from capacity.serving.run_energy import board_watts
from capacity.serving.served_requests import OpenLoop, ServerRun, Size, Work
from capacity.serving.server_simulation import simulate
from capacity.serving.service_level import max_rate, measure, report_of
from tests.capacity.serving_builders import ToyClock, in_order, rules
from wattpack.api.capacity_question import MOST_TOKENS
from wattpack.errors import InputError

LLAMA = find_language_model("llama-3.1-8b")
BUCKET = RequestBucket(1024, 128, spread=0.2)
LIMITS = LatencyLimits(1.0, 0.04)


@pytest.fixture(scope="module")
def h200() -> Deployment:
    return Deployment(LLAMA, "H200-SXM")


def test_users_are_the_memory_left_over_one_users_cache(h200: Deployment) -> None:
    for context in (1024, 50_000):
        each = LLAMA.kv_bytes(context, "fp8")
        assert h200.users(context) == int(h200.cache_bytes_per_gpu // each)
    halves = replace(h200, cache_format="bf16")
    assert halves.users(50_000) == pytest.approx(h200.users(50_000) / 2, abs=1)


def test_steps_add_up_and_follow_the_limit(h200: Deployment) -> None:
    alone, busy = h200.step(0, 1, 1000), h200.step(0, 128, 1000)
    assert alone.seconds < busy.seconds < 8 * alone.seconds
    both = h200.step(2048, 64, 1000)
    assert both.seconds > h200.step(2048, 0, 0).seconds
    capped = replace(h200, limit_watts=400.0).step(4096, 0, 0)
    free = h200.step(4096, 0, 0)
    assert capped.mean_watts <= 400 < free.mean_watts
    assert capped.seconds > free.seconds
    assert capped.joules < free.joules


def test_tensor_parallel_groups_are_faster_and_dearer(h200: Deployment) -> None:
    pair = replace(h200, tensor_parallel=2)
    assert pair.step(4096, 0, 0).seconds < h200.step(4096, 0, 0).seconds
    assert pair.cache_tokens > 2 * h200.cache_tokens


def test_more_clients_mean_more_tokens_and_longer_waits(h200: Deployment) -> None:
    few, many = measure(h200, BUCKET, concurrency=4), measure(h200, BUCKET, concurrency=64)
    assert many.tokens_per_second > 4 * few.tokens_per_second
    assert many.tpot_seconds[0] > few.tpot_seconds[0]
    assert many.ttft_seconds[0] > few.ttft_seconds[0]
    assert many.joules_per_token < few.joules_per_token
    assert many.p99_watts <= 700


def test_the_largest_rate_keeps_the_limits_and_a_fifth_more_does_not(h200: Deployment) -> None:
    best = max_rate(h200, BUCKET, LIMITS)
    assert best is not None
    assert best.report.attainment >= LIMITS.attainment
    rate = 1.2 * best.requests_per_second
    assert measure(h200, BUCKET, requests_per_second=rate, limits=LIMITS).attainment < 0.95
    assert best.mean_watts <= best.p99_watts <= 700


@pytest.mark.parametrize(
    ("size", "limits"),
    [
        (RequestBucket(1024, 256, spread=0.1), LatencyLimits(1.0, 0.03)),
        (RequestBucket(1024, 256, spread=0.2), LatencyLimits(0.5, 0.012)),
        (RequestBucket(4096, 1), LatencyLimits(1.0, ANY_SECONDS)),
    ],
)
def test_a_rate_is_one_that_lasts_with_other_arrivals(
    h200: Deployment, size: RequestBucket, limits: LatencyLimits
) -> None:
    """Ten times the 400 requests of a look: near saturation a server fills for thousands."""
    best = max_rate(h200, size, limits)
    assert best is not None
    gaps = np.random.default_rng(7).exponential(1.0, 6_000)
    times = np.cumsum(gaps) / (gaps.mean() * best.requests_per_second)
    run = h200.serve(OpenLoop(times.tolist(), RequestMix.of(size).sizes(6_000)))
    assert report_of(h200, run, size, limits, 1_000).attainment > 0.92


def test_figures_of_the_largest_rate_are_of_that_rate(h200: Deployment) -> None:
    best = max_rate(h200, RequestBucket(256, 512, spread=0.2), LatencyLimits(1.0, 0.015))
    assert best is not None
    report = best.report
    assert report.requests_per_second == best.requests_per_second
    assert report.joules_per_token * report.tokens_per_second == pytest.approx(best.mean_watts)
    share = report.buckets[0].attainment
    assert report.buckets[0].goodput == pytest.approx(share * best.requests_per_second)


def test_as_many_requests_come_as_are_told() -> None:
    """The seed's own gaps are 4 % short: rates were 4 % higher than printed."""
    assert arrivals(400, 20.0)[-1] == pytest.approx(20.0)


def test_requests_that_take_longer_and_longer_do_not_last(h200: Deployment) -> None:
    """No limit on the wait: only its growth tells that more come than are served."""
    patient = LatencyLimits(ANY_SECONDS, ANY_SECONDS)
    best = max_rate(h200, BUCKET, patient)
    assert best is not None
    mix = RequestMix.of(BUCKET)
    assert OpenRun.of(h200, mix, best.requests_per_second, patient).lasts()
    assert not OpenRun.of(h200, mix, 1.3 * best.requests_per_second, patient).lasts()


def test_lower_limits_serve_less_for_fewer_joules(h200: Deployment) -> None:
    free = max_rate(h200, BUCKET, LIMITS)
    held = max_rate(replace(h200, limit_watts=400.0), BUCKET, LIMITS)
    assert free is not None
    assert held is not None
    assert held.requests_per_second < free.requests_per_second
    assert held.report.joules_per_token < free.report.joules_per_token
    assert held.p99_watts <= 400


def test_limits_that_no_step_keeps_have_no_rate(h200: Deployment) -> None:
    assert max_rate(h200, BUCKET, LatencyLimits(1.0, 1e-4)) is None


@pytest.mark.parametrize(
    ("limit_watts", "prompt", "output", "rate"),
    [(350.0, 1000, 500, 2.0), (350.0, 1000, 2000, 0.5), (700.0, 500, 8000, 0.4)],
)
def test_newcomers_wait_no_longer_for_long_strides(
    h200: Deployment, limit_watts: float, prompt: int, output: int, rate: float
) -> None:
    times = np.cumsum(np.random.default_rng(8).exponential(1 / rate, 150)).tolist()
    work = OpenLoop(times, (Size(prompt, output),) * 150)
    one = replace(h200, number_format="bf16", cache_format="bf16", limit_watts=limit_watts)
    waits = []
    for longest in (2**31, 16):
        server = one.simulation()
        server.longest_stride = longest
        waits.append([request.ttft for request in server.serve(work).requests])
    free, short = (np.quantile(one, [0.5, 0.95]) for one in waits)
    assert free == pytest.approx(short, rel=0.05)


def test_a_newcomer_joins_in_the_middle_of_a_decode_of_minutes(h200: Deployment) -> None:
    alone = h200.serve(OpenLoop((0.0,), (Size(100, 100_000),))).seconds
    run = h200.serve(OpenLoop((0.0, alone / 2), (Size(100, 100_000), Size(100, 10))))
    assert alone > 300
    assert in_order(run)[1].ttft < 0.05


@pytest.mark.parametrize(
    ("limit_watts", "output", "ttft"), [(350.0, 500, 0.07), (700.0, 2000, 0.06)]
)
def test_a_higher_rate_keeps_no_more_requests_within_limits(
    h200: Deployment, limit_watts: float, output: int, ttft: float
) -> None:
    one = replace(h200, number_format="bf16", cache_format="bf16", limit_watts=limit_watts)
    limits = LatencyLimits(ttft, 0.012)
    kept = [
        measure(
            one, RequestBucket(1000, output), requests_per_second=rate, limits=limits
        ).attainment
        for rate in (0.1, 0.3, 1.0, 2.0, 3.0, 5.0)
    ]
    assert kept[0] == pytest.approx(1.0, abs=1e-3)
    assert kept[-1] < 0.95
    assert all(after <= before + 0.01 for before, after in pairwise(kept)), kept


def test_draws_of_seconds_are_those_of_every_second(h200: Deployment) -> None:
    run = h200.serve(OpenLoop((0.0, 3.3, 40.0), (Size(9000, 500), Size(2000, 900), Size(50, 2000))))
    watts, spans = board_watts(h200, run)
    count = int(run.seconds)
    assert spans.sum() == count
    assert len(watts) < count
    log, window = run.log, run.seconds / count
    each = np.zeros(count)
    for end, n, one, free, joules in zip(
        log.ends, log.counts, log.seconds, log.free_seconds, log.joules, strict=True
    ):
        starts = np.arange(count) * window
        shared = np.minimum(starts + window, end) - np.maximum(starts, end - n * one)
        each += np.maximum(0.0, shared) * (joules / free - h200.prices.gap_watts) / window
    each = np.minimum(each + h200.prices.gap_watts, h200.regulator.held_share * h200.limit)
    assert np.repeat(watts, spans.astype(int)) == pytest.approx(each)
    report = report_of(h200, run, BUCKET, None)
    assert report.p99_watts == pytest.approx(np.quantile(each, 0.99))
    assert report.mean_watts == pytest.approx(each.mean())


def test_a_limit_that_no_request_keeps_alone_tries_no_rate(
    h200: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Work] = []
    serve = Deployment.serve
    monkeypatch.setattr(
        Deployment, "serve", lambda one, work: (loads.append(work), serve(one, work))[1]
    )
    assert max_rate(h200, RequestBucket(1000, 500_000), LatencyLimits(1.0, 1e-3)) is None
    assert sum(len(load.sizes) for load in loads) == 2


def test_reused_prefixes_serve_more(h200: Deployment) -> None:
    reused = max_rate(h200, replace(BUCKET, reused=0.8), LIMITS)
    plain = max_rate(h200, BUCKET, LIMITS)
    assert reused is not None
    assert plain is not None
    assert reused.requests_per_second > 1.3 * plain.requests_per_second


def test_the_same_question_has_the_same_answer(h200: Deployment) -> None:
    assert max_rate(h200, BUCKET, LIMITS) == max_rate(h200, BUCKET, LIMITS)


def test_split_phases_keep_decodes_from_stalling(h200: Deployment) -> None:
    sizes = RequestBucket(4096, 64).sizes(200)
    times = np.cumsum(np.random.default_rng(1).exponential(0.12, 200)).tolist()
    token = LLAMA.kv_bytes_per_token("fp8")
    pool = Pool(h200, 1, h200.queue_estimate)
    fast = PhasePools(pool, pool, Handover(25e9, token)).serve(times, sizes).requests
    slow = PhasePools(pool, pool, Handover(0.1e9, token)).serve(times, sizes).requests
    mixed = Pool(h200, 2, h200.queue_estimate).serve(times, sizes).requests
    assert np.quantile([o.tpot for o in fast], 0.95) < np.quantile([o.tpot for o in mixed], 0.95)
    assert np.mean([one.tpot for one in slow]) > 2 * np.mean([one.tpot for one in fast])
    assert all(one.sent < one.first < one.last for one in fast)
    assert [one.sent for one in mixed] == times


def test_requests_join_the_shortest_queue() -> None:
    pool = Pool(ToyServer(), 2, QueueEstimate(lambda tokens: tokens / 100, 1.0))
    sizes = [Size(1000, 2), Size(100, 2), Size(100, 2), Size(100, 2)]
    assert pool.by_prompt_work([0.0, 0.1, 0.2, 0.3], sizes) == [[0], [1, 2, 3]]
    # requests in flight for 2 s each: the third finds the first gone
    assert pool.by_flight([0.0, 1.0, 2.5, 3.1], sizes) == [[0, 2], [1, 3]]


def test_one_cache_crosses_the_link_at_a_time() -> None:
    pool = Pool(ToyServer(), 2, QueueEstimate(lambda tokens: tokens / 100, 1.0))
    whole = PhasePools(pool, Pool(ToyServer(), 1, pool.estimate), Handover(100.0, 10.0))
    first, second, third = whole.serve([0.0, 0.0, 0.0], [Size(100, 2)] * 3).requests
    assert [first.first, second.first, third.first] == [2.0, 2.0, 4.0]
    # 100 tokens of 10 bytes over 100 bytes a second: 10 s each, first and third on one link
    assert first.last == pytest.approx(13.0, abs=0.05)
    assert third.last >= 23.0


class ToyServer:
    def serve(self, work: Work) -> ServerRun:
        return simulate(work, ToyClock(), rules(token_budget=100, chunked=False), 10**6)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gpu": "Z900"}, "gpu"),
        ({"tensor_parallel": 3}, "tensor_parallel"),
        ({"limit_watts": 0.0}, "limit_watts"),
        ({"number_format": "fp32"}, "number_format"),
        ({"model": find_language_model("llama-3.1-405b")}, "tensor_parallel"),
    ],
)
def test_deployments_that_cannot_be_are_refused_by_field(
    h200: Deployment, change: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        replace(h200, **change)  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda d: d.step(0, 0, 10), "decode_batch"),
        (lambda d: d.step(-1, 0, 10), "prefill_tokens"),
        (lambda d: measure(d, BUCKET), "concurrency"),
        (lambda d: measure(d, BUCKET, concurrency=0), "concurrency"),
        (lambda d: measure(d, BUCKET, requests_per_second=-1.0), "requests_per_second"),
        (
            lambda d: measure(d, RequestBucket(MOST_TOKENS, MOST_TOKENS), concurrency=1),
            "prompt_tokens",
        ),
        (lambda d: RequestBucket(0, 1), "prompt_tokens"),
        (lambda d: RequestBucket(MOST_TOKENS + 1, 1), "prompt_tokens"),
        (lambda d: RequestBucket(1, MOST_TOKENS + 1), "output_tokens"),
        (lambda d: LatencyLimits(0.0, 1.0), "ttft_seconds"),
        (lambda d: find_engine("llama.cpp"), "engine"),
        (lambda d: constants_from({"constants": {"speed": 1}}), "constants.decode_attention"),
        (lambda d: constants_from([]), "constants"),
        (lambda d: Handover(0.0, 1.0), "handover.bytes_per_second"),
    ],
)
def test_impossible_questions_are_refused_by_field(h200: Deployment, call, field: str) -> None:  # noqa: ANN001
    with pytest.raises(InputError) as refused:
        call(h200)
    assert refused.value.field == field
