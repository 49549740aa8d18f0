"""A placement loop of ours in the test's process, against a real API server."""

from __future__ import annotations

from typing import Any

from scheduler_plugin.app.planning_cycle import CycleResult, PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.kube_objects.admission import Mode
from tests.cluster.cluster_builders import Body
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from wattpack.clock import SystemClock
from wattpack.kube.client import from_kubeconfig

DEADLINE_SECONDS = 0.2


class LoopWorld:
    """What every test with such a loop needs.

    Args:
        plane: The API server.
        pods_path: Of the namespace that the test works in.
        settings: Of the loop, beside its mode and deadline.
    """

    def __init__(self, plane: ControlPlane, pods_path: str, **settings: Any) -> None:
        self.plane, self._pods_path = plane, pods_path
        asked = PlacementSettings(mode=Mode.MANAGE, deadline_seconds=DEADLINE_SECONDS, **settings)
        planner = InProcessPlanner(DEADLINE_SECONDS)
        around = PlannerSurroundings(SystemClock(), planner, threaded=True)
        self.loop = PlacementLoop(from_kubeconfig(str(plane.kubeconfig)), around, asked)
        self.loop.reader.start(lambda: None)
        eventually("everything was read once", lambda: not self.loop.reader.missing())

    def seen(self) -> set[str]:
        """Names of the pods that the planner knows."""
        return {str(p["metadata"]["name"]) for p in self.loop.reader.pods()}

    def step(self) -> CycleResult:
        """One cycle that does not fail."""
        result = self.loop.step()
        assert result.outcome != "failed"
        return result

    def pod(self, name: str) -> Body:
        """As the API server shows it."""
        return self.plane.request("GET", f"{self._pods_path}/{name}").body
