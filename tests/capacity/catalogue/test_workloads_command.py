from __future__ import annotations

import json
from typing import Any

import pytest

from capacity.app.workloads_command import main
from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_memory import gpus_needed
from capacity.catalogue.workload_model import Conditions, price_cycle


def told(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, Any]]:
    assert main([*flags, "--json"]) == 0
    made: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return made


@pytest.mark.parametrize(("gpu", "lacking"), [("L4", 59), ("H200-SXM", 0), ("B200-SXM", 0)])
def test_what_is_larger_than_a_board_is_said_not_to_fit(
    capsys: pytest.CaptureFixture[str], gpu: str, lacking: int
) -> None:
    rows = told(capsys, "--gpu", gpu)
    assert sum(not row["fits"] for row in rows) == lacking
    for row in rows:
        assert row["fits"] is (row["gpuP99Bytes"] <= row["boardBytes"])
        own = row["entry"]["gpus"]
        assert (row["gpusNeeded"] > own) is not row["fits"]
        assert row["gpusNeeded"] * row["boardBytes"] >= own * row["gpuP99Bytes"]


def test_the_table_marks_what_does_not_fit_and_says_how_many_boards_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train-tensor-parallel", "--gpu", "L40S"]) == 0
    assert "does not fit: needs 118 GPUs" in capsys.readouterr().out
    assert main(["--gpu", "L4"]) == 0
    listed = capsys.readouterr().out
    assert "59 of 78 do not fit" in listed
    assert main(["--gpu", "H200-SXM"]) == 0
    assert "not fit" not in capsys.readouterr().out


def test_an_entry_that_fits_needs_what_it_asks_for() -> None:
    entry = shipped_catalogue()["train-tensor-parallel"]
    assert gpus_needed(entry, 100e9) == entry.gpus == 64
    assert gpus_needed(entry, 50e9) == 114


def test_a_phase_above_the_limit_is_marked_and_the_cycle_is_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("decode-speculative", "--gpu", "L4", "--limit-watts", "70")
    (row,) = told(capsys, *asked)
    (hot,) = [phase for phase in row["phases"] if phase["isAboveLimit"]]
    assert row["meanWatts"] <= row["limitWatts"] == 70
    assert main(list(asked)) == 0
    shown = capsys.readouterr().out
    assert f"{hot['meanWatts']:.0f}*" in shown
    assert "the cycle's mean is held" in shown


def test_an_entry_with_stages_tells_what_one_request_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["agent-workflow"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 × think (2560 + 200 tokens) → tools (1 s)" in shown
    assert "--graph agent-workflow" in shown


@pytest.mark.parametrize(("gpu", "watts"), [("H200-SXM", "100"), ("H200-SXM", "900"), ("L4", "80")])
def test_a_limit_that_no_board_takes_is_refused(
    capsys: pytest.CaptureFixture[str], gpu: str, watts: str
) -> None:
    assert main(["decode-4bit", "--gpu", gpu, "--limit-watts", watts]) == 2
    assert f"W for {gpu}, got {float(watts)}" in capsys.readouterr().err


def test_the_limit_that_was_asked_for_is_the_one_that_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["decoder-prefill", "--limit-watts", "450"]) == 0
    assert "W of 450" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["L4", "B200-SXM", "H200-SXM", "H100-SXM", "A100-SXM"])
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_no_draw_of_a_cycle_passes_the_limit_nor_that_of_a_phase_of_a_second(
    name: str, share: float
) -> None:
    gpu = priced_gpu(name)
    limit = share * gpu.limit_watts
    for entry in shipped_catalogue().values():
        cycle = price_cycle(entry, gpu, Conditions(limit_watts=limit))
        assert cycle.mean_watts <= limit, entry.name
        if cycle.seconds >= 1:
            assert all(phase.mean_watts <= limit for phase in cycle.phases), entry.name


def test_a_clock_lock_slows_what_computes_and_spares_what_waits_for_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, least, most in (("decoder-prefill", 1.1, 1.5), ("memory-stream", 1.0, 1.01)):
        free, locked = (told(capsys, name, "--clock-share", s)[0] for s in ("1", "0.75"))
        assert least <= locked["cycleSeconds"] / free["cycleSeconds"] <= most
        assert locked["meanWatts"] < free["meanWatts"]
        assert (locked["clockShare"], locked["clockResponse"]) == (0.75, "assumed")
    assert main(["decoder-prefill", "--clock-share", "0.75"]) == 0
    assert "clock locked at 75%" in capsys.readouterr().out
    assert main(["decoder-prefill", "--clock-share", "1.5"]) == 2
    assert "clock_share" in capsys.readouterr().err
