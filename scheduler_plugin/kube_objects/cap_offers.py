"""Caps that plans may count waiting work at: from GPU profiles, for kinds of work that wait.

What a board draws at a cap is the smaller of the work's 95th percentile and the cap with overshoot,
as in I1. None is below the profile's knee, which the controller promises to every board while it
works; what policies keep beyond that stands on each pod.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from capacity.cap_steps import cap_steps
from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.snapshot import Node, Pod, PodState
from scheduler_plugin.kube_objects.power_view import ModelWatts
from scheduler_plugin.kube_objects.work_draw import WorkDraws
from wattpack.power.domain_tree import OVERSHOOT_RATIO

__all__ = ["caps_on_offer"]


def caps_on_offer(
    nodes: Iterable[Node], pods: Iterable[Pod], models: Iterable[ModelWatts], draws: WorkDraws
) -> tuple[CapOption, ...]:
    """Of GPU types on which caps are held, for kinds of work that wait or are promised.

    Each is below the default limit and saves something.

    Args:
        nodes: With those that hold caps.
        pods: Of the snapshot.
        models: What GPU types draw.
        draws: What kinds of work draw.
    """
    held = {node.gpu_model for node in nodes if node.caps_held}
    kinds = {pod.kernel_class for pod in pods if held and pod.state is not PodState.BOUND}
    found: dict[tuple[str, str, int], CapOption] = {}
    for model in models:
        if model.model in held:
            for name, p95_watts in draws.class_watts(model).items():
                if name in kinds:
                    for option in _offers(model, name, p95_watts, draws):
                        found[model.model, name, option.cap_watts] = option
    return tuple(found.values())


def _offers(
    model: ModelWatts, name: str, p95_watts: float, draws: WorkDraws
) -> Iterable[CapOption]:
    speed_at = draws.speed_at(model, name)
    above_idle = p95_watts - model.idle_watts
    if speed_at is None or above_idle <= 0:
        return
    profile = model.profile
    for step in cap_steps(profile, p95_watts, speed_at)[1:]:
        cap_watts = math.ceil(step.cap_watts)
        drawn_watts = cap_watts * OVERSHOOT_RATIO
        if drawn_watts < p95_watts and cap_watts < profile.default_limit_watts:
            added = max(0.0, drawn_watts - model.idle_watts) / above_idle
            yield CapOption(
                gpu_model=model.model,
                kernel_class=name,
                cap_watts=cap_watts,
                cap_milli=min(999, math.floor(1000 * cap_watts / profile.default_limit_watts)),
                watts_milli=math.ceil(1000 * added),
                speed_milli=max(1, math.floor(1000 * step.speed)),
            )
