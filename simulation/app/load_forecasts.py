"""Says in the row's DemandForecasts what tells its draw beside the draw, as an operator would.

The row's names its services' tokens a second, and the share that caps held. Racks name neither:
servers tell what they serve by service, not by rack, and where no load tells what was wanted a held
bin is a gap, though at least its draw was.
"""

from __future__ import annotations

from typing import Any

from controller.app.draw_history import HELD_SERIES
from simulation.app.inference_loads import ClassLoad
from simulation.app.served_tokens import full_tokens_per_board, token_series
from simulation.plant import ROW
from simulation.world import World
from wattpack.api import DemandForecast
from wattpack.kube.port import KubeApi
from wattpack.kube.values import copy_json
from wattpack.object_names import SYSTEM_NAMESPACE


def declare_loads(api: KubeApi, world: World, *, held: bool) -> None:
    """The forecast of the row names what goes with its draw (docs/power-forecasts.md).

    Args:
        api: Where the objects of the row are.
        world: Its services.
        held: A controller keeps in the history what share caps held.
    """
    row = world.domain_names[ROW]
    spec: dict[str, Any] = {"load": row_loads(world)}
    if held:
        spec["heldSeries"] = f"{HELD_SERIES}{row}"
    body = copy_json(api.get(DemandForecast.meta.resource, row, SYSTEM_NAMESPACE))
    body["spec"] |= spec
    api.replace(DemandForecast.meta.resource, body, SYSTEM_NAMESPACE)


def row_loads(world: World) -> list[dict[str, Any]]:
    """``spec.load`` of the row: all that answers requests and has replicas."""
    return [
        {
            "series": token_series(workload.name),
            "workload": workload.name,
            "perBoard": round(_full_tokens_per_board(world, k), 1),
        }
        for k, workload in enumerate(world.workloads)
        if workload.replicas
    ]


def _full_tokens_per_board(world: World, k: int) -> float:
    scenario = world.scenario
    if scenario.inference_row is None:
        return full_tokens_per_board(world, scenario.services[k])
    return ClassLoad(scenario, k, world.workloads[k].replicas).full_tokens_per_board
