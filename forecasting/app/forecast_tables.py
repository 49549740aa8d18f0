"""Forecasts as tables of a terminal, made from statuses as a DemandForecast carries them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from capacity.catalogue.catalogue_files import find_workload, shipped_catalogue
from capacity.catalogue.pod_works import lead_seconds
from forecasting.fan import readable
from forecasting.issued_account import read_account
from forecasting.lead_time import StepWindow, needed_within
from forecasting.series_source import BIN_SECONDS
from wattpack.printable import printable
from wattpack.times import parse_rfc3339

_PEAK_LEVEL: Final = 0.99
_FAR_ABOVE: Final = 1.1
"""Times the highest step: a difference that a reader asks about. Assumed."""
_FOLDED_NAME: Final = 12
"""Letters of a name in a line where there is no room. Assumed."""
_PIPE_COLUMNS: Final = 240
"""Beside figures room for a name of some 150 letters, most PromQL expressions. Assumed."""


def peaks_table(
    statuses: Sequence[tuple[str, dict[str, Any]]], now_seconds: float, hours: float
) -> Table:
    """One line a series: where it is, how high it can go, and how far that can be believed."""
    title = f"highest 10-minute mean of the next {hours:.3g} h"
    table = plain_table(title)
    table.add_column("series", overflow="fold", min_width=7)
    for name in ("now", "p50", "p95", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("data age", no_wrap=True)
    table.add_column("p99 held", min_width=9, overflow="fold")
    table.add_column("by", min_width=5, overflow="fold")
    table.add_column("flags", min_width=5, overflow="fold")
    for series, status in statuses:
        figures = [figure(status.get(name)) for name in ("now", "p50", "p95", "p99")]
        # No markup: [ab] of a regular expression is no style, and [/x] ends none.
        table.add_row(
            Text(printable(series)), *figures, data_age(status, now_seconds), held(status),
            made_by(status), ", ".join(status.get("flags", ())),
        )  # fmt: skip
    return table


def made_by(status: dict[str, Any]) -> str:
    """The models behind an answer with their weights, or the fall-back."""
    tiers = [f"{tier['name']} {tier['weight']:.0%}" for tier in status.get("tiers", ())]
    return ", ".join(tiers) or str(status.get("method", ""))


def held(status: dict[str, Any]) -> str:
    """How often the p99 held, promises apart from rehearsals, and what so few can rule out."""
    account = read_account(status)
    windows, missed = account.windows or 0, account.violations or 0
    if not windows:
        return "no window yet"
    live, live_missed = account.live_windows or 0, account.live_violations or 0
    rehearsed = windows - live
    text = f"{rehearsed - missed + live_missed}/{rehearsed}"
    bound = account.live_violation_bound if live else account.violation_bound
    most = "" if bound is None else f" (missed < {bound:.1%})"
    if account.live_windows is None:
        return text + most
    if not live:
        return f"{text} rehearsed{most}"
    told = f"{live - live_missed}/{live} live{most}"
    return f"{told}, {text} rehearsed" if rehearsed else told


def data_age(status: dict[str, Any], now_seconds: float) -> str:
    """How old the newest observation is."""
    until = status.get("dataUntil")
    if until is None:
        return "none"
    minutes = max(0.0, now_seconds - parse_rfc3339(until).timestamp()) / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def steps_table(status: dict[str, Any]) -> Table:
    """The window hour by hour."""
    table = plain_table("each step")
    table.add_column("in")
    for path in status["quantiles"]:
        table.add_column(f"p{path['level'] * 100:g}", justify="right")
    steps = len(status["quantiles"][0]["values"])
    for k in sorted({*range(5, steps, 6), steps - 1}):
        values = [figure(path["values"][k]) for path in status["quantiles"]]
        table.add_row(f"{(k + 1) * BIN_SECONDS / 3600:.3g} h", *values)
    return table


def peak_line(status: dict[str, Any]) -> str:
    """Why the p99 of the peak is far above the steps'; empty where it is not."""
    paths = [path["values"] for path in status["quantiles"] if path["level"] == _PEAK_LEVEL]
    if not paths or status["p99"] <= _FAR_ABOVE * max(paths[0]):
        return ""
    return (
        f"the p99 of the peak is above each step's: the highest of {len(paths[0])} steps is high "
        "more often than any one, and records of past days count"
    )


def tokens_line(status: dict[str, Any]) -> str:
    """What the requests will be in tokens."""
    tokens = status.get("tokens")
    if tokens is None:
        return "nobody knows how long the requests are, or no model knows how many come"
    peaks = ", ".join(f"{level} {readable(tokens[level])}" for level in ("p50", "p95", "p99"))
    mean, longest = readable(tokens["mean"]), readable(tokens["requestP99"])
    return f"highest tokens a second: {peaks} (a request: mean {mean}, p99 {longest} tokens)"


def lead_line(
    workload: str, status: dict[str, Any], now_seconds: float, replica_rate: float | None = None
) -> str:
    """What the series may need within the lead time of a catalogue entry.

    Args:
        workload: The entry.
        status: Of the series.
        now_seconds: Unix time.
        replica_rate: What one replica serves, in the series' unit: the replicas to have are told.

    Raises:
        InputError: an unknown entry, or a lead time beyond the window.
    """
    lead = lead_seconds(find_workload(shipped_catalogue(), workload).name)
    window = StepWindow(parse_rfc3339(status["windowStart"]).timestamp(), BIN_SECONDS)
    needed = {
        path["level"]: needed_within(window, path["values"], now_seconds, lead)
        for path in status["quantiles"]
    }
    figures = ", ".join(
        f"p{level * 100:g} {readable(value)}" + _replicas(value, replica_rate)
        for level, value in needed.items()
    )
    return f"within the {lead:.0f} s until a new {workload} works (p95 of its start): {figures}"


def _replicas(value: float, replica_rate: float | None) -> str:
    if replica_rate is None:
        return ""
    count = math.ceil(value / replica_rate - 1e-9)
    return f" ({count} replica{'' if count == 1 else 's'})"


def ready_message(status: dict[str, Any]) -> str:
    """What the Ready condition says."""
    return next(str(c["message"]) for c in status["conditions"] if c["type"] == "Ready")


def plain_table(title: str | Text) -> Table:
    """Without rules: figures stand in columns by themselves."""
    return Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")


def table_console() -> Console:
    """As wide as the terminal; what goes into a file or a pipe is hardly folded."""
    found = Console()
    return found if found.is_terminal else Console(width=_PIPE_COLUMNS)


def print_whole(table: Table, console: Console) -> None:
    """Print a table with all of its columns.

    On a narrow terminal columns move together and names, in the first one, are folded; where that
    does not do, lines go on in the next one: rich would leave out the last columns, which are the
    flags, without a word.
    """
    if _narrowest(table, console) > console.width:
        table.padding = (0, 1, 0, 0)
        table.columns[0].max_width = _FOLDED_NAME
    if _narrowest(table, console) > console.width:
        console.width = _PIPE_COLUMNS
    console.print(table)


def _narrowest(table: Table, console: Console) -> int:
    """Letters of a line in which no word of a cell is cut, at most those of a pipe."""
    boundless = console.options.update(max_width=_PIPE_COLUMNS)
    return Measurement.get(console, boundless, table).minimum


def figure(value: float | None) -> str:
    """A quantity for people, or a dash for none."""
    return "–" if value is None else readable(value)
