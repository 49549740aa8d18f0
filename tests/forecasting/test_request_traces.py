"""Traces of others become rates and token lengths, or are refused by their line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from forecasting.traces import TokenLengths, TraceFormat, TraceSeries, read_trace, trace_requests
from tests.examples import examples
from wattpack.errors import InputError

Row = tuple[float, str, int, int]
"""Seconds, client, prompt, answer."""

DAY = 86_400
ORIGIN = datetime(2024, 5, 10, tzinfo=UTC)
AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST_HEAD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_HEAD_3 = BURST_HEAD.replace("Model", "Session ID,Elapsed time,Model")


def azure_2024(rows: list[Row]) -> str:
    times = [ORIGIN + timedelta(seconds=row[0]) for row in rows]
    return AZURE_HEAD + "".join(
        f"{at:%Y-%m-%d %H:%M:%S.%f}+00:00,{prompt},{answer}\n"
        for at, (_, _, prompt, answer) in zip(times, rows, strict=True)
    )


def azure_2023(rows: list[Row]) -> str:
    return azure_2024(rows).replace("+00:00", "0")


def burst_gpt(rows: list[Row]) -> str:
    return BURST_HEAD + "".join(
        f"{at},{client},{prompt},{answer},{prompt + answer},API log\n"
        for at, client, prompt, answer in rows
    )


def burst_gpt_3(rows: list[Row]) -> str:
    return BURST_HEAD_3 + "".join(
        f"{at},s-1,0.5,{client},{prompt},{answer},{prompt + answer},API log\n"
        for at, client, prompt, answer in rows
    )


def mooncake(rows: list[Row]) -> str:
    return "\n".join(
        json.dumps({"timestamp": at * 1000, "input_length": prompt, "output_length": answer,
                    "hash_ids": [0, 1]})
        for at, _, prompt, answer in rows
    )  # fmt: skip


WRITERS: list[tuple[TraceFormat, Callable[[list[Row]], str]]] = [
    ("azure", azure_2023), ("azure", azure_2024), ("burstgpt", burst_gpt),
    ("burstgpt", burst_gpt_3), ("mooncake", mooncake),
]  # fmt: skip


def read(folder: Path, format: TraceFormat, data: str | bytes, step: int = 600) -> TraceSeries:
    file = folder / "trace"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_trace(file, format, step)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3 * DAY).map(float), st.sampled_from(["GPT-4", "ChatGPT"]),
        st.integers(0, 10**7), st.integers(0, 4000),
    ),
    min_size=2, max_size=40,
)  # fmt: skip


@given(ROWS, st.sampled_from(WRITERS), st.sampled_from([60, 600, 3600]), st.booleans())
@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_format_gives_the_counts_of_a_loop(
    tmp_path: Path,
    rows: list[Row],
    writer: tuple[TraceFormat, Callable[[list[Row]], str]],
    step: int,
    packed: bool,
) -> None:
    format, write = writer
    rows = [*rows, (4.0 * DAY, "GPT-4", 1, 1)]
    text = write(rows)
    data = gzip.compress(text.encode()) if packed else text
    series = read(tmp_path, format, data, step)
    zero = ORIGIN.timestamp() if format == "azure" else 0.0
    assert series.is_relative == (format != "azure")
    for i, client in enumerate(series.clients):
        mine = [row for row in rows if client in ("all", f"{row[1]}/api")]
        assert mine
        for place in range(series.n_bins):
            low = series.start_seconds + place * step
            inside = [row for row in mine if low <= zero + row[0] < low + step]
            expected = [len(inside), sum(r[2] for r in inside), sum(r[3] for r in inside)]
            for table, count in zip(
                (series.requests_per_second, series.input_tokens_per_second,
                 series.output_tokens_per_second), expected, strict=True,
            ):  # fmt: skip
                value = table[i, place]
                if np.isnan(value):
                    assert place in (0, series.n_bins - 1)
                else:
                    assert value * step == pytest.approx(count)
    assert sum(one.weight for one in series.lengths) == 2 * len(rows)
    for one in series.total_lengths:
        low, high = one.start_seconds - zero, one.start_seconds + one.window_seconds - zero
        place = 2 if one.direction == "input" else 3
        mine = np.sort([float(row[place]) for row in rows if low <= row[0] < high])
        assert one.weight == len(mine)
        assert one.second_moment == pytest.approx((mine**2).mean())
        assert one.p99 == mine[int(np.ceil(0.99 * len(mine))) - 1]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300), st.integers(1, 50))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lengths_are_those_of_the_requests_however_they_are_batched(
    tmp_path: Path, answers: list[int], batch: int
) -> None:
    rows: list[Row] = [(2000.0 * i, "a", 7, answer) for i, answer in enumerate(answers)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace_requests, "BATCH_ROWS", batch)
        patched.setattr("forecasting.traces.trace_bins._MERGE_AT", 20)
        found = read(tmp_path, "mooncake", mooncake([*rows, (10.0**7, "a", 1, 1)])).lengths
    outputs = [one for one in found if one.direction == "output"][:-1]
    assert [one.start_seconds for one in outputs] == sorted(
        {int(r[0]) // 21600 * 21600 for r in rows}
    )
    for one in outputs:
        mine = np.sort([r[3] for r in rows if r[0] // 21600 * 21600 == one.start_seconds])
        assert one.weight == len(mine)
        assert one.mean == pytest.approx(mine.mean())
        assert one.second_moment == pytest.approx((mine.astype(float) ** 2).mean())
        assert one.p99 == mine[int(np.ceil(0.99 * len(mine))) - 1]


@pytest.mark.parametrize(
    ("format", "text", "field"),
    [
        ("azure", "", "file"),
        ("azure", AZURE_HEAD, "file"),
        ("azure", "a,b\n", "line 1"),
        ("azure", AZURE_HEAD + "2024-05-10 00:00:00,1\n", "line 2"),
        ("azure", AZURE_HEAD + "2024-05-10 00:00:00,1,-4\n", "line 2.GeneratedTokens"),
        ("azure", AZURE_HEAD + "2024-05-10 00:00:00,1,4.5\n", "line 2.GeneratedTokens"),
        ("azure", AZURE_HEAD + f"2024-05-10 00:00:00,{'9' * 5000},4\n", "line 2.ContextTokens"),
        ("azure", AZURE_HEAD + "2024-05-10 00:00:00+02:00,1,4\n", "line 2.TIMESTAMP"),
        ("azure", AZURE_HEAD + "NaN,1,4\n", "line 2.TIMESTAMP"),
        ("azure", AZURE_HEAD + "2024-05-10,1,4\n", "line 2.TIMESTAMP"),
        ("azure", AZURE_HEAD + "20240510T1815+02:00,1,4\n", "line 2.TIMESTAMP"),
        ("burstgpt", "Timestamp,Model\n", "line 1"),
        ("burstgpt", BURST_HEAD + "1,a,2,3\n", "line 2"),
        ("burstgpt", BURST_HEAD + "nan,a,2,3,5,x\n", "line 2.Timestamp"),
        ("burstgpt", BURST_HEAD + "1e400,a,2,3,5,x\n", "line 2.Timestamp"),
        ("burstgpt", BURST_HEAD + "-1,a,2,3,5,x\n", "line 2.Timestamp"),
        ("burstgpt", BURST_HEAD + "1_0,a,2,3,5,x\n", "line 2.Timestamp"),
        ("burstgpt", BURST_HEAD + "1,a,two,3,5,x\n", "line 2.Request tokens"),
        ("burstgpt", BURST_HEAD + '1,"a,2,3,5,x\n', "file"),
        ("mooncake", "[]\n", "line 1"),
        ("mooncake", "[" * 100_000 + "\n", "line 1"),
        ("mooncake", '{"timestamp": 1, "input_length": 2}\n', "line 1.output_length"),
        ("mooncake", '{"timestamp": NaN, "input_length": 2, "output_length": 1}',
         "line 1.timestamp"),
        ("mooncake", '{"timestamp": 1e400, "input_length": 2, "output_length": 1}',
         "line 1.timestamp"),
        ("mooncake", '{"timestamp": 1, "input_length": true, "output_length": 1}',
         "line 1.input_length"),
        ("mooncake", '{"timestamp": 1, "input_length": 2, "output_length": 1}', "stepSeconds"),
    ],
)  # fmt: skip
def test_a_damaged_trace_is_refused_by_its_line(
    tmp_path: Path, format: TraceFormat, text: str, field: str
) -> None:
    with pytest.raises(InputError) as problem:
        read(tmp_path, format, text)
    assert problem.value.field == field
    assert len(str(problem.value)) < 1500


def test_too_many_clients_and_a_trace_of_years_are_refused(tmp_path: Path) -> None:
    rows: list[Row] = [(float(i), f"m{i}", 1, 1) for i in range(10_001)]
    with pytest.raises(InputError, match="clients"):
        read(tmp_path, "burstgpt", burst_gpt(rows))
    with pytest.raises(InputError, match="bins"):
        read(tmp_path, "burstgpt", burst_gpt([(0.0, "a", 1, 1), (9e7, "a", 1, 1)]))


def test_times_that_are_unix_time_whatever_the_format_says_are_taken_as_such(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [(1.8e9 + 200.0 * i, "a", 1, 1) for i in range(30)]
    series = read(tmp_path, "mooncake", mooncake(rows))
    assert not series.is_relative
    assert series.start_seconds == 1_800_000_000


def serve_gen(folder: Path) -> None:
    """Two clients of two days; the second has no token lengths."""
    for client in (0, 3):
        rates = [(600 * i, (client + 1) * (i % 144) / 10) for i in range(288)]
        text = "".join(f"{t},{rate},1.2,Gamma,0.5,0.1\n" if rate else f"{t},0,0,,0,0\n"
                       for t, rate in rates)  # fmt: skip
        (folder / f"chunk-{client}-trace.csv").write_text(text)
    windows = {
        str(21_600 * k): {
            "input_tokens": f"{{{10 + k}: 0.25, {20 + k}: 0.75}}",
            "output_tokens": "{}" if k == 3 else "{1: 0.985, 5: 0.005, 900: 0.01}",
        }
        for k in range(8)
    }
    (folder / "chunk-0-dataset.json").write_text(json.dumps(windows))


def test_serve_gen_folders_give_rates_and_lengths_where_they_are_told(tmp_path: Path) -> None:
    serve_gen(tmp_path)
    told: list[float] = []
    series = read_trace(tmp_path, "servegen", 600, told.append)
    assert series.clients == ("c0", "c3")
    np.testing.assert_allclose(series.requests_per_second[1], (np.arange(288) % 144) * 0.4)
    prompts, answers = series.input_tokens_per_second, series.output_tokens_per_second
    assert prompts[0, 40] == pytest.approx(4.0 * 18.5), "second window: 11 and 21 tokens"
    assert np.isnan(answers[0, 3 * 36 + 1]), "a window that tells no answers"
    assert answers[0, 144] == 0.0, "no requests have no tokens, known or not"
    assert np.isnan(prompts[1, 5])
    (one,) = [one for one in series.lengths if (one.start_seconds, one.direction) == (0, "output")]
    expected = TokenLengths("c0", "output", 0, 21_600, 1.0, 10.01, 8101.11, 5.0)
    assert (one.client, one.p99) == (expected.client, expected.p99)
    assert one.mean == pytest.approx(expected.mean)
    assert one.second_moment == pytest.approx(expected.second_moment)
    assert told[-1] == 1.0
    # The other client's lengths nobody told, and its requests weigh nothing.
    (total,) = [t for t in series.total_lengths if (t.start_seconds, t.direction) == (0, "output")]
    assert (total.mean, total.p99) == (pytest.approx(expected.mean), expected.p99)
    hourly = read_trace(tmp_path, "servegen", 3600)
    np.testing.assert_allclose(
        hourly.requests_per_second, series.requests_per_second.reshape(2, 48, 6).mean(axis=2)
    )
    fine = read_trace(tmp_path, "servegen", 300)
    np.testing.assert_allclose(fine.requests_per_second[:, ::2], series.requests_per_second)


def test_lengths_of_all_weigh_clients_by_their_requests(tmp_path: Path) -> None:
    serve_gen(tmp_path)
    other = {str(21_600 * k): {"output_tokens": "{100: 0.5}"} for k in range(8)}
    (tmp_path / "chunk-3-dataset.json").write_text(json.dumps(other))
    series = read_trace(tmp_path, "servegen")
    (total,) = [
        t for t in series.total_lengths if (t.start_seconds, t.direction) == (21_600, "output")
    ]
    # The second client has four times the first one's requests.
    requests = sum(5 * (i % 144) / 10 * 600 for i in range(36, 72))
    assert total.weight == pytest.approx(requests)
    assert total.mean == pytest.approx((10.01 + 4 * 100) / 5)
    assert total.second_moment == pytest.approx((8101.11 + 4 * 10_000) / 5)
    assert total.p99 == 100.0
    rows = series.named("chat")
    window = slice(36, 72)
    np.testing.assert_allclose(rows["output_tokens_p99/chat"][window], 100.0)
    np.testing.assert_allclose(rows["output_tokens_p99/chat/c0"][window], 5.0)
    squares = rows["output_tokens_second_moment/chat/c3"]
    np.testing.assert_allclose(squares[window], 10_000.0)


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("chunk-0-trace.csv", "0,1,1,,0,0\n", "file"),
        ("chunk-0-trace.csv", "0,1,1,,0,0\n600,nan,1,,0,0\n", "line 2"),
        ("chunk-0-trace.csv", "0,1,1,,0,0\n-600,1,1,,0,0\n", "line 2"),
        ("chunk-0-trace.csv", "0,1,1,,0,0\n600,1\n", "line 2"),
        ("chunk-0-trace.csv", "0,1,1,,0,0\n600,1,1,,0,0\n600,1,1,,0,0\n", "file"),
        ("chunk-0-trace.csv", "0,1,1,,0,0\n300,1,1,,0,0\n", "file"),
        ("chunk-0-dataset.json", "{", "file"),
        ("chunk-0-dataset.json", "[" * 100_000, "file"),
        ("chunk-0-dataset.json", "{}", "file"),
        ("chunk-0-dataset.json", '{"x": {}}', "x"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{1: 2}"}}', "0.input_tokens"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "__import__"}}', "0.input_tokens"),
        ("chunk-0-dataset.json", '{"0": {"input_tokens": "{-1: 1}"}}', "0.input_tokens"),
    ],
)
def test_a_damaged_serve_gen_folder_is_refused(
    tmp_path: Path, name: str, text: str, field: str
) -> None:
    serve_gen(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as problem:
        read_trace(tmp_path, "servegen")
    assert problem.value.field == field
    with pytest.raises(InputError, match="file"):
        read_trace(tmp_path / name, "servegen")


@given(st.integers(2 * 144, 5 * 144), st.integers(0, 40 * 144))
@examples(40)
def test_a_trace_that_is_moved_ends_in_time_and_keeps_its_hours_of_day(
    n_bins: int, end_bins: int
) -> None:
    rows = np.arange(2.0 * n_bins).reshape(2, n_bins)
    lengths = (TokenLengths("a", "input", 0, 21_600, 1.0, 1.0, 1.0, 1.0),)
    series = TraceSeries(("a", "b"), 0, 600, rows, rows, rows, lengths, is_relative=True)
    end = 1_800_000_000 + 600 * end_bins
    moved = series.ending(end + 599)
    assert moved.until_seconds == end
    assert (moved.start_seconds - series.start_seconds) % DAY == 0
    assert n_bins - 144 < moved.n_bins <= n_bins
    np.testing.assert_array_equal(moved.requests_per_second, rows[:, : moved.n_bins])
    assert moved.lengths[0].start_seconds == moved.start_seconds
    named = moved.named("chat")
    np.testing.assert_array_equal(named["requests_per_second/chat"], rows[:, : moved.n_bins].sum(0))
    assert set(named) >= {"input_tokens_per_second/chat/b", "output_tokens_per_second/chat"}
