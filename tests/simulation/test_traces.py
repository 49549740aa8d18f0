"""Traces are read strictly; arrivals repeat and thicken them without losing anything."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from simulation.arrivals import RequestStream
from simulation.pod_work import openb_pods, parse_openb
from simulation.traces import Trace, parse_trace, shipped_trace
from wattpack.errors import InputError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"
LATER = "2023-11-16 18:15:50.9951690,396,109\n"


def test_the_shipped_traces_are_whole() -> None:
    conversation, code = shipped_trace("conversation"), shipped_trace("code")
    assert (len(conversation.arrival_seconds), len(code.arrival_seconds)) == (19366, 8819)
    assert 3400 < code.length_seconds < conversation.length_seconds < 3540
    assert conversation.prompt_tokens.mean() == pytest.approx(1154.7, abs=0.1)


def test_seconds_are_exact_to_the_trace() -> None:
    trace = parse_trace((HEAD + ROW + LATER).encode(), "t")
    assert trace.arrival_seconds.tolist() == pytest.approx([0.0, 4.314579], abs=1e-6)


def test_a_file_may_be_plain_or_gzip_and_end_without_a_line_end(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(HEAD + ROW + LATER.rstrip("\n"))
    assert len(parse_trace(file.read_bytes(), str(file)).arrival_seconds) == 2
    file.write_bytes(gzip.compress((HEAD + ROW).replace("\n", "\r\n").encode()))
    assert len(parse_trace(file.read_bytes(), str(file)).arrival_seconds) == 1


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "line 1"),
        (HEAD, "line 2"),
        ("TIMESTAMP,Context,Generated\n" + ROW, "line 1"),
        (HEAD + ROW + LATER[:-8], "line 3"),
        (HEAD + "2023-11-16 18:15:46.6805900,nan,44\n", "line 2.ContextTokens"),
        (HEAD + "2023-11-16 18:15:46.6805900,-3,44\n", "line 2.ContextTokens"),
        (HEAD + "2023-11-16 18:15:46.6805900,3,4.5\n", "line 2.GeneratedTokens"),
        (HEAD + "2023-11-16 18:15:46.6805900,3,99999999999\n", "line 2.GeneratedTokens"),
        (HEAD + "2023-11-16 18:15:46.6805900,²,4\n", "line 2.ContextTokens"),
        (HEAD + "yesterday,3,4\n", "line 2.TIMESTAMP"),
        (HEAD + "2023-11-16 18:15:46.x,3,4\n", "line 2.TIMESTAMP"),
        (HEAD + LATER + ROW, "line 3.TIMESTAMP"),
        (HEAD + ROW + "\n" + LATER, "line 3"),
    ],
)
def test_a_damaged_trace_is_refused_with_its_line(text: str, field: str) -> None:
    with pytest.raises(InputError) as problem:
        parse_trace(text.encode(), "t.csv")
    assert problem.value.field == field


def test_a_truncated_gzip_file_is_refused() -> None:
    whole = gzip.compress((HEAD + ROW * 1).encode())
    for data in (whole[:-6], whole[:12], b"\x1f\x8b" + b"x" * 30):
        with pytest.raises(InputError, match="whole"):
            parse_trace(data, "t.csv.gz")
    with pytest.raises(InputError):
        parse_trace(b"\xff\xfe\x00", "t.csv")


def tiny_trace() -> Trace:
    return Trace(
        np.array([0.0, 10.0, 30.0]), np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), "tiny"
    )


def test_a_stream_repeats_the_trace_at_its_factor() -> None:
    trace = tiny_trace()  # 40 s long
    stream = RequestStream(trace, 2.0, 0.0, seed=1, stream=0)
    taken = stream.take(40.0 * 3)
    whole = 3 * 3 * 2
    assert whole - 2 <= len(taken) <= whole  # copies of the last request may come up to 5 s later
    assert len(taken) + len(stream.take(130.0)) >= whole
    assert set(taken.prompt_tokens) == {1.0, 2.0, 3.0}


def test_how_often_one_asks_does_not_change_the_requests() -> None:
    trace = shipped_trace("code")
    once = RequestStream(trace, 3.3, 100.0, seed=5, stream=1).take(300.0)
    often = RequestStream(trace, 3.3, 100.0, seed=5, stream=1)
    parts = [often.take(t) for t in np.arange(0.25, 300.1, 0.25)]
    arrivals = np.concatenate([p.arrival_seconds for p in parts])
    assert np.array_equal(arrivals, once.arrival_seconds)
    assert (np.diff(arrivals) >= 0).all()


def test_another_seed_or_service_gives_other_requests() -> None:
    trace = shipped_trace("code")
    base = RequestStream(trace, 3.3, 0.0, seed=5, stream=1).take(100.0).arrival_seconds
    for seed, stream in ((6, 1), (5, 2)):
        other = RequestStream(trace, 3.3, 0.0, seed=seed, stream=stream).take(100.0)
        assert not np.array_equal(other.arrival_seconds, base)


def test_a_factor_of_zero_gives_no_request() -> None:
    assert len(RequestStream(tiny_trace(), 0.0, 0.0, seed=1, stream=0).take(1000.0)) == 0


def test_openb_pods_are_read_and_damaged_ones_refused() -> None:
    assert len(openb_pods()) == 8152 - 1088  # those without a GPU are left out
    head = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n"
    for row, field in (("p,1,2,x,0,1\n", "line 2.num_gpu"), ("p,1,2,1,-4,1\n", "line 2.creation")):
        with pytest.raises(InputError, match=field):
            parse_openb(gzip.compress((head + row).encode()), "o")
    with pytest.raises(InputError):
        parse_openb(gzip.compress(head.encode()), "o")
    with pytest.raises(InputError):
        parse_openb(b"plain", "o")
