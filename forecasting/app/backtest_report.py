"""A backtest as a folder: figures as JSON, a page as markdown and HTML, and its pictures."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forecasting.app.domain_choice import unknown_here
from forecasting.backtest.backtest_verdicts import Verdict, grouped, is_missed, verdict_of
from forecasting.backtest.plan import BacktestPlan
from forecasting.backtest.window import FAN_LEVELS, Window
from forecasting.fan import Fan
from forecasting.series_source import DAY_SECONDS, SeriesId, SeriesSource
from wattpack.errors import InputError, PermanentError
from wattpack.flags import write_output
from wattpack.printable import shortened
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

FORMAT: Final = "wattpack.io/backtest/v1"
MOST_FANS: Final = 8
SHOWN_SERIES: Final = 50
"""Lines of the page's table; the JSON has all of them."""

_P99: Final = -1
PICTURES: Final = {
    "fans.png": "Windows with the day before them, missed ones first",
    "reliability.png": "Observed against stated levels",
    "timeline.png": "Windows by series, the most missed first",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the page: a heading, words, and a table or picture."""

    heading: str
    words: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    picture: str = ""


def write_report(
    folder: Path, plan: BacktestPlan, windows: Sequence[Window], source: SeriesSource
) -> tuple[Verdict, str]:
    """The whole folder; returns the verdict and why there are no pictures, if there are none.

    Args:
        folder: Made if it is not there.
        plan: What was gone through.
        windows: Its windows.
        source: The history, for what came before and within the windows that are drawn.

    Raises:
        PermanentError: where it cannot be written.
    """
    verdict, by_series = verdict_of(windows), grouped(windows)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(f"the report is not in {folder}: {error}") from error
    why = _draw(folder, plan, by_series, verdict, source)
    figures: dict[str, object] = {
        "format": FORMAT,
        "plan": _told(asdict(plan)),
        "verdict": asdict(verdict),
    }
    figures["windows"] = [_short(window) for window in windows]
    write_output(folder / "backtest.json", json.dumps(figures, indent=1, allow_nan=False) + "\n")
    parts = page(plan, verdict, bool(why))
    write_output(folder / "report.md", as_markdown(parts))
    write_output(folder / "index.html", as_html(parts))
    return verdict, why


def _told(plan: object) -> object:
    """In what JSON has: a bound that an event does not have is null."""
    if isinstance(plan, dict):
        return {name: _told(value) for name, value in plan.items()}
    if isinstance(plan, list | tuple):
        return [_told(value) for value in plan]
    return None if isinstance(plan, float) and math.isnan(plan) else plan


def _short(window: Window) -> dict[str, object]:
    """Without the paths: those are in the pictures."""
    told = window.to_json()
    del told["fan"]
    return told


def _draw(
    folder: Path, plan: BacktestPlan, by_series: dict[str, list[Window]], verdict: Verdict,
    source: SeriesSource,
) -> str:  # fmt: skip
    """The pictures; why not, where there is nothing to draw with."""
    from forecasting.app.backtest_pictures import draw_reliability, draw_timeline
    from forecasting.app.forecast_pictures import draw_fans

    fans = [_fan(plan, window, source) for window in telling(by_series, verdict)]
    try:
        if fans:
            draw_fans(folder / "fans.png", fans)
        draw_reliability(folder / "reliability.png", verdict)
        draw_timeline(
            folder / "timeline.png", {one.series: by_series[one.series] for one in verdict.series}
        )
    except InputError as error:
        return str(error)
    return "" if fans else "no window was answered"


def telling(by_series: dict[str, list[Window]], verdict: Verdict) -> list[Window]:
    """Windows that are worth a look: the worst misses, and the newest of the busiest series."""
    worst, kept = [], []
    for one in verdict.series:
        judged = [window for window in by_series[one.series] if window.counts]
        missed = [window for window in judged if is_missed(window)]
        if missed:
            worst.append(max(missed, key=lambda w: (w.peak or 0.0) / max(w.peaks[_P99], 1e-12)))
        elif judged:
            kept.append(judged[-1])
    kept.sort(key=lambda window: -window.total)
    room = max(MOST_FANS // 2, MOST_FANS - len(kept))
    return [*worst[:room], *kept][:MOST_FANS]


def _fan(plan: BacktestPlan, window: Window, source: SeriesSource) -> Fan:
    step, origin = plan.step_seconds, window.origin_seconds
    name = [SeriesId(window.series)]
    words = "above its p99" if is_missed(window) else "kept"
    return Fan(
        title=f"{shortened(window.series, 36)}: {words}",
        start_seconds=origin,
        step_seconds=step,
        past=source.fetch(name, origin - DAY_SECONDS // step * step, origin, step)[0],
        levels=FAN_LEVELS,
        quantiles=np.array(window.fan).T,
        peak_p99=window.peaks[_P99],
        realised=source.fetch(name, origin, origin + plan.horizon * step, step)[0],
    )


def page(plan: BacktestPlan, verdict: Verdict, without_pictures: bool) -> list[Part]:
    """The page's parts in order."""
    hours = plan.horizon * plan.step_seconds / 3600
    began, ended = (_day(t) for t in (plan.first_seconds, plan.last_seconds))
    overlap = (
        " Windows overlap, so the bounds are too narrow."
        if plan.every_seconds < hours * 3600
        else ""
    )
    share = verdict.missed / verdict.windows if verdict.windows else 0.0
    domains = f" Judged {words}." if (words := unknown_here(plan.domains)) else ""
    summary = (
        f"{len(plan.series)} series, {len(plan.origins)} origins from {began} to {ended} every "
        f"{plan.every_seconds / 3600:g} h, windows of {hours:g} h; each with what was known then, "
        f"by the forecaster's own rounds. The peak of {verdict.missed} of {verdict.windows} "
        f"windows was above the promised p99: {share:.2%}, and with 95 % confidence between "
        f"{verdict.missed_low:.2%} and {verdict.missed_high:.2%} if windows are independent."
        f"{overlap} {verdict.unanswered} windows had no promise, or too few observations."
        f"{domains}"
    )
    parts = [Part("Backtest of forecasts", summary), _reserves(verdict), _losses(verdict)]
    parts += [_tiers(verdict)] if verdict.tiers else []
    pictures = [] if without_pictures else [Part(w, picture=f) for f, w in PICTURES.items()]
    return [*parts, *pictures, _levels(verdict), _by_series(verdict)]


def _reserves(verdict: Verdict) -> Part:
    return Part(
        "Peaks: promises against multi-day maxima",
        "Reserve is the sum of promises over the sum of peaks (geometric mean over series): lower "
        "is cheaper. The last column shifts every policy until 1 % of the windows are missed, with "
        "hindsight: only there can policies be compared.",
        ("policy", "missed", "reserve as promised", "reserve at 1 % missed"),
        tuple(
            (one.policy, f"{one.missed:.2%}", _figure(one.reserve), _figure(one.equal_risk))
            for one in verdict.reserves
        ),
    )


def _losses(verdict: Verdict) -> Part:
    return Part(
        "Steps: quantile loss",
        "Mean over the levels 0.1 to 0.9, in units of the mean change from one day to the next, "
        "and as a share of seasonal naive's (same time yesterday): below 1 is better than that. A "
        "series that hardly moved before can outweigh all others in the first two columns.",
        ("model", "scaled loss", "ratio of means", "geometric mean of ratios", "ratio, pooled"),
        tuple(
            (one.model, _figure(one.scaled), _figure(one.ratio), _figure(one.geometric_ratio),
             _figure(one.pooled_ratio))
            for one in verdict.losses
        ),
    )  # fmt: skip


def _tiers(verdict: Verdict) -> Part:
    return Part(
        "Models behind the forecast",
        "The same loss of what each model said by itself, before calibration, events and ceilings, "
        "over the windows that it answered. In the last column above 1: worse alone than all "
        "together. A model of no weight that is not better either costs its fit for nothing; one "
        "that is worse alone may still err differently and be worth its weight.",
        ("model", "windows", "mean weight", "scaled loss", "geometric mean of ratios",
         "ratio, pooled", "over the forecast's"),
        tuple(
            (one.model, str(one.windows), f"{one.weight:.0%}", _figure(one.scaled),
             _figure(one.geometric_ratio), _figure(one.pooled_ratio), _figure(one.over_forecast))
            for one in verdict.tiers
        ),
    )  # fmt: skip


def _levels(verdict: Verdict) -> Part:
    return Part(
        "Stated and observed levels",
        "",
        ("level", "peaks at or below", "95 % bounds", "steps at or below"),
        tuple(
            (f"{one.level:g}", f"{one.observed:.3f}", f"{one.low:.3f} to {one.high:.3f}",
             f"{one.steps:.3f}")
            for one in verdict.reliability
        ),
    )  # fmt: skip


def _by_series(verdict: Verdict) -> Part:
    more = len(verdict.series) - SHOWN_SERIES
    return Part(
        "Series, the most missed first",
        f"{more} more are in backtest.json." if more > 0 else "",
        ("series", "by", "windows", "missed", "reserve", "loss ratio"),
        tuple(
            (one.series, one.method, str(one.windows), str(one.missed), _figure(one.reserve),
             _figure(one.ratio))
            for one in verdict.series[:SHOWN_SERIES]
        ),
    )  # fmt: skip


def as_markdown(parts: Sequence[Part]) -> str:
    """The page for a repository or an issue."""
    lines = []
    for i, part in enumerate(parts):
        lines += [f"{'#' if i == 0 else '##'} {part.heading}", ""]
        lines += [part.words, ""] if part.words else []
        if part.header:
            cells = (part.header, ("---",) * len(part.header), *part.rows)
            lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in cells] + [""]
        lines += [f"![{part.heading}]({part.picture})", ""] if part.picture else []
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;"
    "margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}td,th{padding:.15rem .9rem "
    ".15rem 0;border-bottom:1px solid #8886;text-align:right}td:first-child,th:first-child"
    "{text-align:left}img{max-width:100%;background:#fff;border-radius:4px}"
)


def as_html(parts: Sequence[Part]) -> str:
    """The page for a browser; names of series are text and nothing else."""
    body = []
    for i, part in enumerate(parts):
        level = 1 if i == 0 else 2
        body.append(f"<h{level}>{html.escape(part.heading)}</h{level}>")
        body += [f"<p>{html.escape(part.words)}</p>"] if part.words else []
        if part.header:
            head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in part.header)
            rows = "".join(
                "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                for row in part.rows
            )
            body.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        if part.picture:
            body.append(f'<img src="{part.picture}" alt="{html.escape(part.heading)}">')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Backtest of forecasts</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _day(seconds: int) -> str:
    return rfc3339(seconds_to_ns(seconds))[:16].replace("T", " ") + " UTC"
