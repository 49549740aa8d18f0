"""Watts that may be promised in each domain beyond what is promised, by risk (ADR 40).

Judged beside the tick, once a minute, and told to people, autoscalers and tenants as advice. Nobody
is capped by it, and no part of wattpack decides by it: the planner of pods has its own account of
what is used (``scheduler_plugin.kube_objects.power_view``), by the same forecasts at the same
risks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.app.tick_loop import TickOutcome
from controller.tick_values import Topology
from forecasting.decisions import (
    ChangeLimits,
    Decision,
    RiskBand,
    SteadyState,
    promisable_watts,
    risk_bands,
    steadied,
)
from forecasting.forecast_book import Outlook
from wattpack.api.power_domain import PowerDomainStatus, PromisableWatts
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree, worst_watts

__all__ = ["PromisableRoom", "promisable_now", "promised_watts"]

JUDGED_EVERY_SECONDS: Final = 60.0

HOLD_SECONDS: Final = 1800.0
DEAD_BAND: Final = 0.02
MOST_RAISED_AN_HOUR: Final = 0.1
"""Less is said at once; more once half an hour of wishes allows it, not for 2 %, and in any hour by
a tenth of the limit at most: people act on it, and rounds of a forecast differ (assumed)."""

MOST_PROMISED: Final = 2.0
"""Of a limit. What little work draws tells nothing of the draw of much: of an idle domain any sum
could be promised (assumed)."""

ROOM_STEP: Final = 1 / 200
"""Of a limit, rounded down, so that noise changes no status; as placement rounds what is used."""

Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class _Domain:
    """One domain at a moment, AC watts; ``above_watts`` is what the domain above was told, by risk.

    More in a rack draws in its row, too: without that bound a rack would be told more than its row
    has. It is a bound and no share: two racks may both be told the same watts of the row.
    """

    name: str
    limit_watts: float
    promised_watts: float
    outlook: Outlook
    above_watts: Sequence[float]


class PromisableRoom:
    """Remembers what it said, so that it does not flutter.

    Args:
        risks: Of priorities, the strictest first; None: everybody at 1 %.
    """

    def __init__(self, risks: Sequence[RiskBand] | None = None) -> None:
        self._risks = risks or risk_bands({})
        self._load: tuple[Topology, LoadTree] | None = None
        self._steady: dict[Key, SteadyState] = {}
        self._judged_seconds = -math.inf
        self._topology: Topology | None = None
        #: By domain; replaced as a whole, so that other threads may read it.
        self.by_domain: Mapping[str, tuple[PromisableWatts, ...]] = {}
        #: What work below each domain was promised, AC watts.
        self.promised_watts: Mapping[str, float] = {}

    def judge(
        self,
        outcome: TickOutcome,
        pods: Sequence[str],
        told: Mapping[str, PowerDomainStatus],
        now_seconds: float,
    ) -> Mapping[str, tuple[PromisableWatts, ...]]:
        """By domain, the strictest risk first; nothing where nobody knows what will be drawn.

        No domain is told more than the nearest one above it that is told anything.

        Args:
            outcome: Of the newest tick.
            pods: Of each GPU, empty for none.
            told: What statuses say; it holds on over a change of leaders.
            now_seconds: Monotonic.
        """
        due = now_seconds - self._judged_seconds >= JUDGED_EVERY_SECONDS
        if not due and outcome.topology is self._topology:
            return self.by_domain
        if len(pods) != outcome.topology.n_gpus:
            # Boards came or went since that tick: the next one knows them.
            return self.by_domain
        self._judged_seconds, self._topology = now_seconds, outcome.topology
        load, tree = self._load_tree(outcome.topology), outcome.topology.tree
        promised = promised_watts(load, outcome.topology, pods)
        self.promised_watts = dict(zip(tree.names, promised.tolist(), strict=True))
        found: dict[str, tuple[PromisableWatts, ...]] = {}
        bounds: dict[int, Sequence[float]] = {-1: (math.inf,) * len(self._risks)}
        for index, name in enumerate(tree.names):
            parent = int(tree.parent[index])
            # Watts at the domain draw more above it, by what supplies between the two lose.
            kept = 1.0 if parent < 0 else load.efficiency[parent] / load.efficiency[index]
            above = bounds[index] = [float(watts * kept) for watts in bounds[parent]]
            outlook = outcome.outlooks.get(name)
            limit = float(outcome.decisions.cap_band_watts[index])
            if outlook is None or outlook.method == "limit" or not 0 < limit < math.inf:
                continue
            domain = _Domain(name, limit, float(promised[index]), outlook, above)
            found[name] = self._rooms(domain, told.get(name), now_seconds)
            bounds[index] = [room.watts for room in found[name]]
        self._steady = {key: state for key, state in self._steady.items() if key[0] in found}
        self.by_domain = found
        return found

    def forget(self) -> None:
        """Nothing is known any more: another replica leads."""
        self._steady, self.by_domain, self.promised_watts = {}, {}, {}
        self._judged_seconds, self._topology = -math.inf, None

    def _load_tree(self, topology: Topology) -> LoadTree:
        if self._load is None or self._load[0] is not topology:
            made = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
            self._load = (topology, made)
        return self._load[1]

    def _rooms(
        self, domain: _Domain, told: PowerDomainStatus | None, now_seconds: float
    ) -> tuple[PromisableWatts, ...]:
        rooms = []
        limits = ChangeLimits(
            dead_band=DEAD_BAND,
            hold_seconds=HOLD_SECONDS,
            most_moved=MOST_RAISED_AN_HOUR * domain.limit_watts,
            urgent="down",
        )
        for band, above in zip(self._risks, domain.above_watts, strict=True):
            key = (domain.name, band.least_priority)
            before = self._steady.get(key) or _as_told(told, band, now_seconds)
            wish = promisable_now(
                domain.outlook, domain.limit_watts, domain.promised_watts, band.risk
            )
            if wish.amount > above:
                wish = wish.because("limit", math.floor(above), "no more than the domain above")
            made, self._steady[key] = steadied(wish, now_seconds, before, limits)
            rooms.append(
                PromisableWatts(
                    least_priority=band.least_priority, risk=band.risk, watts=made.amount
                )
            )
        return tuple(rooms)


def promised_watts(load: LoadTree, topology: Topology, pods: Sequence[str]) -> FloatArray:
    """AC watts below each domain if work drew what it asked for and servers their worst, (n,)."""
    at_work = np.array([bool(pod) for pod in pods], dtype=np.bool_)
    asked = np.where(at_work, topology.request_watts, 0.0)
    return worst_watts(load, asked, topology.node_worst_watts)


def promisable_now(
    outlook: Outlook, limit_watts: float, promised_watts: float, risk: float
) -> Decision:
    """What runs draws a share of what it was promised; more would draw such a share, too.

    Args:
        outlook: Of the domain.
        limit_watts: Upper edge of its cap band.
        promised_watts: To what runs there.
        risk: Share of windows in which caps may be needed.
    """
    limit, promised = limit_watts, promised_watts
    peak = np.array([[outlook.running_peak.at_risk(risk)]])
    made = promisable_watts(peak, limit, promised, {"": risk})[""]
    most = max(0.0, MOST_PROMISED * limit - promised)
    step = max(1.0, limit * ROOM_STEP)
    whole = math.floor(min(made.amount, most) / step) * step
    return made.because(made.binding, round(whole), f"at most {MOST_PROMISED:g} limits in all")


def _as_told(told: PowerDomainStatus | None, band: RiskBand, now_seconds: float) -> SteadyState:
    """In force since just now, if the status says something for this band."""
    for room in told.promisable if told is not None else ():
        if room.least_priority == band.least_priority and room.risk == band.risk:
            return SteadyState(room.watts, (), ((now_seconds, room.watts),), now_seconds)
    return SteadyState()
