"""What finished searches come to: counts, how sure they are, what was borne, what broke next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks._frontier_cells import STATIC, judged
from benchmarks._frontier_search import Known, Search, interval, outcome, why_not
from benchmarks._row_slos import KINDS, PEAK_HOURS

Figures = dict[str, float | int | str]
WORST: Final = ("peak_ratio", "max_heat")
SUMMED: Final = ("above_seconds", "brakes", "trips", "violations")
MEANS: Final = ("mean_ratio", "changes_per_gpu_hour", "guaranteed_watts", "floor_watts")


def frontier_figures(searches: Sequence[Search], known: Known) -> Figures:
    """Of every search; keys begin with variant, arm and the set of limits."""
    made: Figures = {}
    found = {(one.variant, one.arm, one.slos): outcome(one, known).servers for one in searches}
    static = {variant: n for (variant, arm, _), n in found.items() if arm == STATIC}
    for one in searches:
        key = f"{one.variant}_{one.arm}_{one.slos}"
        servers = found[one.variant, one.arm, one.slos]
        made[f"{key}_servers"] = servers
        if one.variant in static:
            made[f"{key}_over_static"] = servers / static[one.variant]
        for name, count in (("found", servers), ("next", servers + 1)):
            whys = [why_not(one, known, count, seed) for seed in one.seeds]
            kept = sum(why == [] for why in whys)
            low, high = interval(kept, len(whys))
            made[f"{key}_{name}_kept_share"] = kept / len(whys)
            made[f"{key}_{name}_kept_low_95"] = low
            made[f"{key}_{name}_kept_high_95"] = high
            if name == "next":
                made[f"{key}_next_broken"] = _listed(whys)
        made |= {f"{key}_{name}": value for name, value in borne(one, known, servers).items()}
    return made


def _listed(whys: Sequence[list[str] | None]) -> str:
    """What was not kept, the most frequent first."""
    counts = Counter(name for why in whys for name in why or ())
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def borne(search: Search, known: Known, servers: int) -> dict[str, float]:
    """Over all seeds at a count: events summed, loads at their worst, losses at their worst."""
    cells = [search.cells(servers, seed) for seed in search.seeds]
    rows = [(known[one[-1]], known[one[0]]) for one in cells]
    run = [(mine, plain) for mine, plain in rows if "refused" not in mine]
    if not run:
        return {}
    mine = [one for one, _ in run]
    made = {name: max(one[name] for one in mine) for name in WORST}
    made |= {name: float(sum(one[name] for one in mine)) for name in SUMMED}
    made |= {name: _mean(mine, name) for name in MEANS}
    lost = [judged(dict(one), dict(plain)) for one, plain in run]
    for kind in KINDS:
        for limit in PEAK_HOURS:
            group, q = limit.split("_")
            name = f"{group}_{kind}_{q}"
            made[f"{name}_worst"] = max(one[name] for one in lost)
    for work in ("work_low", "work_high"):
        made[work] = _mean(lost, work)
    return made


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))
