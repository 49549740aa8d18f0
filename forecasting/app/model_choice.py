"""Which models a command's forecasts are made by."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final, Literal

from forecasting.round.round_state import ForecasterState
from forecasting.tiers.boosted import Training
from forecasting.tiers.plug_in import load_plug_ins
from forecasting.tiers.roster import close_tiers
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet, all_tiers, ridge_and
from wattpack.errors import InputError

Models = Literal["all", "ridge"]
MODELS: Final[tuple[Models, ...]] = ("all", "ridge")


def add_models_flag(parser: argparse.ArgumentParser, default: Models) -> None:
    """``--models`` and ``--plug-in``.

    Forests take minutes to be fitted on ten days, the ridge a second.
    """
    parser.add_argument(
        "--models", choices=MODELS, default=default,
        help="all that the forecaster has, minutes of CPU, or the ridge alone (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--plug-in", action="append", default=[], metavar="NAME", dest="plug_ins",
        help="a forecaster of an installed package that answers, too (may be given again)",
    )  # fmt: skip


def tier_set(
    models: Models,
    plug_ins: Sequence[str] = (),
    training: Callable[[], Training] | None = None,
) -> TierSet:
    """The models of a forecaster.

    Args:
        models: Its own.
        plug_ins: Entry points that answer, too.
        training: As ``all_tiers`` takes it.
    """
    if models == "ridge":
        return ridge_and(plug_ins) if plug_ins else RIDGE_ALONE
    return all_tiers(training, plug_ins)


def fresh_state(models: Models, plug_ins: Sequence[str] = ()) -> ForecasterState:
    """A forecaster that has learned nothing; its forests are fitted within the round.

    Args:
        models: Its own.
        plug_ins: Entry points that answer, too; who names them wants to see them answer.

    Raises:
        InputError: a plug-in that is not there.
    """
    require_plug_ins(plug_ins)
    return ForecasterState(tier_set(models, plug_ins))


def require_plug_ins(names: Sequence[str]) -> None:
    """Pass only plug-ins that can be made.

    Raises:
        InputError: naming the first that cannot, and why.
    """
    loaded, absent = load_plug_ins(names)
    close_tiers(loaded)
    for name, why in absent.items():
        raise InputError("plug-in", f"a plug-in that can be loaded ({why})", name)
