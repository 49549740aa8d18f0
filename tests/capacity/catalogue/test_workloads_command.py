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


@pytest.mark.parametrize(("gpu", "lacking"), [("L4", 59), ("H200-SXM", 2), ("B200-SXM", 0)])
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
    assert main(["train-tensor-parallel"]) == 0
    assert "does not fit: needs 10 GPUs" in capsys.readouterr().out
    assert main(["--gpu", "L4"]) == 0
    listed = capsys.readouterr().out
    assert "59 of 78 do not fit" in listed
    assert main(["--gpu", "B200-SXM"]) == 0
    assert "not fit" not in capsys.readouterr().out


def test_an_entry_that_fits_needs_what_it_asks_for() -> None:
    entry = shipped_catalogue()["train-tensor-parallel"]
    assert gpus_needed(entry, 200e9) == entry.gpus == 8
    assert gpus_needed(entry, 100e9) == 15


def test_a_phase_above_the_limit_is_marked_and_the_cycle_is_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = told(capsys, "decode-speculative", "--gpu", "L4")
    assert [phase["isAboveLimit"] for phase in row["phases"]].count(True) == 1
    assert row["meanWatts"] <= row["limitWatts"] == 72
    assert main(["decode-speculative", "--gpu", "L4"]) == 0
    shown = capsys.readouterr().out
    assert "72*" in shown
    assert "the cycle's mean is held" in shown


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
