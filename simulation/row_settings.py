"""The row of a scenario: servers, racks, the breakers above them and their meters."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simulation.setting_types import PodGpus, Seconds, SecondsFromZero, Share, Watts
from wattpack.settings import Settings

OverloadPoint = tuple[Annotated[float, Field(gt=1, le=20)], Annotated[float, Field(gt=0, le=1e6)]]


class ServerGroup(Settings):
    """Servers of one GPU type."""

    gpu_model: Annotated[str, Field(description="Name of a GPU profile, for example H200-SXM")]
    count: Annotated[int, Field(ge=1, le=10_000, description="Servers of this type")]


class MeterSettings(Settings):
    """The power meter at each breaker."""

    period_seconds: Annotated[Seconds, Field(description="Between two readings")] = 1.0
    delay_seconds: Annotated[
        SecondsFromZero, Field(description="From measurement to delivery (POLCA: 2 s)")
    ] = 2.0
    noise_ratio: Annotated[Share, Field(description="Standard deviation over reading")] = 0.003
    gap_probability: Annotated[Share, Field(description="Chance that a reading is lost")] = 0.01
    resolution_watts: Annotated[
        float, Field(ge=0, le=1e6, description="Readings are multiples of it; 0: exact")
    ] = 0.0


class RowSettings(Settings):
    """Servers, racks and the breakers above them."""

    groups: Annotated[
        tuple[ServerGroup, ...], Field(min_length=1, description="Server types, dealt over racks")
    ] = (
        ServerGroup(gpu_model="H200-SXM", count=40),
        ServerGroup(gpu_model="H100-SXM", count=12),
    )
    gpus_per_server: Annotated[PodGpus, Field(description="GPUs of one server")] = 8
    racks: Annotated[int, Field(ge=1, le=1000, description="Sub-domains below the row")] = 4
    rated_servers: Annotated[
        float, Field(gt=0, le=1e5, description="Servers for which the row's breaker was sized")
    ] = 40.0
    rated_server_watts: Annotated[
        Watts, Field(description="Nameplate of one server, AC watts (DGX-H100: 10.2 kW)")
    ] = 10_200.0
    rack_rated_servers: Annotated[
        float, Field(gt=0, le=1e5, description="Servers for which a rack's breaker was sized")
    ] = 11.0
    external_watts: Annotated[
        float, Field(ge=0, le=1e8, description="Switches and storage on the row, AC watts")
    ] = 3_000.0
    redundancy: Annotated[
        Literal["None", "2N", "KofN"],
        Field(description="2N: two feeds share the load, one may be lost; KofN: as declared below"),
    ] = "None"
    feeds: Annotated[int, Field(ge=1, le=16, description="N with KofN, else without meaning")] = 3
    required_feeds: Annotated[
        int, Field(ge=1, le=16, description="k with KofN: as many carry the rating together")
    ] = 2
    use_reserve: Annotated[
        bool, Field(description="Load may use all feeds while all carry (2N or KofN)")
    ] = False
    overload_points: Annotated[
        tuple[OverloadPoint, ...],
        Field(
            min_length=1,
            description="With use_reserve: load over a feed's rating, seconds that its UPS and "
            "transformer bear it; assumed, as data sheets of double-conversion UPSes have it",
        ),
    ] = ((1.1, 3600.0), (1.25, 600.0), (1.5, 60.0))
    feed_meter: Annotated[
        MeterSettings,
        Field(description="With use_reserve: the busiest feed's share of the load; assumed"),
    ] = MeterSettings(delay_seconds=0.5)
    feed_share_max_age_seconds: Annotated[
        float,
        Field(gt=0, le=5, description="With use_reserve: older readings count as a lost feed"),
    ] = 3.0
    heat_budget_ratio: Annotated[
        float,
        Field(
            ge=0,
            le=0.2,
            description="Heat that the bands may spend; breakers are declared 100 %-rated then, "
            "with the lower edge of their own curves",
        ),
    ] = 0.0
    host_line: Annotated[
        bool,
        Field(
            description="Servers are declared with what they draw at worst over what their GPUs "
            "draw, which I1 counts, by the plant's constants"
        ),
    ] = False
    enforcement: Annotated[
        Literal["DryRun", "Enforce"], Field(description="Whether caps are written")
    ] = "Enforce"
    milli_cpu_per_server: Annotated[int, Field(ge=1000, le=10**7, description="milliCPU")] = 224_000
    memory_bytes_per_server: Annotated[int, Field(ge=2**30, le=2**45, description="bytes")] = 2**41
    meter: Annotated[MeterSettings, Field(description="Meter at each breaker")] = MeterSettings()
    power_sensor: Annotated[
        Literal["averaged", "sampled", "by_type"],
        Field(
            description="What boards tell of their draw: means of a second; 25 ms of each 100; "
            "or what each type has (GA100 samples alone, later ones both)"
        ),
    ] = "averaged"
    bmc: Annotated[
        Literal["none", "simulated"],
        Field(description="Whether BMCs tell what whole servers draw (Redfish, IPMI), or nobody"),
    ] = "none"
    bmc_meter: Annotated[
        MeterSettings, Field(description="How late and coarse simulated BMCs tell it; assumed")
    ] = MeterSettings(period_seconds=2.0, noise_ratio=0.01, resolution_watts=10.0)

    @model_validator(mode="after")
    def _feeds_are_ordered(self) -> Self:
        if self.redundancy == "KofN" and not self.required_feeds < self.feeds:
            raise ValueError("required_feeds: fewer than feeds with KofN")
        if self.use_reserve and self.redundancy == "None":
            raise ValueError("use_reserve: false unless redundancy is 2N or KofN")
        if self.use_reserve and self.heat_budget_ratio > 0.0:
            raise ValueError("heat_budget_ratio: 0 beside use_reserve, which spends that heat")
        return self

    @property
    def fed_by(self) -> int:
        """Feeds of every domain."""
        return {"None": 1, "2N": 2, "KofN": self.feeds}[self.redundancy]

    @property
    def carried_by(self) -> int:
        """Feeds that carry a domain's rating together."""
        return self.required_feeds if self.redundancy == "KofN" else 1

    @property
    def servers(self) -> int:
        """All servers."""
        return sum(group.count for group in self.groups)
