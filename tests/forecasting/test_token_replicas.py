"""Replicas that are counted by tokens: by rounds, by minutes, and while nobody tells lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.app.replica_minutes import FRESH_SECONDS
from forecasting.prewarming.needed_quantiles import LEVELS
from forecasting.prewarming.needed_rate import needed_in_windows, needed_rates
from forecasting.prewarming.token_needs import needed_tokens
from forecasting.series_source import Floats
from forecasting.targets import target_of
from forecasting.tokens import LengthStatistics
from forecasting.told_lengths import LENGTHS_AWAY, stored_lengths
from tests.forecasting.test_forecaster_process import DAY, RESOURCE, START_SECONDS, World
from tests.forecasting.test_replica_minutes import MINUTES, Service, _demand
from tests.forecasting.test_replica_minutes import RATE as MINUTE_RATE
from wattpack.errors import InputError
from wattpack.kube.port import InvalidError, JsonObject

MEAN = 400.0
RATE = 2.0
NOW = START_SECONDS // 600
"""Place of the first bin that a round does not know."""


def _requests(days: int = 13) -> Floats:
    t = np.arange(days * DAY)
    rng = np.random.default_rng(1)
    return np.maximum(0.0, 20 + 8 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 0.6, len(t)))


class Services(World):
    """Services with the same requests, whose lengths differ."""

    def __init__(self) -> None:
        super().__init__()
        requests = _requests()
        self.source.values.update(requests=requests, tokens=requests * MEAN)

    def ask(self, name: str, tokens: JsonObject | None = None, **rule: Any) -> None:
        target = {"workload": "chat", "series": "requests", "unit": "requests per second"}
        rule = {"startSeconds": 244, "tokenRate": RATE * MEAN, "holdSeconds": 0} | rule
        self.add(name, target=target, replicas=rule, tokens=tokens or {"series": "tokens"})

    def round(self, after_seconds: float = 0.0) -> None:
        self.clock.advance_seconds(after_seconds)
        assert self.process.tick()

    def replicas(self, name: str) -> dict[str, Any]:
        return dict(self.status(name)["replicas"])

    def count(self, name: str) -> int:
        return int(self.replicas(name)["count"])


def test_the_count_follows_tokens_and_doubles_with_lengths_at_the_same_requests() -> None:
    world = Services()
    known = np.arange(13 * DAY) < NOW
    requests = world.source.values["requests"]
    world.source.values["doubled"] = requests * MEAN * 2
    world.source.values["growing"] = requests * np.where(known, MEAN, 2 * MEAN)
    world.source.values["wild"] = np.full(13 * DAY, 400.0 * MEAN**2)
    world.ask("usual")
    world.ask("long", tokens={"series": "doubled"})
    world.ask("grows", tokens={"series": "growing"})
    world.ask("wild", tokens={"series": "tokens", "secondMomentSeries": "wild"})
    # One bin in which a counter was reset, and some without sense.
    broken = requests * MEAN
    broken[[NOW - 30, NOW - 20, NOW - 10, NOW - 1]] = [-5.0, np.inf, 1e300, 1e12]
    world.source.values["broken"] = broken
    world.ask("broken", tokens={"series": "broken"})
    world.add(
        "requests",
        target={"workload": "chat", "series": "requests", "unit": "requests per second"},
        replicas={"startSeconds": 244, "rate": RATE, "holdSeconds": 0},
    )
    world.round()
    assert world.count("usual") == pytest.approx(world.count("requests"), abs=1)
    assert world.count("long") == pytest.approx(2 * world.count("usual"), abs=1)
    assert world.count("broken") == world.count("usual")
    # Of rare long requests so many steps are high that more has to be kept for them.
    assert world.count("wild") > world.count("usual")
    assert world.replicas("usual")["reason"].endswith("; 400 tokens a request")
    assert world.status("usual")["tokens"]["lengthsUntil"] == world.status("usual")["dataUntil"]
    shown = generate_latest(world.process.metrics.registry).decode()
    name = f'wattpack_forecast_replicas{{name="long",namespace="power"}} {world.count("long")}.0'
    assert name in shown
    before = world.count("grows")
    assert before == world.count("usual")
    world.round(600)
    # The newest tokens are served at once; what comes is expected as lengths of hours tell it.
    measured = world.source.values["growing"][NOW]
    assert world.count("grows") >= measured / (RATE * MEAN) > 1.1 * before
    world.round(86_400)
    assert world.count("grows") == pytest.approx(2 * world.count("usual"), abs=2)
    assert world.count("usual") == pytest.approx(world.count("requests"), abs=1)


def test_lengths_that_go_away_count_as_last_told_and_the_reason_says_since_when() -> None:
    world = Services()
    requests = world.source.values["requests"]
    requests[NOW:] *= 2.0
    ended = np.where(np.arange(len(requests)) < NOW, requests * MEAN, np.nan)
    world.source.values.update(tokens=requests * MEAN, ended=ended)
    world.ask("refused")
    world.ask("ends", tokens={"series": "ended"})
    world.ask("never", tokens={"series": "lost"})
    world.source.failing = {"lost"}
    world.round()
    before = world.count("refused")
    assert LENGTHS_AWAY not in world.status("ends").get("flags", ())
    world.source.failing = {"lost", "tokens"}
    world.process = ForecasterProcess(world.clock, world.kube, world.source)
    world.round(3600)
    for name in ("refused", "ends"):
        # The requests doubled, so does the count: an outage of lengths is none of the requests.
        assert world.count(name) > 1.5 * before
        since = "400 tokens a request, none told since 1970-01-11T00:00:00Z"
        assert since in world.replicas(name)["reason"]
        assert LENGTHS_AWAY in world.status(name)["flags"]
        assert world.status(name)["tokens"]["lengthsUntil"] == "1970-01-11T00:00:00Z"
    shown = generate_latest(world.process.metrics.registry).decode()
    assert 'flags{flag="lengths-away",name="refused",namespace="power"} 1.0' in shown
    # Who never knew says nothing, and why.
    assert "replicas" not in world.status("never")
    assert LENGTHS_AWAY in world.status("never")["flags"]
    assert world.ready("never")["status"] == "True"
    assert LENGTHS_AWAY in world.ready("never")["message"]
    # Lengths of another series are no lengths of this one.
    body = world.kube.get(RESOURCE, "refused", "power")
    body["spec"]["tokens"] = {"series": "lost"}
    world.kube.replace(RESOURCE, body, "power")
    world.source.failing = {"lost"}
    world.round(600)
    assert "replicas" not in world.status("refused")


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": 0.0},
        {"mean": 1e300},
        {"mean": "many"},
        {"lengthsUntil": "soon"},
        {"lengthsUntil": None},
        {"observedGeneration": 1},
        {"reason": "AwaitingRound"},
    ],
)
def test_a_status_of_nonsense_or_of_another_spec_tells_no_lengths(changes: JsonObject) -> None:
    tokens = {"mean": MEAN, "secondMoment": 2 * MEAN**2, "requestP99": 9.0, "p50": 1.0}
    tokens |= {"p95": 2.0, "p99": 3.0, "lengthsUntil": "1970-01-11T00:00:00Z"}

    def body(changed: JsonObject) -> JsonObject:
        told = {key: changed.get(key, value) for key, value in tokens.items()}
        ready = {"type": "Ready", "reason": changed.get("reason", "Forecast")}
        generation = changed.get("observedGeneration", 2)
        status = {"observedGeneration": generation, "conditions": [ready], "tokens": told}
        return {"metadata": {"generation": 2}, "status": status}

    stored = stored_lengths(body({}))
    assert stored is not None
    assert (stored.of.mean, stored.until_seconds) == (MEAN, START_SECONDS)
    assert stored_lengths(body(changes)) is None
    assert stored_lengths({}) is None


@pytest.mark.parametrize(
    ("rule", "tokens", "told"),
    [
        ({"rate": 2.0, "tokenRate": 800.0}, True, "rate or tokenRate, one of both"),
        ({"risk": 0.1}, True, "rate or tokenRate, one of both"),
        ({"tokenRate": 800.0}, False, "replicas.tokenRate: expected none"),
        ({"tokenRate": 0.0}, True, "tokenRate"),
        ({"tokenRate": "many"}, True, "tokenRate"),
    ],
)
def test_a_rate_of_none_of_both_or_of_tokens_nobody_tells_is_refused_by_name(
    rule: JsonObject, tokens: bool, told: str
) -> None:
    target = {"workload": "chat", "series": "requests", "unit": "1/s"}
    spec = {"target": target, "replicas": rule}
    if tokens:
        spec["tokens"] = {"series": "tokens"}
    body = {
        "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
        "metadata": {"name": "chat", "namespace": "power"}, "spec": spec,
    }  # fmt: skip
    with pytest.raises(InputError, match=told) as refused:
        target_of(body)
    assert refused.value.field.startswith("spec")
    with pytest.raises(InvalidError, match=told):
        World().add("chat", **spec)


def _lengths(sigma: float) -> LengthStatistics:
    return LengthStatistics(MEAN, MEAN**2 * float(np.exp(sigma**2)), 10 * MEAN)


@pytest.mark.parametrize(("rate", "sigma"), [(0.2, 1.0), (1.0, 1.2), (20.0, 1.0)])
def test_needed_tokens_are_those_of_requests_drawn_one_by_one(rate: float, sigma: float) -> None:
    steps, runs = 4, 4000
    found = needed_tokens(np.full(len(LEVELS), rate), LEVELS, _lengths(sigma), steps, 60.0, 10.0)
    random = np.random.default_rng(3)
    each = round(rate * 60)
    mu = np.log(MEAN) - sigma**2 / 2
    drawn = random.lognormal(mu, sigma, (runs, steps, each)).sum(axis=2) / 60
    needed = needed_in_windows(drawn, 60.0, 10.0)
    for level, amount in zip(LEVELS, found, strict=True):
        if 0.5 <= level <= 0.99:
            assert amount == pytest.approx(np.quantile(needed, level), rel=0.13)
    assert np.all(np.diff(found) >= 0)


def test_of_many_requests_the_mean_tells_the_tokens_and_of_few_long_ones_more_are_needed() -> None:
    needed = np.linspace(90.0, 180.0, len(LEVELS))
    even = needed_tokens(needed, LEVELS, _lengths(0.0), 4, 60.0, 10.0)
    assert even == pytest.approx(needed * MEAN, rel=0.01)
    assert needed_tokens(needed, LEVELS, _lengths(1.0), 4, 60.0, 10.0) == pytest.approx(
        needed * MEAN, rel=0.03
    )
    few = needed_tokens(needed / 500, LEVELS, _lengths(1.5), 4, 60.0, 10.0)
    assert np.all(few[3:] > 1.3 * needed[3:] / 500 * MEAN)
    assert needed_tokens(np.zeros(10), LEVELS, _lengths(1.0), 4, 60.0, 10.0).tolist() == [0.0] * 10


def test_windows_need_what_places_of_a_history_do() -> None:
    rates = np.random.default_rng(0).gamma(2, 3, 40)
    places = needed_rates(rates, 4, 60.0, 10.0)[::4]
    assert needed_in_windows(rates.reshape(10, 4), 60.0, 10.0) == pytest.approx(places)


def _by_tokens(mean: float) -> Service:
    """A service of known minutes; its rule counts tokens."""
    service = Service(_demand(), violationPrice=60.0)
    service.source.values["tokens"] = service.source.values["chat"] * mean
    body = service.kube.get(RESOURCE, "chat", "team")
    body["spec"]["tokens"] = {"series": "tokens"}
    body["spec"]["replicas"]["tokenRate"] = MEAN * body["spec"]["replicas"].pop("rate")
    service.kube.replace(RESOURCE, body, "team")
    return service


def _change(service: Service, **rule: Any) -> None:
    body = service.kube.get(RESOURCE, "chat", "team")
    body["spec"]["replicas"] |= rule
    service.kube.replace(RESOURCE, body, "team")


def test_minutes_count_requests_times_the_lengths_that_the_last_round_told() -> None:
    plain = Service(_demand(), violationPrice=60.0)
    usual = plain.minute()["count"]
    service = _by_tokens(2 * MEAN)
    service.clock.advance_seconds(60)
    service.thread.run_once()
    assert service.said() is None, "no round has told lengths"
    assert service.process.tick()
    by_round = service.said()
    assert by_round is not None
    assert by_round["reason"].endswith("; 800 tokens a request")
    told = service.minute(FRESH_SECONDS)
    assert "by the last minutes" in told["reason"]
    assert told["reason"].endswith("; 800 tokens a request")
    assert told["count"] == pytest.approx(2 * usual, rel=0.1)
    # Another bound of the same rule is no reason to wait for a round.
    _change(service, most=told["count"] - 5)
    assert service.minute()["count"] == told["count"] - 5
    _change(service, most=10_000)
    calm = service.minute()["count"]
    # What waits is as long as all else: 1,200 requests are the tokens of twice as many.
    place = int(service.clock.wall_time_ns() / 60e9)
    service.source.values["queue"][place] = 1200.0
    allowed = 5.0 * MINUTE_RATE * calm
    assert service.minute()["count"] - calm == pytest.approx(
        (2400 - allowed) / (60 * MINUTE_RATE), abs=4
    )


def test_minutes_go_on_with_the_last_lengths_and_say_since_when_none_were_told() -> None:
    service = _by_tokens(MEAN)
    assert service.process.tick()
    before = service.minute()
    service.source.values["tokens"] = np.full_like(service.source.values["chat"], np.nan)
    service.clock.advance_seconds(600)
    assert service.process.tick()
    told = service.minute()
    since = f"400 tokens a request, none told since 1970-01-0{MINUTES // 1440 + 1}T00:00:00Z"
    assert since in told["reason"]
    assert told["count"] == pytest.approx(before["count"], rel=0.2)
