"""How fast pods leave the gate on a real API server, how long they wait there, and what it writes.

A burst: all pods wait at the gate when the scheduler starts; no binder, no kubelet. Arrivals: the
full chain of webhook, planner, binder and kwok's kubelets at a steady rate, a tenth of the pods in
gangs. Times and writes are read from the API server's audit log; the scheduler runs with its
defaults. Everything shares the machine: what API server and etcd take, the scheduler does not have.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Final

from benchmarks._release_judge import quantile
from benchmarks._release_plane import Size, running_plane
from benchmarks.runner import Options, Result, Target
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from wattpack.scratch_folder import ScratchFolder

NAME: Final = "release_rate"
SUMMARY: Final = "pods released a second, seconds from gated to pinned, API writes a pod"
#: The longest window in which arrivals are gathered into one cycle, by default.
WINDOW_SECONDS: Final = float(PlacementSettings.model_fields["batch_max_seconds"].default)
TARGETS: Final = {
    "burst_released_per_second": Target(at_least=100),
    "burst_unreleased": Target(at_most=0),
    "burst_pod_patches_beyond_need": Target(at_most=0),
    "burst_writes_per_cycle": Target(at_most=3),
    "arrivals_gated_to_pinned_seconds_p99": Target(at_most=2.0 + WINDOW_SECONDS),
    "arrivals_unreleased": Target(at_most=0),
    "arrivals_pod_patches_beyond_need": Target(at_most=0),
    "arrivals_writes_per_cycle": Target(at_most=3),
}
Figures = dict[str, float | int | str]


def burst(size: Size, folder: Path) -> Figures:
    """Binder and pod stage off: what the planner and its patches take."""
    with running_plane(folder / "burst") as plane:
        plane.furnish(size.nodes)
        plane.start_kwok(pods=False)
        plane.nodes_are_ready(120.0)
        plane.fill(size)
        plane.start_scheduler(webhook=False)
        plane.wait_for_releases(size)
        judge = plane.judge
        plain = size.pods - size.members
        figures: Figures = {"burst_nodes": size.nodes, "burst_pods": size.pods, **judge.burst()}
        figures["burst_unreleased"] = size.pods - len(judge.released)
        figures |= {f"burst_{k}": v for k, v in plane.cpu_milliseconds(size.pods).items()}
        return figures | {f"burst_{k}": v for k, v in judge.surplus(plain, size.members).items()}


def arrivals(size: Size, folder: Path) -> Figures:
    """The full chain at a steady rate."""
    with running_plane(folder / "arrivals") as plane:
        plane.furnish(size.nodes)
        plane.start_kwok(pods=True)
        plane.nodes_are_ready(120.0)
        plane.start_binder()
        plane.start_scheduler(webhook=True)
        rate = plane.arrive(size)
        plane.wait_for_releases(size)
        judge = plane.judge
        waits = judge.waits()
        figures: Figures = {
            "arrivals_nodes": size.nodes,
            "arrivals_pods": size.pods,
            "arrivals_per_second": round(rate, 1),
            "arrivals_gated_to_pinned_seconds_p50": round(quantile(waits, 0.5), 2),
            "arrivals_gated_to_pinned_seconds_p99": round(quantile(waits, 0.99), 2),
            "arrivals_gated_to_pinned_seconds_max": round(quantile(waits, 1.0), 2),
            "arrivals_unreleased": size.pods - len(judge.released),
            "arrivals_unbound_at_end": plane.unbound(),
        }
        plain = size.pods - size.members
        return figures | {f"arrivals_{k}": v for k, v in judge.surplus(plain, size.members).items()}


def run(options: Options) -> Result:
    """Both runs; without the test control plane's programs none. A quick one judges counts only."""
    quick = options.quick
    # 60 s beyond what the lines allow, so that a miss is measured and not cut off.
    one = Size(40, 200, 20.0) if quick else Size(1000, 5000, 110.0)
    two = Size(40, 80, 10.0, 0.1, 20.0) if quick else Size(1000, 5000, 60.0, 0.1, 40.0)
    why = importlib.import_module("tests.cluster.cluster_tools").missing_control_plane_tool()
    if why:
        options.progress(f"SKIPPED: {why}")
        return Result({"skipped": why}, {})
    load = round(os.getloadavg()[0], 1)
    with ScratchFolder() as folder:
        figures: Figures = {"load_before": load}
        figures |= burst(one, folder)
        options.progress(f"burst: {figures}")
        figures["load_between"] = round(os.getloadavg()[0], 1)
        figures |= arrivals(two, folder)
    # Seconds of a few pods tell of the first plan and of what else the machine does.
    timed = ("burst_released_per_second", "arrivals_gated_to_pinned_seconds_p99")
    kept = {k: bound for k, bound in TARGETS.items() if not (quick and k in timed)}
    return Result(figures, kept)
