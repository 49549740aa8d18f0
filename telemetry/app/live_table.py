"""The live table of ``wattpack agent --local``."""

from __future__ import annotations

from rich.table import Table

from gpu.device import PowerLimits
from telemetry.node_state import NodeState, throttle_reason_names
from telemetry.sampler import DeviceSample

COLUMNS = (
    "GPU",
    "MODEL",
    "WATTS",
    "NOW",
    "3 S",
    "CAP",
    "USE",
    "MHZ",
    "°C",
    "LIMITED BY",
    "USED BY",
)
_LEFT = {"MODEL", "LIMITED BY", "USED BY"}


def build_table(state: NodeState, note: str = "") -> Table:
    """One row a GPU."""
    title = f"{state.node}: {len(state.samples)} GPUs, {state.draw_watts():.0f} W"
    if state.missing_share() > 0:
        title += f", {state.missing_share():.0%} without a fresh reading"
    table = Table(title=title, caption=note, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in COLUMNS:
        # Numbers keep their width on a narrow terminal; names are what gets shortened.
        text = name in _LEFT
        table.add_column(
            name,
            justify="left" if text else "right",
            no_wrap=True,
            min_width=None if text else max(len(name), 3),
        )
    for sample in state.samples:
        table.add_row(*_row(state, sample), style="" if sample.fresh else "red")
    return table


def _row(state: NodeState, sample: DeviceSample) -> tuple[str, ...]:
    reading, limits = sample.reading, sample.limits
    holders = ", ".join(state.holders(sample.identity.uuid)) or "-"
    if sample.error is not None:
        limited = f"unreadable: {type(sample.error).__name__}"
    else:
        limited = ", ".join(throttle_reason_names(reading.throttle_reasons if reading else 0))
    return (
        str(sample.identity.index),
        sample.identity.model,
        number(sample.draw_watts()),
        number(reading.instant_draw_watts if reading else None),
        number(sample.energy_mean_watts),
        _limit(limits),
        "-" if not reading or reading.utilisation is None else f"{reading.utilisation:.0%}",
        number(reading.sm_clock_mhz if reading else None),
        number(reading.temperature_celsius if reading else None),
        limited or "-",
        holders,
    )


def _limit(limits: PowerLimits | None) -> str:
    """The limit that was set, and what rules where another limiter is lower."""
    if limits is None:
        return "-"
    limit = number(limits.limit_watts)
    if limits.enforced_limit_watts == limits.limit_watts:
        return limit
    return f"{limit} (rules: {limits.enforced_limit_watts:.0f})"


def number(value: float | None, digits: int = 0) -> str:
    """The value with a fixed number of digits, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"
