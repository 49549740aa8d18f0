"""The command: kernels are found without being run, ranked, and written as rows."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from capacity.app import bench_rank
from capacity.app.bench_command import main
from capacity.bench.measurement_row import read_rows
from capacity.ranking.kernel_judge import KernelJudge
from capacity.ranking_process.find_kernel import find_kernels
from capacity.ranking_process.numpy_host import NumpyHost
from tests.capacity.ranking.trials import GEMM, LIMITS, QUICK, source
from wattpack.clock import SystemClock
from wattpack.errors import InputError

GOOD = """
def kernel(x, w, out):
    for n in range(0, w.shape[0], 16):
        out[:, n : n + 16] = x @ w[n : n + 16].T
"""
LAZY = "def kernel(x, w, out):\n    pass\n"
ALARMED = "raise SystemExit('run by the judge')\ndef kernel(x, w): pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("good", GOOD), ("lazy", LAZY), ("helper", "X = 1\n")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_rank, "TrialRule", lambda: QUICK)
    return tmp_path


def test_a_folder_is_ranked_in_one_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([
        "rank", "--task", "gemm", "--backend", "numpy", "--shapes", "32x48x64",
        "--kernel", str(folder), "--rows", "rows.jsonl", "--json",
    ])  # fmt: skip
    assert status == 0  # a refused kernel is a result
    report = json.loads(capsys.readouterr().out)
    lines = {line["kernel"]: line for line in report["kernels"]}
    assert set(lines) == {
        "good", "lazy", "numpy:gemm_out", "numpy:gemm_returned", "numpy:gemm_transposed",
    }  # fmt: skip
    assert lines["lazy"]["reason"] == "unfinished_result"
    assert lines["good"]["verdict"] == "ranked"
    assert max(line["speed"] for line in lines.values() if line["baseline"]) == 1.0
    assert report["device_minutes"] > 0
    rows = read_rows(folder / "rows.jsonl")
    hashes = {row.implementation: row.identity.kernel_source_sha256 for row in rows}
    assert hashes["good"] == hashlib.sha256(GOOD.encode()).hexdigest()
    assert "lazy" not in hashes


def test_the_table_names_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([
        "rank", "--task", "bandwidth", "--backend", "numpy", "--shapes", "32768",
        "--kernel", "lazy.py:kernel",
    ]) == 0  # fmt: skip
    output = capsys.readouterr().out
    assert "unfinished" in output
    assert "device-minutes" in output


def test_the_judge_never_runs_what_it_looks_for(folder: Path) -> None:
    (folder / "alarmed.py").write_text(ALARMED)
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("raise SystemExit('run by the judge')\n")
    (folder / "package" / "inner.py").write_text(GOOD)
    assert find_kernels("alarmed:kernel")[0].text == ALARMED
    assert find_kernels("package.inner:kernel")[0].text == GOOD


@pytest.mark.parametrize(
    "spec", ["good", "good:", ":kernel", "good:nothing", "missing:kernel", "missing.py:kernel",
             "math:sin", "good.py:a b", "good..x:kernel"],
)  # fmt: skip
def test_a_kernel_that_is_not_there_is_refused_by_name(folder: Path, spec: str) -> None:
    with pytest.raises(InputError, match="--kernel"):
        find_kernels(spec)


def test_a_module_beside_the_kernel_hides_no_known_one(folder: Path) -> None:
    """It would run in the kernel's process before the cost of a round is known."""
    (folder / "numpy.py").write_text("raise SystemExit('not the real one')\n")
    (folder / "capacity.py").write_text("raise SystemExit('not the real one')\n")
    verdict = KernelJudge(NumpyHost(SystemClock(), LIMITS), QUICK).try_kernel(
        find_kernels("good:kernel")[0], [GEMM]
    )
    assert (verdict.reason, verdict.evidence) == (None, "")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize(("file", "reason"), [("good", None), ("lazy", "unfinished_result")])
def test_torch_takes_the_same_way(folder: Path, file: str, reason: str | None) -> None:
    from capacity.kernels import Gemm
    from capacity.ranking.ranked_task import RankedTask
    from capacity.torch_backend.ranked_host import TorchHost

    host = TorchHost("cpu", SystemClock(), LIMITS)
    task = RankedTask("gemm", Gemm(32, 48, 64, "bf16"))
    verdict = KernelJudge(host, QUICK).try_kernel(source(folder / f"{file}.py", "kernel"), [task])
    assert verdict.reason == reason
