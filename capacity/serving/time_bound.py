"""How much slower than predicted a server may be: what a plan that must hold counts on.

Whole servers were measured (``reference_runs``), and every language model's runs predicted by
constants of the other models. A request's measured over its predicted time, from the first token
to the last, is a score; of each model's and each GPU type's runs the split-conformal quantile is
taken, and the largest of them is the bound: a plan is made for one model on few types, so a
quantile over all runs would promise nothing to the model that errs most. Caps were not
swept in these runs: what the cap response errs by is not in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

import yaml

from wattpack.errors import InputError, read_from
from wattpack.units import require_number

__all__ = ["CONFIDENCE", "ERRORS_FILE", "TimeBound", "shipped_time_bound", "time_bound_from"]

ERRORS_FILE: Final = "data/serving_errors.yaml"

CONFIDENCE: Final = 0.95
"""One-sided: the upper end of a 90 % interval of time, the lower end of one of rates."""


@dataclass(frozen=True, slots=True)
class TimeBound:
    """What everything of a server is taken to last, over its prediction.

    Attributes:
        factor: At least 1.
        confidence: Share of held-out runs of any one model or GPU type that were no slower.
        worst: The model or GPU type whose runs were slowest.
        runs: How many there are in all.
    """

    factor: float
    confidence: float
    worst: str
    runs: int


@lru_cache(maxsize=1)
def shipped_time_bound() -> TimeBound:
    """Of the shipped constants (``python -m capacity.serving.engine_fit``)."""
    text = files("capacity").joinpath(ERRORS_FILE).read_text("utf-8")
    with read_from(ERRORS_FILE):
        return time_bound_from(yaml.safe_load(text))


def time_bound_from(document: object) -> TimeBound:
    """The bound of a document ``{confidence: C, runs: N, time_ratios: {NAME: RATIO}}``.

    Raises:
        InputError: a field that is missing or cannot be.
    """
    fields = document if isinstance(document, Mapping) else {}
    ratios = fields.get("time_ratios")
    if not isinstance(ratios, Mapping) or not ratios:
        raise InputError("time_ratios", "a mapping of models and GPU types", ratios)
    read = {
        str(name): require_number(f"time_ratios.{name}", value, exclusive_minimum=0, maximum=100)
        for name, value in ratios.items()
    }
    worst = max(read, key=read.__getitem__)
    confidence = fields.get("confidence")
    return TimeBound(
        max(1.0, read[worst]),
        require_number("confidence", confidence, exclusive_minimum=0, maximum=1),
        worst,
        int(require_number("runs", fields.get("runs"), minimum=1)),
    )
