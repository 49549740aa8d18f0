"""The first line: is it safe, how much is left, who is capped and why, and how long it lasts.

States: SAFE, CAPPING (a band or the worst case holds GPUs back), BRAKE, and STALE where nobody can
tell. The worst domain gives the state; the tightest one gives the headroom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.freshness import Age
from controller.cap_reason import CapReason
from wattpack.live_view import LiveDomain, LiveView
from wattpack.units import NS_PER_SECOND

#: What people call the reasons, in the order in which they are told.
GROUPS: Mapping[str, frozenset[CapReason]] = {
    "brake": frozenset({CapReason.BRAKE}),
    "band": frozenset({CapReason.DOMAIN_BAND}),
    "worst case": frozenset({CapReason.SURVIVABLE_JUMP}),
    "starting": frozenset(
        {CapReason.STARTING, CapReason.RAISE_RATE, CapReason.WAITING_FOR_READ_BACK}
    ),
    "not raised": frozenset(
        {
            CapReason.RECOVERING,
            CapReason.LEASE_NOT_RENEWED,
            CapReason.EPOCH_BEHIND,
            CapReason.NOT_LEADING,
        }
    ),
    "silent": frozenset({CapReason.UNCONTROLLED}),
    "untrusted": frozenset({CapReason.UNTRUSTED}),
    "override": frozenset({CapReason.OVERRIDE}),
    "dry run": frozenset({CapReason.DRY_RUN}),
}
DRY_RUN_GROUP = "dry run"
"""Of GPUs that caps would hold: they are told, and not counted as capped."""

_GROUP_OF = {int(reason): name for name, reasons in GROUPS.items() for reason in reasons}


@dataclass(frozen=True, slots=True)
class Overview:
    """The first line's figures; watts are AC at the breaker.

    Attributes:
        state: SAFE, CAPPING, BRAKE or STALE.
        why: The state in words, with figures.
        domain: Whose headroom is told: the one with the least share left.
        headroom_watts: Budget less draw.
        headroom_share: Of the budget.
        capped: GPUs by reason, only those that occur; with those that would be, in dry run.
        gpus: All GPUs.
        enforcement: Enforce, DryRun, or how many of the domains enforce.
        limit: When the limit will be reached, by the forecast, in words.
    """

    state: str
    why: str
    domain: str
    headroom_watts: float | None
    headroom_share: float | None
    capped: Mapping[str, int]
    gpus: int
    enforcement: str
    limit: str

    def to_json(self) -> dict[str, object]:
        """As the page reads it."""
        return {
            "state": self.state,
            "why": self.why,
            "domain": self.domain,
            "headroomWatts": self.headroom_watts,
            "headroomShare": self.headroom_share,
            "capped": dict(self.capped),
            "cappedGpus": sum(self.capped.values()) - self.capped.get(DRY_RUN_GROUP, 0),
            "gpus": self.gpus,
            "enforcement": self.enforcement,
            "limit": self.limit,
        }


def overview(view: LiveView | None, age: Age) -> Overview:
    """The first line of a view, or why there is none."""
    if view is None or not view.domains:
        why = age.cause if view is None else "no power domain is accepted yet"
        return Overview("STALE", why, "", None, None, {}, 0, "", "")
    tightest = min(view.domains, key=headroom_share)
    capped = capped_by_reason(view)
    state, why = _state(view, age, capped, tightest)
    return Overview(
        state=state,
        why=why,
        domain=tightest.name,
        headroom_watts=round(tightest.budget_watts - tightest.draw_watts, 1),
        headroom_share=round(headroom_share(tightest), 4),
        capped=capped,
        gpus=len(view.gpus.uuid),
        enforcement=enforcement(view.domains),
        limit=time_to_limit(tightest, view.wall_time_ns / NS_PER_SECOND),
    )


def headroom_share(domain: LiveDomain) -> float:
    """Budget less draw, as a share of the budget."""
    if domain.budget_watts <= 0.0:
        return 0.0
    return (domain.budget_watts - domain.draw_watts) / domain.budget_watts


def capped_by_reason(view: LiveView) -> dict[str, int]:
    """GPUs held below their request, by group of reason; what a newer controller says is other.

    Those of the group ``dry run`` would be held, and are not.
    """
    counts = dict.fromkeys([*GROUPS, "other"], 0)
    for reason in view.gpus.reason:
        if reason != CapReason.NOT_CAPPED:
            counts[_GROUP_OF.get(reason, "other")] += 1
    return {name: count for name, count in counts.items() if count}


def enforcement(domains: Sequence[LiveDomain]) -> str:
    """Enforce or DryRun, or how many enforce where they differ."""
    kinds = {domain.enforcement for domain in domains}
    if len(kinds) == 1:
        return kinds.pop()
    enforced = sum(domain.enforcement == "Enforce" for domain in domains)
    return f"Enforce in {enforced} of {len(domains)} domains"


def time_to_limit(domain: LiveDomain, now_seconds: float) -> str:
    """When the domain will reach its cap band by its forecast, in words.

    Args:
        domain: With the forecast that its controller uses, and what that is worth.
        now_seconds: Unix time of the view.
    """
    if domain.draw_watts >= domain.cap_band_watts:
        return "at the cap band now"
    if domain.forecast_state == "Contradicted":
        return "unknown: measured draw contradicts the forecast"
    peak, window = domain.forecast_p99_watts, domain.forecast_window
    if peak is None or domain.forecast_state == "NoForecast":
        return "unknown: no forecast"
    if domain.forecast_state == "Forecast" and domain.draw_watts > peak:
        return f"unknown: the draw is above the p99 of {kilowatts(peak)}"
    if domain.forecast_state == "Fallback" or window is None:
        word = "at the last day's peak" if domain.forecast_state == "Fallback" else "by the p99"
        return f"{'reached' if peak >= domain.cap_band_watts else 'not reached'} {word}"
    for step, watts in enumerate(window.p99_watts):
        begins = window.start_seconds + step * window.step_seconds
        if watts >= domain.cap_band_watts and begins + window.step_seconds > now_seconds:
            return f"in {_span(begins - now_seconds)} (p99 {kilowatts(watts)})"
    ends = window.start_seconds + len(window.p99_watts) * window.step_seconds
    return f"not within {_span(ends - now_seconds)} (p99 peak {kilowatts(peak)})"


def _span(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    if minutes < 1:
        return "less than a minute"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _state(
    view: LiveView, age: Age, capped: Mapping[str, int], tightest: LiveDomain
) -> tuple[str, str]:
    if age.is_stale:
        return "STALE", age.cause
    if not view.leading:
        return "STALE", "no controller leads: GPUs fall to their guaranteed caps"
    for band, state in (("BRAKE", "BRAKE"), ("CAPPING", "CAPPING")):
        domain = next((d for d in view.domains if d.band == band), None)
        if domain is not None and band == "CAPPING" and domain.draw_watts < domain.cap_band_watts:
            return state, (
                f"{domain.name} reached its cap band of {kilowatts(domain.cap_band_watts)} and "
                f"draws {kilowatts(domain.draw_watts)}{_release(domain)}"
                f"{'' if domain.capped_gpus else '; no GPU is capped now'}"
            )
        if domain is not None:
            return state, (
                f"{domain.name} draws {kilowatts(domain.draw_watts)}, its cap band is "
                f"{kilowatts(domain.cap_band_watts)}"
            )
    if held := [name for name in ("brake", "band", "worst case") if name in capped]:
        count = sum(capped[name] for name in held)
        return "CAPPING", f"{count} GPUs are held back, every domain is below its cap band"
    waits = capped.get("not raised", 0)
    return "SAFE", (
        f"every domain is below its cap band; {tightest.name} is the tightest"
        f"{f'; {waits} GPUs stay low until more may be raised' if waits else ''}"
    )


def _release(domain: LiveDomain) -> str:
    watts, calm, uncapped = domain.release_watts, domain.calm_watts, domain.uncapped_watts
    if watts is None:
        return ""
    ends = f"; capping ends once it stays below {kilowatts(watts)}"
    if calm is None or uncapped is None:
        return ends
    return f"{ends}, and below {kilowatts(calm)} without caps (now {kilowatts(uncapped)})"


def kilowatts(watts: float) -> str:
    """The one unit of the page."""
    return f"{watts / 1000:,.1f} kW"
