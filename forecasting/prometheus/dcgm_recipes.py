"""Ready PromQL for histories out of dcgm-exporter, so that no agent of ours has to run.

A series may name a recipe wherever PromQL takes a selector; matchers say which boards count::

    wattpack:dcgm_draw_watts{Hostname=~"row1-.*"}       draw of a domain's boards
    wattpack:dcgm_gpus_busy{exported_namespace="chat"}  utilisation x count of a workload's boards
    1.4 * wattpack:dcgm_draw_watts + 9000               with a share for hosts and a fixed load

| recipe | from | what |
|---|---|---|
| ``draw_watts`` | ``DCGM_FI_DEV_POWER_USAGE`` | sum of the boards' draw, watts |
| ``energy_draw_watts`` | ``DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION`` | the same, from a counter |
| ``gpus_busy`` | ``DCGM_FI_DEV_GPU_UTIL`` | boards, each weighed by its utilisation |
| ``gpus_active`` | ``DCGM_FI_PROF_GR_ENGINE_ACTIVE`` | the same from the profiling counters |
| ``gpus_held`` | ``DCGM_FI_DEV_GPU_UTIL`` | boards that the matchers select |

A board that two servers scrape, or that tells of several MIG instances, counts once by its UUID
(of ``gpus_active`` MIG instances are left out). A board that fell silent is no fall of demand:
while more than 2 % of the boards of an hour ago are missing, there is a gap. Draw is a gap when no
board reports; a workload's GPUs are then a gap too, and 0 while others' boards report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from wattpack.errors import InputError

__all__ = ["RECIPES", "expanded"]

PREFIX: Final = "wattpack:dcgm_"

SILENT_SHARE: Final = 0.02
"""Of the boards of an hour ago; fewer change a sum less than a forecast errs. Assumed."""

SILENT_FOR: Final = "1h"
"""How long missing boards are an outage; later they count as taken away. Assumed."""

LARGEST_BOARD_WATTS: Final = "1e5"
"""DCGM writes about 9.2e18 for what a board cannot tell."""

RATE_OVER: Final = "5m"
"""Two scrapes and more at up to two minutes between them; a bin has ten. Assumed."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a name stands for.

    Attributes:
        metric: Of dcgm-exporter.
        board: One value a board; ``{x}`` is the selector.
        total: Over boards; ``{boards}`` is the above.
        is_workload: Its boards come and go: none of them is 0 while others report.
        matchers: Always asked for as well.
    """

    metric: str
    board: str
    total: str
    is_workload: bool
    matchers: str = ""


RECIPES: Final = {
    "draw_watts": Recipe(
        "DCGM_FI_DEV_POWER_USAGE",
        f"max by (UUID) ({{x}} < {LARGEST_BOARD_WATTS})",
        "sum({boards})",
        is_workload=False,
    ),
    "energy_draw_watts": Recipe(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        # Millijoules; a board always draws something, so that a counter that stands still is lost.
        f"max by (UUID) (rate({{x}}[{RATE_OVER}]) / 1000 > 0 < {LARGEST_BOARD_WATTS})",
        "sum({boards})",
        is_workload=False,
    ),
    "gpus_busy": Recipe(
        "DCGM_FI_DEV_GPU_UTIL",
        "max by (UUID) ({x} <= 100)",
        "sum({boards}) / 100",
        is_workload=True,
    ),
    "gpus_active": Recipe(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "max by (UUID) ({x} <= 1)",
        "sum({boards})",
        is_workload=True,
        matchers='GPU_I_ID=""',
    ),
    "gpus_held": Recipe(
        "DCGM_FI_DEV_GPU_UTIL",
        "max by (UUID) ({x})",
        "count({boards})",
        is_workload=True,
    ),
}

_TEXT: Final = r'"(?:[^"\\\n]|\\.)*"'
_MATCHER: Final = rf"\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*{_TEXT}\s*"
_USE: Final = re.compile(
    rf"{_TEXT}|(?<![\w:]){PREFIX}(?P<name>\w*)(?P<braces>\{{(?:[^\"}}]|{_TEXT})*\}})?(?P<after>[\w:\[]?)",
    re.ASCII,
)
_MATCHERS: Final = re.compile(rf"\{{(?P<list>(?:{_MATCHER}(?:,{_MATCHER})*,?)?)\s*\}}", re.ASCII)


def expanded(series: str) -> str:
    """The expression with every recipe written out; others come back as they are.

    Raises:
        InputError: a recipe that there is not, matchers that are none, a range of a recipe.
    """
    return _USE.sub(_written_out, series) if PREFIX in series else series


def _written_out(use: re.Match[str]) -> str:
    if use["name"] is None:
        return use[0]  # a quoted text
    recipe = RECIPES.get(use["name"])
    if recipe is None or use["after"]:
        names = ", ".join(PREFIX + name for name in RECIPES)
        raise InputError("series", f"one of {names}, as an instant selector", use[0])
    found = _MATCHERS.fullmatch(use["braces"] or "{}")
    if found is None:
        raise InputError("series", 'matchers like {Hostname=~"row1-.*"}', use["braces"])
    return _promql(recipe, found["list"].strip().rstrip(","))


def _promql(recipe: Recipe, matchers: str) -> str:
    """The whole query of a recipe."""
    mine = _selected(recipe, matchers)
    every = _selected(recipe, "")
    gone = f"{_boards(recipe, matchers, SILENT_FOR)} unless on (UUID) {every}"
    total = recipe.total.format(boards=mine)
    if recipe.is_workload:
        total = f"({total} or 0 * count({every}))"
    was = f"count({_boards(recipe, matchers, SILENT_FOR)})"
    return f"({total} unless on () (count({gone}) > {SILENT_SHARE:g} * {was}))"


def _selected(recipe: Recipe, matchers: str) -> str:
    return _boards(recipe, matchers, "")


def _boards(recipe: Recipe, matchers: str, ago: str) -> str:
    """One value for each board that matches, now or some time ago."""
    every = ",".join(part for part in (recipe.matchers, matchers) if part)
    selector = f"{recipe.metric}{{{every}}}"
    offset = f" offset {ago}" if ago else ""
    if "rate(" in recipe.board:
        return recipe.board.replace(f"{{x}}[{RATE_OVER}]", f"{selector}[{RATE_OVER}]{offset}")
    return recipe.board.replace("{x}", f"{selector}{offset}")
