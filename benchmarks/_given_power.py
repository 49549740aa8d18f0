"""The servers of somebody's row as the inference row's model takes them."""

from __future__ import annotations

from capacity.profile_library import shipped_library
from simulation.inference_row.client_arrivals import TROUGH_RATIO
from simulation.inference_row.row_power import GPUS_PER_SERVER, RATED_SERVERS, ServerPower
from simulation.scenario import Scenario
from wattpack.errors import InputError


def power_of(scenario: Scenario, source: str) -> ServerPower:
    """A row's servers; a fortieth of its rating stands for what one was provisioned for.

    Raises:
        InputError: for servers of more or fewer GPUs than times are known of.
    """
    row, plant = scenario.row, scenario.plant
    if row.gpus_per_server != GPUS_PER_SERVER:
        expected = str(GPUS_PER_SERVER)
        raise InputError("row.gpus_per_server", expected, row.gpus_per_server, source)
    provisioned = scenario.row_rating_watts / RATED_SERVERS
    full = GPUS_PER_SERVER * shipped_library().find(row.groups[0].gpu_model).default_limit_watts
    return ServerPower(full / row.rated_server_watts, provisioned, plant.host_base_watts, plant)


def power_figures(power: ServerPower) -> dict[str, float]:
    """What of a row is fixed before anything is tuned: night, GPUs' share, what is no GPU's."""
    return {
        "night_request_rate_ratio": TROUGH_RATIO,
        "gpu_share": power.gpu_share,
        "server_rated_ac_watts": power.rated_ac_watts,
        "host_base_dc_watts": power.base_watts,
    }
