"""How long GPUs sit at their guaranteed caps after ``kill -9`` of the leading controller.

Two ``wattpack controller`` processes as the chart starts them (own accounts, a real Lease on the
test control plane, default durations), agents over real gRPC streams with TLS, real actuators over
32 simulated boards. Every other leader is killed just after it has renewed its Lease, the worst
moment. The stopwatch reads the boards. Between two kills the replica that was killed comes back.
"""

from __future__ import annotations

import importlib

import numpy as np

from benchmarks.runner import Options, Result, Target
from wattpack.api import PowerDomain
from wattpack.scratch_folder import ScratchFolder

NAME = "take_over"
SUMMARY = "seconds until GPUs are back after the leading controller is killed (--quick: 30 s)"
KILLS, QUICK_KILLS = 6, 1
TARGETS = {
    "first_board_back_seconds_max": Target(at_most=12.0),
    "last_board_back_seconds_max": Target(at_most=25.0),
    "peak_draw_ratio": Target(at_most=1.0),
    "boards_that_fell_min": Target(at_least=1),
}


def run(options: Options) -> Result:
    """Measure; without the test control plane's programs it says so and measures nothing."""
    why = importlib.import_module("tests.cluster.cluster_tools").missing_control_plane_tool()
    why = why or importlib.import_module("tests.cluster.e2e_release").has_helm()
    if why:
        options.progress(f"SKIPPED: {why}")
        return Result({"skipped": why})
    row = importlib.import_module("tests.cluster.killed_leaders")
    plane_module = importlib.import_module("tests.cluster.control_plane")
    kills = QUICK_KILLS if options.quick else KILLS
    with ScratchFolder() as folder:
        release = folder / "release"
        release.mkdir()
        plane = plane_module.start_control_plane(folder / "plane")
        try:
            found = row.measured(plane, release, kills, lambda one: options.progress(f"{one}"))
        finally:
            plane.stop()
    first = [one.first_seconds for one in found]
    last = [one.last_seconds for one in found]
    figures: dict[str, float | int | str] = {
        "kills": kills,
        "breaker_curves": f"row {PowerDomain.from_json(row.row()).spec.breaker.curve}",
        "boards_that_fell_min": min(one.fell for one in found),
        "lowest_limit_watts": min(one.lowest_watts for one in found),
        "peak_draw_ratio": max(one.peak_ratio for one in found),
        "another_leads_seconds_max": max(one.leads_seconds for one in found),
        "first_board_back_seconds_mean": float(np.mean(first)),
        "first_board_back_seconds_max": max(first),
        "last_board_back_seconds_mean": float(np.mean(last)),
        "last_board_back_seconds_max": max(last),
    }
    return Result(figures, TARGETS)
