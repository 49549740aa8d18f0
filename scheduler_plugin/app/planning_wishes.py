"""What settings add to a snapshot of the cluster: values, the objective, and who has room held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler_plugin.app.room_metrics import RoomMetrics
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.hold_book import HoldBook
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.packing.policy_values import PolicyChoice, with_policy_values
from scheduler_plugin.packing.priced_nodes import with_objective
from scheduler_plugin.snapshot_builder import BuiltSnapshot
from wattpack.kube.port import JsonObject

__all__ = ["PlanningWishes", "waiting_since"]


class PlanningWishes:
    """Of one planning loop.

    Args:
        settings: Of the scheduler.
        metrics: Told how long who waits longest does.
    """

    def __init__(self, settings: PlacementSettings, metrics: RoomMetrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._policy = PolicyChoice(settings.policy, settings.gpu_prices)
        self._holds = HoldBook(settings.patience_seconds)

    def applied(self, built: BuiltSnapshot, wall_seconds: float) -> BuiltSnapshot:
        """The same cluster as plans by these settings see it at a Unix time."""
        since = waiting_since(built.pending)
        waits = [wall_seconds - began for began in since.values()]
        self._metrics.longest_wait(max([0.0, *waits]), self._settings.patience_seconds)
        made = with_policy_values(built.snapshot, self._policy)
        made = with_objective(made, self._settings.objective_choice)
        return replace(built, snapshot=self._holds.applied(made, since, wall_seconds))


def waiting_since(pods: Mapping[str, JsonObject]) -> dict[str, float]:
    """Unix time of creation by uid; what cannot be read is left out."""
    created = {uid: pod_facts.created_seconds(body) for uid, body in pods.items()}
    return {uid: since for uid, since in created.items() if since is not None}
