"""The faces that the twin shows the product: meters, feeds, BMCs, kubelet, actuator settings."""

from __future__ import annotations

from controller.host_draws import READINGS_MAX_AGE_SECONDS, ServerReading
from simulation.world import World
from telemetry.attribution.attribute import Attribution, PodOnGpu
from wattpack.units import GpuUuid, seconds_to_ns


class WorldMeters:
    """The breakers' meters as the controller's port wants them.

    Args:
        world: Where they hang.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self) -> dict[str, tuple[float, int]]:
        """The newest delivered reading of each domain: AC watts, and when it was taken."""
        readings = {name: self._world.meter(name) for name in self._world.domain_names}
        return {name: reading for name, reading in readings.items() if reading is not None}


class WorldFeeds:
    """How unevenly the breakers' feeds carry, as the controller's port wants it.

    Args:
        world: Where they hang.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self) -> dict[str, tuple[float, int]]:
        """The newest delivered share of each domain's busiest feed, and when it was taken."""
        readings = {name: self._world.feed_share(name) for name in self._world.domain_names}
        return {name: reading for name, reading in readings.items() if reading is not None}


class WorldServers:
    """What BMCs say of whole servers, as the controller's port wants it.

    Args:
        world: Where they are.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def max_age_ns(self) -> int:
        """Older readings count as missing; 0 where none is asked."""
        return seconds_to_ns(READINGS_MAX_AGE_SECONDS) if self._world.has_bmcs else 0

    def read(self) -> dict[str, ServerReading]:
        """The newest that was scraped of each server."""
        readings = {name: self._world.server_power(name) for name in self._world.node_names}
        return {name: ServerReading(*told) for name, told in readings.items() if told is not None}


def attribution(world: World, node: str) -> Attribution:
    """What the kubelet of a real node would say of its pods."""
    pods = tuple(
        PodOnGpu(use.namespace, use.name, use.uid, (), tuple(map(GpuUuid, use.gpu_uuids)))
        for use in world.pod_uses(node)
    )
    return Attribution(pods, source="kubelet")


def guaranteed_watts(world: World) -> dict[str, float]:
    """Guaranteed cap by product name, as an administrator would write it for the actuators."""
    ratio = world.scenario.control.guaranteed_ratio
    return {
        product: max(profile.min_limit_watts, ratio * profile.default_limit_watts)
        for profile in world.profiles
        for product in profile.product_names
    }
