"""Two arms of ``polca_row`` that are no policy of its row: another actuator, and fewer servers."""

from __future__ import annotations

from typing import Final

from benchmarks._frontier_cells import STATIC, WATTPACK_SLOW, slow_plant, slow_settings
from benchmarks._row_work import WindowWork
from capacity.phase_times import ServerTimes
from controller.tick_values import PowerSettings
from simulation.inference_row.row_power import GPUS_PER_SERVER
from simulation.inference_row.row_under_policy import ROW_POLICIES, WATTPACK, PolicyRun, Window
from simulation.scenario import Scenario

__all__ = ["ARMS", "STATIC", "WATTPACK_SLOW", "of_arm", "static_row", "static_work"]

MEASURED_PEAK: Final = 0.79
"""Highest reading of the published row over its rating (POLCA, arXiv 2308.12908): a row of
1 / 0.79 times the servers fills its rating at that peak, without any policy."""

ARMS: Final = (*ROW_POLICIES, WATTPACK_SLOW, STATIC)


def of_arm(arm: str, scenario: Scenario) -> tuple[str, Scenario, PowerSettings | None]:
    """Policy, row and the product's settings of an arm, one of ``ARMS`` without the static one."""
    if arm != WATTPACK_SLOW:
        return arm, scenario, None
    slow = scenario.model_copy(update={"plant": slow_plant(scenario.plant)})
    return WATTPACK, slow, slow_settings(slow)


def static_row(scenario: Scenario) -> Scenario:
    """The same breakers with as many servers as their measured peak leaves room for."""
    row = scenario.row
    group = row.groups[0].model_copy(update={"count": int(row.rated_servers / MEASURED_PEAK)})
    return scenario.model_copy(update={"row": row.model_copy(update={"groups": (group,)})})


def static_work(
    mine: PolicyRun, uncapped: PolicyRun, window: Window, times: ServerTimes
) -> dict[str, float]:
    """Its servers, and their work over that of the larger row when nothing holds it back."""
    work, of_larger = (WindowWork.of(run, window, times) for run in (mine, uncapped))
    servers = float(len(mine.guaranteed_watts) // GPUS_PER_SERVER)
    return {"servers": servers, **work.over(of_larger)}
