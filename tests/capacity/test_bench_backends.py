"""One contract for every backend: simulated, numpy, and torch on a processor where it is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from capacity.app.bench_command import main
from capacity.bench.measurement_row import parse_rows, read_rows, row_line
from capacity.bench.point_bench import BenchRig
from capacity.bench.ports import KernelUnavailable
from capacity.kernels import Attention, Collective, Gemm, Kernel, LaunchChain, MemoryStream
from capacity.numpy_backend import HostMeter, NumpyBackend
from tests.capacity.bench_builders import a_rig, a_row, quick_points, run_on
from wattpack.clock import SystemClock

KERNELS: list[Kernel] = [
    Gemm(4, 256, 256),
    MemoryStream("copy", 2**16),
    MemoryStream("triad", 2**16),
    MemoryStream("read", 2**16),
    LaunchChain(20, "eager"),
]
ATTENTIONS: list[Kernel] = [
    Attention("prefill", 1, 32, 32, 4, 2, 16),
    Attention("prefill", 1, 32, 32, 4, 2, 16, "window", 8),
    Attention("prefill", 1, 32, 32, 4, 2, 16, "document", 0, 4),
    Attention("decode", 2, 1, 64, 4, 1, 16),
]


def numpy_rig() -> BenchRig:
    host = HostMeter()
    return BenchRig(NumpyBackend(SystemClock()), host, SystemClock(), host.state())


def torch_rig() -> BenchRig:
    from capacity.torch_backend import TorchBackend
    from capacity.torch_backend.tuning import TunedConfigs

    clock, host = SystemClock(), HostMeter()
    return BenchRig(TorchBackend("cpu", TunedConfigs(clock, 1), clock), host, clock, host.state())


RIGS = [
    pytest.param(a_rig, id="simulated"),
    pytest.param(numpy_rig, id="numpy"),
    pytest.param(
        torch_rig,
        id="torch",
        marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    ),
]
Open = Callable[[], BenchRig]


@pytest.mark.parametrize("open_rig", RIGS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_loaded_kernel_takes_time_and_ends(open_rig: Open, kernel: Kernel) -> None:
    backend = open_rig().backend
    loaded = backend.load(kernel, "cold", 1)
    assert loaded.implementation
    assert loaded.runs_per_launch >= 1
    pending = loaded.launch(2)
    assert pending.seconds() > 0
    assert pending.done()
    loaded.close()
    backend.close()


@pytest.mark.parametrize("open_rig", RIGS[:2])
@pytest.mark.parametrize("kernel", ATTENTIONS, ids=str)
def test_every_mask_runs(open_rig: Open, kernel: Kernel) -> None:
    assert open_rig().backend.load(kernel, "cold", 1).launch(1).seconds() > 0


@pytest.mark.parametrize("open_rig", RIGS)
def test_two_openings_are_one_software_and_one_fingerprint(open_rig: Open) -> None:
    one, two = open_rig().backend, open_rig().backend
    assert one.software() == two.software()
    assert one.fingerprint() == two.fingerprint()
    assert one.facts() == two.facts()


@pytest.mark.parametrize("open_rig", RIGS)
def test_what_cannot_run_is_unavailable_not_an_accident(open_rig: Open) -> None:
    with pytest.raises(KernelUnavailable):
        open_rig().backend.load(Collective("all_reduce", 1024, 8), "cold", 1)


@pytest.mark.parametrize("open_rig", RIGS[:2])
def test_rows_of_a_run_read_back(open_rig: Open) -> None:
    rig = open_rig()
    outcome = run_on(rig, quick_points(rig, "launch"))
    assert len(outcome.rows) == 6
    assert list(parse_rows(row_line(row) for row in outcome.rows))


def test_a_larger_product_takes_longer_on_a_simulated_board_and_draws_no_more_than_its_limit() -> (
    None
):
    rig = a_rig()
    rows = run_on(rig, quick_points(rig, "gemm")).rows
    times = {row.kernel.flops: row.latency.median_seconds for row in rows}
    assert times[max(times)] > 100 * times[min(times)]
    draws = [row.power.mean_watts for row in rows if row.power]
    assert max(draws) == pytest.approx(700, rel=0.05)
    assert min(draws) < 400
    assert any("throttled" in row.flags for row in rows)


def test_the_command_resumes_and_says_what_it_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    command = ["run", "--backend", "simulated", "--quick", "--out", str(file)]
    assert main(command) == 0
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr()
    assert "dropped a row that was cut off" in said.err
    assert "drift no" in said.out
    points = [
        (r.section, r.kernel, r.cache_state, r.timing_mode, r.launch_mode) for r in read_rows(file)
    ]
    assert len(points) == len(set(points)) == whole.count(b"\n")
    assert {json.loads(line)["gpu_product"] for line in file.read_text().splitlines()} == {
        "NVIDIA H200"
    }


@pytest.mark.parametrize("ending", ["", "\n", '\n{"schema_version":1,"run'])
def test_a_file_of_another_board_is_refused_as_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    file = tmp_path / "rows.jsonl"
    other = row_line(a_row())
    file.write_text(other + ending)
    before = file.read_bytes()
    command = ["run", "--backend", "simulated", "--quick", "--sections", "launch"]
    assert main([*command, "--out", str(file)]) == 2
    assert f"{file}: --out: expected rows of this board" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_command_says_what_torch_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--out", str(tmp_path / "x.jsonl")]) == 1
    assert "NVML" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


def test_a_pod_s_log_is_a_results_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--backend", "simulated", "--quick", "--print-rows"]
    assert main([*command, "--out", str(tmp_path / "rows.jsonl")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out == (tmp_path / "rows.jsonl").read_text()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_winners_of_tuning_are_not_taken_to_another_gpu(tmp_path: Path) -> None:
    from capacity.torch_backend import tuning_key
    from capacity.torch_backend.tuning import CONFIGS, TunedConfigs

    tried: list[tuple[int, ...]] = []

    def with_config(config: tuple[int, ...]) -> Callable[[int], None]:
        tried.append(config)
        return lambda copy: None

    cache = tmp_path / "tuning.json"
    for product, times in (("H200", 1), ("H200", 1), ("H100", 2), ("H200", 3)):
        tuned = TunedConfigs(SystemClock(), 60, cache, tuning_key(product, "580"))
        tuned.best("decode", (128,), with_config)
        assert len(tried) == times * len(CONFIGS["decode"])


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_report_says_what_tuning_brought() -> None:
    from capacity.torch_backend.tuning import TunedConfigs, TuningGain

    tuned = TunedConfigs(SystemClock(), 60)
    assert tuned.remarks() == []
    tuned.gains += [
        TuningGain("decode", str(i), (1,), untuned_seconds=t, tuned_seconds=1.0)
        for i, t in enumerate((1.0, 2.0, 4.0))
    ]
    (line,) = tuned.remarks()
    assert line == "tuning decode: 3 keys, 2.00 times as fast as untuned (median), 4.00 at most"
