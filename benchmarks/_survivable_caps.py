"""What boards may hold so that a row survives the jump at which its controller dies (I2).

Worked out here and not by the controller, for rows whose breakers declare standard hot curves and
whose load is held to their ratings.
"""

from __future__ import annotations

import math
from typing import Final

from capacity.profile_library import shipped_library
from simulation.scenario import Scenario

__all__ = ["servers_without_caps", "survivable_mean_caps"]

REACTION_SECONDS: Final = 0.5 + 1.3
LARGEST_RATIO: Final = 1.5
MOST_SERVERS: Final = 200


def survivable_mean_caps(scenario: Scenario, curve_share: float = 1.0) -> dict[str, float]:
    """Mean cap of a board at which each level just bears the jump at which the controller dies.

    With every board at 1.05 of its cap, spread by their gains, and every server at its worst, the
    breaker may heat by at most a half, the row's by a quarter (I2), within the lease, 0.5 s of
    actuation and 1.3 s of settling. Time to trip of a hot breaker at its lower edge is
    0.8 a (r^2 - 1)^-b, with a and b of the research page on power, "Breakers".

    Args:
        scenario: The row.
        curve_share: What of these times counts.
    """
    row, plant, boards = scenario.row, scenario.plant, scenario.row.gpus_per_server
    levels = {
        "row": (row.servers, scenario.row_rating_watts, row.external_watts, 30.3, 0.605, 0.25),
        "rack": (-(-row.servers // row.racks), scenario.rack_rating_watts, 0.0, 55.6, 1.864, 0.5),
    }
    fault_seconds = scenario.control.lease_ttl_ms / 1000.0 + REACTION_SECONDS
    caps = {}
    for name, (servers, rating, external, a, b, heat) in levels.items():
        least_seconds = fault_seconds / heat
        counted = 0.8 * curve_share * a
        ratio = min(math.sqrt(1.0 + (counted / least_seconds) ** (1.0 / b)), LARGEST_RATIO)
        worst_hosts = servers * plant.worst_host_watts / plant.supply_efficiency + external
        n = servers * boards
        a_watt_of_cap = 1.05 * (1.0 + 0.09 / math.sqrt(n)) / plant.supply_efficiency
        caps[name] = (ratio * rating - worst_hosts) / a_watt_of_cap / n
    return caps


def servers_without_caps(scenario: Scenario, curve_share: float = 1.0) -> int:
    """The most servers, of the row's first type on top of the others, that no jump caps (I2)."""
    (first, *others), row = scenario.row.groups, scenario.row
    carried = 0
    for count in range(1, MOST_SERVERS):
        groups = (first.model_copy(update={"count": count}), *others)
        larger = scenario.model_copy(update={"row": row.model_copy(update={"groups": groups})})
        limits = [shipped_library().find(g.gpu_model).default_limit_watts * g.count for g in groups]
        mean = sum(limits) / larger.row.servers
        if min(survivable_mean_caps(larger, curve_share).values()) < mean:
            break
        carried = larger.row.servers
    return carried
