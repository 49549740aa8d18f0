"""The live view that the controller serves at 1 Hz: what the console and ``top`` show.

``GET /v1/live`` gives the newest ``LiveView`` as JSON; arrays are parallel, one entry a GPU. The
console's browser stream is made from it. Nothing here is written to the API server.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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


class LiveDomain(_View):
    """One domain now. Watts are AC at the breaker."""

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
    forecast_p50_watts: float | None = None
    forecast_p95_watts: float | None = None
    forecast_p99_watts: float | None = None
    forecast_method: str = ""
    forecast_state: str = ""
    """``Forecast``, ``Fallback``, ``Contradicted`` or ``NoForecast``."""
    forecast_reason: str = ""
    """Why this figure stands here and nothing better."""
    forecast_window: LiveForecast | None = None


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
