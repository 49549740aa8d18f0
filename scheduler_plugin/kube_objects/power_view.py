"""What PowerDomain, DemandForecast and GPUProfile objects say about power, in whole AC watts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from capacity.gpu_profile import GpuProfile
from capacity.profile_book import ProfileBook
from forecasting.decisions.priority_risks import RiskBand, risk_bands
from forecasting.forecast_book import FORECAST_TRUSTED, ForecastBook, Question
from forecasting.peak_quantiles import PeakQuantiles
from scheduler_plugin.documents.snapshot import PowerDomain as SnapshotDomain
from scheduler_plugin.documents.snapshot_domain import AT_RISK
from scheduler_plugin.kube_objects.peak_coincidence import pods_p99_watts
from wattpack.api.conditions import find_condition, is_true
from wattpack.api.object_meta import ConditionStatus
from wattpack.kube.port import JsonObject
from wattpack.pod_binding import RAMP_SECONDS
from wattpack.power.domain_tree import OVERSHOOT_RATIO
from wattpack.power.member_claims import newest_claims
from wattpack.power.power_grid import Feeding, PowerGrid, accepted_domains

#: Cap band over rating where the controller has not said: the lower value of docs/power-control.md.
DEFAULT_CAP_BAND = 0.87
#: Used watts are rounded up to this share of the limit, so that noise causes no new plan.
USED_STEP = 1 / 200


#: A server says that it is ready, and what it drew this long after that is no start any more: 10 s
#: to settle (assumed) and 10 s that the controller's figures may be old.
READY_SECONDS = 20.0
#: Pods bound this recently are not in a forecast that does not say how old its data are (one bin).
DEFAULT_FORECAST_AGE_SECONDS = 600.0


EVERYBODY_AT_P99: Final = tuple(risk_bands({}))


@dataclass(frozen=True, slots=True)
class BoundLoad:
    """What one bound pod adds below a domain, AC watts, and since when.

    Attributes:
        domain: Directly above the pod's node.
        uid: Of the pod.
        watts: Its nominal draw above idle.
        bound_at_seconds: Unix time.
        spread_watts: Standard deviation of its draw, AC watts; 0 for unknown, or not to be counted.
        ready_at_seconds: Unix time since when its probes say that it serves; infinity for no word.
    """

    domain: str
    uid: str
    watts: int
    bound_at_seconds: float
    spread_watts: float = 0.0
    ready_at_seconds: float = math.inf

    def is_starting(self, now_seconds: float) -> bool:
        """Whether more of its draw may be on the way: neither the ramp is over nor it is ready."""
        on_ramp = self.bound_at_seconds >= now_seconds - RAMP_SECONDS
        return on_ramp and now_seconds - self.ready_at_seconds < READY_SECONDS


@dataclass(frozen=True, slots=True)
class _Forecast:
    """Peak of what runs, the level it starts from, and the end of its data (Unix seconds)."""

    peak: PeakQuantiles
    now_watts: float | None
    data_until_seconds: float | None


@dataclass(frozen=True, slots=True)
class ModelWatts:
    """Board watts of one GPU type that placement needs.

    Attributes:
        model: The name that pods and nodes are compared by.
        idle_watts: Without work.
        worst_watts: The most that one board draws: its highest limit with overshoot.
        class_watts: 95th percentile of each kernel class.
        profile: What it does under a cap.
    """

    model: str
    idle_watts: float
    worst_watts: float
    class_watts: Mapping[str, float]
    profile: GpuProfile

    def added(self, class_watts: Mapping[str, float], efficiency: float) -> dict[str, int]:
        """What one busy board adds by kind of work, AC watts, behind that much of the path."""
        return {
            name: math.ceil(max(0.0, p95 - self.idle_watts) / efficiency)
            for name, p95 in class_watts.items()
        }

    def worst_added(self, efficiency: float) -> int:
        """The same of work of unknown kind."""
        return math.ceil(max(0.0, self.worst_watts - self.idle_watts) / efficiency)


def model_watts(book: ProfileBook) -> dict[str, ModelWatts]:
    """By every normalised name of a GPU type that is known."""
    return {
        name: ModelWatts(
            profile.model,
            profile.idle_watts,
            profile.max_limit_watts * OVERSHOOT_RATIO,
            # Work that calls itself idle would pass every budget; it counts like unknown work.
            {k: c.power_p95_watts for k, c in profile.kernel_classes.items() if k != "idle"},
            profile,
        )
        for name, profile in book.items()
    }


class PowerView:
    """The accepted power tree as placement sees it.

    Args:
        domains: PowerDomain objects. What was never accepted limits nothing; its servers count in
            the nearest domain above it that was.
        forecasts: What may be expected of them.

    Attributes:
        grid: Membership and limits of the accepted domains.
    """

    def __init__(self, domains: Iterable[JsonObject], forecasts: ForecastBook) -> None:
        bodies = list(domains)
        self._domains = accepted_domains(bodies)
        specs = {name: domain.spec for name, domain in self._domains.items()}
        self.grid = PowerGrid.of_read(specs, newest_claims(bodies))
        self._forecasts = forecasts
        self._drawn = {
            arrival.pod_uid: math.inf
            if arrival.at_work
            else arrival.draw_watts / self.grid.path_efficiency(name)
            for name, domain in self._domains.items()
            for arrival in domain.status.arrivals
        }

    def feeding(self, node: JsonObject) -> Feeding:
        """The domain that a node hangs directly below."""
        metadata = node["metadata"]
        return self.grid.feeding(metadata["name"], metadata.get("labels") or {})

    def holds_caps(self, feeding: Feeding) -> bool:
        """Whether the controller sets caps for every domain above a node that is fed like this."""
        if not feeding.domain or feeding.strangers or feeding.through:
            return False
        enforce = self.grid.tree.enforce
        return all(bool(enforce[self.grid.index(n)]) for n in self.grid.path(feeding.domain))

    def snapshot_domains(
        self,
        hosts: Mapping[str, float],
        loads: Sequence[BoundLoad],
        now_seconds: float,
        risks: Sequence[RiskBand] = EVERYBODY_AT_P99,
    ) -> tuple[SnapshotDomain, ...]:
        """Limits and what is used of them; a domain stands there once a risk that differs.

        Args:
            hosts: Watts of servers and idle boards directly below each domain, at worst.
            loads: What bound pods add.
            now_seconds: Unix time.
            risks: Of priorities, the strictest first.
        """
        below: dict[str, list[BoundLoad]] = {name: [] for name in self._domains}
        for load in loads:
            for name in self.grid.path(load.domain):
                below[name].append(load)
        result: list[SnapshotDomain] = []
        for name in sorted(self._domains):
            status, path = self._domains[name].status, self.grid.path(name)
            budget = status.budget_watts or self.grid.rating_watts(name)
            limit = math.floor(status.cap_band_watts or DEFAULT_CAP_BAND * budget)
            used = self._used(name, hosts, below[name], now_seconds)
            step = max(1, math.floor(limit * USED_STEP))
            domain = SnapshotDomain(
                name=name,
                parent=path[1] if len(path) > 1 else "",
                limit_watts=limit,
                guaranteed_margin_watts=-1 if self._degraded(name) else 0,
            )
            whole = [math.ceil(used(band.risk) / step) * step for band in risks]
            result += _at_risks(domain, risks, whole)
        return tuple(result)

    def _used(
        self, name: str, hosts: Mapping[str, float], below: Sequence[BoundLoad], now_seconds: float
    ) -> Callable[[float], float]:
        """By risk the most that what is bound now will draw, AC watts.

        The smallest of three estimates: everything present at its worst, of pods by the 99th
        percentile of their sum where their spread is told; the forecast of what runs plus what
        was bound after its data end; the measured draw plus the rise that the forecast expects
        plus what recently bound pods have yet to draw. The forecast alone would not do: it also
        counts work that has ended and work that has yet to come through this planner. What is
        measured now, with what is still to come of it, is never undercut: a draw that is above the
        first two disproves them.
        """
        draw = self._domains[name].status.draw_watts
        inside = [n for n in self._domains if name in self.grid.path(n)]
        static = sum(hosts.get(n, 0.0) for n in inside)
        static += pods_p99_watts([b.watts for b in below], [b.spread_watts for b in below])
        for n in inside:
            static += float(self.grid.tree.external_watts[self.grid.index(n)])
        soon = None if draw is None else draw + self._still_to_come(below, now_seconds)
        forecast = self._forecast(name, now_seconds)
        late = 0
        if forecast is not None:
            since = forecast.data_until_seconds
            if since is None:
                since = now_seconds - DEFAULT_FORECAST_AGE_SECONDS
            late = _bound_since(below, since)

        def at(risk: float) -> float:
            estimates = [static]
            if forecast is not None:
                peak = forecast.peak.at_risk(risk)
                estimates.append(peak + late)
                if soon is not None and forecast.now_watts is not None:
                    estimates.append(soon + max(0.0, peak - forecast.now_watts))
            return min(estimates) if soon is None else max(min(estimates), soon)

        return at

    def _forecast(self, name: str, now_seconds: float) -> _Forecast | None:
        """A forecast to plan with: one that can be trusted, else the controller's figure, if any.

        The controller alone measures draw, so its verdict that a forecast is contradicted counts.
        """
        domain = self._domains[name]
        verdict = find_condition(domain.status.conditions, FORECAST_TRUSTED)
        if verdict is None or verdict.status != ConditionStatus.FALSE:
            question = Question(now_seconds, self.grid.rating_watts(name))
            outlook = self._forecasts.of_domain(name, question)
            if (issue := outlook.source) is not None:
                return _Forecast(outlook.running_peak, issue.now_value, issue.data_until_seconds)
        stated = domain.status.forecast_p99_watts
        if stated is None or stated <= 0:
            return None
        return _Forecast(PeakQuantiles(stated, stated, stated), None, None)

    def _still_to_come(self, below: Sequence[BoundLoad], now_seconds: float) -> float:
        """Nominal watts of recently bound pods less what each of them draws already, AC watts.

        Without a word of the controller about a pod, all of them; nothing once it draws like work,
        or has said by a probe that it serves: then the draw speaks for it, with what the forecast
        expects, as for everybody who is not new.
        Never negative: one pod that draws more than it declared pays for no other.
        """
        starting = [b for b in below if b.is_starting(now_seconds)]
        return sum(max(0.0, b.watts - self._drawn.get(b.uid, 0.0)) for b in starting)

    def _degraded(self, name: str) -> bool:
        """The controller found that I1 fails here; it alone has what is needed to judge."""
        return is_true(self._domains[name].status.conditions, "Degraded")


def _at_risks(
    domain: SnapshotDomain, risks: Sequence[RiskBand], used_watts: Sequence[int]
) -> list[SnapshotDomain]:
    """The domain by its strictest risk, and above it itself at each risk that leaves more room."""
    rows: list[tuple[RiskBand, int]] = []
    for band, used in zip(risks, used_watts, strict=True):
        if rows and rows[-1][1] == used:
            rows[-1] = (replace(rows[-1][0], least_priority=band.least_priority), used)
        else:
            rows.append((band, used))
    names = [domain.name, *(f"{domain.name}{AT_RISK}{band.risk:g}" for band, _ in rows[1:])]
    return [
        domain.model_copy(
            update={
                "name": name,
                "parent": parent,
                "used_watts": used,
                "least_priority": band.least_priority,
                "at_risk_of": domain.name if name != domain.name else "",
            }
        )
        for name, parent, (band, used) in zip(names, [*names[1:], domain.parent], rows, strict=True)
    ]


def _bound_since(loads: Sequence[BoundLoad], since_seconds: float) -> int:
    return sum(load.watts for load in loads if load.bound_at_seconds >= since_seconds)
