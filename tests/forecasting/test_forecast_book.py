"""Which forecasts a decision may rest on, and what it rests on otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.contradiction import Minute
from forecasting.forecast_book import ForecastBook, Outlook, Question
from forecasting.issued_forecast import ForecastKey, UnfitForecast, read_forecast
from tests.examples import examples
from tests.forecasting.forecast_builders import AUTHORITY, make_forecast, make_status
from wattpack.errors import InputError
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

NOW = 1e8
LIMIT_WATTS = 100_000.0
DAY = 86400


def at(seconds: float) -> str:
    return rfc3339(seconds_to_ns(seconds))


def ask(*bodies: dict[str, Any], day_maximum: float | None = 50_000.0, now: float = NOW) -> Outlook:
    return ForecastBook.of(AUTHORITY, bodies).of_domain(
        "row", Question(now, LIMIT_WATTS, day_maximum)
    )


def test_a_sound_forecast_is_used_as_it_is() -> None:
    outlook = ask(make_forecast(NOW - 60))
    assert (outlook.p50_watts, outlook.p95_watts, outlook.p99_watts) == (24_000, 28_500, 30_000)
    assert (outlook.state, outlook.method, outlook.is_fallback) == ("Forecast", "ridge", False)


AWAY = {"type": "Ready", "status": "False", "reason": "HistoryUnavailable", "message": "away"}


def test_a_forecast_whose_history_is_away_for_a_round_ages_and_stays() -> None:
    outlook = ask(make_forecast(NOW - 60, conditions=[AWAY]))
    assert (outlook.p99_watts, outlook.state) == (30_000, "Forecast")


#: Each was taken once: what is wrong with the object, and a word of the reason that is given.
UNTRUSTED: dict[str, tuple[dict[str, Any], str]] = {
    "twenty days old": (make_forecast(NOW - 20 * DAY), "was valid until"),
    "valid by its own word, of data twenty days old": (
        make_forecast(dataUntil=at(NOW - 20 * DAY)), "its data end at 1973-02-11"
    ),
    "past its own validity": (make_forecast(NOW - 60, validUntil=at(NOW - 1)), "was valid until"),
    "no validity and 31 minutes old": (make_forecast(NOW - 1861, validUntil=None), "was valid"),
    "not ready": (
        make_forecast(conditions=[
            {"type": "Ready", "status": "False", "reason": "SeriesRefused", "message": "not one"}
        ]),
        "SeriesRefused not one",
    ),
    "its history away for longer than it is valid": (
        make_forecast(validUntil=at(NOW - 1), conditions=[AWAY]), "was valid until"
    ),
    "no condition at all": (make_forecast(conditions=None), "Ready=True"),
    "from the future": (make_forecast(NOW + 300), "from the future (1973-03-03T09:51:40Z)"),
    "data from the future": (make_forecast(dataUntil=at(NOW + 300)), "from the future"),
    "negative": (make_forecast(p50=-5.0), "status.p50"),
    "zero watts": (make_forecast(p50=0, p95=0, p99=0), "status.p50"),
    "zero p99": (make_forecast(p99=0), "status.p50"),
    "levels out of order": (make_forecast(p50=31_000), "p50 <= p95 <= p99"),
    "not a number": (make_forecast(p99=float("nan")), "status.p50"),
    "infinite": (make_forecast(p95=float("inf")), "status.p95"),
    "text": (make_forecast(p95="many"), "status.p95"),
    "no p95": (make_forecast(p95=None), "status.p95"),
    "a time without zone": (make_forecast(issuedAt="2026-01-01T00:00:00"), "status.issuedAt"),
    "a year that no clock has": (make_forecast(issuedAt="9999-12-31T23:59:59-23:59"), "issuedAt"),
    "a window that ends too soon": (make_forecast(spec={"horizonSeconds": 600}), "window ends"),
    "milliwatts": (make_forecast(p99=3e7), "over 20 times the limit"),
    "kilowatts": (
        make_forecast(spec={"target": {"powerDomain": "row", "series": "s", "unit": "kW"}}),
        "not 'kW'",
    ),
    "a status of an older spec": (make_forecast(metadata={"generation": 2}), "newest spec, 2"),
    "being deleted": (make_forecast(metadata={"deletionTimestamp": at(NOW)}), "deleted"),
    "no status yet": (make_forecast() | {"status": None}, "none yet"),
    "paths that cross": (
        make_forecast(quantiles=[
            {"level": 0.5, "values": [2.0]}, {"level": 0.99, "values": [1.0]},
        ]),
        "rise with the level",
    ),
    "a path with a negative step": (
        make_forecast(quantiles=[{"level": 0.5, "values": [1.0, -1.0]}]),
        "quantiles.values",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(UNTRUSTED))
def test_what_cannot_be_trusted_gives_the_fallback_and_says_why(what: str) -> None:
    body, word = UNTRUSTED[what]
    outlook = ask(body)
    assert (outlook.method, outlook.p99_watts) == ("last-24h-max", 60_000.0)
    assert outlook.state == "Fallback"
    assert f"{AUTHORITY}/row" in outlook.reason
    assert word in outlook.reason
    assert "last-24 h maximum plus 20%" in outlook.reason


def test_with_less_than_a_day_of_draws_the_fallback_is_the_limit() -> None:
    outlook = ask(make_forecast(NOW - 20 * DAY), day_maximum=None)
    assert (outlook.method, outlook.p50_watts, outlook.p99_watts) == ("limit", 1e5, 1e5)
    assert "less than a day of draws" in outlook.reason


def test_a_clock_a_little_ahead_and_the_last_second_of_validity_are_accepted() -> None:
    assert ask(make_forecast(NOW + 59)).state == "Forecast"
    assert ask(make_forecast(NOW - 1800)).state == "Forecast"


def test_a_field_of_a_newer_version_does_not_matter() -> None:
    assert ask(make_forecast(NOW, surprise={"a": 1})).state == "Forecast"


def test_a_forecast_over_the_limit_is_cut_at_it() -> None:
    assert ask(make_forecast(NOW, 150_000)).p99_watts == LIMIT_WATTS


def test_a_forecaster_that_fell_back_says_so_to_its_users() -> None:
    outlook = ask(make_forecast(NOW, method="last-24h-max", fallback=True))
    assert (outlook.state, outlook.p99_watts) == ("Fallback", 30_000)
    assert "fell back to last-24h-max" in outlook.reason


def test_forecasts_of_two_namespaces_stand_side_by_side_and_only_ours_counts() -> None:
    ours = make_forecast(NOW, 30_000)
    theirs = make_forecast(NOW, 5_000, namespace="team")
    for bodies in ((ours, theirs), (theirs, ours)):
        assert ask(*bodies).p99_watts == 30_000
    alone = ask(theirs)
    assert alone.state == "NoForecast"
    assert "team/row has no authority" in alone.reason


def test_deleting_the_others_forecast_leaves_ours() -> None:
    book = ForecastBook.of(AUTHORITY, [make_forecast(NOW), make_forecast(NOW, namespace="team")])
    left = book.without(ForecastKey("team", "row"))
    assert left.of_domain("row", Question(NOW, LIMIT_WATTS)).state == "Forecast"


def test_of_several_forecasts_of_a_domain_the_highest_usable_one_counts() -> None:
    bodies = [
        make_forecast(NOW, 30_000, name="a"),
        make_forecast(NOW, 40_000, name="b"),
        make_forecast(NOW - 20 * DAY, 90_000, name="c"),
    ]
    assert ask(*bodies).p99_watts == ask(*reversed(bodies)).p99_watts == 40_000


def minutes(*watts: float, until: float = NOW) -> tuple[Minute, ...]:
    first = until - 60 * len(watts)
    return tuple(Minute(first + 60 * i, w) for i, w in enumerate(watts))


def judged(book: ForecastBook, seen: tuple[Minute, ...]) -> ForecastBook:
    return book.judged(lambda domain: seen if domain == "row" else ())


def state(book: ForecastBook, now: float = NOW) -> str:
    return book.of_domain("row", Question(now, LIMIT_WATTS * 10, 400_000)).state


def test_a_p99_of_283_kw_beside_a_draw_of_394_kw_is_contradicted_after_seven_minutes() -> None:
    book = ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600, 283_000)])
    assert state(judged(book, minutes(*[394_000.0] * 6))) == "Forecast"
    disproved = judged(book, minutes(*[394_000.0] * 7))
    outlook = disproved.of_domain("row", Question(NOW, 1e6, 400_000))
    assert (outlook.state, outlook.method, outlook.p99_watts) == (
        "Contradicted", "last-24h-max", 480_000.0,
    )  # fmt: skip
    assert "draw above its p99 of 283000 W in 7 of the last 7 minutes" in outlook.reason
    assert "highest minute 394000 W" in outlook.reason


def test_a_load_that_flaps_over_the_p99_contradicts_it_as_well() -> None:
    book = ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)])
    assert (
        state(judged(book, minutes(*[40_000.0, 40_000.0, 20_000.0, 40_000.0] * 3)))
        == "Contradicted"
    )
    assert state(judged(book, minutes(*[20_000.0, 40_000.0] * 5))) == "Forecast"


def test_a_contradicted_issue_stays_so_when_the_draw_falls() -> None:
    book = judged(ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)]), minutes(*[40_000.0] * 10))
    assert state(judged(book, minutes(*[10_000.0] * 10))) == "Contradicted"


def test_the_next_issue_is_believed_only_if_it_covers_what_was_measured() -> None:
    high = minutes(*[40_000.0] * 10)
    book = judged(ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)]), high)
    too_low = book.with_object(make_forecast(NOW, 35_000))
    assert state(too_low) == "Contradicted"
    assert state(judged(too_low, high)) == "Contradicted"
    covers = judged(too_low, high).with_object(make_forecast(NOW + 10, 45_000))
    assert state(judged(covers, high)) == "Forecast"


def test_minutes_before_the_data_of_a_first_issue_are_no_evidence_against_it() -> None:
    """The load has just fallen; the forecast knows, the last ten minutes do not."""
    book = ForecastBook.of(AUTHORITY, [make_forecast(NOW - 60)])
    assert state(judged(book, minutes(*[40_000.0] * 9, 20_000.0))) == "Forecast"


def test_a_low_draw_contradicts_nothing() -> None:
    book = ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)])
    assert state(judged(book, minutes(*[1.0] * 10))) == "Forecast"


def test_a_contradiction_outlives_a_status_that_is_not_ready() -> None:
    high = minutes(*[40_000.0] * 10)
    book = judged(ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)]), high)
    away = judged(book.with_object(make_forecast(conditions=None)), high)
    back = judged(away.with_object(make_forecast(NOW)), high)
    assert state(back) == "Contradicted"


def test_the_verdict_on_one_domain_leaves_the_others_alone() -> None:
    rack = make_forecast(NOW - 600, name="rack", domain="rack")
    book = judged(
        ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600), rack]), minutes(*[40_000.0] * 9)
    )
    assert book.of_domain("rack", Question(NOW, LIMIT_WATTS)).state == "Forecast"


def test_a_deleted_forecast_takes_its_contradiction_along() -> None:
    book = judged(ForecastBook.of(AUTHORITY, [make_forecast(NOW - 600)]), minutes(*[40_000.0] * 10))
    assert book.without(ForecastKey(AUTHORITY, "row")).contradicted == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from([*make_status(NOW), "quantiles"]), JSON | st.just(10**400), max_size=4
    ),
    st.dictionaries(st.sampled_from(["horizonSeconds", "stepSeconds", "target"]), JSON),
    JSON,
    st.floats(0, 1e9),
    st.none() | st.floats(0, 1e9),
)
@examples(150)
def test_whatever_an_object_says_the_answer_is_sound(
    status: dict[str, Any], spec: dict[str, Any], metadata: Any, limit: float, maximum: float | None
) -> None:
    body = make_forecast(NOW, spec=spec)
    body["status"] |= status
    for changed in (body, body | {"metadata": metadata}, body | {"status": metadata}):
        book = ForecastBook.of(AUTHORITY, [changed])
        outlook = book.of_domain("row", Question(NOW, limit, maximum))
        assert 0 <= outlook.p50_watts <= outlook.p95_watts <= outlook.p99_watts <= limit
        assert outlook.reason


@pytest.mark.parametrize("limit", [float("nan"), -1.0, "5"])
def test_users_must_bring_a_sound_limit(limit: Any) -> None:
    with pytest.raises(InputError, match="limit"):
        Question(NOW, limit)


def test_an_empty_body_is_unfit_and_no_error() -> None:
    assert isinstance(read_forecast({}), UnfitForecast)
