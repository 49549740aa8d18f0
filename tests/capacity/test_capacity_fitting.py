"""The fit: reading refuses broken files, curves recover what they are given."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.fitting.board_power import gemm_draw
from capacity.fitting.curves import (
    KNOTS,
    SweepPoint,
    curve_error,
    fit_curve,
    leave_one_gpu_out,
    monotone,
    zeus_points,
)
from capacity.fitting.iteration_times import measured_times
from capacity.fitting.reference_files import number, read_csv
from wattpack.errors import InputError


def _sweep(gpu: str, exponent: float) -> list[SweepPoint]:
    return [
        SweepPoint(gpu, "job", x * 200, 300, 200, min(1.0, x) ** exponent, min(1.0, x))
        for x in np.linspace(0.33, 1.5, 120)
    ]


def test_a_known_curve_is_recovered_within_two_percent() -> None:
    curve = fit_curve(_sweep("A", 0.5))
    assert curve.throughput == pytest.approx(np.minimum(1, KNOTS) ** 0.5, rel=0.02)


def test_leaving_a_different_gpu_out_shows_its_difference() -> None:
    points = _sweep("A", 0.5) + _sweep("B", 0.5) + _sweep("C", 1.5)
    errors = leave_one_gpu_out(points)
    assert errors["C"] > 0.2
    assert curve_error(fit_curve(points), _sweep("A", 0.5)) < 0.02


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30))
def test_monotone_rises_and_keeps_the_mean(values: list[float]) -> None:
    result = monotone(np.array(values))
    assert np.all(np.diff(result) >= -1e-12)
    assert float(np.mean(result)) == pytest.approx(float(np.mean(values)))


def test_jobs_without_a_run_at_the_highest_limit_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    head = (
        "gpu,dataset,network,batch_size,optimizer,power_limit_w,time_per_epoch_s,average_power_w\n"
    )
    file.write_text(
        head + "A,d,n,1,sgd,300,10,200\nA,d,n,1,sgd,150,20,140\nA,d,m,1,sgd,150,9,140\n"
    )
    points = zeus_points(file)
    assert [(p.limit_watts, p.throughput) for p in points] == [(150, 0.5), (300, 1.0)]


def test_short_kernels_and_unfilled_matrices_never_reach_a_power_fit(tmp_path: Path) -> None:
    rows = "".join(f"h,2048,8,4096,0.1,{600 + i}\n" for i in range(3))
    rows += "h,2048,8,4096,0.01,10\nh,2048,8,32768,0.1,20\nh,8,8,4096,0.1,30\n"
    text = "system,m,n,k,latency_ms,power_w\n" + rows
    (tmp_path / "aic_gemm_power.csv.gz").write_bytes(gzip.compress(text.encode()))
    draw = gemm_draw(tmp_path, "h")
    assert (draw.samples, draw.p50_watts) == (3, 601.0)


def test_serving_times_are_recovered_from_runs_that_follow_the_model(tmp_path: Path) -> None:
    rows = []
    for batch in (4, 8, 16, 32):
        for isl, osl in ((1024, 1024), (8192, 1024), (1024, 8192)):
            tpot = 8 + 0.03 * batch * isl / osl + 2e-5 * batch * (isl + osl / 2)
            rows.append(
                f"meta-llama/Llama-3.1-70B,h,vllm,fp8,fp8,{isl},{osl},{batch},4.0,100,{tpot}"
            )
    head = (
        "model_path,system,backend,precision,gemm_quant_mode,isl,osl,batch_size,tp_size,"
        "silicon_ttft_ms,silicon_tpot_ms\n"
    )
    (tmp_path / "aic_llama31_serving.csv.gz").write_bytes(
        gzip.compress((head + "\n".join(rows) + "\n").encode())
    )
    (times,) = measured_times(tmp_path, {"h": "H"})
    assert times.base_seconds == pytest.approx(8e-3)
    assert times.prefill_seconds_per_token == pytest.approx(3e-5)
    assert times.context_seconds_per_token == pytest.approx(2e-8)
    assert times.error_mape < 1e-9


@pytest.mark.parametrize(
    "raw",
    [b"", b"a,b\n", b"a,c\n1,2\n", b"a,b\n1\n", b"a,b\n1,2,3\n", b"\xff\xfe", b'a,b\n"1,2\n'],
)
def test_a_broken_csv_is_refused_with_its_name(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"x\.csv"):
        read_csv(file, ("a", "b"))


def test_a_truncated_gzip_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n1,2\n" * 100)[:-12])
    with pytest.raises(InputError, match="readable CSV"):
        read_csv(file, ("a",))


@pytest.mark.parametrize("cell", ["nan", "inf", "-1", "", "7 W"])
def test_a_cell_that_is_no_quantity_is_refused(cell: str) -> None:
    with pytest.raises(InputError, match="power_w"):
        number({"power_w": cell}, "power_w", "x.csv")
