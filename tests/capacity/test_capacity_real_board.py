"""The H200 profile against what one real H200 did (no cap was changed there)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from capacity.fitting.reference_files import number, read_csv
from capacity.profile_library import shipped_library
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork

FILE = Path(__file__).parents[2] / "benchmarks" / "data" / "capacity" / "h200_kernel_power.csv"
ROWS = read_csv(FILE, ("kind", "detail", "mean_watts", "tokens_per_second"))


@pytest.mark.parametrize("kind", ["prefill", "batch"])
def test_draw_of_matrix_work_agrees_within_two_percent(kind: str) -> None:
    expected = shipped_library().find("NVIDIA H200").kernel_classes[kind].power_p50_watts
    for row in ROWS:
        if row["kind"] == kind:
            assert number(row, "mean_watts", FILE.name) == pytest.approx(expected, rel=0.02)


def test_the_95th_percentile_of_decode_covers_every_batch_of_a_chat() -> None:
    high = shipped_library().find("NVIDIA H200").kernel_classes["decode"].power_p95_watts
    chats = [row for row in ROWS if row["detail"].endswith("context 1500")]
    assert len(chats) == 5
    for row in chats:
        assert number(row, "mean_watts", FILE.name) <= high


def test_the_step_table_tells_draw_and_speed_of_prompts_and_of_every_batch() -> None:
    table = replace(shipped_step_tables().find("H200-SXM", "llama-3.1-8b", 1), host_seconds=0.0)
    draws, speeds, joules = {}, [], []
    for row in ROWS:
        words = row["detail"].split()
        if row["kind"] == "decode":
            batch, context = int(words[1]), int(words[3])
            work, tokens = IterationWork.of(0, 1, batch, context), batch
        elif row["kind"] == "prefill":
            tokens = int(words[2])
            work = IterationWork.of(tokens, tokens, 0, 1)
        else:
            continue
        made = table.iteration(work)
        watts = min(made.watts[0], table.held.held_share * 700.0)
        measured_watts = number(row, "mean_watts", FILE.name)
        draws[row["detail"]] = abs(watts / measured_watts - 1)
        speed = tokens / table.limited_seconds(made, 700.0)[0]
        measured_speed = number(row, "tokens_per_second", FILE.name)
        speeds.append(abs(speed / measured_speed - 1))
        joules.append(abs(watts / speed / (measured_watts / measured_speed) - 1))
    assert len(draws) == 9
    # A board and a program of their own: boards of one type differ by 4 % in draw.
    # Its attention was not tuned in graphs: at small batches it runs slower and so draws less.
    assert max(joules) < 0.15
    assert sum(joules) / len(joules) < 0.08
    small = {"batch 1 context 1500", "batch 8 context 1500"}
    assert max(error for name, error in draws.items() if name not in small) < 0.08
    # That program is slower in all nine: its element-wise work is priced as copies of its bytes.
    assert sum(speeds) / len(speeds) < 0.12
