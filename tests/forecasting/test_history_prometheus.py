"""The Prometheus adapter against fake HTTP, and against the real thing where it is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from forecasting.prometheus import PrometheusSource
from forecasting.prometheus.query import BadAnswerError
from forecasting.series_source import SeriesId, source_flags
from tests.forecasting.prometheus_server import serving
from wattpack.errors import DeadlineExceededError, InputError, TransientError

Q = SeriesId("sum(power)")
START = 1_700_000_400


def _source(handler: Callable[[httpx.Request], httpx.Response]) -> PrometheusSource:
    client = httpx.Client(transport=httpx.MockTransport(handler))
    return PrometheusSource("http://p:9090", 2.0, client)


def _matrix(*rows: list[list[object]]) -> dict[str, object]:
    result = [{"metric": {}, "values": values} for values in rows]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _success(data: object) -> httpx.Response:
    return httpx.Response(200, json={"status": "success", "data": data})


def _error(code: int, kind: str) -> httpx.Response:
    return httpx.Response(code, json={"status": "error", "errorType": kind, "error": "why"})


def test_values_land_in_the_bin_that_they_close() -> None:
    seen: list[dict[str, list[str]]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(parse_qs(request.content.decode()))
        return httpx.Response(200, json=_matrix([[1200, "1.5"], [2400, "NaN"], [3000, "4"]]))

    found = _source(answer).fetch([Q], 600, 3000)
    np.testing.assert_array_equal(found, [[1.5, np.nan, np.nan, 4.0]])
    assert seen[0]["query"] == ["avg_over_time((sum(power))[600s:60s])"]
    assert (seen[0]["start"], seen[0]["end"], seen[0]["step"]) == (["1200"], ["3000"], ["600"])


def test_an_empty_answer_is_a_gap() -> None:
    found = _source(lambda _: httpx.Response(200, json=_matrix())).fetch([Q, Q], 0, 1200)
    assert found.shape == (2, 2)
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (httpx.Response(503, text="down"), TransientError),
        (httpx.Response(500, text=""), TransientError),
        (httpx.Response(429, text=""), TransientError),
        (httpx.Response(200, text="<html>"), BadAnswerError),
        (httpx.Response(200, text=""), BadAnswerError),
        (httpx.Response(200, text='{"status": "succ'), BadAnswerError),
        (httpx.Response(200, json=[]), BadAnswerError),
        (httpx.Response(200, json={}), BadAnswerError),
        (httpx.Response(404, json={"status": "no"}), BadAnswerError),
        (httpx.Response(200, json={"status": "success"}), BadAnswerError),
        (_success({"resultType": "vector"}), BadAnswerError),
        (_success({"resultType": "matrix", "result": 1}), BadAnswerError),
        (httpx.Response(200, json=_matrix([[0]])), BadAnswerError),
        (httpx.Response(200, json=_matrix([["0", "1"]])), BadAnswerError),
        (httpx.Response(200, json=_matrix([[600, 1.0]])), BadAnswerError),
        (httpx.Response(200, json=_matrix([[600, "x"]])), BadAnswerError),
        (_error(400, "bad_data"), InputError),
        (_error(200, "timeout"), TransientError),
        (httpx.Response(200, json=_matrix([[600, "1"]], [[600, "2"]])), InputError),
        (httpx.Response(200, json=_matrix([[600, "1"], [600, "1"]])), BadAnswerError),
        (httpx.Response(200, json=_matrix([[1200, "1"], [600, "1"]])), BadAnswerError),
        (httpx.Response(200, json=_matrix([[600, "1"]]) | {"warnings": ["store"]}), TransientError),
        (httpx.Response(200, json=_matrix([[600, "1"]]) | {"warnings": "store"}), TransientError),
        (httpx.Response(200, json=_matrix([[600, "1"]]) | {"isPartial": True}), TransientError),
        (httpx.Response(200, json=_matrix() | {"warnings": ["PromQL warning: x"]}), InputError),
    ],
)  # fmt: skip
def test_a_bad_answer_is_a_typed_error(response: httpx.Response, error: type[Exception]) -> None:
    with pytest.raises(error):
        _source(lambda _: response).fetch([Q], 0, 1200)


@pytest.mark.parametrize(
    ("raised", "error"),
    [(httpx.ReadTimeout, DeadlineExceededError), (httpx.ConnectError, TransientError)],
)
def test_no_answer_is_a_transient_error(
    raised: type[httpx.HTTPError], error: type[Exception]
) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise raised("no")

    with pytest.raises(error):
        _source(fail).fetch([Q], 0, 1200)


@pytest.mark.parametrize("doubt", [{"warnings": ["a store"]}, {"isPartial": True}])
def test_a_partial_answer_may_be_taken_and_is_told_until_the_next_whole_one(
    doubt: dict[str, object],
) -> None:
    answers = [_matrix([[600, "1"]]) | doubt, _matrix([[600, "2"]])]
    client = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json=answers.pop(0)))
    )
    source = PrometheusSource("http://p:9090", 2.0, client, partial_answers="flag")
    assert source.fetch([Q], 0, 600)[0, 0] == 1.0
    assert source_flags(source, Q) == ("partial",)
    assert source.fetch([Q], 0, 600)[0, 0] == 2.0
    assert source_flags(source, Q) == ()


def test_what_promql_remarks_and_infinite_values_are_told_and_refuse_nothing() -> None:
    info = {"infos": ["PromQL info: metric might not be a counter"], "warnings": []}
    body = _matrix([[600, "1"], [1200, "1e400"], [1800, "-Inf"]]) | info
    source = _source(lambda _: httpx.Response(200, json=body))
    np.testing.assert_array_equal(source.fetch([Q], 0, 1800), [[1.0, np.nan, np.nan]])
    assert source_flags(source, Q) == ("not-finite", "query-info")


def test_a_long_range_is_asked_for_in_pages_that_cover_it_once() -> None:
    pages: list[tuple[int, int]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked = parse_qs(request.content.decode())
        first, last, step = (int(asked[name][0]) for name in ("start", "end", "step"))
        pages.append((first, last))
        # As Prometheus does with what would be too many points.
        if (last - first) / step > 11_000:
            return _error(400, "bad_data")
        points = [[t, str(t // 60)] for t in range(first, last + 1, step)]
        return httpx.Response(200, json=_matrix(points))

    n_bins = 12_345
    found = _source(answer).fetch([Q], 600, 600 + 60 * n_bins, 60)
    np.testing.assert_array_equal(found[0], np.arange(n_bins) + 11.0)
    assert len(pages) == 3
    assert all(later[0] == earlier[1] + 60 for earlier, later in pairwise(pages))


def test_an_address_without_scheme_and_a_huge_range_are_refused() -> None:
    with pytest.raises(InputError, match="prometheus_url"):
        PrometheusSource("prometheus:9090")
    with pytest.raises(InputError, match="100000"):
        _source(lambda _: httpx.Response(200, json=_matrix())).fetch([Q], 0, 600 * 200_000)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    lines = ["# TYPE power gauge"]
    lines += [f"power {100 + i // 10} {START + 60 * i}" for i in range(60)]
    with serving(tmp_path, "\n".join([*lines, "# EOF", ""])) as address:
        yield address


@pytest.mark.promtool
def test_a_real_prometheus_gives_the_means_of_its_bins(prometheus: str) -> None:
    source = PrometheusSource(prometheus)
    try:
        found = source.fetch([SeriesId("power"), SeriesId("absent_metric")], START, START + 4200)
        with pytest.raises(InputError, match="parse"):
            source.fetch([SeriesId("sum(")], START, START + 4200)
    finally:
        source.close()
    np.testing.assert_allclose(found[0, 1:6], [101, 102, 103, 104, 105], atol=0.6)
    assert np.isnan(found[1]).all()
    assert json.dumps(found[0, :1].tolist())
