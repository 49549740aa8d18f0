"""Rows become a profile, or are refused: faulty boards, other names, other numbers."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from capacity.app.bench_command import main
from capacity.bench.bench_identity import SIMULATED_DRIVER
from capacity.bench.cap_curves import cap_curves
from capacity.bench.known_numbers import require_known_numbers
from capacity.bench.measured_profile import measured_profile
from capacity.bench.measurement_row import MeasurementRow, content_sha256, read_rows, row_line
from capacity.bench.row_checks import require_same_numbers
from capacity.kernels import Gemm
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from tests.capacity.bench_builders import IDENTITY, a_rig, a_row, quick_points, run_on
from wattpack.errors import InputError

PROFILES = Path(__file__).parents[2] / "capacity/data/profiles"
POWER = a_row().power
assert POWER is not None
H200 = [str(PROFILES / "h200.jsonl.gz"), str(PROFILES / "h200-steps.jsonl.gz")]


def profile_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["profile", *arguments]) == 0
    body: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return body


def kernel_class(body: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(k for k in body["spec"]["kernelClasses"] if k["name"] == name)
    return found


def test_measured_steps_give_the_draws_of_a_profile_that_is_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = profile_of(capsys, *H200)
    rows = [row for file in H200 for row in read_rows(Path(file))]
    steps = [r for r in rows if r.kernel.kernel_class == "step_decode" and r.ok and r.power]
    draws = sorted(r.power.mean_watts for r in steps if r.power)
    shown = kernel_class(body, "decode")
    assert draws[len(draws) // 2 - 1] - 0.1 <= shown["powerP50Watts"]
    assert shown["powerP50Watts"] <= draws[len(draws) // 2] + 0.1
    assert shown["powerP95Watts"] > 680
    assert body["spec"]["provenanceHash"] == content_sha256(rows)
    book = ProfileBook.shipped(shipped_library()).with_objects([body])
    taken = book.find("NVIDIA H200").kernel_classes["decode"]
    assert taken.power_p50_watts == shown["powerP50Watts"]


def test_simulated_rows_make_no_profile_that_anything_applies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [
        replace(row, identity=replace(row.identity, driver=SIMULATED_DRIVER))
        for row in read_rows(Path(H200[1]))
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(row_line(row) + "\n" for row in rows))
    assert main(["profile", str(file)]) == 2
    assert "--allow-simulated" in capsys.readouterr().err
    body = profile_of(capsys, str(file), "--allow-simulated")
    book = ProfileBook.shipped(shipped_library()).with_objects([body])
    (refusal,) = book.refusals.values()
    assert "wattpack.io/simulated" in refusal.message
    assert book.find("NVIDIA H200") == shipped_library().find("NVIDIA H200")


def test_a_cap_below_the_measured_draw_costs_speed() -> None:
    """What a cap of a share of the draw costs is what the older curve says of that share."""
    profile = shipped_library().find("NVIDIA H200")
    older = replace(profile.kernel_classes["decode"], power_p50_watts=380.0)
    before = replace(profile, kernel_classes={**profile.kernel_classes, "decode": older})
    rows = [row for file in H200 for row in read_rows(Path(file))]
    shown = measured_profile(rows, before).kernel_classes["decode"]
    ratio = shown.power_p50_watts / older.power_p50_watts
    assert ratio > 1.3
    for cap, speed in zip(shown.cap_fractions, shown.throughput, strict=True):
        same = np.interp(cap / ratio, older.cap_fractions, older.throughput)
        assert speed == pytest.approx(same, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([str(PROFILES / "h200-busy-neighbour.jsonl.gz")], "busy_neighbour"),
        ([*H200, "--gpu", "H100-SXM"], "gpu_product"),
        ([*H200, "--gpu", "nonsense"], "gpuModel"),
        ([H200[0], str(PROFILES / "h200-second-board.jsonl.gz")], "gpu_uuid_hash"),
        ([str(PROFILES / "h200-collectives.jsonl.gz")], "with power"),
        (["missing.jsonl"], "missing.jsonl"),
    ],
)
def test_rows_that_make_no_profile_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["profile", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_rows_under_another_gpu_s_name_make_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = tmp_path / "rows.jsonl.gz"
    text = gzip.decompress((PROFILES / "h100.jsonl.gz").read_bytes()).decode()
    renamed.write_bytes(
        gzip.compress(text.replace("NVIDIA H100 80GB HBM3", "NVIDIA H200").encode())
    )
    assert main(["profile", str(renamed)]) == 2
    assert "gpu_product" in capsys.readouterr().err


def test_check_ends_with_one_and_names_the_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", H200[0]]) == 0
    assert main(["check", str(PROFILES / "h200-busy-neighbour.jsonl.gz")]) == 1
    assert "busy_neighbour" in capsys.readouterr().out
    second = str(PROFILES / "h200-second-board.jsonl.gz")
    assert main(["check", second, "--known", H200[0]]) == 0
    assert main(["check", second, "--known", str(PROFILES / "h100.jsonl.gz")]) == 2


def test_check_says_that_nobody_looked_where_the_roofs_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, known = tmp_path / "rows.jsonl", tmp_path / "known.jsonl"
    for path, board in ((file, "1" * 16), (known, "2" * 16)):
        who = replace(IDENTITY, gpu_product="NVIDIA H2O0", gpu_uuid_hash=board)
        path.write_text(row_line(a_row(identity=who)))
    for more in ([], ["--known", str(known)]):
        assert main(["check", str(file), *more]) == 1
        said = capsys.readouterr().out
        assert "roofs_unknown: no roofs are known of NVIDIA H2O0" in said
    assert main(["check", H200[0]]) == 0
    assert "roofs_unknown" not in capsys.readouterr().out


def test_a_run_on_a_type_without_roofs_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--backend", "numpy", "--quick", "--sections", "launch"]
    assert main([*command, "--out", str(tmp_path / "rows.jsonl")]) == 0
    assert "not judged: no roofs are known of CPU" in capsys.readouterr().out


def with_numbers(fingerprint: str, **identity: Any) -> list[MeasurementRow]:
    return [a_row(identity=replace(IDENTITY, numeric_fingerprint=fingerprint, **identity))]


def test_a_board_that_computes_other_numbers_is_another_board() -> None:
    require_same_numbers(with_numbers("a"), with_numbers("a"))
    require_same_numbers(with_numbers(""), with_numbers("a"))
    require_same_numbers(with_numbers("a", torch="2.12"), with_numbers("b"))
    with pytest.raises(InputError, match="numeric_fingerprint"):
        require_same_numbers(with_numbers("a"), with_numbers("b"))


def test_new_rows_carry_the_fingerprint_and_old_ones_stay_as_they_were() -> None:
    rig = a_rig()
    (row, *_) = run_on(rig, quick_points(rig, "launch")).rows
    assert json.loads(row_line(row))["numeric_fingerprint"] == rig.backend.fingerprint()[:16]
    assert "numeric_fingerprint" not in json.loads(row_line(a_row()))


def test_a_run_does_not_go_on_where_another_board_computed() -> None:
    rig = a_rig()
    points = quick_points(rig, "launch")
    (row, *_) = run_on(rig, points).rows
    other = replace(row, identity=replace(row.identity, numeric_fingerprint="1" * 16))
    with pytest.raises(InputError, match="numeric_fingerprint"):
        run_on(rig, points, known=[other])


KNOWN = replace(IDENTITY, numeric_fingerprint="aaaabbbbccccdddd")


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, False),
        ({"numeric_fingerprint": "aaaabbbbcccceeee"}, True),
        ({"numeric_fingerprint": "aaaabbbbcccc0000"}, False),  # no 8-bit units to compare
        ({"numeric_fingerprint": "1111222233334444", "torch": "3.0"}, False),
        ({"numeric_fingerprint": "1111222233334444", "gpu_product": "NVIDIA B200"}, False),
        ({"numeric_fingerprint": ""}, False),
    ],
)
def test_a_profile_is_refused_that_computes_as_no_board_of_its_name(
    change: dict[str, str], refused: bool
) -> None:
    identity = replace(KNOWN, **change)
    if not refused:
        require_known_numbers(identity, [KNOWN])
        return
    with pytest.raises(InputError, match="as NVIDIA H200 computes"):
        require_known_numbers(identity, [KNOWN])


def test_boards_of_one_type_may_round_in_several_known_ways() -> None:
    other = replace(KNOWN, numeric_fingerprint="1111222233334444")
    require_known_numbers(other, [KNOWN, other])


def test_the_gate_flags_every_row_of_a_board_that_computes_as_none_of_its_name() -> None:
    rig = a_rig()
    points = quick_points(rig, "launch")
    (row, *_) = run_on(rig, points).rows
    strange = replace(rig, known=(replace(row.identity, numeric_fingerprint="1" * 16),))
    outcome = run_on(strange, points)
    assert {row.flags for row in outcome.rows} == {("other_numbers",)}
    assert not any(row.ok for row in outcome.rows)
    assert "numeric_fingerprint" in outcome.gate.remarks[0]
    assert run_on(replace(rig, known=(row.identity,)), points).rows[0].flags == ()


def test_plots_are_three_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["plot", *H200, "--out", str(tmp_path / "new")]) == 0
    for name in ("roofline.png", "power.png", "cap-curve.png"):
        assert (tmp_path / "new" / name).read_bytes()[:4] == b"\x89PNG"


def with_cap(kernel: Gemm, cap_watts: float, seconds: float) -> MeasurementRow:
    who = replace(IDENTITY, power_limit_watts=cap_watts)
    power = replace(POWER, mean_watts=0.99 * cap_watts, sustained_seconds=seconds)
    return a_row(section="caps", kernel=kernel, identity=who, power=power)


def test_a_cap_curve_of_measured_rows_is_speed_over_the_highest_cap() -> None:
    small, large = Gemm(1, 4096, 4096), Gemm(8192, 4096, 4096)
    rows = [with_cap(small, cap, 2e-5) for cap in (350, 700)]
    rows += [with_cap(large, 350, 5e-4), with_cap(large, 700, 4e-4), a_row()]
    locked = replace(IDENTITY, sm_clock_lock_mhz=1400)
    rows.append(a_row(section="caps", kernel=large, identity=locked))
    curves = cap_curves(rows)
    assert [curve.caps_watts for curve in curves] == [(350, 700), (350, 700)]
    assert sorted(curve.speeds for curve in curves) == [(0.8, 1.0), (1.0, 1.0)]
    assert all("measured" in curve.label for curve in curves)


def test_without_rows_under_caps_the_curve_is_the_shipped_profile_s_and_says_so() -> None:
    curves = cap_curves([a_row()])
    profile = shipped_library().find("NVIDIA H200")
    assert [c.label.split(",")[0] for c in curves] == ["prefill", "decode"]
    for curve in curves:
        kernel = profile.kernel_classes[curve.label.split(",")[0]]
        assert curve.speeds == kernel.throughput
        assert f"shipped profile, {kernel.curve_provenance}" in curve.label
    unknown = replace(IDENTITY, gpu_product="NVIDIA H2O0")
    assert cap_curves([a_row(identity=unknown)]) == ()


def test_a_plot_without_matplotlib_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", *H200, "--out", str(tmp_path / "new")]) == 1
    assert "matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_plot_of_nothing_or_into_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    nothing = str(PROFILES / "h200-collectives.jsonl.gz")
    assert main(["plot", nothing, "--out", str(tmp_path)]) == 2
    (tmp_path / "file").write_text("")
    assert main(["plot", *H200, "--out", str(tmp_path / "file")]) == 2
    assert "--out" in capsys.readouterr().err
