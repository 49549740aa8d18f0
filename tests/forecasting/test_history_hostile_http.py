"""A history server that answers anything at all, over real sockets: one bad series fails alone."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from forecasting.prometheus import PrometheusSource
from forecasting.prometheus.query import MAX_ANSWER_BYTES, BadAnswerError, number
from forecasting.prometheus.range_source import sample_values
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target, target_of
from tests.examples import examples
from wattpack.clock import ManualClock
from wattpack.errors import DeadlineExceededError, InputError, TransientError, WattpackError

DAY_SECONDS = 86400
NOW = 12 * DAY_SECONDS


def matrix(values: object) -> bytes:
    result = [{"metric": {}, "values": values}]
    data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


def good() -> bytes:
    stamps = range(2 * DAY_SECONDS + 600, NOW + 1, 600)
    return matrix([[t, f"{100 + 10 * np.sin(t / 13750):.3f}"] for t in stamps])


class Server:
    """Answers each query by what its expression asks for; ``bad`` can be set to any bytes."""

    def __init__(self) -> None:
        self.bad: bytes = b""
        self.headers: dict[str, str] = {}
        self.good = good()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                query = parse_qs(self.rfile.read(length).decode())["query"][0]
                is_bad = "bad" in query
                body = outer.bad if is_bad else outer.good
                self.send_response(200)
                for name, value in outer.headers.items() if is_bad else ():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Silent."""

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Clients hang up on answers that are too long."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def source(server: Server) -> Iterator[PrometheusSource]:
    source = PrometheusSource(server.url)
    yield source
    source.close()


def target(name: str) -> Target:
    return Target("ns", name, SeriesId(f"sum({name})"), "domain", 36, 600, (0.5, 0.99), None, 1)


HOSTILE: dict[str, bytes] = {
    "a NaN time": matrix([[float("nan"), "1"]]),
    "an infinite time": b'{"status":"success","data":{"resultType":"matrix","result":'
    b'[{"values":[[1e400,"1"]]}]}}',
    "an integer time that no float holds": matrix([[10**400, "1"]]),
    "an integer that Python does not parse": matrix([[0, "1"]]).replace(b"[0,", b"[" + b"9" * 9999),
    "a value of 1e400": matrix([[NOW, "1e400"]] * 3),
    "huge values": matrix([[t, "1e308"] for t in range(2 * DAY_SECONDS + 600, NOW + 1, 600)]),
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "data nested deep": b'{"status":"success","data":' + b"[" * 900 + b"]" * 900 + b"}",
    "a time nested deep": matrix([[0, "1"]]).replace(b"[0,", b"[" + b"[" * 900 + b"]" * 900 + b","),
    "an error nested deep": b'{"status":"error","error":' + b"[" * 900 + b"]" * 900 + b"}",
    "values as numbers": matrix([[NOW, 5.0]]),
    "a value with underscores": matrix([[NOW, "1_000"]]),
    "a value in other digits": matrix([[NOW, "\u0661\u0662"]]),
    "a boolean time": matrix([[True, "1"]]),
    "times out of order": matrix([[NOW, "1"], [NOW - 600, "1"]]),
    "a time twice": matrix([[NOW, "1"], [NOW, "2"]]),
    "warnings nested deep": b'{"status":"success","warnings":' + b"[" * 900 + b"]" * 900 + b"}",
    "not UTF-8": b'{"status": "\xff\xfe"}',
    "nothing": b"",
    "an error of a megabyte": json.dumps({"status": "error", "error": "x" * 2**20}).encode(),
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_one_hostile_series_fails_alone(
    server: Server, source: PrometheusSource, what: str
) -> None:
    server.bad, server.headers = HOSTILE[what], {}
    _, (first, bad, last) = step(
        ForecasterState(), NOW, source, [target("a"), target("bad"), target("z")]
    )
    assert first.error is None
    assert last.error is None
    assert first.peaks[-1] == pytest.approx(last.peaks[-1])
    assert 100 < first.peaks[-1] < 150
    if bad.error is None:
        assert bad.made is not None
        assert np.isfinite(bad.peaks).all()
        assert bad.made.methods[bad.row] == "limit"
    else:
        assert len(str(bad.error)) < 1500


def partial() -> bytes:
    body = json.loads(good()) | {"warnings": ["store-7 did not answer"]}
    return json.dumps(body).encode()


def test_a_partial_history_keeps_the_last_forecast_or_is_told_in_the_new_one(
    server: Server, source: PrometheusSource
) -> None:
    server.bad, server.headers = partial(), {}
    _, (refused, other) = step(ForecasterState(), NOW, source, [target("bad"), target("a")])
    assert other.error is None
    assert other.flags == ()
    # Transient: the object keeps its figures, which age (test_forecaster_process).
    assert isinstance(refused.error, TransientError)
    assert "store-7" in str(refused.error)
    taking = PrometheusSource(server.url, partial_answers="flag")
    try:
        _, (told,) = step(ForecasterState(), NOW, taking, [target("bad")])
    finally:
        taking.close()
    assert told.error is None
    assert told.flags == ("partial",)
    assert told.peaks[-1] == pytest.approx(other.peaks[-1], rel=0.02)


def test_a_compressed_answer_is_not_unpacked(server: Server, source: PrometheusSource) -> None:
    server.bad, server.headers = gzip.compress(b"0" * 2**20), {"Content-Encoding": "gzip"}
    with pytest.raises(BadAnswerError, match="compressed"):
        source.fetch([SeriesId("bad")], 0, 1200)


def test_an_answer_over_the_limit_is_not_read_to_its_end(
    server: Server, source: PrometheusSource
) -> None:
    server.bad, server.headers = b" " * (MAX_ANSWER_BYTES + 2**20), {}
    with pytest.raises(BadAnswerError, match=str(MAX_ANSWER_BYTES)):
        source.fetch([SeriesId("bad")], 0, 1200)


class _Hurried(ManualClock):
    """A second passes at every look."""

    def monotonic_ns(self) -> int:
        self.advance_seconds(1.0)
        return super().monotonic_ns()


def test_an_answer_that_drips_ends_at_the_deadline(server: Server) -> None:
    server.bad, server.headers = b" " * 2**20, {}
    source = PrometheusSource(server.url, 2.0, clock=_Hurried())
    try:
        with pytest.raises(DeadlineExceededError):
            source.fetch([SeriesId("bad")], 0, 1200)
    finally:
        source.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
POINTS = st.lists(
    st.lists(JSON | st.floats(-1e9, 1e9) | st.sampled_from(["NaN", "+Inf", "1e400", "7"])),
    max_size=6,
)


@given(
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | POINTS.map(matrix)
    | JSON.map(lambda data: json.dumps({"status": "success", "data": data}).encode())
)
@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_values_or_a_typed_error(
    server: Server, source: PrometheusSource, answer: bytes
) -> None:
    server.bad, server.headers = answer, {}
    try:
        row = source.fetch([SeriesId("bad")], 0, 6000)
    except WattpackError:
        return
    assert row.shape == (1, 10)
    assert not np.isinf(row).any()


@given(st.text(max_size=20) | st.floats().map(str))
@examples(100)
def test_a_value_is_a_number_as_prometheus_writes_it_or_refused(text: str) -> None:
    try:
        value = number(text, "q")
    except BadAnswerError:
        return
    assert text.isascii()
    assert isinstance(value, float)


@given(
    st.lists(
        st.floats().map(str) | st.sampled_from(["NaN", "+Inf", "1\n2", "1.", ".5e3", "", "1_0"])
        | st.text("0123456789.eE+-\n", max_size=70),
        max_size=8,
    )
)  # fmt: skip
@examples(150)
def test_values_read_together_are_those_that_are_read_one_by_one(texts: list[str]) -> None:
    try:
        expected = [number(text, "q") for text in texts]
    except BadAnswerError:
        with pytest.raises(BadAnswerError):
            sample_values(texts, "q")
        return
    np.testing.assert_array_equal(sample_values(texts, "q"), np.array(expected))


def test_endless_digits_are_refused_as_fast_as_they_are_read() -> None:
    texts = ["1" * 64] * 100_000
    began = time.process_time()
    with pytest.raises(BadAnswerError):
        sample_values([*texts, "1" * 63 + "x"], "q")
    with pytest.raises(BadAnswerError):
        sample_values(["1" * 10**6 + "x"], "q")
    assert time.process_time() - began < 10.0


def test_a_query_that_no_server_could_be_sent_is_refused_by_name() -> None:
    def body(series: Any) -> dict[str, Any]:
        spec = {"target": {"series": series}}
        return {"metadata": {"name": "x"}, "spec": spec}

    for series in ("q" * 4097, "a\x00b", "\ud800"):
        with pytest.raises(InputError, match="series"):
            target_of(body(series))
