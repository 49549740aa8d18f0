"""How the forecaster's models are made: for what comes, and for going through a history."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forecasting.forecaster import Forecaster
from forecasting.tiers.boosted import Training
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.plug_in import load_plug_ins
from forecasting.tiers.records import Records
from forecasting.tiers.roster import close_tiers, make_roster

REHEARSED_REFIT_SECONDS: Final = 86400
"""Data between two fits of a rehearsal: it goes through days in seconds, and fits as it goes."""

log = logging.getLogger(__name__)

MakeTiers = Callable[[int], Sequence[Forecaster]]
"""Models without history, for windows of so many steps."""


@dataclass(frozen=True, slots=True)
class TierSet:
    """The same models for two uses.

    Attributes:
        live: For forecasts of what comes.
        rehearsing: For going through a history.
    """

    live: MakeTiers
    rehearsing: MakeTiers


def _ridge(horizon: int) -> Sequence[Forecaster]:
    return (Ridge(Records(), horizon),)


RIDGE_ALONE: Final = TierSet(_ridge, _ridge)
"""The lightest: nothing to be trained, no library beyond numpy."""


def ridge_and(plug_ins: Sequence[str]) -> TierSet:
    """The ridge and plug-ins; one that is absent is logged with the reason."""
    _tell(load_plug_ins(plug_ins))

    def made(horizon: int) -> Sequence[Forecaster]:
        return (*_ridge(horizon), *load_plug_ins(plug_ins)[0])

    return TierSet(made, made)


def all_tiers(
    training: Callable[[], Training] | None = None, plug_ins: Sequence[str] = ()
) -> TierSet:
    """Everything that this installation has; what it lacks is logged with the reason.

    Args:
        training: Makes the place where live forests are fitted; None fits them in ``update``.
        plug_ins: Names of entry points.
    """
    tried = make_roster(1, plug_ins=plug_ins)
    _tell((tried.tiers, tried.absent))

    def live(horizon: int) -> Sequence[Forecaster]:
        return make_roster(horizon, training, plug_ins=plug_ins).tiers

    def rehearsing(horizon: int) -> Sequence[Forecaster]:
        return make_roster(horizon, None, REHEARSED_REFIT_SECONDS, plug_ins).tiers

    return TierSet(live, rehearsing)


def _tell(tried: tuple[Sequence[Forecaster], Mapping[str, str]]) -> None:
    """Models that were made to see what is absent are closed, and the absent told."""
    tiers, absent = tried
    close_tiers(tiers)
    for name, why in absent.items():
        log.warning("forecasts are made without %s: %s", name, why)
