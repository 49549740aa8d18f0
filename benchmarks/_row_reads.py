"""What benchmarks of the row under a policy alone (``simulation.row_control``) take of a scenario.

A test holds these names to what such a run looks at.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ROW_READS"]

ROW_READS: Final = (
    "step_seconds", "row.groups", "row.gpus_per_server", "row.racks", "row.rated_servers",
    "row.rated_server_watts", "row.rack_rated_servers", "row.external_watts", "row.redundancy",
    "row.feeds", "row.required_feeds", "row.use_reserve", "row.overload_points", "row.feed_meter",
    "row.feed_share_max_age_seconds", "row.heat_budget_ratio", "row.host_line", "row.enforcement",
    "row.meter", "row.bmc", "row.bmc_meter", "row.power_sensor", "priority_classes",
    "control.lease_ttl_ms", "control.tick_seconds", "plant.supply_efficiency",
    "plant.host_base_watts",
    "plant.host_watts_per_gpu_watt", "plant.fan_range_watts", "plant.fan_full_gpu_watts",
    "plant.fan_exponent", "plant.fan_lag_seconds", "plant.host_burst_watts",
    "plant.host_noise_ratio", "plant.host_noise_lag_seconds", "plant.host_base_spread_ratio",
    "plant.fan_range_spread_ratio", "plant.cap_delay_min_seconds", "plant.cap_delay_max_seconds",
    "plant.lock_delay_seconds", "plant.decode_clock_knee_ratio", "plant.row_breaker_points",
    "plant.rack_breaker_points", "plant.breaker_tolerance_ratio", "plant.breaker_cooling_seconds",
    "plant.breaker_magnetic_ratio",
)  # fmt: skip
"""Keys as docs/scenario.md writes them; of the classes work is of the lowest and the highest."""
