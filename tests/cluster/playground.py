"""``make cluster``: the test control plane for people, with kubectl ready, until Ctrl-C.

Simulated nodes with GPUs become Ready, pods get bound and run; no container ever starts. Everything
lies in one folder and goes with it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster.cluster_builders import create, node
from tests.cluster.cluster_processes import eventually
from tests.cluster.cluster_tools import missing_control_plane_tool, tool
from tests.cluster.control_plane import ControlPlane, start_control_plane
from wattpack.clock import SystemClock
from wattpack.ending import end_noted, until_told_to_end
from wattpack.scratch_folder import ScratchFolder

ROOT = Path(__file__).parents[2]


def furnish(plane: ControlPlane, nodes: int, gpus: int) -> None:
    """Our kinds, and nodes that kwok keeps Ready."""
    crds = ["apply", "--server-side", "-f", str(ROOT / "manifests" / "crds")]
    plane.kubectl(*crds)
    plane.start_kwok()
    plane.start_binder()
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H200"}
    for number in range(nodes):
        create(plane, "/api/v1/nodes", node(f"gpu-{number}", gpus=gpus, labels=labels))
    ready = ["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=1s"]
    eventually(
        "the nodes are ready",
        lambda: not nodes or plane.kubectl(*ready, check=False).returncode == 0,
        60,
    )


def main(argv: list[str] | None = None) -> int:
    """Start, say how to talk to it, and wait."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="simulated nodes (3)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each (8)")
    options = parser.parse_args(argv)
    why = missing_control_plane_tool()
    if why:
        print(f"make cluster: {why}", file=sys.stderr)
        return 1
    clock = SystemClock()
    with end_noted(clock) as end, ScratchFolder("wattpack-cluster-") as folder:
        plane = start_control_plane(folder)
        try:
            furnish(plane, options.nodes, options.gpus)
            tools = Path(tool("kubectl")).parent
            print(f"export KUBECONFIG={plane.kubeconfig} PATH={tools}:$PATH", flush=True)
            print("kubectl get nodes      # Ctrl-C here ends the cluster", flush=True)
            until_told_to_end(end, clock)
        finally:
            plane.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
