"""The live view that the controller serves at 1 Hz: what the console and ``top`` show.

``GET /v1/live`` gives the newest ``LiveView`` as JSON; arrays are parallel, one entry a GPU. The
console's browser stream is made from it. Nothing here is written to the API server.

Readers are tolerant of other releases (they ignore unknown fields, newer ones have defaults),
never of contradictions: arrays of different lengths or an index beyond them are refused.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class _View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LiveForecast(_View):
    """The steps of a forecast: what an axis of hours needs.

    Step ``i`` is the mean over [start + i · step, start + (i + 1) · step). The paths are quantiles
    of each step; the quantiles of the window's peak are the domain's ``forecast_p..._watts``.
    """

    start_seconds: float
    """Unix time."""
    step_seconds: int
    p50_watts: list[float]
    p99_watts: list[float]


class LiveLead(_View):
    """What a domain may draw before a replica that is ordered now works."""

    workload: str
    """Of what runs below it, what takes longest to start."""
    seconds: float
    """Within which a new replica of it works, 19 times in 20."""
    p99_watts: float | None = None
    """Highest step within it; None where the forecast ends sooner."""


class LiveTier(_View):
    """One of the models behind a forecast and its share of it."""

    name: str
    weight: float


class LiveCalibration(_View):
    """What the correction of a forecast's peaks rests on; windows are those of its whole pool."""

    live_windows: int
    rehearsed_windows: int
    offset_p99_watts: float | None = None
    """Added to the p99; may be negative."""
    updated_seconds: float | None = None
    """End of the newest window in it, Unix time."""


class LiveAccount(_View):
    """How a domain's forecast did so far, and what it was made of. Times are Unix seconds."""

    issued_seconds: float
    data_until_seconds: float
    windows: int | None = None
    """Finished windows that its p99 was held against, rehearsed ones included."""
    violations: int | None = None
    """Of them, those whose peak was above it."""
    violation_bound: float | None = None
    """Upper 95 % bound of the share above it."""
    live_windows: int | None = None
    """Of the windows, those of promises that were really made."""
    live_violations: int | None = None
    """Of them, those whose peak was above the p99."""
    live_violation_bound: float | None = None
    """Upper 95 % bound of the share of live windows above it."""
    reserve_ratio: float | None = None
    """Sum of promised p99 over sum of realised peaks."""
    tiers: list[LiveTier] = []
    model_version: str = ""
    fitted_until_seconds: float | None = None
    calibration: LiveCalibration | None = None
    flags: list[str] = []


class LiveRoom(_View):
    """Watts that may be promised in a domain beyond what is promised."""

    least_priority: int | None
    """Of pods that it is for; None for all that no entry before it is for."""
    risk: float
    """Share of windows in which caps may be needed."""
    watts: float


class LiveDomain(_View):
    """One domain now. Watts are AC at the breaker.

    Attributes:
        cap_band_watts: Draw at which capping begins.
        release_watts: Draw below which caps are lifted again.
        worst_watts: Draw if every GPU went to the highest cap that it may hold (I2).
        survivable_watts: The most that ``worst_watts`` may be (I2).
        jump_limit_watts: The most that caps may make of it: less while the domain caps.
        guaranteed_watts: Draw of I1's worst case: guaranteed caps, or default limits where nothing
            holds a server down.
        guaranteed_limit_watts: The most that ``guaranteed_watts`` may be (I1).
        base_watts: What bands are shares of: what the feeds carry, or a lower budget.
        calm_watts: A brake ends at or below it; capping ends with ``uncapped_watts`` below it, too.
        capped_gpus: Held below their request.
        would_be_capped_gpus: Those that caps would hold, were it not for DryRun; nothing does.
        uncapped_watts: What would be drawn if no band held anything, as the bands expect it: at
            full requests, or while any domain caps at what I2 alone leaves.
        recovering: Nothing is raised above guaranteed caps until servers were heard for long enough
            and the breaker is cool (I6).
        servers: Below the domain.
        heard_servers: Of them, those with a fresh report.
        heat: Of the breaker, 1 = trip.
    """

    name: str
    parent: str | None
    rating_watts: float
    budget_watts: float
    cap_band_watts: float
    draw_watts: float
    worst_watts: float
    heat: float
    band: str
    enforcement: str
    gpus: int
    capped_gpus: int
    release_watts: float | None = None
    survivable_watts: float | None = None
    jump_limit_watts: float | None = None
    guaranteed_watts: float | None = None
    guaranteed_limit_watts: float | None = None
    base_watts: float | None = None
    calm_watts: float | None = None
    uncapped_watts: float | None = None
    would_be_capped_gpus: int = 0
    recovering: bool = False
    servers: int | None = None
    heard_servers: int | None = None
    raise_watts_per_second: float | None = None
    """At which caps below it come back."""
    forecast_p50_watts: float | None = None
    forecast_p95_watts: float | None = None
    forecast_p99_watts: float | None = None
    forecast_method: str = ""
    forecast_state: str = ""
    """``Forecast``, ``Fallback``, ``Contradicted`` or ``NoForecast``."""
    forecast_reason: str = ""
    """Why this figure stands here and nothing better."""
    forecast_window: LiveForecast | None = None
    forecast_lead: LiveLead | None = None
    forecast_account: LiveAccount | None = None
    promisable: list[LiveRoom] = []
    """By risk, the least first."""


class LiveGpus(_View):
    """All GPUs as parallel arrays (column store: 10,000 GPUs stay a small message)."""

    uuid: list[str]
    node: list[str]
    rack: list[str]
    model: list[str]
    draw_watts: list[float | None]
    limit_watts: list[float | None]
    request_watts: list[float]
    priority: list[int]
    reason: list[int]
    binding_domain: list[int]
    trusted: list[bool]
    pod: list[str]
    floor_watts: list[float] = []
    decided_watts: list[float] = []
    """What the tick decided; the limit that is read back follows, or waits for others (I6)."""
    temperature_celsius: list[float | None] = []
    workload: list[str] = []
    """What the pod's label names, or the catalogue entry that its telemetry looks like."""
    bound: list[str] = []
    """By telemetry: compute, bandwidth, outside, starved or unknown; empty where a label speaks."""
    workload_confidence: list[float | None] = []
    """Probability of ``bound``; 1 for a label, None while too little was seen."""
    speed_fraction: list[float | None] = []
    """At the limit that is read back over the default limit's; modelled, None for unknown work."""
    lock_max_mhz: list[int] = []
    """Highest clock that the board is locked to beside its limit, 0 for none."""
    seen: list[str] = []
    """What the board's units did, by whom, and which actuator follows; empty where nobody tells."""

    @model_validator(mode="after")
    def _parallel(self) -> Self:
        for name in type(self).model_fields:
            count = len(getattr(self, name))
            if count != len(self.uuid) and (count or name not in _ADDED_LATER):
                raise ValueError(f"{name} has {count} entries for {len(self.uuid)} GPUs")
        return self


_ADDED_LATER = frozenset(
    {
        "floor_watts",
        "decided_watts",
        "temperature_celsius",
        "workload",
        "bound",
        "workload_confidence",
        "speed_fraction",
        "lock_max_mhz",
        "seen",
    }
)


class LiveDecision(_View):
    """One line of the decisions feed."""

    id: str
    wall_time_ns: int
    epoch: int
    domain: str
    kind: str
    message: str


class LiveView(_View):
    """Everything at one tick."""

    wall_time_ns: int
    tick: int
    epoch: int
    leading: bool
    tick_seconds: float
    domains: list[LiveDomain]
    gpus: LiveGpus
    decisions: list[LiveDecision]
    simulated: bool = False
    label: str = ""
    raises_stopped: str = ""
    """Name of the ``CapReason`` that keeps this replica from raising any cap; empty for none."""

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        names = {domain.name for domain in self.domains}
        strangers = {*self.gpus.rack, *(d.parent for d in self.domains if d.parent)} - names
        if strangers:
            raise ValueError(f"{sorted(strangers)[0]} is no domain of this view")
        if any(not -1 <= index < len(self.domains) for index in self.gpus.binding_domain):
            raise ValueError("binding_domain points beyond the domains")
        return self
