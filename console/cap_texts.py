"""Each reason for a cap in words: what was observed, which limit holds it, what lifts it.

What is said here of lifting is driven against the real controller, reason by reason
(``tests/console/test_caps_lift_as_told.py``): doing it lifts the cap, leaving it undone does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from console.overview import kilowatts
from controller.cap_reason import CapReason
from wattpack.live_view import LiveDomain, LiveView

__all__ = ["CapTexts", "HeldGpu", "cap_texts"]

_MORE_POWER = "Give it a more important PriorityClass, or move it to a domain with headroom."
# Boards regulate no finer, so that a smaller raise is not made (``controller.grants``).
_SMALLEST_RAISE = 0.02
_ONE_WATT = 1.0


@dataclass(frozen=True, slots=True)
class CapTexts:
    """A reason in words."""

    headline: str
    limit: str
    lifts: str
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """One GPU of a view with the domains that its explanation speaks of.

    Attributes:
        view: The newest view.
        index: Of the GPU.
        domain: What the reason speaks of; the domain directly above where it names none.
        rack: The domain directly above the GPU.
    """

    view: LiveView
    index: int
    domain: LiveDomain
    rack: LiveDomain

    @property
    def name(self) -> str:
        """Of the domain."""
        return self.domain.name


def cap_texts(reason: CapReason | None, gpu: HeldGpu) -> CapTexts:
    """The reason in words; None for one that this release does not know."""
    if reason is None:
        return _UNKNOWN
    texts = _STOPS[reason] if reason in _STOPS else _TEXTS[reason](gpu)
    if reason not in _THEN_RAISED:
        return texts
    return replace(texts, lifts=texts.lifts + _and_raises(gpu))


def _not_capped(gpu: HeldGpu) -> CapTexts:
    gpus = gpu.view.gpus
    limit, request = gpus.limit_watts[gpu.index], gpus.request_watts[gpu.index]
    texts = CapTexts(
        "It is not capped: its limit is what its work asks for.", "none", "nothing has to be lifted"
    )
    if limit is None or limit >= (1.0 - _SMALLEST_RAISE) * request - _ONE_WATT:
        return texts
    stands = f"its limit as read back is {limit:.0f} W, and {request:.0f} W are asked for"
    if gpu.rack.enforcement == "Enforce":
        return CapTexts(
            f"Nothing caps it, but {stands}: the raise is under way, or its actuator fails.",
            f"none of the controller's; the board's own, {limit:.0f} W",
            "its actuator writes the limit, usually within 2 s",
            ("If it lasts: look for failed writes (wattpack_gpu_failed_writes_total).",),
        )
    return CapTexts(
        f"Nothing caps it, but {stands}: {gpu.rack.name} is in DryRun, so nobody raises it.",
        f"none of the controller's; the board's own, {limit:.0f} W",
        f"somebody sets the board's limit, or {gpu.rack.name} enforces",
        ("Give boards their limits back: docs/actuator.md.",),
    )


def _domain_band(gpu: HeldGpu) -> CapTexts:
    domain, draw = gpu.domain, kilowatts(gpu.domain.draw_watts)
    base, raise_base = _base(domain)
    release = _known(domain.release_watts, "its release level")
    calm = _known(domain.calm_watts, "its target")
    uncapped = "" if domain.uncapped_watts is None else f", now {kilowatts(domain.uncapped_watts)}"
    return CapTexts(
        f"{gpu.name} reached its cap band, and work of priority "
        f"{gpu.view.gpus.priority[gpu.index]} is reduced before anything more important.",
        f"cap band of {gpu.name}: {kilowatts(domain.cap_band_watts)}, a share of {base}",
        f"{gpu.name} has to draw less than {release}, now {draw}, and without caps less than "
        f"{calm}{uncapped} (the highest of the last minute), both for 30 s; a part comes back as "
        "soon as others below it draw less",
        (_MORE_POWER, raise_base),
    )


def _base(domain: LiveDomain) -> tuple[str, str]:
    """What the cap band is a share of, and what would raise that."""
    base, budget = domain.base_watts, domain.budget_watts
    by_budget = "Raise the domain's budget, if its breaker bears it (kubectl edit powerdomain)."
    if base is None or (budget <= base + _ONE_WATT and budget < domain.rating_watts - _ONE_WATT):
        return f"its budget of {kilowatts(budget)}", by_budget
    if base < budget - _ONE_WATT:
        feeds = f"what its feeds carry, {kilowatts(base)}"
        return feeds, "Bring back what its feeds lack: a feed, its reading, or even phases."
    return (
        f"its rating of {kilowatts(base)}",
        "Declare more than its ratingWatts only if its breaker bears it.",
    )


def _survivable_jump(gpu: HeldGpu) -> CapTexts:
    domain = gpu.domain
    at_most, or_uncapped = _jump_limit(gpu)
    return CapTexts(
        f"If every GPU below {gpu.name} went to its cap at once, its breaker would not survive "
        f"until leases end (I2), so caps keep the worst case low although {gpu.name} draws less "
        "now.",
        f"worst case of {gpu.name}: {kilowatts(domain.worst_watts)}, at most {at_most}; rating "
        f"{kilowatts(domain.rating_watts)}",
        f"less worst case below {gpu.name} (servers that are silent or uncontrolled count at their "
        "default limits, others at their caps, whatever they draw), or a cooler breaker (heat "
        f"{domain.heat:.2f}){or_uncapped}",
        (_MORE_POWER, "Declare the breaker's real trip curve if the assumed one is stricter."),
    )


def _jump_limit(gpu: HeldGpu) -> tuple[str, str]:
    """The most that the worst case may be, and what else lifts it: less while the domain caps."""
    borne, limit = gpu.domain.survivable_watts, gpu.domain.jump_limit_watts
    if borne is None or limit is None or limit >= borne - _ONE_WATT:
        return f"{_known(borne, 'what the breaker survives')} may be", ""
    at_most = f"{kilowatts(limit)} may be while it caps (its breaker survives {kilowatts(borne)})"
    return at_most, f", or {gpu.name} caps no longer"


def _brake(gpu: HeldGpu) -> CapTexts:
    domain, draw = gpu.domain, kilowatts(gpu.domain.draw_watts)
    calm = _known(
        domain.calm_watts, f"2 % of its limit less than {kilowatts(domain.cap_band_watts)}"
    )
    return CapTexts(
        f"{gpu.name} is in the brake. Every GPU below it goes to its lowest limit.",
        f"breaker of {gpu.name}: heat {domain.heat:.2f} of 1, draw {draw}, rating "
        f"{kilowatts(domain.rating_watts)}",
        f"{gpu.name} has to stay at {calm} or less for 5 s, now {draw}; then it caps by its band, "
        "and caps are raised slowly",
        (f"Take load off: suspend low-priority work below {gpu.name}.",),
    )


def _waiting(gpu: HeldGpu) -> CapTexts:
    return CapTexts(
        "Its power is promised but another GPU still holds it (I6).",
        f"power of {gpu.name} that is held until a lower cap is read back",
        "the lower cap of the other GPU is read back, usually within 2 s",
        ("If it lasts: look for nodes that do not answer or boards that refuse limits.",),
    )


def _raise_rate(gpu: HeldGpu) -> CapTexts:
    rate = gpu.domain.raise_watts_per_second
    told = "slowly" if rate is None else f"at {kilowatts(rate)} a second at most"
    return CapTexts(
        f"{gpu.name} is restoring caps slowly, so that the load cannot bounce.",
        f"raise rate of {gpu.name}",
        f"it rises by itself: caps below {gpu.name} come back {told}, the most important first, "
        "and the last 1 % below its target over some ten seconds",
    )


def _override(_: HeldGpu) -> CapTexts:
    return CapTexts(
        "A PowerOverride caps it by hand, or a board of its gang.",
        "the override's cap",
        "the override ends or is deleted (kubectl get poweroverrides)",
        ("Delete the override if it is no longer needed.",),
    )


def _uncontrolled(_: HeldGpu) -> CapTexts:
    return CapTexts(
        "Its node sends no fresh report or has no actuator: it is budgeted at its default limit.",
        "nobody can set a limit here",
        "its agent and actuator answer again",
        ("Look at the node's agent and actuator pods.",),
    )


def _untrusted(_: HeldGpu) -> CapTexts:
    return CapTexts(
        "It drew over 110 % of every cap that it could hold (I7): it is budgeted at the most that "
        "it may draw, and not raised.",
        "guaranteed cap, or the limit that it holds",
        "it keeps its cap for 30 s in a row, by its energy counter",
        ("Look for boards that ignore limits: docs/runbooks/DeviceUntrusted.md.",),
    )


def _dry_run(gpu: HeldGpu) -> CapTexts:
    watches = gpu.rack if gpu.rack.enforcement != "Enforce" else gpu.domain
    held = gpu.view.gpus.binding_domain[gpu.index] >= 0
    would = f"; {gpu.name} would hold it, with a cap band of " if held else ""
    return CapTexts(
        f"It would be capped, but {watches.name} is in DryRun: nothing is written.",
        f"none is written{would}{kilowatts(gpu.domain.cap_band_watts) if held else ''}",
        "nothing has to be lifted",
        (f"Set enforcement: Enforce on {watches.name} when you trust its decisions.",),
    )


def _recovering(gpu: HeldGpu) -> CapTexts:
    domain = gpu.domain
    heard = (
        "its servers have to be heard"
        if domain.servers is None or domain.heard_servers is None
        else f"{domain.heard_servers} of {domain.servers} servers of {gpu.name} are heard"
    )
    return CapTexts(
        f"Nothing below {gpu.name} is raised above guaranteed caps: its controller began without "
        "knowing it, or a fifth of its servers or more was silent at once (I6).",
        f"guaranteed caps, and what is still leased below {gpu.name}",
        f"{heard}, heat {domain.heat:.2f}: nearly all have to be for ten ticks in a row, with heat "
        "below 0.1 (nearly all: 95 % of those heard within 30 s and 80 % of those heard within ten "
        "minutes, or all but one)",
        ("Look for nodes that send no reports: docs/runbooks/AgentSilent.md.",),
    )


_STOPS: Mapping[CapReason, CapTexts] = {
    CapReason.STARTING: CapTexts(
        "A new leader raises nothing until one lease has passed (I4).",
        "guaranteed caps and what is still leased",
        "one lease time after the change of leader, some seconds",
    ),
    CapReason.LEASE_NOT_RENEWED: CapTexts(
        "The leader could not renew its Lease of late, so it lowers caps and raises none (I4).",
        "guaranteed caps and what is still leased",
        "the leader renews its Lease: the API server has to answer it",
        ("Look at the API server and at the controller's way to it.",),
    ),
    CapReason.EPOCH_BEHIND: CapTexts(
        "An actuator knows a higher epoch than the leader's Lease, so nothing is raised (I4).",
        "guaranteed caps and what is still leased",
        "the leader moves its Lease beyond that epoch, then one lease time",
        ("If it lasts: the leader has to write its Lease; look at the API server.",),
    ),
    CapReason.NOT_LEADING: CapTexts(
        "This replica does not lead and commands nobody.",
        "what the leader decides; guaranteed caps where nobody leads",
        "ask the replica that leads; where none does, one has to take the Lease",
        ("If nobody leads: docs/runbooks/ControllerNoLeader.md.",),
    ),
}
_UNKNOWN = CapTexts(
    "A newer controller gives a reason that this console does not know.",
    "unknown to this console",
    "unknown to this console",
    ("Update the console to the controller's release.",),
)
_TEXTS: Mapping[CapReason, Callable[[HeldGpu], CapTexts]] = {
    CapReason.NOT_CAPPED: _not_capped,
    CapReason.DOMAIN_BAND: _domain_band,
    CapReason.SURVIVABLE_JUMP: _survivable_jump,
    CapReason.BRAKE: _brake,
    CapReason.WAITING_FOR_READ_BACK: _waiting,
    CapReason.RAISE_RATE: _raise_rate,
    CapReason.OVERRIDE: _override,
    CapReason.UNCONTROLLED: _uncontrolled,
    CapReason.UNTRUSTED: _untrusted,
    CapReason.DRY_RUN: _dry_run,
    CapReason.RECOVERING: _recovering,
}
# What is over gives a decision; whether it is raised to that then is another question.
_THEN_RAISED = {
    CapReason.DOMAIN_BAND,
    CapReason.SURVIVABLE_JUMP,
    CapReason.BRAKE,
    CapReason.OVERRIDE,
    CapReason.UNCONTROLLED,
    CapReason.UNTRUSTED,
}


def _and_raises(gpu: HeldGpu) -> str:
    """What beside the reason keeps caps from rising now, to add to what lifts it."""
    stopped = next((why for why in _STOPS if why.name == gpu.view.raises_stopped), None)
    if stopped is not None:
        return f"; and nothing is raised until {_STOPS[stopped].lifts}"
    recovering = next((d for d in _upwards(gpu.view, gpu.rack) if d.recovering), None)
    if recovering is None:
        return ""
    return f"; and nothing is raised above guaranteed caps until {recovering.name} was heard (I6)"


def _upwards(view: LiveView, domain: LiveDomain) -> list[LiveDomain]:
    """The domain and all above it, nearest first."""
    by_name = {one.name: one for one in view.domains}
    chain: list[LiveDomain] = []
    at: LiveDomain | None = domain
    while at is not None and at not in chain:
        chain.append(at)
        at = by_name.get(at.parent) if at.parent else None
    return chain


def _known(watts: float | None, otherwise: str) -> str:
    return otherwise if watts is None else kilowatts(watts)
