"""Several sizes in one stream: who is sent, who keeps the limits, and whose the joules are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.request_mix import LatencyLimits, MixPart, RequestBucket, RequestMix
from capacity.serving.run_energy import drawn_joules, request_joules
from capacity.serving.served_requests import OpenLoop, Request, Size
from capacity.serving.service_level import max_rate, measure
from wattpack.errors import InputError

SHORT, LONG = RequestBucket(256, 64), RequestBucket(8192, 64)
LIMITS = LatencyLimits(1.0, 0.03)


@pytest.fixture(scope="module")
def h200() -> Deployment:
    return Deployment(find_language_model("llama-3.1-8b"), "H200-SXM")


def mix(*weights: float) -> RequestMix:
    return RequestMix(tuple(map(MixPart, (SHORT, LONG), weights)))


def test_a_mix_sends_its_sizes_in_their_shares() -> None:
    sent = Counter(one.prompt for one in mix(3, 1).sizes(4000))
    assert set(sent) == {256, 8192}
    assert sent[256] / 4000 == pytest.approx(0.75, abs=0.03)
    assert [mix(3, 1).sizes(50)[k].prompt == 8192 for k in range(50)] == list(mix(3, 1).which(50))


def test_a_mix_of_one_is_the_bucket() -> None:
    bucket = RequestBucket(1000, 100, spread=0.3)
    assert RequestMix.of(bucket).sizes(30) == bucket.sizes(30)


def test_many_good_requests_of_one_size_do_not_excuse_another() -> None:
    whole = mix(9, 1)
    slow = whole.which(200) == 1
    requests = [
        Request(0.0, 1, 2, first=2.0 if late else 0.1, last=2.01 if late else 0.11)
        for late in slow
    ]  # fmt: skip
    assert slow.mean() < 0.2
    assert not whole.keep(requests, LatencyLimits(1.0, 0.03, attainment=0.8))
    own = LatencyLimits(5.0, 0.03)
    patient = RequestMix((MixPart(SHORT, 9), MixPart(LONG, 1, own)))
    assert patient.keep(requests, LatencyLimits(1.0, 0.03))


def test_every_joule_belongs_to_a_request(h200: Deployment) -> None:
    sizes = (Size(4000, 300), Size(200, 300), Size(4000, 300, cached=3900), Size(4000, 1))
    run = h200.serve(OpenLoop((0.0, 0.1, 0.2, 9.0), sizes))
    joules = dict(zip((one.number for one in run.requests), request_joules(h200, run), strict=True))
    assert sum(joules.values()) == pytest.approx(drawn_joules(h200, run))
    # a cached prompt costs what a short one does, one to be computed costs more
    assert joules[0] > 1.2 * joules[1]
    assert joules[2] == pytest.approx(joules[1], rel=0.15)
    assert 0 < joules[3] < joules[0]


def test_sizes_of_a_stream_add_up_to_it(h200: Deployment) -> None:
    report = measure(h200, mix(3, 1), requests_per_second=3.0, limits=LIMITS)
    short, long = report.buckets
    rates = [bucket.requests_per_second for bucket in report.buckets]
    assert sum(rates) == pytest.approx(report.requests_per_second)
    assert report.goodput == pytest.approx(short.goodput + long.goodput)
    tokens = [bucket.bucket.output_tokens for bucket in report.buckets]
    joules = np.dot(rates, np.multiply(tokens, [b.joules_per_token for b in report.buckets]))
    assert joules == pytest.approx(report.mean_watts, rel=0.01)
    assert long.joules_per_token > 2 * short.joules_per_token
    assert long.ttft_seconds[0] > short.ttft_seconds[0]


def test_the_rate_of_a_mix_lies_between_those_of_its_sizes(h200: Deployment) -> None:
    short, both, long = (max_rate(h200, of, LIMITS) for of in (SHORT, mix(3, 1), LONG))
    assert short
    assert both
    assert long
    assert long.requests_per_second < both.requests_per_second < short.requests_per_second
    assert all(bucket.attainment >= LIMITS.attainment for bucket in both.report.buckets)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: RequestMix(()), "requests"),
        (lambda: RequestMix((MixPart(SHORT),) * 41), "requests"),
        (lambda: mix(1000, 1), "requests.weight"),
        (lambda: MixPart(SHORT, 0), "requests.weight"),
        (lambda: MixPart(SHORT, float("nan")), "requests.weight"),
    ],
)
def test_mixes_that_nobody_sends_are_refused(build: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as refused:
        build()
    assert refused.value.field == field
