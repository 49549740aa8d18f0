"""A row reads back as it was written, and nothing impossible is read at all."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capacity.bench.measurement_row import (
    Latency,
    MeasurementRow,
    content_sha256,
    parse_rows,
    read_rows,
    row_line,
)
from capacity.bench.results_file import ResultsFile, read_earlier_run
from capacity.bench.row_checks import require_one_board, require_own_name, require_possible
from capacity.kernels import Attention, DecoderStep, Gemm, Kernel, LaunchChain, MemoryStream
from tests.capacity.bench_builders import IDENTITY, a_row
from wattpack.errors import InputError

PROFILES = Path(__file__).parents[2] / "capacity/data/profiles"
SHIPPED = sorted(PROFILES.glob("*.jsonl.gz"))


@pytest.mark.parametrize(
    "row",
    [
        a_row(),
        a_row(power=None),
        a_row(sm_clock_mhz=None, temperature_start_celsius=None, temperature_end_celsius=None),
        a_row(flags=("throttled", "shared_gpu"), throttle_reasons=4),
        a_row(identity=replace(IDENTITY, sm_clock_lock_mhz=1400)),
        a_row(kernel=MemoryStream("copy", 2**28), cache_state="warm"),
    ],
)
def test_a_row_reads_back_as_it_was_written(row: MeasurementRow) -> None:
    (again,) = parse_rows([row_line(row)])
    assert again == row
    assert row_line(again) == row_line(row)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_rows_are_possible_of_one_board_and_true_to_their_name(file: Path) -> None:
    rows = read_rows(file)
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    assert [row_line(row) for row in rows] == lines
    require_possible(rows)
    require_one_board(rows)
    require_own_name(rows)


def test_there_are_shipped_rows() -> None:
    assert len(SHIPPED) == 12


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = a_row().as_dict()
    change(document)
    return json.dumps(document)


REFUSED: list[tuple[str, str]] = [
    (row_line(a_row())[:-40], "row"),
    ("[]", "row"),
    ("null", "row"),
    ("[" * 100_000, "row"),
    (changed(lambda d: d.update(schema_version=2)), "schema_version"),
    (changed(lambda d: d.pop("schema_version")), "schema_version"),
    (changed(lambda d: d.update(extra=1)), "extra"),
    (changed(lambda d: d.pop("dtype")), "dtype"),
    (changed(lambda d: d["latency_ms"].update(median=float("nan"))), "row"),
    (changed(lambda d: d["latency_ms"].update(median=-1.0)), "latency_ms.median"),
    (changed(lambda d: d["latency_ms"].update(median=0)), "latency_ms.median"),
    (changed(lambda d: d["latency_ms"].update(median="fast")), "latency_ms.median"),
    (changed(lambda d: d["latency_ms"].update(p10=5.0)), "latency_ms"),
    (changed(lambda d: d.update(latency_ms=3)), "latency_ms"),
    (changed(lambda d: d["power_w"].update(mean=-600.0)), "power_w.mean"),
    (changed(lambda d: d["power_w"].update(mean=1e400)), "row"),
    (changed(lambda d: d["power_w"].update(instant=7)), "power_w.instant"),
    (changed(lambda d: d["power_w"].update(instant=[0])), "power_w.instant"),
    (changed(lambda d: d.update(window_s=0)), "window_s"),
    (changed(lambda d: d.update(power_limit_w=-1)), "power_limit_w"),
    (changed(lambda d: d.update(l2_state="tepid")), "l2_state"),
    (changed(lambda d: d["quality"].update(flags=["fine"])), "quality.flags"),
    (changed(lambda d: d["quality"].update(flags=[{}])), "quality.flags"),
    (changed(lambda d: d.update(kernel_class="attention_decode")), "shape.batch"),
    (changed(lambda d: d.update(throttle_reasons=True)), "throttle_reasons"),
    (changed(lambda d: d.update(throttle_reasons=3.7)), "throttle_reasons"),
    (changed(lambda d: d.update(n_iter=2.5)), "n_iter"),
    (changed(lambda d: d.update(n_iter=10**30)), "n_iter"),
]


@pytest.mark.parametrize(("line", "field"), REFUSED, ids=[f for _, f in REFUSED])
def test_a_bad_line_is_refused_by_number_and_field(line: str, field: str) -> None:
    with pytest.raises(InputError) as refused:
        list(parse_rows([row_line(a_row()), line], "rows.jsonl"))
    assert refused.value.field == field
    assert "rows.jsonl:2" in str(refused.value)


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(row_line(a_row()).encode())[:-20])
    with pytest.raises(InputError, match="a results file"):
        read_rows(file)


def took(seconds: float) -> Latency:
    return Latency(seconds, seconds, seconds, 0.001, 10)


@pytest.mark.parametrize(
    "row",
    [
        a_row(latency=took(1.3e-4)),  # 1057 of 989 TFLOPS
        a_row(kernel=MemoryStream("copy", 2**30), latency=took(4.2e-4)),  # 5.1 of 4.8 TB/s
        a_row(kernel=Gemm(1, 8192, 8192), latency=took(2.6e-5)),
    ],
)
def test_more_than_the_roof_allows_is_refused_unless_the_row_says_so(row: MeasurementRow) -> None:
    with pytest.raises(InputError, match=r"latency_ms.median.*H200"):
        require_possible([a_row(), row])
    require_possible([a_row(), replace(row, flags=("above_peak",))])


SMALL: list[tuple[Kernel, float, float]] = [
    # Less than the cache holds, seconds that are too few, and enough: operands at 4.8 TB/s.
    (Gemm(1, 4096, 4096), 6.7e-6, 7.0e-6),
    (Gemm(1, 4096, 4096, "fp8"), 3.3e-6, 3.5e-6),
    (Gemm(8192, 4096, 256, "fp8"), 8.4e-6, 9.0e-6),  # 67 MB of results stay in the cache
    (Attention("decode", 4, 1, 4096, 32, 8), 1.34e-5, 1.4e-5),
    (MemoryStream("copy", 2**24), 3.3e-6, 3.5e-6),
    (Gemm(1, 256, 256), 0.7e-6, 1.1e-6),  # nothing starts sooner
]


@pytest.mark.parametrize(("kernel", "too_few", "enough"), SMALL)
def test_what_is_small_comes_from_memory_too_when_it_is_cold(
    kernel: Kernel, too_few: float, enough: float
) -> None:
    require_possible([a_row(kernel=kernel, latency=took(enough))])
    with pytest.raises(InputError, match=r"latency_ms.median.*H200"):
        require_possible([a_row(kernel=kernel, latency=took(too_few))])


@pytest.mark.parametrize(
    ("kernel", "too_few"),
    [
        (MemoryStream("copy", 2**14), 0.7e-6),
        (LaunchChain(200, "graph"), 1.5e-4),
    ],
)
def test_no_kernel_runs_faster_than_an_empty_one(kernel: Kernel, too_few: float) -> None:
    require_possible([a_row(kernel=kernel, cache_state="warm", latency=took(2.1e-4))])
    with pytest.raises(InputError, match=r"latency_ms.median.*H200"):
        require_possible([a_row(kernel=kernel, cache_state="warm", latency=took(too_few))])


HELD_TO_MEMORY = Gemm | Attention | MemoryStream | DecoderStep


def divided(row: MeasurementRow, by: float) -> MeasurementRow:
    seconds = row.latency
    return replace(
        row,
        flags=(),
        latency=replace(
            seconds,
            median_seconds=seconds.median_seconds / by,
            p10_seconds=seconds.p10_seconds / by,
            p90_seconds=seconds.p90_seconds / by,
        ),
    )


def is_possible(row: MeasurementRow) -> bool:
    try:
        require_possible([row])
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    "file", ["h100", "h200", "h200-second-board", "h100-validation", "h100-steps", "h200-steps"]
)
def test_a_twentieth_of_a_cold_kernel_s_time_is_found(file: str) -> None:
    cold = [
        row for row in read_rows(PROFILES / f"{file}.jsonl.gz")
        if row.cache_state == "cold" and isinstance(row.kernel, HELD_TO_MEMORY)
        and row.section not in {"arrivals", "transition"}  # some of these times are the host's
    ]  # fmt: skip
    assert len(cold) > 60
    assert [row.kernel for row in cold if is_possible(divided(row, 20))] == []


def test_a_warm_row_may_pass_the_memory_roof() -> None:
    stream = MemoryStream("copy", 2**30)
    require_possible([a_row(kernel=stream, cache_state="warm", latency=took(4.2e-4))])


def test_the_time_of_a_run_without_gaps_is_held_to_the_roof_too() -> None:
    power = a_row().power
    assert power is not None
    with pytest.raises(InputError, match=r"sustained"):
        require_possible([a_row(power=replace(power, sustained_seconds=1.3e-4))])


def test_a_draw_far_above_the_limit_is_refused() -> None:
    power = a_row().power
    assert power is not None
    with pytest.raises(InputError, match=r"power_w.mean"):
        require_possible([a_row(power=replace(power, mean_watts=900.0))])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gpu_product": "NVIDIA H100 80GB HBM3"}, "gpu_product"),
        ({"gpu_uuid_hash": "1" * 16}, "gpu_uuid_hash"),
        ({"driver": "other"}, "versions and limit"),
        ({"power_limit_watts": 500.0}, "versions and limit"),
        ({"kernel_source_sha256": "0" * 64}, "versions and limit"),
    ],
)
def test_rows_of_two_boards_are_not_mixed(change: dict[str, Any], field: str) -> None:
    other = a_row(identity=replace(IDENTITY, **change))
    with pytest.raises(InputError) as refused:
        require_one_board([a_row(), other])
    assert refused.value.field == field


def require_true(rows: list[MeasurementRow]) -> None:
    require_possible(rows)
    require_own_name(rows)


@pytest.mark.parametrize(
    ("file", "name"),
    [("h100", "NVIDIA H200"), ("h200", "NVIDIA H100 80GB HBM3"), ("h200", "NVIDIA B200")],
)
def test_measured_rows_under_another_gpu_s_name_are_refused(file: str, name: str) -> None:
    rows = read_rows(PROFILES / f"{file}.jsonl.gz")
    renamed = [replace(r, identity=replace(r.identity, gpu_product=name)) for r in rows]
    with pytest.raises(InputError):
        require_true(renamed)


def test_a_row_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="each row once"):
        require_one_board([a_row(), a_row(kernel=Gemm(1, 2, 3)), a_row()])


def test_the_hash_of_rows_knows_no_order_and_sees_every_change() -> None:
    one, two = a_row(), a_row(kernel=Gemm(1, 2, 3))
    assert content_sha256([one, two]) == content_sha256([two, one])
    assert content_sha256([one]) != content_sha256([two])


def test_a_row_that_was_cut_off_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [row_line(a_row()), row_line(a_row(kernel=Gemm(1, 2, 3)))]
    for cut in range(len(lines[1])):
        file.write_text(f"{lines[0]}\n{lines[1][:cut]}")
        earlier = read_earlier_run(file)
        assert len(earlier.rows) == 1
        assert bool(earlier.dropped) == (cut > 0)
        with ResultsFile(file, earlier) as results:
            results.append(a_row(kernel=Gemm(3, 3, 3)))
        assert [row.kernel for row in read_rows(file)] == [a_row().kernel, Gemm(3, 3, 3)]


def test_a_whole_row_that_lost_its_line_end_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(row_line(a_row()))
    earlier = read_earlier_run(file)
    with ResultsFile(file, earlier) as results:
        results.append(a_row(kernel=Gemm(3, 3, 3)))
    assert len(read_rows(file)) == 2
    assert not earlier.dropped


@pytest.mark.parametrize(
    "text",
    [
        row_line(a_row())[:50] + "\n",  # cut off, and then somebody ended the line
        row_line(a_row())[:50] + "\n" + row_line(a_row()) + "\n",
        "something else",
        '{"schema_version":2,"run',
        "\udcff",
    ],
)
def test_any_other_bad_line_is_refused_and_the_file_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(text, errors="surrogateescape")
    before = file.read_bytes()
    with pytest.raises(InputError):
        read_earlier_run(file)
    assert file.read_bytes() == before
