"""What a domain may draw now: its rating, its schedule and manual overrides, the lowest winning."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import numpy as np

from controller.membership import require_per_gpu_watts
from controller.tick_values import Topology
from wattpack.api import PowerDomain, PowerOverride
from wattpack.api.power_domain import BudgetWindow
from wattpack.errors import InputError
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.times import parse_rfc3339
from wattpack.units import NS_PER_SECOND

#: Nobody budgets so small a share of a breaker; kW for W and the watts of one GPU look like it.
_LEAST_LIKELY_SHARE = 0.01


def parse_time(field: str, text: str) -> datetime.datetime | datetime.time:
    """An RFC 3339 time with zone, or a daily HH:MM in UTC.

    Raises:
        InputError: for anything else, also for a time without a zone.
    """
    try:
        if len(text) == 5:
            return datetime.time.fromisoformat(text)
        return parse_rfc3339(text)
    except ValueError as error:
        expected = "an RFC 3339 time with its zone, for example ending in Z, or HH:MM"
        raise InputError(field, expected, text) from error


def window_active(window: BudgetWindow, wall_time_ns: int) -> bool:
    """Whether the budget window covers the moment; a daily window may pass midnight."""
    now = datetime.datetime.fromtimestamp(wall_time_ns / NS_PER_SECOND, tz=datetime.UTC)
    start, end = parse_time("start", window.start), parse_time("end", window.end)
    if isinstance(start, datetime.time) and isinstance(end, datetime.time):
        clock = now.time()
        inside = start <= clock < end
        return inside if start <= end else clock >= start or clock < end
    if isinstance(start, datetime.datetime) and isinstance(end, datetime.datetime):
        return start <= now < end
    raise InputError("budgets", "start and end of the same form", (window.start, window.end))


def override_active(override: PowerOverride, wall_time_ns: int) -> bool:
    """Whether the override has not expired.

    Raises:
        InputError: if its expiry is not a full time.
    """
    expires = parse_time("spec.expiresAt", override.spec.expires_at)
    if not isinstance(expires, datetime.datetime):
        raise InputError("spec.expiresAt", "an RFC 3339 time", override.spec.expires_at)
    return wall_time_ns < expires.timestamp() * NS_PER_SECOND


def override_objection(override: PowerOverride, topology: Topology | None) -> str:
    """Why the override can rule nothing now; empty if it can, or if nothing runs yet."""
    if topology is None:
        return ""
    target, cap = override.spec.target, override.spec.cap_watts
    if target.domain is not None:
        known = target.domain in topology.tree.names
        return "" if known else f"spec.target.domain: no accepted PowerDomain {target.domain}"
    if target.node is not None and target.node not in topology.node_names:
        return f"spec.target.node: no GPUs of a node {target.node} below any power domain"
    if target.gpu_uuid is not None and target.gpu_uuid not in topology.gpu_uuids:
        return f"spec.target.gpuUuid: no GPU {target.gpu_uuid} below any power domain"
    try:
        highest = float(topology.default_limit_watts.max(initial=0.0))
        require_per_gpu_watts("spec.capWatts", cap, highest)
    except InputError as error:
        return str(error)
    return ""


def override_notice(override: PowerOverride, topology: Topology | None, wall_time_ns: int) -> str:
    """What an override that can rule does other than its figure seems to say; empty for nothing."""
    if not override_active(override, wall_time_ns):
        return "expired: it rules nothing any more"
    if topology is None:
        return ""
    domain, cap = override.spec.target.domain, override.spec.cap_watts
    if domain is not None:
        rating = float(topology.tree.rating_watts[topology.tree.index(domain)])
        return _unlikely("capWatts", cap, f"the rating of {domain}", rating)
    lowest = float(topology.min_limit_watts[_targets(override, topology)].max(initial=0.0))
    return f"GPUs there keep their lowest limit, {lowest:g} W" if cap < lowest else ""


def budget_notice(domain: PowerDomain) -> str:
    """Whether a window's figure looks like another unit; empty if not. It rules all the same."""
    rating = domain.spec.rating_watts
    told = (
        _unlikely(f"budgets[{i}].budgetWatts", window.budget_watts, "ratingWatts", rating)
        for i, window in enumerate(domain.spec.budgets)
    )
    return next(filter(None, told), "")


def _unlikely(field: str, watts: float, of: str, rating_watts: float) -> str:
    if watts >= _LEAST_LIKELY_SHARE * rating_watts:
        return ""
    told = f"spec.{field}: {watts:g} W is less than 1 % of {of} ({rating_watts:g} W)"
    return f"{told}; it counts as watts of the whole domain, so that nearly all is capped"


def budget_watts(
    topology: Topology,
    domains: Mapping[str, PowerDomain],
    overrides: Iterable[PowerOverride],
    wall_time_ns: int,
) -> FloatArray:
    """The lowest of rating, active budget windows and active domain overrides, (n_domains,).

    The rating is that of all feeds that load may use; what they carry now is for the tick to say.
    """
    budget = topology.tree.all_feeds_watts.copy()
    for index, name in enumerate(topology.tree.names):
        for window in domains[name].spec.budgets:
            if window_active(window, wall_time_ns):
                budget[index] = min(budget[index], window.budget_watts)
    for override in overrides:
        target = override.spec.target.domain
        if target in topology.tree.names and override_active(override, wall_time_ns):
            index = topology.tree.index(str(target))
            budget[index] = min(budget[index], override.spec.cap_watts)
    return budget


def override_cap_watts(
    topology: Topology, overrides: Iterable[PowerOverride], wall_time_ns: int
) -> FloatArray:
    """Manual caps per GPU from overrides of nodes and devices, NaN where there is none."""
    caps = np.full(topology.n_gpus, np.inf)
    for override in overrides:
        target = override.spec.target
        if target.domain is not None or not override_active(override, wall_time_ns):
            continue
        chosen = _targets(override, topology)
        caps[chosen] = np.minimum(caps[chosen], override.spec.cap_watts)
    return np.where(np.isfinite(caps), caps, np.nan)


def _targets(override: PowerOverride, topology: Topology) -> BoolArray:
    """GPUs of the node or device that the override names, (n_gpus,)."""
    target = override.spec.target
    chosen = np.zeros(topology.n_gpus, dtype=np.bool_)
    if target.node in topology.node_names:
        chosen |= topology.node_of_gpu == topology.node_names.index(str(target.node))
    elif target.gpu_uuid in topology.gpu_uuids:
        chosen[topology.gpu_uuids.index(str(target.gpu_uuid))] = True
    return chosen
