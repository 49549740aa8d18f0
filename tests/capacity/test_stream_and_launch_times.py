"""Passes over memory and launches, from the rows of their own sections."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.kernels import LaunchChain, LaunchMode, MemoryStream
from capacity.model.launch_costs import LaunchCosts
from capacity.model.stream_times import StreamTimes
from tests.capacity.kernel_row import kernel_row
from wattpack.errors import InputError

COPIES = {2**14: 1e-6, 2**22: 2e-6, 2**29: 200e-6}


def copies(times: dict[int, float] = COPIES) -> StreamTimes:
    return StreamTimes.from_rows(
        kernel_row(MemoryStream("copy", size), seconds, section="bandwidth")
        for size, seconds in times.items()
    )


def test_measured_passes_are_told_as_measured() -> None:
    made = copies().seconds_of([MemoryStream("copy", size) for size in COPIES])
    assert made == pytest.approx(list(COPIES.values()))


def test_a_pass_smaller_than_the_smallest_costs_the_launch_and_larger_ones_the_bandwidth() -> None:
    small, large = copies().seconds_of([MemoryStream("copy", 64), MemoryStream("copy", 2**31)])
    assert small == pytest.approx(1e-6)
    assert large == pytest.approx(4 * 200e-6)


def test_more_bytes_never_take_less_time() -> None:
    sizes = [MemoryStream("triad", int(size)) for size in np.geomspace(100, 2**32, 200)]
    assert np.all(np.diff(copies().seconds_of(sizes)) >= 0)


def test_one_size_tells_no_bandwidth() -> None:
    with pytest.raises(InputError, match="bandwidth"):
        copies({2**20: 1e-6})


def chains(seconds: dict[tuple[LaunchMode, int], float]) -> LaunchCosts:
    return LaunchCosts.from_rows(
        kernel_row(LaunchChain(count, mode), time, section="launch")
        for (mode, count), time in seconds.items()
    )


def test_a_graph_costs_its_start_and_a_gap_a_kernel() -> None:
    costs = chains({("graph", 1): 3e-6, ("graph", 201): 203e-6,
                    ("eager", 1): 9e-6, ("eager", 201): 1209e-6})  # fmt: skip
    assert costs.graph_seconds == pytest.approx(2e-6)
    assert costs.graph_gap_seconds == pytest.approx(1e-6)
    assert costs.eager_seconds == pytest.approx(6e-6)
    assert costs.chain_seconds(LaunchChain(20, "graph")) == pytest.approx(22e-6)
    assert costs.step_seconds(1e-3, 100, "eager") == pytest.approx(1e-3)
    assert costs.step_seconds(1e-4, 100, "eager") == pytest.approx(6e-4)


def test_a_mode_without_two_lengths_is_refused() -> None:
    with pytest.raises(InputError, match="launch"):
        chains({("graph", 1): 3e-6, ("eager", 1): 9e-6})
