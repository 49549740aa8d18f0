"""The Prometheus adapter against fake HTTP, and against the real thing where it is installed."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from forecasting.prometheus import PrometheusSource
from forecasting.prometheus.query import BadAnswerError
from forecasting.series_source import SeriesId
from wattpack.errors import DeadlineExceededError, InputError, TransientError

Q = SeriesId("sum(power)")


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


def test_an_address_without_scheme_and_a_huge_range_are_refused() -> None:
    with pytest.raises(InputError, match="prometheusUrl"):
        PrometheusSource("prometheus:9090")
    with pytest.raises(InputError, match="11000"):
        _source(lambda _: httpx.Response(200, json=_matrix())).fetch([Q], 0, 600 * 20_000)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    binary, tool = shutil.which("prometheus"), shutil.which("promtool")
    if binary is None or tool is None:
        pytest.skip("prometheus is not installed")
    lines = ["# TYPE power gauge"]
    lines += [f"power {100 + i // 10} {1_700_000_400 + 60 * i}" for i in range(60)]
    (tmp_path / "in.txt").write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    data = tmp_path / "data"
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "in.txt"), str(data)],
        check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "p.yml").write_text("{}\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [binary, f"--config.file={tmp_path / 'p.yml'}", f"--storage.tsdb.path={data}",
         "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr is not None
    for line in server.stderr:
        if "ready to receive" in line:
            break
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.stderr.close()
    server.wait()


@pytest.mark.promtool
def test_a_real_prometheus_gives_the_means_of_its_bins(prometheus: str) -> None:
    source = PrometheusSource(prometheus)
    try:
        found = source.fetch(
            [SeriesId("power"), SeriesId("absent_metric")], 1_700_000_400, 1_700_004_600
        )
        with pytest.raises(InputError, match="parse"):
            source.fetch([SeriesId("sum(")], 1_700_000_400, 1_700_004_600)
    finally:
        source.close()
    np.testing.assert_allclose(found[0, 1:6], [101, 102, 103, 104, 105], atol=0.6)
    assert np.isnan(found[1]).all()
    assert json.dumps(found[0, :1].tolist())
