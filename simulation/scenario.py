"""Everything that a run of the twin can be told, with units, defaults and limits.

``load_scenario()`` gives the reference row (``data/scenarios/row52.yaml`` says the same); a file
overrides any number. A typo is an ``InputError`` that names the key and the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import shipped_library
from simulation.inference_settings import InferenceRowSettings
from simulation.plant_constants import PlantConstants, frozen_plant
from simulation.row_settings import RowSettings
from simulation.setting_types import Count, Name, PodGpus, Seconds, SecondsFromZero, Share
from simulation.training_fleet.fleet_settings import FleetSettings
from wattpack.errors import InputError
from wattpack.settings import Settings, read_yaml_mapping, validate


class PriorityClassSettings(Settings):
    """One class of work, as a Kubernetes PriorityClass and a PowerPolicy."""

    name: Annotated[Name, Field(description="PriorityClass name")]
    value: Annotated[int, Field(ge=-1_000_000, le=1_000_000, description="Higher is capped later")]
    interactive: Annotated[bool, Field(description="Somebody waits for answers")] = False
    actuators: Annotated[
        tuple[Literal["PowerLimit", "ClockLock"], ...],
        Field(min_length=1, description="What its boards may be held by (allowedActuators)"),
    ] = ("PowerLimit",)
    floor_ratio: Annotated[
        Share | None, Field(description="Floor over default limit; the GPU type's knee if unset")
    ] = None


class ServiceSettings(Settings):
    """A language model service that replays a real trace on its placed replicas."""

    name: Annotated[Name, Field(description="Service name, also its namespace's workload name")]
    trace: Annotated[
        Literal["conversation", "code"], Field(description="Azure LLM inference trace 2023")
    ]
    priority_class: Annotated[Name, Field(description="One of priority_classes")]
    replicas: Annotated[Count, Field(description="Pods")]
    language_model: Annotated[str, Field(description="As in capacity's serving times")] = (
        "llama-3.1-70b"
    )
    tensor_parallel: Annotated[PodGpus, Field(description="GPUs of one replica")] = 4
    rate_weight: Annotated[
        float, Field(ge=0, le=1e4, description="Multiplies the common trace_rate_factor")
    ] = 1.0
    trace_offset_seconds: Annotated[
        SecondsFromZero, Field(description="Where in the trace this service starts")
    ] = 0.0
    max_batch: Annotated[
        int, Field(ge=1, le=4096, description="Requests that decode together on a replica")
    ] = 256
    prefill_chunk_tokens: Annotated[
        int,
        Field(ge=16, le=65536, description="Tokens of one iteration at most, prompts and decodes"),
    ] = 2048


class TrainingSettings(Settings):
    """A synchronous training job: a gang whose members step together."""

    name: Annotated[Name, Field(description="Job name")]
    pods: Annotated[int, Field(ge=1, le=1000, description="Members, placed together")]
    gpus_per_pod: Annotated[PodGpus, Field(description="GPUs of one member")] = 8
    priority_class: Annotated[Name, Field(description="One of priority_classes")] = "low"
    start_seconds: Annotated[SecondsFromZero, Field(description="When its pods appear")] = 0.0
    step_seconds: Annotated[
        Seconds | None, Field(description="Length of a step at full speed; plant's if unset")
    ] = None


class BatchSettings(Settings):
    """Batch pods with the shapes and order of the openb trace."""

    pods_per_hour: Annotated[
        float, Field(ge=0, le=1e6, description="Arrival rate; openb's gaps are scaled to it")
    ] = 600.0
    initial_pods: Annotated[Count, Field(description="Pods that come all at once at first")] = 120
    first_pod_seconds: Annotated[
        SecondsFromZero, Field(description="When the first come; services were there before")
    ] = 15.0
    priority_class: Annotated[Name, Field(description="One of priority_classes")] = "low"
    min_duration_seconds: Annotated[Seconds, Field(description="Shorter pods are made longer")] = (
        120.0
    )
    max_duration_seconds: Annotated[Seconds, Field(description="Longer pods are cut")] = 7200.0
    min_load_ratio: Annotated[Share, Field(description="Lowest draw over a hot kernel's draw")] = (
        0.97
    )
    max_load_ratio: Annotated[Share, Field(description="Highest draw over a hot kernel's draw")] = (
        1.0
    )

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        if self.min_duration_seconds > self.max_duration_seconds:
            raise ValueError("min_duration_seconds: at most max_duration_seconds")
        if self.min_load_ratio > self.max_load_ratio:
            raise ValueError("min_load_ratio: at most max_load_ratio")
        return self


class FaultKind(StrEnum):
    """What can go wrong; see docs/simulation.md for what each one does."""

    TELEMETRY_LOSS = "telemetry_loss"
    NODE_REBOOT = "node_reboot"
    DRIVER_RELOAD = "driver_reload"
    SILENT_WRITE_FAILURE = "silent_write_failure"
    IGNORE_CAP = "ignore_cap"
    GPU_HUNG = "gpu_hung"
    SENSOR_GAIN = "sensor_gain"
    CONTROLLER_CRASH = "controller_crash"
    PLANNER_DOWN = "planner_down"
    FORECASTER_DOWN = "forecaster_down"
    API_DOWN = "api_down"
    METER_GAP = "meter_gap"
    FEED_LOSS = "feed_loss"
    DEMAND_STEP = "demand_step"


class FaultSettings(Settings):
    """One fault with its time and target."""

    kind: Annotated[FaultKind, Field(description="What goes wrong")]
    at_seconds: Annotated[SecondsFromZero, Field(description="When it begins")]
    duration_seconds: Annotated[
        SecondsFromZero, Field(description="How long it lasts; 0 for an event")
    ] = 0.0
    target: Annotated[
        str, Field(max_length=253, description="Node, GPU uuid or domain; empty means all")
    ] = ""
    share: Annotated[
        Share, Field(description="Share of the target's GPUs or nodes that it strikes")
    ] = 1.0
    ratio: Annotated[
        float, Field(gt=0, le=2, description="sensor_gain: multiplies the sensed power")
    ] = 1.0


class ControlSettings(Settings):
    """Periods and leases of the product's own loops."""

    report_seconds: Annotated[Seconds, Field(description="Between two node reports")] = 1.0
    tick_seconds: Annotated[Seconds, Field(description="Between two controller ticks")] = 1.0
    plan_seconds: Annotated[Seconds, Field(description="Between two planning cycles")] = 10.0
    forecast_seconds: Annotated[Seconds, Field(description="Between two forecasts")] = 600.0
    lease_ttl_ms: Annotated[int, Field(ge=500, le=10_000, description="Lease length, ms")] = 3500
    guaranteed_ratio: Annotated[
        Share, Field(description="Guaranteed cap over default limit, before I1 lowers it")
    ] = 0.3


class HistorySettings(Settings):
    """Earlier simulated days that forecasts start from; labelled simulated."""

    days: Annotated[int, Field(ge=0, le=60, description="Days before time 0")] = 10
    trough_ratio: Annotated[
        Share, Field(description="Night's request rate over the day's peak")
    ] = 0.35
    peak_hour: Annotated[
        float | None,
        Field(ge=0, lt=24, description="Hour (UTC) of the day's peak; that of the start if unset"),
    ] = None
    noise_ratio: Annotated[Share, Field(description="Spread of a bin's rate around the shape")] = (
        0.05
    )


_CLASSES = (
    PriorityClassSettings(name="high", value=1000, interactive=True),
    PriorityClassSettings(name="low", value=100),
)
_SERVICES = (
    ServiceSettings(name="chat", trace="conversation", priority_class="high", replicas=38),
    ServiceSettings(
        name="code",
        trace="code",
        priority_class="high",
        replicas=10,
        rate_weight=0.18,
        trace_offset_seconds=300.0,
    ),
    ServiceSettings(
        name="summarise",
        trace="conversation",
        priority_class="low",
        replicas=16,
        rate_weight=0.45,
        trace_offset_seconds=1800.0,
    ),
)
_TRAINING = (
    TrainingSettings(name="pretrain-a", pods=2),
    TrainingSettings(name="pretrain-b", pods=2, step_seconds=11.0),
)


class Scenario(Settings):
    """One run of the twin."""

    name: Annotated[Name, Field(description="Appears in results")] = "row52"
    seed: Annotated[int, Field(ge=0, le=2**31, description="Of every random draw")] = 7
    duration_seconds: Annotated[Seconds, Field(description="Simulated length of the run")] = 900.0
    warmup_seconds: Annotated[
        SecondsFromZero, Field(description="Simulated time before the accounts begin")
    ] = 120.0
    step_seconds: Annotated[
        float, Field(ge=0.01, le=10, description="Integration step of the plant")
    ] = 0.25
    trace_rate_factor: Annotated[
        float, Field(ge=0, le=1e5, description="Requests per request of the trace, all services")
    ] = 68.0
    trace_start_seconds: Annotated[
        SecondsFromZero, Field(description="Where in the traces the run starts")
    ] = 900.0
    row: Annotated[RowSettings, Field(description="Servers and breakers")] = RowSettings()
    plant: Annotated[
        PlantConstants, Field(default_factory=frozen_plant, description="Physical constants")
    ]
    priority_classes: Annotated[
        tuple[PriorityClassSettings, ...], Field(min_length=1, description="Classes of work")
    ] = _CLASSES
    services: Annotated[
        tuple[ServiceSettings, ...], Field(description="Language model services")
    ] = _SERVICES
    training: Annotated[tuple[TrainingSettings, ...], Field(description="Gangs")] = _TRAINING
    batch: Annotated[BatchSettings, Field(description="Batch pods")] = BatchSettings()
    training_fleet: Annotated[
        FleetSettings | None,
        Field(description="Jobs of a training fleet in place of the batch pods; {} for Acme's"),
    ] = None
    inference_row: Annotated[
        InferenceRowSettings | None,
        Field(
            description="Clients of a published inference row in place of the services; {} for "
            "POLCA's"
        ),
    ] = None
    faults: Annotated[tuple[FaultSettings, ...], Field(description="What goes wrong")] = ()
    control: Annotated[ControlSettings, Field(description="The product's loops")] = (
        ControlSettings()
    )
    history: Annotated[HistorySettings, Field(description="Earlier days")] = HistorySettings()

    @field_validator("plant", mode="before")
    @classmethod
    def _complete_plant(cls, value: object) -> object:
        """Constants that are not given keep their frozen values."""
        return {**frozen_plant().model_dump(), **value} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        names = [c.name for c in self.priority_classes]
        _unique("priority_classes", names)
        works = [*(s.name for s in self.services), *(t.name for t in self.training)]
        _unique("services and training", works)
        inference = self.inference_row
        used = [
            *((f"{s.name}.priority_class", s.priority_class) for s in self.services),
            *((f"{t.name}.priority_class", t.priority_class) for t in self.training),
            ("batch.priority_class", self.batch.priority_class),
        ]
        if inference is not None:
            used += [
                ("inference_row.high_priority_class", inference.high_priority_class),
                ("inference_row.low_priority_class", inference.low_priority_class),
            ]
        for key, name in used:
            if name not in names:
                raise ValueError(f"{key}: one of {names}, {name!r} is none")
        if inference is not None:
            inference.require_servers(self.row.gpus_per_server, [g.count for g in self.row.groups])
        for service in self.services:
            if service.tensor_parallel > self.row.gpus_per_server:
                raise ValueError(f"{service.name}.tensor_parallel: at most gpus_per_server")
        if self.row.racks > self.row.servers:
            raise ValueError("row.racks: at most the number of servers")
        return self

    @property
    def plant_frozen(self) -> bool:
        """Whether the plant is the calibrated one."""
        return self.plant == frozen_plant() and self.row.power_sensor == "averaged"

    @property
    def row_rating_watts(self) -> float:
        """What the row may draw for long, whichever feeds are lost as declared, AC watts."""
        return self.row.rated_servers * self.row.rated_server_watts

    @property
    def rack_rating_watts(self) -> float:
        """What a rack may draw for long, whichever feeds are lost as declared, AC watts."""
        return self.row.rack_rated_servers * self.row.rated_server_watts


def _unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what}: every name once, {name!r} is there twice")


def load_scenario(path: Path | None = None, **overrides: object) -> Scenario:
    """The reference scenario with a file's and the caller's values in place of its own.

    Args:
        path: A YAML mapping, or None for the reference scenario.
        **overrides: Top-level values that win over the file; None means not given.

    Raises:
        InputError: naming the key, what was expected, and the nearest known key for a typo.
    """
    values: dict[str, Any] = read_yaml_mapping(path) if path is not None else {}
    values.update({name: value for name, value in overrides.items() if value is not None})
    source = str(path) if path else ""
    scenario = validate(Scenario, values, source)
    for group in scenario.row.groups:
        try:
            shipped_library().find(group.gpu_model)
        except UnknownGpuModel as error:
            key = "row.groups[].gpu_model"
            raise InputError(key, error.expected, group.gpu_model, source) from error
    return scenario
