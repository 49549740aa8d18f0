"""Which tiers there are in this installation, and why others are absent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forecasting.forecaster import Forecaster
from forecasting.lightgbm_library import lightgbm_problem
from forecasting.tiers.boosted import REFIT_SECONDS, Boosted, Training
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.naive import LastValue
from forecasting.tiers.plug_in import PlugIn, load_plug_ins
from forecasting.tiers.records import Records
from forecasting.tiers.smoothing import Smoothing
from forecasting.tiers.tier import Tier


@dataclass(frozen=True, slots=True)
class Roster:
    """Tiers to combine; the last day's maximum is not one of them but the floor under all.

    Attributes:
        tiers: Without history. Those of this package share one copy of the bins.
        absent: Why others are not there, by name.
    """

    tiers: tuple[Forecaster, ...]
    absent: Mapping[str, str]


def make_roster(
    horizon: int,
    training: Callable[[], Training] | None = None,
    refit_seconds: int = REFIT_SECONDS,
    plug_ins: Sequence[str] = (),
) -> Roster:
    """New tiers for windows of ``horizon`` steps.

    Args:
        horizon: Steps that are asked for.
        training: Makes places where boosted trees are fitted; None fits them at once, in the
            caller's time.
        refit_seconds: Time of data between two fits of them.
        plug_ins: Names of entry points.
    """
    records = Records()
    tiers: list[Forecaster] = [Ridge(records, horizon), Smoothing(records), LastValue(records)]
    absent = {}
    if problem := lightgbm_problem():
        absent["boosted"] = problem
    else:
        near, far = (None, None) if training is None else (training(), training())
        tiers.insert(0, Boosted(records, horizon, near, refit_seconds, far))
    foreign, missing = load_plug_ins(plug_ins)
    return Roster((*tiers, *foreign), {**absent, **missing})


def close_tiers(tiers: Iterable[Forecaster]) -> None:
    """End what they work at beside their calls."""
    for tier in tiers:
        if isinstance(tier, Tier | PlugIn):
            tier.close()
